"""The processes of interest: found by pid or by their command line, and their figures."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.observe import process_stat
from mirrortest.observe.readable_files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.observe.counters import Counters
    from mirrortest.observe.readable_files import ReadableFiles

_FIRST_READS = 3
"""In how many readings a new process's command line is read: exec sets it soon after the start."""
_LATER_READS = 16
"""After these, every how many: a container's start script can wait for a minute before its exec."""


class _Reading(NamedTuple):
    name: str
    seconds: float
    counters: Counters


class Processes:
    """Reads the chosen processes; each call returns the figures since the previous one.

    `matches` are texts in command lines, after which the matching processes are named; a process of
    `pids` is named after its command. This process and its ancestors match no text.

    Attributes:
        unmatched: the texts that no command line has contained so far.
    """

    def __init__(
        self,
        files: ReadableFiles,
        *,
        pids: Sequence[int] = (),
        matches: Sequence[str] = (),
        tick_seconds: float,
        page_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._pids = tuple(pids)
        self._matches = tuple(matches)
        self.unmatched = list(matches)
        self._tick_seconds = tick_seconds
        self._page_bytes = page_bytes
        self._monotonic = monotonic
        self._readings: dict[int, int] = {}
        self._matched: dict[int, str] = {}
        self._before: dict[int, _Reading] = {}
        self._own = self._ancestors()

    @property
    def chosen(self) -> list[int]:
        """The ids of the processes in the last reading."""
        return sorted(self._before)

    def rows(self) -> list[dict[str, object]]:
        """A row, without times, of each process that the previous reading had, too."""
        chosen = {**self._found(), **dict.fromkeys(self._pids, "")}
        now = {}
        rows: list[dict[str, object]] = []
        for pid, name in sorted(chosen.items()):
            reading = self._read(pid, name)
            if reading is None:
                continue
            now[pid] = reading
            before = self._before.get(pid)
            if before is None or not _same(before.counters, reading.counters):
                continue
            found = process_stat.figures(
                before.counters,
                reading.counters,
                reading.seconds - before.seconds,
                tick_seconds=self._tick_seconds,
                page_bytes=self._page_bytes,
            )
            rows.append({"process": reading.name, "pid": pid, **found})
        self._before = now
        return rows

    def _found(self) -> dict[int, str]:
        """The names of the processes that match, by pid."""
        if not self._matches:
            return {}
        pids = self._files.pids()
        for pid in [pid for pid in self._readings if pid not in pids]:
            del self._readings[pid]
            self._matched.pop(pid, None)
        for pid in pids - self._own:
            readings = self._readings[pid] = self._readings.get(pid, 0) + 1
            if pid in self._matched or (readings > _FIRST_READS and readings % _LATER_READS):
                continue
            line = self._files.of_process(pid, "cmdline", f"process {pid}", _command_line) or ""
            self.unmatched = [text for text in self.unmatched if text not in line]
            name = next((text for text in self._matches if text in line), None)
            if name is not None:
                self._matched[pid] = name
        return self._matched

    def _read(self, pid: int, name: str) -> _Reading | None:
        read = self._files.of_process
        seconds = self._monotonic()
        text = read(pid, "stat", f"process {pid}", read_text)
        if not text:
            return None
        command, counters = process_stat.parse(text)
        called = name or command
        counters |= process_stat.parse_io(read(pid, "io", called, read_text) or "")
        if (descriptors := read(pid, "fd", called, _open_files)) is not None:
            counters["descriptors"] = descriptors
        return _Reading(called, seconds, counters)

    def _ancestors(self) -> frozenset[int]:
        found = {os.getpid()}
        pid = os.getpid()
        while text := self._files.of_process(pid, "stat", f"process {pid}", read_text):
            pid = process_stat.parse(text)[1]["parent"]
            if pid == 0 or pid in found:
                break
            found.add(pid)
        return frozenset(found)


def _same(before: Counters, now: Counters) -> bool:
    """Whether the pid is still that of the same process."""
    return before["started_ticks"] == now["started_ticks"]


def _command_line(path: str) -> str:
    return read_text(path).replace("\0", " ")


def _open_files(path: str) -> int:
    # Since Linux 6.2 the directory's size is the number of its entries.
    return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208  # see read_text
