"""One lane of one incarnation: a stream's numbers, from their reservation to the ledger.

A reservation costs two durable writes, one to the sequence log and one to the ledger. So numbers
are reserved in blocks, and the next block is requested while half of the last one is left. After a
crash, reserved numbers without an outcome are unknown, so blocks are as short as speed allows.
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
"""Batches of a lane in flight: one at the broker, one ready behind it."""
BLOCK_NS = 2_000_000_000
"""How long a block should last."""
SMALLEST = 8
LARGEST = 1 << 24


@dataclass(slots=True, eq=False)  # not frozen: that would triple the cost of creating one
class Flight:
    """A batch in flight; times are monotonic ns, `wall_offset_ns` added gives wall time.

    `index_lo` is the position of its first message in the lane's schedule, which continues across
    incarnations; `seq_lo` starts from 0 in each.
    """

    seq_lo: int
    index_lo: int
    intended: NDArray[np.int64]
    sent: int
    wall_offset_ns: int
    wire_bytes: int
    sizes: NDArray[np.int64] | None = None
    """Bytes of each record value; None: all have the topic's one size."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.intended)

    @property
    def seq_hi(self) -> int:
        """The seq after the last one."""
        return self.seq_lo + len(self.intended)


class Reservation:
    """The reserved numbers of one lane: [0, granted) may be sent, [0, requested) are requested.

    `ahead(now, within)`, in ns, is how many messages the schedule has within a time from now on, or
    None without a schedule. Without one, blocks begin with `first` numbers, and double or halve by
    how long they last. They never get shorter than `least`, since a batch is not larger than a
    block. At most `limit` numbers are reserved. A batch may need `batch` numbers at once.
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
        # The next block is requested while numbers for a full batch are left.
        self._shortest = max(SMALLEST, 2 * batch)
        self._least = max(self._shortest, min(least, LARGEST))
        self._block = max(self._least, first)
        self._limit = limit
        self._requested_ns: int | None = None
        self.granted = 0
        self.requested = 0

    def consider(self, next_seq: int, now_ns: int) -> bool:
        """Request the next block if half of the last one is used; return whether one is pending.

        A requested block is pending until it is granted.
        """
        if self.requested > self.granted:
            return True
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
        """Allow the numbers below `mark` to be sent: they are durably reserved."""
        self.granted = max(self.granted, mark)

    def _adapt(self, now_ns: int) -> None:
        if self._requested_ns is not None:
            lasted = now_ns - self._requested_ns
            if lasted < BLOCK_NS // 2:
                self._block = min(LARGEST, self._block * 2)
            elif lasted > BLOCK_NS * 2:
                self._block = max(self._least, self._block // 2)
        self._requested_ns = now_ns


def _do_nothing() -> None:
    """The default of `Lane.notify`."""


class Lane:
    """The state of one stream; used on the event loop only."""

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
        """The maximum number of messages in a batch."""
        self._batches = batches
        self.sizes = sizes
        self.next_seq = 0
        self.flights: set[Flight] = set()
        self.notify: Callable[[], None] = _do_nothing
        """Called when something happens that the lane may wait for."""
        self.dirty = True
        """Whether the ledger lacks something of this lane."""
        self.end: int | None = None
        self.source_partitions = source_partitions
        self._destination_partitions = destination_partitions
        self._clock_set_ns = 0
        self._compacted = compacted
        self._repeats = repeats
        self.stamped = stamped
        """Whether brokers stamp the topic's records; see `TopicPlan.stamped`."""
        self._numbers = {outcome: IntervalSet() for outcome in Outcome}

    @property
    def room(self) -> int:
        """How many numbers are reserved and not used."""
        return self.reservation.granted - self.next_seq

    def exact_batch(self) -> int | None:
        """How many messages the next batch must have; None: as many as are due."""
        if self._batches is None:
            return None
        position, limit = self.pace.position, self.pace.limit
        end = self._batches.end(position)
        return (end if limit is None else max(min(end, limit), position + 1)) - position

    def lag_ns(self, now_ns: int) -> int:
        """How far the lane is behind its schedule: since when its next batch might be sent."""
        return self.pace.lag_ns(now_ns, self.exact_batch() or 1)

    def begin_send(self, flight: Flight) -> None:
        """Assign the next numbers to a batch, which is in flight from here on."""
        seq_hi = flight.seq_hi
        if flight.seq_lo != self.next_seq or seq_hi > self.reservation.granted:
            raise AssertionError(f"{self.stream}: numbers that are used or not reserved")
        self.next_seq = seq_hi
        self.flights.add(flight)
        self.pool.take(flight.wire_bytes)

    def undo_send(self, flight: Flight) -> None:
        """Undo `begin_send` of the newest batch, which was not sent.

        Its numbers and its place in the schedule are free again.
        """
        if flight.seq_hi != self.next_seq:
            raise AssertionError(f"{self.stream}: only the newest batch can be recalled")
        self.flights.discard(flight)
        self.pool.give(flight.wire_bytes)
        self.next_seq = flight.seq_lo
        self.pace.position = flight.index_lo

    def complete(self, flight: Flight, outcome: Outcome) -> None:
        """Record the outcome of a batch."""
        if len(self.flights) >= MAX_IN_FLIGHT:
            self.notify()
        self.flights.discard(flight)
        self.pool.give(flight.wire_bytes)
        self._numbers[outcome].add(flight.seq_lo, flight.seq_hi)
        self.dirty = True

    def source_is_compacted(self) -> None:
        """Note that the source topic is now compacted: messages not mirrored yet may be removed."""
        self._compacted = self.dirty = True

    def clock_was_set(self, by_ns: int) -> None:
        """Note how far apart the wall clock's settings were since the producer began."""
        if by_ns != self._clock_set_ns:
            self._clock_set_ns, self.dirty = by_ns, True

    def close(self) -> None:
        """Set the lane's end: no more messages come, and all that were sent have an outcome."""
        if self.flights:
            raise AssertionError(f"{self.stream}: closed with messages underway")
        self.end = self.next_seq
        self.dirty = True

    def record(self) -> LaneRecord:
        """The lane's record for the ledger as of now, with the requested block."""
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
