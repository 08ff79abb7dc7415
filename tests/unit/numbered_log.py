"""A producer's log of numbered rows, and what can be read of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import Outcome
from mirrortest.seqlog import rows
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from mirrortest.wire.stream import StreamId
from tests.log_rows import read_all

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.location import Location

STREAM = StreamId("t", "r1", "p", 1, 0)


def session(**more: Any) -> Session:
    """A producer's session."""
    return Session(run="r1", role=Role.PRODUCER, name="p", session="s", started_ns=1, **more)


def numbers(lo: int, hi: int) -> list[rows.Row]:
    """One `reserved` row per number."""
    return [rows.reserved(STREAM, at, at + 1) for at in range(lo, hi)]


def sent(lo: int, hi: int) -> rows.Row:
    """An interval that was sent and failed."""
    return rows.sent(
        STREAM, lo, hi, partition=0, outcome=Outcome.FAILED, offset_lo=None, intended=(1, 9)
    )


def logged(where: Location | Path) -> list[int]:
    """The first seqs of all rows of the only session there, which must be undamaged."""
    (found,) = find_sessions(where)
    damage: list[Damage] = []
    table = read_all(found, damage)
    assert damage == []
    result: list[int] = table["seq_lo"].to_pylist()
    return result


def names(directory: Path) -> list[str]:
    """The names of all files below a directory."""
    return sorted(path.name for path in directory.rglob("*") if path.is_file())
