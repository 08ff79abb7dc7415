"""One lane of one incarnation: a stream's numbers, from reserved to recorded in the ledger.

A reservation costs two durable writes, one in the sequence log and one in the ledger, so numbers
are reserved in blocks, and the next block is asked for while half of the last one is left. After
a crash what was reserved and has no outcome is unknown: so blocks are as short as speed allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.model.findings import Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger_record import LaneRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from mirrortest.produce.batch_counts import BatchCounts
    from mirrortest.produce.buffer_pool import BufferPool
    from mirrortest.produce.message_sizes import LaneSizes
    from mirrortest.produce.pace import Pace
    from mirrortest.wire.batch import LaneEncoder
    from mirrortest.wire.stream import StreamId

MAX_IN_FLIGHT = 2
"""Batches of a lane underway: one with the broker, one ready behind it."""
BLOCK_NS = 2_000_000_000
"""What a block is to last."""
SMALLEST = 8
LARGEST = 1 << 24


@dataclass(slots=True, eq=False)  # not frozen: that would treble what it costs to make one
class Flight:
    """A batch underway; times are monotonic ns, `wall_offset_ns` makes them the wall's.

    `index_lo` is the position of its first message in the lane's schedule, which goes on over
    incarnations; `seq_lo` starts anew with each.
    """

    seq_lo: int
    index_lo: int
    intended: NDArray[np.int64]
    sent: int
    wall_offset_ns: int
    wire_bytes: int
    sizes: NDArray[np.int64] | None = None
    """Bytes of each value; None: all are of the topic's one size."""

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.intended)

    @property
    def seq_hi(self) -> int:
        """The number after the last."""
        return self.seq_lo + len(self.intended)


class Reservation:
    """The reserved numbers of one lane: [0, granted) may be sent, [0, requested) is asked for.

    `ahead` gives how many messages the schedule has within a time from now on (both ns), and None
    where there is no schedule: then blocks start at `first` and double or shrink by how long they
    last, not below `least`: a batch is no larger than a block. Nothing is reserved beyond `limit`
    numbers. `batch` is how many numbers a batch may need at once.
    """

    def __init__(
        self,
        *,
        ahead: Callable[[int, int], int | None],
        limit: int | None,
        first: int = 1024,
        least: int = SMALLEST,
        batch: int = 1,
    ) -> None:
        self._ahead = ahead
        # The next block is asked for while a whole batch is left.
        self._shortest = max(SMALLEST, 2 * batch)
        self._least = max(self._shortest, min(least, LARGEST))
        self._block = max(self._least, first)
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
        if self.pending:
            return False
        ahead = self._ahead(now_ns, BLOCK_NS)
        if ahead is not None:
            self._block = max(self._shortest, min(LARGEST, ahead))
        if self.granted - next_seq > self._block // 2:
            return False
        if ahead is None:
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
        if self._asked_ns is not None:
            lasted = now_ns - self._asked_ns
            if lasted < BLOCK_NS // 2:
                self._block = min(LARGEST, self._block * 2)
            elif lasted > BLOCK_NS * 2:
                self._block = max(self._least, self._block // 2)
        self._asked_ns = now_ns


def _ignored() -> None:
    """Nobody sends in this lane yet."""


class Lane:
    """The state of one stream; everything happens on the event loop."""

    def __init__(
        self,
        stream: StreamId,
        *,
        partition: int,
        source_partitions: int,
        destination_partitions: int,
        pace: Pace,
        reservation: Reservation,
        encoder: LaneEncoder,
        most: int,
        pool: BufferPool,
        batches: BatchCounts | None = None,
        sizes: LaneSizes | None = None,
        compacted: bool = False,
        stamped: bool = False,
        repeats: bool = False,
    ) -> None:
        self.stream = stream
        self.pool = pool
        self.partition = partition
        self.pace = pace
        self.reservation = reservation
        self.encoder = encoder
        self.most = most
        """How many messages a batch may have."""
        self._batches = batches
        self.sizes = sizes
        self.next_seq = 0
        self.flights: set[Flight] = set()
        self.notify: Callable[[], None] = _ignored
        """Is called when something has happened that the lane may wait for."""
        self.dirty = True
        """Whether the ledger does not know yet all that is known here."""
        self.end: int | None = None
        self.source_partitions = source_partitions
        self._destination_partitions = destination_partitions
        self._clock_set_ns = 0
        self._compacted = compacted
        self._repeats = repeats
        self.stamped = stamped
        """Whether brokers are known to stamp the topic's records."""
        self._numbers = {outcome: IntervalSet() for outcome in Outcome}

    @property
    def room(self) -> int:
        """How many numbers may be sent at once."""
        return self.reservation.granted - self.next_seq

    def exact_batch(self) -> int | None:
        """How many messages the next batch must have; None: as many as there are."""
        if self._batches is None:
            return None
        position, limit = self.pace.position, self.pace.limit
        end = self._batches.end(position)
        return (end if limit is None else max(min(end, limit), position + 1)) - position

    def count(self, outcome: Outcome) -> int:
        """How many messages ended so."""
        return self._numbers[outcome].count

    def depart(self, flight: Flight) -> None:
        """Give the next numbers to messages; they count as underway from here on."""
        seq_hi = flight.seq_hi
        if flight.seq_lo != self.next_seq or seq_hi > self.reservation.granted:
            raise AssertionError(f"{self.stream}: numbers that are used or not reserved")
        self.next_seq = seq_hi
        self.flights.add(flight)
        self.pool.take(flight.wire_bytes)

    def recall(self, flight: Flight) -> None:
        """The newest batch was not sent after all: its numbers and its messages are free again."""
        if flight.seq_hi != self.next_seq:
            raise AssertionError(f"{self.stream}: only the newest batch can be recalled")
        self.flights.discard(flight)
        self.pool.give(flight.wire_bytes)
        self.next_seq = flight.seq_lo
        self.pace.position = flight.index_lo

    def land(self, flight: Flight, outcome: Outcome) -> None:
        """A batch has its outcome."""
        if len(self.flights) >= MAX_IN_FLIGHT:
            self.notify()
        self.flights.discard(flight)
        self.pool.give(flight.wire_bytes)
        self._numbers[outcome].add(flight.seq_lo, flight.seq_hi)
        self.dirty = True

    def source_is_compacted(self) -> None:
        """The source's topic is compacted by now: what is not mirrored yet may be removed."""
        self._compacted = self.dirty = True

    def clock_was_set(self, by_ns: int) -> None:
        """The wall clock was set, since the producer began, to times that are so far apart."""
        if by_ns != self._clock_set_ns:
            self._clock_set_ns, self.dirty = by_ns, True

    def close(self) -> None:
        """Nothing more will be sent, and everything sent has its outcome."""
        if self.flights:
            raise AssertionError(f"{self.stream}: closed with messages underway")
        self.end = self.next_seq
        self.dirty = True

    def record(self) -> LaneRecord:
        """What the ledger is to say, as of now, the block asked for included."""
        return LaneRecord(
            self.stream,
            self.reservation.requested,
            self._numbers[Outcome.ACKED],
            self._numbers[Outcome.FAILED],
            self._numbers[Outcome.UNKNOWN],
            self.end,
            self._destination_partitions,
            self.source_partitions,
            compacted=self._compacted,
            stamped=self.stamped,
            repeats=self._repeats,
            clock_set_ns=self._clock_set_ns,
        )
