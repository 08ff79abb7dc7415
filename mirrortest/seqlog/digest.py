"""Digests of a log's files: they show whether a byte has changed since it was written.

SHA-256, in hexadecimal behind ``sha256:``.
"""

from __future__ import annotations

import hashlib
from typing import IO

PREFIX = "sha256:"


def digest(data: bytes | memoryview) -> str:
    """The digest of these bytes."""
    return PREFIX + hashlib.sha256(data).hexdigest()


class DigestingFile:
    """A file open for writing that digests what is appended: what was meant, not what the disk has.

    It offers what a writer of Parquet asks of a file; closing it is left to whoever opened it.
    """

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of all that was written so far."""
        return PREFIX + self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns how many. Raises OSError."""
        self._hash.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """How many bytes the file has."""
        return self._file.tell()

    def flush(self) -> None:
        """Hand all bytes to the operating system. Raises OSError."""
        self._file.flush()
