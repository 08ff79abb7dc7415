"""What a reader of sequence logs could not read: told, never passed over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DamageKind(StrEnum):
    """How a log is incomplete."""

    TORN_TAIL = "torn_tail"
    """Bytes at a journal's end are no frame: a writer died in mid-write, and synced rows are
    whole; or, where nobody can tell how many rows are gone, the last frame was changed."""
    HOLE = "hole"
    """Bytes in the midst of a journal are no frame, and good frames follow: the disk lied."""
    MISSING = "missing"
    """A file of the session is not there."""
    UNREADABLE = "unreadable"
    """A file is there and cannot be opened or read to its end."""
    SHORT = "short"
    """A file holds another number of rows than its session says."""
    CHANGED = "changed"
    """A file's bytes are not those that were written: none of its rows is believed."""
    UNLISTED = "unlisted"
    """A finished file that its session does not list, so that nothing says what it must hold."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One piece of a log that could not be read.

    `rows` is how many durable rows are gone; None where nobody can tell. A torn tail has 0 where
    only a write that never ended explains it: what stood there was never told durable.
    """

    kind: DamageKind
    where: str
    detail: str
    rows: int | None = None

    @property
    def harmless(self) -> bool:
        """Whether every row that a sync had made durable is still there."""
        return self.rows == 0

    def __str__(self) -> str:
        lost = "no durable row" if self.rows == 0 else f"{self.rows or 'unknown'} rows"
        return f"{self.where}: {self.kind}: {self.detail} (lost: {lost})"
