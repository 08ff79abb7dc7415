"""The logs that are observed: of garbage collections, and of Kafka."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from mirrortest.config.units import SECOND_NS
from mirrortest.config.visible import visible
from mirrortest.observe.gc_log import GcLog
from mirrortest.observe.log_lines import LogLines
from mirrortest.observe.tailed_file import TailedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mirrortest.observe.gc_log import GcEvent
    from mirrortest.observe.readable_files import ReadableFiles


class _OpenGcLog:
    def __init__(self, path: Path) -> None:
        self.file = TailedFile(path)
        self._log = GcLog()

    def rows(self, lines: Iterable[str]) -> Iterator[dict[str, object]]:
        # All lines are read first: events without a time get it from the last one.
        for event in [event for line in lines for event in self._log.events(line)]:
            yield self._row(event)

    @property
    def collector(self) -> str:
        """The collector's name, empty until the log has it."""
        return self._log.collector

    def read_collector(self, lines: Iterable[str]) -> None:
        """Find the collector's name: a log has it before the first event, or, rotated, nowhere."""
        for line in lines:
            if any(self._log.events(line)) or self.collector:
                break

    def _row(self, event: GcEvent) -> dict[str, object]:
        ended_ns = event.at.time_ns
        if ended_ns is None:
            ended_ns = self.file.written_ns - round(self._age(event) * SECOND_NS)
        return {
            "started_ns": ended_ns - round((event.seconds or 0.0) * SECOND_NS),
            "ended_ns": ended_ns,
            "log": str(self.file.path),
            "collector": event.collector,
            "kind": event.kind.value,
            "name": visible(event.name),
            "cause": visible(event.cause),
            "number": event.number,
            "seconds": event.seconds,
            "before_bytes": event.before,
            "after_bytes": event.after,
            "capacity_bytes": event.capacity,
            "freed_bytes": event.freed,
        }

    def _age(self, event: GcEvent) -> float:
        """Seconds from an event to the last line, by their uptimes; 0 for one of an earlier JVM."""
        return max((self._log.at.uptime or 0.0) - (event.at.uptime or 0.0), 0.0)


class GcLogs:
    """Reads the events of Java's garbage collection logs, as they are written."""

    def __init__(self, files: ReadableFiles, paths: Sequence[Path]) -> None:
        self._files = files
        self._logs = [_OpenGcLog(path) for path in paths]

    def skip(self) -> None:
        """Pass over what the logs contain now, but for the names of their collectors."""
        for log in self._logs:
            log.read_collector(_lines(self._files, log.file))
            _skip(self._files, log.file)

    def rows(self) -> list[dict[str, object]]:
        """The events since the last call, with their times."""
        return [row for log in self._logs for row in log.rows(_lines(self._files, log.file))]

    @property
    def collectors(self) -> list[tuple[str, str]]:
        """Each log's file and its collector, empty until the log has it."""
        return [(str(log.file.path), log.collector) for log in self._logs]


class KafkaLogs:
    """Counts the exceptions, errors and warnings of logs, as they are written."""

    def __init__(self, files: ReadableFiles, paths: Sequence[Path]) -> None:
        self._files = files
        self._logs = [(TailedFile(path), LogLines()) for path in paths]

    def skip(self) -> None:
        """Pass over what the logs contain now: reading it could take minutes."""
        for file, _ in self._logs:
            _skip(self._files, file)

    def rows(self, *, last: bool = False) -> list[dict[str, object]]:
        """The counts since the last call; with `last` including the last entry of each log."""
        found: list[dict[str, object]] = []
        for file, log in self._logs:
            log.add(_lines(self._files, file))
            if last:
                log.close()
            found += [
                {
                    "log": str(file.path),
                    "kind": kind.value,
                    "type": name,
                    **asdict(occurrences),
                    "example": visible(occurrences.example),
                }
                for (kind, name), occurrences in log.take().items()
            ]
        return found


def _skip(files: ReadableFiles, file: TailedFile) -> None:
    try:
        file.skip()
    except OSError as error:
        files.leave_out(str(file.path), error)


def _lines(files: ReadableFiles, file: TailedFile) -> Iterator[str]:
    try:
        yield from file.lines()
    except OSError as error:
        files.leave_out(str(file.path), error)
