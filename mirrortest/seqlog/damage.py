"""Damage of sequence logs, which their reader always reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DamageKind(StrEnum):
    """How a log is incomplete."""

    TORN_TAIL = "torn_tail"
    """Bytes at a journal's end are not a frame: its writer died while it wrote, and all synced rows
    are present. If the number of lost rows is unknown, the last frame was changed."""
    HOLE = "hole"
    """Bytes within a journal are not a frame, or a frame is missing: the disk lost data."""
    MISSING = "missing"
    """A file of the session does not exist."""
    UNREADABLE = "unreadable"
    """A file cannot be opened or read to its end."""
    SHORT = "short"
    """A file has another number of rows than session.json or its footer."""
    CHANGED = "changed"
    """A file's bytes are not those that were written: none of its rows is used."""
    UNLISTED = "unlisted"
    """The session does not list a finished file, so its content cannot be checked."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One piece of a log that could not be read.

    `rows` is how many durable rows are lost; None: unknown. It is 0 for a torn tail that only an
    unfinished write explains: no sync had returned for its rows.
    """

    kind: DamageKind
    where: str
    detail: str
    rows: int | None = None

    @property
    def harmless(self) -> bool:
        """Whether every synced row is still there."""
        return self.rows == 0

    def __str__(self) -> str:
        lost = "no durable row" if self.rows == 0 else f"{self.rows or 'unknown'} rows"
        return f"{self.where}: {self.kind}: {self.detail} (lost: {lost})"
