"""Scrapes the endpoints of brokers and mirrors at an interval during the observation."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from http.client import HTTPException, IncompleteRead, responses
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from mirrortest.observe import broker_figures
from mirrortest.observe.scraped_metrics import Parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.model.observed import Observed
    from mirrortest.observe.options import Endpoint

_log = structlog.get_logger()

T = TypeVar("T")

_TIMEOUT = 10.0
_SHORTEST = 0.5
"""Minimum length of the last interval, in seconds."""
_MOST_BYTES = 64 << 20


class _Scrape(NamedTuple):
    time_ns: int
    monotonic: float
    reading: broker_figures.Reading


class Scraper:
    """Scrapes one endpoint again and again; `take` returns the resulting rows.

    Attributes:
        fresh: whether two scrapes were compared since `take`; their rows may be none.
        failing: whether the last scrape failed.
    """

    def __init__(self, endpoint: Endpoint, seconds: float, *, by_partition: bool) -> None:
        self.name = endpoint.name
        self.fresh = False
        self._endpoint = endpoint
        self._seconds = seconds
        self._by_partition = by_partition
        self._parser = Parser(broker_figures.keys(by_partition=by_partition))
        self._before: _Scrape | None = None
        self._rows: list[tuple[Observed, dict[str, object]]] = []
        self._compared = False
        self.failing = False
        self._failed = ""

    async def run(self) -> None:
        """Scrape until it is cancelled; a failure is logged once, and the scrape is tried again."""
        while True:
            began = time.monotonic()
            await self.scrape()
            await asyncio.sleep(max(self._seconds - (time.monotonic() - began), 0))

    async def scrape(self, within: float = _TIMEOUT) -> None:
        """Scrape once; the endpoint gets so many seconds to answer."""
        try:
            now = await _in_thread(lambda: self._read(within))
        except (OSError, ValueError, HTTPException) as error:
            self._before = None
            if not self.failing:
                self.failing, self._failed = True, _why(error)
                _log.warning("cannot be scraped", endpoint=self.name, why=self._failed)
            return
        if self.failing:
            _log.info("can be scraped again", endpoint=self.name)
            self.failing = False
        before, self._before = self._before, now
        if before is not None:
            self._compare(before, now)

    async def finish(self, within: float) -> None:
        """Scrape a last time, for so many seconds, for the rows since the previous scrape.

        An interval that is too short for useful rates is left out, unless it is the only one.
        """
        before = self._before
        if before is None or time.monotonic() - before.monotonic >= _SHORTEST or not self._compared:
            await self.scrape(within)

    def take(self) -> list[tuple[Observed, dict[str, object]]]:
        """The rows since the last call, each with its table and its own times."""
        taken, self._rows = self._rows, []
        self.fresh = False
        return taken

    @property
    def left_out(self) -> dict[str, str]:
        """The endpoint -> why it could not be scraped the last time that this was so, if it was."""
        part = "for a time: " if self._compared else ""
        return {self.name: part + self._failed} if self._failed else {}

    def _read(self, within: float) -> _Scrape:
        request = urllib.request.Request(self._endpoint.url, headers={"Accept": "text/plain"})  # noqa: S310  # checked
        # Before the request, as in Prometheus: an answer can take long, and so can its parsing.
        time_ns, monotonic = time.time_ns(), time.monotonic()
        with urllib.request.urlopen(request, timeout=within) as answer:  # noqa: S310  # checked
            body = answer.read(_MOST_BYTES)
            if answer.length or answer.read(1):
                raise IncompleteRead(body)  # its last value may be cut off, too
        series = self._parser.parse(body.decode(errors="replace"))
        reading = broker_figures.read(series, by_partition=self._by_partition)
        return _Scrape(time_ns, monotonic, reading)

    def _compare(self, before: _Scrape, now: _Scrape) -> None:
        self._compared = self.fresh = True
        times = {"started_ns": before.time_ns, "ended_ns": now.time_ns}
        found = broker_figures.rows(
            self._endpoint.name,
            before.reading,
            now.reading,
            now.monotonic - before.monotonic,
        )
        self._rows += [(table, times | row) for table, rows in found.items() for row in rows]


def _in_thread(read: Callable[[], T]) -> asyncio.Future[T]:
    """The result of a function in a thread that the program does not wait for when it ends."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()  # so that no cancellation hinders the thread

    def run(result: Future[T]) -> None:
        try:
            result.set_result(read())
        except Exception as error:  # noqa: BLE001  # it is raised where the result is awaited
            result.set_exception(error)
        # The error's traceback has this frame: a cycle would keep the connection open.
        del result

    Thread(target=run, args=(result,), name="scrape", daemon=True).start()
    return asyncio.wrap_future(result)


def _why(error: OSError | ValueError | HTTPException) -> str:
    """The reason of a failure, for users."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {responses.get(error.code, '')}".rstrip()
    if isinstance(error, HTTPException):
        return f"the response is not HTTP, is incomplete, or exceeds {_MOST_BYTES >> 20} MiB"
    if isinstance(error, ValueError):
        return "the response has no Kafka metrics in Prometheus's text format"
    reason = getattr(error, "reason", error)
    return f"cannot connect: {getattr(reason, 'strerror', None) or reason}"
