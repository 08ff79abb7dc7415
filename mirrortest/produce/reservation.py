"""How far ahead of its sends a lane reserves numbers.

A reservation costs two durable writes, one in the sequence log and one in the ledger, so numbers
are reserved in blocks, and the next block is asked for while half of the last one is left. After
a crash what was reserved and has no outcome is unknown: so blocks are as short as speed allows.
"""

from __future__ import annotations

BLOCK_NS = 2_000_000_000
"""What a block is to last."""
SMALLEST = 8
LARGEST = 1 << 24


class Reservation:
    """The reserved numbers of one lane: [0, granted) may be sent, [0, requested) is asked for.

    `per_second` is the lane's rate, None for an unlimited one: its blocks start at `first` and
    double or shrink by how long they last, not below `least`: a batch is no larger than a block.
    Nothing is reserved beyond `limit` numbers.
    """

    def __init__(
        self,
        *,
        per_second: float | None,
        limit: int | None,
        first: int = 1024,
        least: int = SMALLEST,
    ) -> None:
        self._fixed = per_second is not None
        block = first if per_second is None else int(per_second * BLOCK_NS / 1e9) + 1
        self._least = SMALLEST if self._fixed else min(least, LARGEST)
        self._block = max(self._least, min(LARGEST, block))
        self._limit = limit
        self._asked_ns: int | None = None
        self.granted = 0
        self.requested = 0

    @property
    def pending(self) -> bool:
        """Whether a block is asked for that is not durable yet."""
        return self.requested > self.granted

    def consider(self, next_seq: int, now_ns: int) -> bool:
        """Ask for the next block if half of the last is used; whether one is asked for anew."""
        if self.pending or self.granted - next_seq > self._block // 2:
            return False
        self._adapt(now_ns)
        mark = self.granted + self._block
        if self._limit is not None:
            mark = min(mark, self._limit)
        if mark <= self.granted:
            return False
        self.requested = mark
        return True

    def grant(self, mark: int) -> None:
        """Numbers below `mark` are durably reserved."""
        self.granted = max(self.granted, mark)

    def _adapt(self, now_ns: int) -> None:
        if self._fixed:
            return
        if self._asked_ns is not None:
            lasted = now_ns - self._asked_ns
            if lasted < BLOCK_NS // 2:
                self._block = min(LARGEST, self._block * 2)
            elif lasted > BLOCK_NS * 2:
                self._block = max(self._least, self._block // 2)
        self._asked_ns = now_ns
