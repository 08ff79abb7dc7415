"""The report as a page, for tests."""

from __future__ import annotations

import html.parser
from typing import TYPE_CHECKING, Any

from mirrortest.report.result import Result, read_result
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from tests.made_result import Made


def result_of(made: Made, logdir: Path, **more: Any) -> Result:
    return read_result(Location.parse(made.write(logdir, **more)))


class Page(html.parser.HTMLParser):
    """The tags of a document, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._raw: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw = tag if tag in {"script", "style"} else None

    def handle_endtag(self, tag: str) -> None:
        self._raw = None

    def handle_data(self, data: str) -> None:
        if self._raw is None:
            self.text.append(data)
        elif self._raw == "script":
            self.scripts.append((self.tags[-1][1], data))

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())
