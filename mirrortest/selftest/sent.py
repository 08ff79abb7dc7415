"""What was sent, message by message, as arrays: which message stands at which source offset.

A message is one number, its key: the number of its stream shifted by `SHIFT`, and its seq. So is a
record in the destination: the number of its partition, and its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.seqlog.files import find_sessions, read_file
from mirrortest.seqlog.schema import Kind, Role
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from mirrortest.seqlog.damage import Damage

SHIFT = 40
"""Bits for a seq or an offset: seqs have 12 digits."""
NONE = -1
"""The key of no message."""

Place = tuple[str, int]
"""A partition by its source topic's name and its number, on either side."""


@dataclass
class Numbers:
    """Streams and destination partitions by number, each numbered when it is first asked for."""

    streams: dict[StreamId, int] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)

    def message(self, stream: StreamId, seq: int = 0) -> int:
        """A message's key."""
        return self.streams.setdefault(stream, len(self.streams)) << SHIFT | seq

    def record(self, place: Place, offset: int = 0) -> int:
        """A destination record's key."""
        return self.places.setdefault(place, len(self.places)) << SHIFT | offset

    def stream_of(self, key: int) -> StreamId:
        """The stream of a message's key."""
        return list(self.streams)[key >> SHIFT]

    def place_of(self, key: int) -> Place:
        """The partition of a record's key."""
        return list(self.places)[key >> SHIFT]


def spans(intervals: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """The whole numbers of half-open intervals, sorted, each once."""
    bounds = np.array(sorted(intervals), np.int64).reshape(-1, 2)
    if not len(bounds):
        return np.zeros(0, np.int64)
    counts = bounds[:, 1] - bounds[:, 0]
    starts = np.repeat(bounds[:, 0] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return np.unique(starts + np.arange(int(counts.sum())))


@dataclass
class Sent:
    """Every message that was sent.

    Attributes:
        at: by source partition, the key of the message at each offset from 0 on.
        reasons: why what should arrive is not known; empty where all were acknowledged.
    """

    at: dict[Place, NDArray[np.int64]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def keys(self) -> NDArray[np.int64]:
        """All messages, sorted."""
        return np.sort(np.concatenate([np.zeros(0, np.int64), *self.at.values()]))

    @classmethod
    def read(cls, logs: Path, run: str, numbers: Numbers) -> Self:
        """Read the producers' sequence logs. Raises SequenceLogError where there are none."""
        sent = cls()
        rows: dict[Place, list[tuple[int, int, int]]] = {}
        damage: list[Damage] = []
        for found in find_sessions(logs, run):
            if found.session.role is not Role.PRODUCER:
                continue
            damage += found.damage
            for file in found.files:
                for batch in read_file(file, damage, columns=_COLUMNS):
                    ended = batch.filter(pc.equal(batch["kind"], Kind.SENT.value))
                    for row in ended.to_pylist():
                        sent.note(row, rows, numbers)
        sent.reasons += [f"a producer's log is not whole: {each}" for each in damage]
        for place, told in rows.items():
            sent.lay_out(place, told)
        return sent

    def note(
        self,
        row: Mapping[str, Any],
        rows: dict[Place, list[tuple[int, int, int]]],
        numbers: Numbers,
    ) -> None:
        """Add a log's row as (offset, key, count) under its source partition."""
        stream = StreamId(*(row[name] for name in STREAM))
        lo, hi = row["seq_lo"], row["seq_hi"]
        if row["outcome"] != Outcome.ACKED or row["offset_lo"] is None:
            self.reasons.append(
                f"{stream.producer}'s messages {lo} to {hi - 1} to {stream.topic} were not all "
                "acknowledged: what should arrive is not known"
            )
            return
        told = (row["offset_lo"], numbers.message(stream, lo), hi - lo)
        rows.setdefault((stream.topic, row["partition"]), []).append(told)

    def lay_out(self, place: Place, rows: list[tuple[int, int, int]]) -> None:
        """Put a partition's messages in the order of their offsets, which must leave no gap."""
        offset, first, count = (np.array(column) for column in zip(*sorted(rows), strict=True))
        begins = np.cumsum(count) - count
        if not np.array_equal(offset, begins):
            self.reasons.append(
                f"{place[0]}-{place[1]} in the source does not hold just what the producers logged"
            )
            return
        self.at[place] = np.repeat(first - begins, count) + np.arange(int(count.sum()))


STREAM = ("topic", "run", "producer", "incarnation", "lane")
_COLUMNS = ("kind", *STREAM, "seq_lo", "seq_hi", "partition", "offset_lo", "outcome")
