"""A lane record in parts, for lanes with more intervals than one Kafka record can contain.

Readers merge all records of a lane. So a part is a record of the same lane under its own key, with
the outcomes of one range of seqs. The ranges are fixed: no seq moves to another part. Each part has
the lane's marks and its end. With the end it also has the number of outcomes in all parts: for a
reader, the lane ends only once it has read that many outcomes.

Records with the lane's end mark have their own keys, which no other record uses. If a mirror
replays an old record after the newest one, compaction keeps the old one. While the lane goes on,
its next record repairs that. After the lane has ended, no old record can replace its end mark.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING

from mirrortest.verify.ledger_record import lane_key, lane_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.model.intervals import IntervalSet
    from mirrortest.verify.ledger_record import LaneRecord

PART_INTERVALS = 10_000
"""A record with this many takes less than 300 kB; brokers accept batches of 1 MB by default."""


ENDED = 1 << 20
"""The least part number in the keys of records with the producer's own end mark."""


class LaneParts:
    """Splits one lane's record: into one part, until it has more than `most` intervals."""

    def __init__(self, most: int = PART_INTERVALS, *, ended: int = ENDED) -> None:
        self._max_intervals = most
        self._ended = ended
        self._begins = [0]
        """The first seq of each part."""
        self._written: dict[int, tuple[int | None, list[IntervalSet]]] = {}
        """part -> the end and the outcomes that were last returned for it"""

    def records(self, record: LaneRecord) -> list[tuple[bytes, bytes]]:
        """Key and value of each part that changed since it was last returned.

        The newest part is always among them. The lane's outcomes must only grow.
        """
        self._cut(record)
        parts = len(self._begins)
        first = 0 if record.end is None else self._ended
        if parts == 1:
            return [(lane_key(record.stream, first), lane_value(record))]
        if record.end is not None:
            outcome_count = sum(numbers.count for numbers in _outcomes(record))
            record = replace(record, outcomes=outcome_count)
        changed = []
        for part, (lo, hi) in enumerate(self._ranges(record)):
            outcomes = [numbers.within(lo, hi) for numbers in _outcomes(record)]
            newest = part == parts - 1
            if not newest and self._written.get(part) == (record.end, outcomes):
                continue
            self._written[part] = (record.end, outcomes)
            acked, failed, unknown = outcomes
            of_part = replace(record, acked=acked, failed=failed, unknown=unknown)
            changed.append((lane_key(record.stream, first + part), lane_value(of_part)))
        return changed

    def forget(self) -> None:
        """Return all parts next time, since those returned last might not have been written."""
        self._written.clear()

    def _cut(self, record: LaneRecord) -> None:
        """Start new parts until the newest one is small enough."""
        while True:
            begin = self._begins[-1]
            newest = [numbers.within(begin, record.reserved) for numbers in _outcomes(record)]
            if sum(map(len, newest)) <= self._max_intervals:
                return
            begins = (lo for numbers in newest for lo, _ in numbers.intervals())
            self._begins.append(nsmallest(self._max_intervals + 1, begins)[-1])

    def _ranges(self, record: LaneRecord) -> Iterator[tuple[int, int]]:
        yield from zip(self._begins, [*self._begins[1:], record.reserved], strict=True)


def _outcomes(record: LaneRecord) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    return record.acked, record.failed, record.unknown
