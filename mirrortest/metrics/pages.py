"""Pages of metrics, rendered before they are asked for."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import prometheus_client

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from mirrortest.metrics.published import Latest, Published

_MOST_FORMS = 4


class _Form(NamedTuple):
    """All of a request that its answer depends on, as WSGI names it."""

    REQUEST_METHOD: str
    PATH_INFO: str
    QUERY_STRING: str
    HTTP_ACCEPT: str
    HTTP_ACCEPT_ENCODING: str


class _Page(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


class Pages:
    """A WSGI application that gives what was told last, for as long as that is fresh.

    Whoever scrapes asks each time for the same form (format, compression): those asked for before
    are rendered when something new is told, and a scrape is the sending of bytes.
    """

    def __init__(self, latest: Latest) -> None:
        self._latest = latest
        registry = prometheus_client.CollectorRegistry()
        registry.register(latest)
        self._app = prometheus_client.make_wsgi_app(registry)
        self._pages: dict[_Form, _Page] = {}

    def take(self, published: Published) -> None:
        """From now on this is the latest."""
        self._latest.take(published)
        for form in list(self._pages):
            self._pages[form] = self._rendered(form)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a scrape; one that comes while nothing fresh is there is told so."""
        if not self._latest.fresh:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            start_response(f"{status.value} {status.phrase}", [("Content-Length", "0")])
            return []
        form = _Form._make(environ.get(name, "") for name in _Form._fields)
        page = self._pages.get(form)
        if page is None:
            # Who asks for ever other forms must not make us render them all for ever.
            for old in list(self._pages)[: 1 - _MOST_FORMS]:
                self._pages.pop(old, None)
            page = self._pages[form] = self._rendered(form)
        start_response(page.status, page.headers)
        return [page.body]

    def _rendered(self, form: _Form) -> _Page:
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._app(form._asdict(), lambda *head: heads.append(head)))
        return _Page(*heads[0], body)
