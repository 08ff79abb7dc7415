"""A lane's record in parts, where it has more holes than one record of a topic can hold.

Readers unite what they read, so a part is a record of the same lane, under a key of its own, with
the outcomes of a range of numbers. The ranges are fixed: no number moves to another part. Each part
has the marks and the end of the lane, and with the end how many numbers have an outcome in all
parts: until a reader has read that many outcomes, the lane has not ended for it.

The record of a lane's end has keys of its own, which are written with nothing else. A mirror that
replays may put an old record after the newest one, and compaction keeps the old one then: while the
lane goes on the next record mends that, and once it has ended no old record displaces its end.
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
"""Of these a record takes less than 300 kB: brokers take 1 MB of a batch by default."""


ENDED = 1 << 20
"""The part's number in a key is at least that in records with the producer's own end mark."""


class LaneParts:
    """How one lane's record is written: as one, until it has more than `most` intervals."""

    def __init__(self, most: int = PART_INTERVALS, *, ended: int = ENDED) -> None:
        self._most = most
        self._ended = ended
        self._begins = [0]
        """The first number of each part."""
        self._written: dict[int, tuple[int | None, list[IntervalSet]]] = {}
        """part -> end and outcomes as they were handed out last; of the newest part nothing."""

    def records(self, record: LaneRecord) -> list[tuple[bytes, bytes]]:
        """Key and value of each part that differs from what was handed out before.

        The newest part is always among them. The lane's outcomes only grow.
        """
        self._cut(record)
        parts = len(self._begins)
        first = 0 if record.end is None else self._ended
        if parts == 1:
            return [(lane_key(record.stream, first), lane_value(record))]
        if record.end is not None:
            recorded = sum(numbers.count for numbers in _outcomes(record))
            record = replace(record, outcomes=recorded)
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
        """What was handed out last may not be written: hand everything out again."""
        self._written.clear()

    def _cut(self, record: LaneRecord) -> None:
        """Begin new parts until the newest one is not too large."""
        while True:
            begin = self._begins[-1]
            newest = [numbers.within(begin, record.reserved) for numbers in _outcomes(record)]
            if sum(map(len, newest)) <= self._most:
                return
            begins = (lo for numbers in newest for lo, _ in numbers.intervals())
            self._begins.append(nsmallest(self._most + 1, begins)[-1])

    def _ranges(self, record: LaneRecord) -> Iterator[tuple[int, int]]:
        yield from zip(self._begins, [*self._begins[1:], record.reserved], strict=True)


def _outcomes(record: LaneRecord) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    return record.acked, record.failed, record.unknown
