"""A running incarnation: its lanes, the task that writes the ledger, and an orderly end.

Lanes have no tasks. All lanes that a tick or an event concerns are visited in one pass. A lane
sends what is due, or exactly the number of messages that its next batch must have. It needs
reserved numbers, fewer than `MAX_IN_FLIGHT` batches in flight, and room in its partition's memory.
So a slow cluster shows as lag behind the schedule, never as a growing queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mirrortest.config.units import MILLISECOND_NS, SECOND_NS
from mirrortest.errors import ClusterError, SequenceLogError
from mirrortest.host.waiting import before_stop, cancel_and_wait
from mirrortest.kafka.sender import SenderDeadError, Sent
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.lane import MAX_IN_FLIGHT, Flight
from mirrortest.produce.ledger_writer import write_end_marks
from mirrortest.produce.pace import last_tick

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from mirrortest.produce.clock import Clock
    from mirrortest.produce.lane import Lane
    from mirrortest.produce.ledger_writer import LedgerWriter, RecordedLane
    from mirrortest.wire.batch import EncodedBatch

_MAX_SLEEP_NS = SECOND_NS


class Sends(Protocol):
    """The interface of a sender (`kafka.sender.Sender`)."""

    @property
    def dead(self) -> str | None:
        """Why nothing more can be sent; None while the sender works."""

    def send(self, topic: str, partition: int, encoded: EncodedBatch) -> asyncio.Future[Sent]:
        """Send a batch; raises SenderDeadError if the sender has ended: it was not sent."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, by the latest metadata."""

    def stamps(self, topic: str) -> bool:
        """Whether a broker has answered that it stamps a topic's records (LogAppendTime)."""

    async def stop(self) -> None:
        """Disconnect, and give up the batches that have no outcome."""


@dataclass(frozen=True)
class SendRules:
    """How batches are sent; `compress` compresses one, None leaves it as it is."""

    linger_ns: int
    drain_seconds: float
    compress: Callable[[EncodedBatch], EncodedBatch] | None = None


@dataclass
class Backlog:
    """Messages in flight, and messages that are due and not sent.

    `lag_ns` is how far the schedule is behind. After a stop nothing is due.
    """

    in_flight: int = 0
    due: int = 0
    lag_ns: int = 0

    def add(self, other: Backlog) -> None:
        """Add another backlog; of the two lags the greater one counts."""
        self.in_flight += other.in_flight
        self.due += other.due
        self.lag_ns = max(self.lag_ns, other.lag_ns)


async def _do_nothing() -> None:
    """The default of `Incarnation.before_end`."""


class Incarnation:
    """One incarnation, from its first message to its end marks.

    `run` returns when all lanes have finished, on `stop`, or when the sender has died (then `died`
    is the reason). In each case every message sent has an outcome. After a death the caller writes
    the end marks (`write_end_marks`) once the next incarnation has registered: consumers must not
    take the run for over before.
    """

    def __init__(
        self,
        recorded: Sequence[RecordedLane],
        ledger_writer: LedgerWriter,
        sender: Sends,
        clock: Clock,
        rules: SendRules,
        *,
        reasons: Counter[str],
    ) -> None:
        self._recorded = recorded
        self.ledger_writer = ledger_writer
        self._sender = sender
        self._clock = clock
        self._rules = rules
        self._reasons = reasons
        self._halted = False
        self.stopped = False
        """Whether `stop` ended the schedule early."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._unfinished = len(recorded)
        """How many lanes still have something to send."""
        self._ended = asyncio.Event()
        """Set when no lane sends anything more."""
        self._sleeping: dict[int, list[RecordedLane]] = {}
        """monotonic ns -> lanes to visit then"""
        self._waiting: set[RecordedLane] = set()
        """Lanes to visit once they are notified."""
        self._due: list[RecordedLane] = []
        """Lanes to visit in the next pass."""
        for each in recorded:
            each.lane.notify = partial(self._notified, each)
        self._batches_in_flight = 0
        self._steps = 0
        self._failure: Exception | None = None
        """The first unexpected error of a visit or of an outcome's recording; `run` raises it."""
        self.died: str | None = None
        """Why the sender died; None while it works."""
        self.ended_by: tuple[str, Failure] | None = None
        """The topic and the failure of the batch that ended the sender; None: no batch did."""
        self.before_end: Callable[[], Awaitable[None]] = _do_nothing
        """Called before the end marks are written."""

    @property
    def lanes(self) -> list[Lane]:
        """Its lanes."""
        return [each.lane for each in self._recorded]

    @property
    def steps(self) -> int:
        """A counter of batches sent, batches answered, and attempts to write to the ledger."""
        return self._steps + self.ledger_writer.tries

    def idle(self, now_ns: int) -> bool:
        """Whether no batch may be sent now, and none is in flight."""
        return not self._batches_in_flight and not any(
            lane.pace.available(now_ns) >= (lane.exact_batch() or 1) for lane in self.lanes
        )

    def backlogs(self, now_ns: int) -> dict[TopicPartition, Backlog]:
        """The backlog of each partition."""
        backlogs: dict[TopicPartition, Backlog] = {}
        for recorded in self._recorded:
            lane = recorded.lane
            backlog = Backlog(sum(flight.count for flight in lane.flights))
            if not self.stopped:
                backlog.due, backlog.lag_ns = lane.pace.owed(now_ns), lane.lag_ns(now_ns)
            at = TopicPartition(lane.stream.topic, lane.partition)
            backlogs.setdefault(at, Backlog()).add(backlog)
        return backlogs

    def grown(self) -> dict[str, tuple[int, int]]:
        """Topics that grew since the producer began: topic -> (partitions then, now)."""
        begun = {
            recorded.lane.stream.topic: recorded.lane.source_partitions
            for recorded in self._recorded
        }
        now = {topic: self._sender.partition_count(topic) for topic in begun}
        return {topic: (count, now[topic]) for topic, count in begun.items() if now[topic] > count}

    async def run(self, stop: asyncio.Event) -> None:
        """Send until the end; see the class.

        Raises:
            SequenceLogError: the log cannot be written; nothing counts as durable after that.
            FencedError: another process took this incarnation's place.
            ClusterError: outcomes or end marks could not be written in time.
        """
        ledger_writer = asyncio.create_task(self.ledger_writer.run())
        stopped = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(self._ended.wait())
        try:
            self._due = list(self._recorded)
            self._visit_due()
            first: set[asyncio.Future[Any]] = {ledger_writer, stopped, ended}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            self.stopped = stop.is_set()
            await self._drain(ledger_writer, stop)
            self._raise_failure()
            if ledger_writer.done():
                ledger_writer.result()
            await cancel_and_wait(ledger_writer)
            await self._finish(stop)
        except Exception:
            # The outcomes so far are true: into the log, and without end marks into the ledger.
            await self._settle()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._rules.drain_seconds):
                    await self.ledger_writer.finish(ended=False)
            raise
        finally:
            self.halt()
            await cancel_and_wait(ledger_writer, stopped, ended)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def halt(self) -> None:
        """Let no lane send another batch."""
        self._halted = True
        self._ended.set()

    # -- the end --------------------------------------------------------------------------------

    async def _drain(self, ledger_writer: asyncio.Task[None], stop: asyncio.Event) -> None:
        """Wait for the outcomes of all batches in flight, then give up those that are left.

        After a stop or an error it waits at most for the drain timeout.
        """
        stopped = asyncio.create_task(stop.wait())
        idle = asyncio.create_task(self._idle.wait())
        try:
            if not ledger_writer.done():
                # All lanes have finished: the last outcomes may take as long as they need.
                if self._ended.is_set() and self._failure is None:
                    await asyncio.wait(
                        {idle, stopped, ledger_writer}, return_when=asyncio.FIRST_COMPLETED
                    )
                self.halt()
                await asyncio.wait(
                    {idle, ledger_writer},
                    timeout=self._rules.drain_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            await cancel_and_wait(stopped, idle)
        await self._settle()

    async def _settle(self) -> None:
        """Give up the batches in flight: unknown, or failed if never handed to a connection."""
        self.halt()
        self.died = self.died or self._sender.dead
        await self._sender.stop()
        await self._idle.wait()

    async def _finish(self, stop: asyncio.Event) -> None:
        if self.died is None:
            await self.before_end()
            await write_end_marks(
                [self.ledger_writer], stop, grace_seconds=self._rules.drain_seconds
            )
        elif not await before_stop(
            self.ledger_writer.finish(ended=False), stop, grace_seconds=self._rules.drain_seconds
        ):
            raise ClusterError(
                "could not write the last outcomes to the ledger: for consumers those messages "
                "are unknown; the sequence log is complete"
            )

    # -- the lanes ------------------------------------------------------------------------------

    def _notified(self, recorded: RecordedLane) -> None:
        """Visit the lane if it waits: something that it may wait for has happened."""
        if recorded in self._waiting:
            self._waiting.discard(recorded)
            if not self._due:
                asyncio.get_running_loop().call_soon(self._visit_due)
            self._due.append(recorded)

    def _wake(self, moment: int) -> None:
        self._due += self._sleeping.pop(moment)
        self._visit_due()

    def _visit_due(self) -> None:
        due, self._due = self._due, []
        try:
            for recorded in due:
                self._visit(recorded)
        except Exception as error:  # noqa: BLE001  # no task awaits this: `run` raises it
            self._failure = self._failure or error
            self.halt()

    def _visit(self, recorded: RecordedLane) -> None:
        """Send what may be sent now, and arrange the lane's next visit."""
        lane, pace, linger_ns = recorded.lane, recorded.lane.pace, self._rules.linger_ns
        while not self._halted:
            now = self._clock.now()
            available = pace.available(now)
            exact = lane.exact_batch()
            if available < (exact or 1):
                self._await_due(recorded, now, exact)
                return
            if (exact is None and available < lane.most) and (
                (linger_end := last_tick(pace.linger_end_ns(now, linger_ns), linger_ns)) > now
            ):
                self._sleep(recorded, now, linger_end)
                return
            if not self._may_send(lane, exact or 1):
                self._waiting.add(recorded)
                return
            if (
                self._send(recorded, exact or min(available, lane.room, lane.most), now)
                == available
            ):
                self._await_due(recorded, now, lane.exact_batch())
                return

    def _await_due(self, recorded: RecordedLane, now: int, exact: int | None) -> None:
        """Arrange a visit of a lane for when its next batch is due."""
        at = recorded.lane.pace.next_ns(now, exact or 1)
        if at is None:
            self._finished(recorded.lane)
            return
        linger_ns = self._rules.linger_ns
        at = at if exact is not None else last_tick(at + linger_ns, linger_ns)
        self._sleep(recorded, now, at)

    def _may_send(self, lane: Lane, least: int) -> bool:
        """Whether a lane may send `least` messages now; if not, it is notified later."""
        if len(lane.flights) >= MAX_IN_FLIGHT:
            return False
        if lane.room < least:
            self.ledger_writer.starved()
            return False
        return lane.pool.turn(lane)

    def _finished(self, lane: Lane) -> None:
        """Count a lane that has nothing more to send as finished."""
        lane.pool.leave(lane)
        self._unfinished -= 1
        if not self._unfinished:
            self._ended.set()

    def _sleep(self, recorded: RecordedLane, now: int, until: int) -> None:
        """Arrange a visit at `until`, or earlier; lanes with the same time share a timer."""
        until = min(until, now + _MAX_SLEEP_NS)
        if (sleeping := self._sleeping.get(until)) is None:
            sleeping = self._sleeping[until] = []
            # uvloop rounds to milliseconds. Round up, or the timer fires too early, and twice.
            seconds = -(-max(0, until - now) // MILLISECOND_NS) / 1000
            asyncio.get_running_loop().call_later(seconds, self._wake, until)
        sleeping.append(recorded)

    def _send(self, recorded: RecordedLane, count: int, now: int) -> int:
        """Send a batch of `count` messages, or of fewer if they are large; return how many."""
        lane = recorded.lane
        index = lane.pace.position
        sizes, payloads = (None, None) if lane.sizes is None else lane.sizes.fitting(index, count)
        intended = lane.pace.take(count if sizes is None else len(sizes), now)
        offset = self._clock.offset_ns
        encoded = lane.encoder.encode(
            lane.next_seq, intended + offset, now + offset, sizes, payloads
        )
        if self._rules.compress is not None:
            encoded = self._rules.compress(encoded)
        flight = Flight(lane.next_seq, index, intended, now, offset, encoded.size, sizes)
        lane.begin_send(flight)
        if not self._batches_in_flight:
            self._idle.clear()
        self._batches_in_flight += 1
        self._steps += 1
        try:
            future = self._sender.send(lane.stream.topic, lane.partition, encoded)
        except SenderDeadError:
            # It was not sent: its numbers and its place in the schedule are free again.
            lane.undo_send(flight)
            self._count_completed()
            self.halt()
        except BaseException as error:
            # Whatever the error: the drain must not wait for this batch for ever.
            self._complete(recorded, flight, Sent(Outcome.UNKNOWN, -1, repr(error), Failure.OTHER))
            raise
        else:
            future.add_done_callback(partial(self._answered, recorded, flight))
        return flight.count

    def _answered(
        self, recorded: RecordedLane, flight: Flight, future: asyncio.Future[Sent]
    ) -> None:
        sent = future.result()
        self._complete(recorded, flight, sent)
        if self._sender.dead is not None:
            if sent.failure is not None and self.ended_by is None:
                self.ended_by = recorded.lane.stream.topic, sent.failure
            self.halt()

    def _complete(self, recorded: RecordedLane, flight: Flight, sent: Sent) -> None:
        outcome, reason, failure = sent.outcome, sent.error, sent.failure
        try:
            recorded.recorder.record_outcome(
                flight, outcome, sent.base_offset, self._clock.now(), failure
            )
        except SequenceLogError:
            pass  # the ledger never gets this outcome: the writer's next round raises
        except Exception as error:  # noqa: BLE001  # no task awaits this: `run` raises it
            # The ledger must not have an outcome that is in no log.
            outcome, reason = Outcome.UNKNOWN, repr(error)
            self._failure = self._failure or error
            self.halt()
        recorded.lane.complete(flight, outcome)
        if outcome is not Outcome.ACKED:
            self._reasons[reason or ""] += flight.count
        elif self._sender.stamps(recorded.lane.stream.topic):
            recorded.lane.stamped = True
        self._count_completed()

    def _count_completed(self) -> None:
        self._batches_in_flight -= 1
        self._steps += 1
        if not self._batches_in_flight:
            self._idle.set()
