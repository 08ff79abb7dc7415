"""Reads files of /proc and /sys; a file that cannot be read is reported once.

Many are read in each interval: with system calls that costs a third of what it costs with pathlib.
"""
# ruff: noqa: PTH208

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

_log = structlog.get_logger()

T = TypeVar("T")

_PIECE = 1 << 16

_WHY = {
    FileNotFoundError: "this system has no such file",
    PermissionError: "no permission: observe as its user or as root",
}


def read_text(path: str) -> str:
    """The text of a small file. Raises OSError."""
    pieces = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while piece := os.read(descriptor, _PIECE):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="replace")


class ReadableFiles:
    """Reads small files below the directories `proc` and `sys`.

    Attributes:
        left_out: what cannot be read -> why.
    """

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self.proc = proc
        self.sys = sys
        self.left_out: dict[str, str] = {}

    def read(self, name: str) -> str:
        """The text of a file of /proc; empty if it cannot be read, which is not tried again."""
        if name in self.left_out:
            return ""
        try:
            return read_text(f"{self.proc}/{name}")
        except OSError as error:
            self.leave_out(name, error)
            return ""

    def of_process(self, pid: int, name: str, of: str, read: Callable[[str], T]) -> T | None:
        """The result of `read` for a file of a process; None if that ended or access is denied.

        Denied access is noted once for each `name` and `of`, which names the process.
        """
        try:
            return read(f"{self.proc}/{pid}/{name}")
        except PermissionError as error:
            self.leave_out(f"{name} of {of}", error)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
        return None

    def setting(self, folder: Path, name: str) -> str:
        """The stripped text of a file; empty if it cannot be read: not every system has it."""
        try:
            return read_text(f"{folder}/{name}").strip()
        except OSError:
            return ""

    def pids(self) -> set[int]:
        """The ids of all processes."""
        return {int(name) for name in os.listdir(self.proc) if name.isdecimal()}

    def disks(self) -> frozenset[str]:
        """The names, as in /proc/diskstats, of disks but not partitions; empty without /sys."""
        try:
            names = os.listdir(self.sys / "block")
        except OSError as error:
            self.leave_out("sys/block", error)
            return frozenset()
        return frozenset(name.replace("!", "/") for name in names)

    def leave_out(self, what: str, error: OSError) -> None:
        """Note that something cannot be observed, and log it the first time."""
        if what in self.left_out:
            return
        reason = next(
            (text for kind, text in _WHY.items() if isinstance(error, kind)),
            error.strerror or "it cannot be read",
        )
        self.left_out[what] = reason
        _log.warning("left out of the observation", what=what, why=reason)
