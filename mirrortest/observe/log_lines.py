"""Counts the exceptions, errors and warnings of Kafka's logs, with an example of each.

An entry begins with a line that has a time and a level, in the layouts of Kafka's own
configurations (of brokers; of Connect, and so of MirrorMaker 2), of Strimzi's and of the lab's. The
lines up to the next one (a stack trace, for example) belong to it::

    [2026-11-25 23:17:12,063] ERROR [Broker id=1] Failed to append (kafka.server.ReplicaManager)
    [2026-11-25 23:17:12,063] ERROR [MirrorSourceConnector|task-0] Failed (org.x.WorkerTask:234)
    2026-11-25 23:17:12,063 ERROR Failed to append (kafka.server.ReplicaManager) [thread-1]
    2026-11-25 23:17:12.063 ERROR ReplicaManager: [Broker id=1] Failed to append
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.results.observed_totals import Occurrences

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

_ENTRY = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)[,.](\d{3})\]?\s+"
    r"(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+(.*)"
)
_LOGGER_FIRST = re.compile(r"([\w.$]+): ")
_LOGGER_LAST = re.compile(r"\(([\w.$]+)(?::[\d?]+)?\)(?: \[.*\])?\s*$")
_CLASS = r"(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b"
_THROWN = re.compile(rf"({_CLASS})(?:: .*)?$")
"""The first line of a stack trace."""
_NAMED = re.compile(_CLASS)
_EXAMPLE = 300
"""Maximum length of an example."""


class Kind(StrEnum):
    """The kind of an entry."""

    EXCEPTION = "exception"
    ERROR = "error"
    WARNING = "warning"


_KINDS = {"WARN": Kind.WARNING, "ERROR": Kind.ERROR, "FATAL": Kind.ERROR}


class _Entry(NamedTuple):
    time_ns: int
    level: str
    lines: list[str]


class LogLines:
    """Reads the lines of one log in their order.

    log4j writes times without a zone: they are in `zone`, by default this machine's.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._open: _Entry | None = None
        self._counts: dict[tuple[Kind, str], Occurrences] = {}

    def add(self, lines: Iterable[str]) -> None:
        """Add lines; the last entry stays open, since further lines of it can follow."""
        for line in lines:
            if (begun := _ENTRY.match(line)) is not None:
                self.close()
                if begun[3] in _KINDS:
                    at = datetime.fromisoformat(begun[1]).replace(tzinfo=self._zone)
                    time_ns = int(at.timestamp()) * 10**9 + int(begun[2]) * 10**6
                    self._open = _Entry(time_ns, begun[3], [begun[4]])
            elif self._open is not None:
                self._open.lines.append(line)

    def close(self) -> None:
        """Count the last entry, since no more lines of it follow."""
        if self._open is None:
            return
        entry, self._open = self._open, None
        kind, name = _type(entry)
        found = Occurrences(1, entry.time_ns, entry.time_ns, entry.lines[0][:_EXAMPLE])
        before = self._counts.get((kind, name))
        self._counts[kind, name] = found if before is None else before.with_later(found)

    def take(self) -> dict[tuple[Kind, str], Occurrences]:
        """The counts since the last call, by kind and type."""
        taken, self._counts = self._counts, {}
        return taken


def _type(entry: _Entry) -> tuple[Kind, str]:
    """The kind and type: the exception that was thrown or that the text names, else the logger."""
    for line in entry.lines[1:]:
        if thrown := _THROWN.match(line):
            return Kind.EXCEPTION, thrown[1]
    first = entry.lines[0]
    if named := _NAMED.search(first):
        return Kind.EXCEPTION, named[0]
    logger = _LOGGER_LAST.search(first) or _LOGGER_FIRST.match(first)
    return _KINDS[entry.level], logger[1] if logger else "unknown"
