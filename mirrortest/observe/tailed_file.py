"""A text file that another process appends to, and may rotate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PIECE = 1 << 20


class TailedFile:
    """Reads whole lines as they come, at first from the beginning.

    A file that was replaced is read to its end, then the new one from its beginning; so is one that
    was cut. Where there is no file, there are no lines. All methods may raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines that are complete since the last call."""
        found = self._read()
        if self._replaced():
            found += self._ended()
            self.close()
            found += self._read()
        return found

    def close(self) -> None:
        """Close the file; what is no whole line yet is dropped."""
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
        *lines, self._rest = b"".join(pieces).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def _ended(self) -> list[str]:
        """The last line of a file that gets no more, though it has no end."""
        return [self._rest.decode(errors="replace")] if self._rest else []

    def _replaced(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False  # it is being rotated: the new one comes
        return not os.path.samestat(now, os.fstat(self._descriptor))
