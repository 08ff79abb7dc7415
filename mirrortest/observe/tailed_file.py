"""A text file that another process appends to, and may rotate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PIECE = 1 << 20


class TailedFile:
    """Reads complete lines as they are appended; from the beginning, unless `skip` is called first.

    A file that was replaced is read to its end, then the new one from its beginning. A file that
    was truncated is read from its beginning. A missing file has no lines. All methods can raise
    OSError.

    Attributes:
        written_ns: when the file was last written to, as of the last reading.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written_ns = 0
        self._descriptor = -1
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines that were completed since the last call, while it reads the file."""
        replaced = self._replaced()  # before the reading, which then has all up to the rotation
        yield from self._read()
        if replaced:
            if self._rest:  # its last line, which is incomplete
                yield self._rest.decode(errors="replace")
            self.close()
            yield from self._read()

    def skip(self) -> None:
        """Pass over what the file contains now."""
        if self._open():
            os.lseek(self._descriptor, 0, os.SEEK_END)
            self._rest = b""

    def close(self) -> None:
        """Close the file; an incomplete last line is dropped."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._rest = -1, b""

    def _open(self) -> bool:
        """Open the file, unless it is open; return whether it is there."""
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        return True

    def _read(self) -> Iterator[str]:
        if not self._open():
            return
        if os.fstat(self._descriptor).st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._rest = b""
        while piece := os.read(self._descriptor, _PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
        self.written_ns = os.fstat(self._descriptor).st_mtime_ns

    def _replaced(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False  # it is being rotated: the new file will appear
        return not os.path.samestat(now, os.fstat(self._descriptor))
