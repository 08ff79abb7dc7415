"""What was sent, message by message, as arrays: the message at each source offset.

A message is one number, its key: the number of its stream shifted by `SHIFT`, and its seq. So is a
record in the destination: the number of its partition, and its offset.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.seqlog.batches import positions
from mirrortest.seqlog.files import find_sessions, read_file
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import Kind
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from mirrortest.seqlog.damage import Damage

SHIFT = 40
"""Bits for a seq or an offset: seqs have 12 digits."""
NO_KEY = -1
"""The key of no message, or of no record."""
NO_KEYS: NDArray[np.int64] = np.zeros(0, np.int64)

Place = tuple[str, int]
"""A partition by its source topic's name and its number, on either side."""


def number_of(key: int) -> int:
    """The seq of a message's key, or the offset of a record's."""
    return key & ((1 << SHIFT) - 1)


@dataclass
class Numbers:
    """Streams and destination partitions by number, each numbered at its first use."""

    streams: dict[StreamId, int] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)

    def message(self, stream: StreamId, seq: int = 0) -> int:
        """A message's key."""
        return self.streams.setdefault(stream, len(self.streams)) << SHIFT | seq

    def message_of(self, row: Mapping[str, Any], seq: int = 0) -> int:
        """The key of a message whose stream is in these columns."""
        return self.message(StreamId(*(row[name] for name in StreamId._fields)), seq)

    def record(self, place: Place, offset: int = 0) -> int:
        """A destination record's key."""
        return self.places.setdefault(place, len(self.places)) << SHIFT | offset

    def stream_of(self, key: int) -> StreamId:
        """The stream of a message's key."""
        return list(self.streams)[key >> SHIFT]

    def place_of(self, key: int) -> Place:
        """The partition of a record's key."""
        return list(self.places)[key >> SHIFT]


def keys_of(intervals: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """The keys in half-open intervals, sorted, each once."""
    bounds = np.array(sorted(intervals), np.int64).reshape(-1, 2)
    interval, step = positions(bounds[:, 1] - bounds[:, 0])
    return np.unique(bounds[interval, 0] + step)


def log_batches(
    logs: Path, run: str, role: Role, columns: Sequence[str], damage: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """Read these columns of all logs of one role. Raises SequenceLogError."""
    for found in find_sessions(logs, run):
        if found.session.role is role:
            damage += found.damage
            for file in found.files:
                yield from read_file(file, damage, columns=columns)


@dataclass
class Sent:
    """Every message that was sent.

    Attributes:
        at: by source partition, the key of the message at each offset from 0 on.
        reasons: why it is unknown what should arrive; empty if all were acknowledged.
    """

    at: dict[Place, NDArray[np.int64]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def keys(self) -> NDArray[np.int64]:
        """All messages, sorted."""
        return np.sort(np.concatenate([NO_KEYS, *self.at.values()]))

    @classmethod
    def read(cls, logs: Path, run: str, numbers: Numbers) -> Self:
        """Read the producers' sequence logs. Raises SequenceLogError if there are none."""
        sent = cls()
        sends: dict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        damage: list[Damage] = []
        for batch in log_batches(logs, run, Role.PRODUCER, _COLUMNS, damage):
            for row in batch.filter(pc.equal(batch["kind"], Kind.SENT.value)).to_pylist():
                lo, hi = row["seq_lo"], row["seq_hi"]
                if row["outcome"] != Outcome.ACKED or row["offset_lo"] is None:
                    sent.reasons.append(
                        f"{row['producer']}'s messages {lo} to {hi - 1} to {row['topic']} were not "
                        "all acknowledged: what should arrive is unknown"
                    )
                else:
                    send = (row["offset_lo"], numbers.message_of(row, lo), hi - lo)
                    sends[row["topic"], row["partition"]].append(send)
        sent.reasons += [f"a producer's log is damaged: {each}" for each in damage]
        for place, ranges in sends.items():
            sent._place(place, ranges)
        return sent

    def _place(self, place: Place, sends: list[tuple[int, int, int]]) -> None:
        """Order a partition's (offset, key, count) by offset, which must leave no gap."""
        offset, first, count = (np.array(column) for column in zip(*sorted(sends), strict=True))
        if not np.array_equal(offset, np.cumsum(count) - count):
            self.reasons.append(
                f"{place[0]}-{place[1]} in the source has other records than the producers logged"
            )
            return
        send, step = positions(count)
        self.at[place] = first[send] + step


_COLUMNS = ("kind", *StreamId._fields, "seq_lo", "seq_hi", "partition", "offset_lo", "outcome")
