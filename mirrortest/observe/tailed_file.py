"""A text file that another process appends to, and may rotate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PIECE = 1 << 20


class TailedFile:
    """Reads complete lines as they are appended; the first call reads from the beginning.

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

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        replaced = self._replaced()  # before the reading, which then has all up to the rotation
        found = self._read()
        if replaced:
            found += self._last_line()
            self.close()
            found += self._read()
        return found

    def close(self) -> None:
        """Close the file; an incomplete last line is dropped."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._rest = -1, b""

    def _read(self) -> list[str]:
        if self._descriptor < 0:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        if os.fstat(self._descriptor).st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._rest = b""
        pieces = [self._rest]
        while piece := os.read(self._descriptor, _PIECE):
            pieces.append(piece)
        self.written_ns = os.fstat(self._descriptor).st_mtime_ns
        *lines, self._rest = b"".join(pieces).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def _last_line(self) -> list[str]:
        """The last line of a file that was replaced, even if it is incomplete."""
        return [self._rest.decode(errors="replace")] if self._rest else []

    def _replaced(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False  # it is being rotated: the new file will appear
        return not os.path.samestat(now, os.fstat(self._descriptor))
