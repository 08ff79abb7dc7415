"""A producer's ledger, log and sender in memory, and a world that combines them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from mirrortest.errors import TopicMissingError, TopicReplacedError
from mirrortest.kafka.sender import SenderDeadError, Sent
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.produce.batch_counts import BatchCounts
from mirrortest.produce.buffer_pool import BufferPool
from mirrortest.produce.clock import Clock
from mirrortest.produce.incarnation import Incarnation, SendRules
from mirrortest.produce.lane import Lane, Reservation
from mirrortest.produce.ledger_view import LedgerView
from mirrortest.produce.ledger_writer import LedgerWriter, Log, RecordedLane
from mirrortest.produce.message_sizes import LaneSizes, MessageSizes
from mirrortest.produce.pace import Pace, pace_of
from mirrortest.produce.recording import LaneRecorder, TopicNumbers
from mirrortest.produce.registration import register
from mirrortest.verify.ledger import Ledger
from mirrortest.wire.batch import EncodedBatch, LaneEncoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId, StreamId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from mirrortest.produce.ledger_view import CompactedLog
    from mirrortest.seqlog.batches import Columns
    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.schema import Kind
    from mirrortest.verify.ledger_record import Registration

LANES = {"t": (1, 4)}


class MemoryTopic:
    """The ledger's topic; writes wait while `frozen` is clear. `wrote` gets each record.

    `delete` removes all records; readers notice, unless it is `silent`. While the topic is
    `missing`, writes fail.
    """

    topic = "ledger"

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.frozen = asyncio.Event()
        self.frozen.set()
        self.wrote: Callable[[bytes, bytes | None], object] = lambda _key, _value: None
        self.missing = False
        self.refusal: Exception | None = None
        """What `create` raises."""
        self.created = 0
        self._deleted = 0
        self._grown = asyncio.Event()

    async def write(self, key: bytes, value: bytes | None) -> int:
        await self.frozen.wait()
        await asyncio.sleep(0)
        if self.missing:
            raise TopicMissingError("deleted")
        self.records.append((key, value))
        self.wrote(key, value)
        self._wake()
        return len(self.records) - 1

    async def create(self) -> bool:
        if self.refusal is not None:
            raise self.refusal
        before, self.missing = self.missing, False
        self.created += before
        return before

    def delete(self, *, missing: bool = True, silent: bool = False) -> None:
        self.records, self.missing = [], missing
        self._deleted += not silent
        self._wake()

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        position, deleted = 0, self._deleted
        while True:
            grown = self._grown
            while position < len(self.records):
                yield (position, *self.records[position])
                position += 1
            if self._deleted != deleted:
                raise TopicReplacedError("deleted")
            await grown.wait()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    def ledger(self) -> Ledger:
        ledger = Ledger()
        for key, value in self.records:
            ledger.apply(key, value)
        return ledger


class MemoryLog:
    """A sequence log; `durable` has the rows that would survive a crash."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.durable: list[Row] = []
        self.error: Exception | None = None

    @property
    def durable_rows(self) -> int:
        return len(self.durable)

    def append(self, rows: Iterable[Row]) -> None:
        self.rows += rows

    def append_arrays(self, columns: Columns) -> None:
        raise AssertionError("these lives log intervals, no row for each message")

    async def revise(self, _: object) -> None:
        """Tests do not check the session."""

    async def sync(self) -> None:
        if self.error is not None:
            raise self.error
        rows = list(self.rows)
        await asyncio.sleep(0)
        self.durable = rows

    def numbers(self, stream: StreamId, kind: Kind, outcome: Outcome | None = None) -> IntervalSet:
        return IntervalSet(
            (row.seq_lo, row.seq_hi)
            for row in self.durable
            if row.seq_lo is not None and row.seq_hi is not None
            if row.kind == kind and row.lane == stream.lane and row.outcome == outcome
        )


@dataclass
class MemorySender:
    """Answers each batch at once with `outcome`, or keeps it while `holding`."""

    outcome: Outcome = Outcome.ACKED
    holding: bool = False
    partitions: int = 2
    dead: str | None = None
    sent: list[tuple[str, int, int]] = field(default_factory=list)
    unanswered: list[asyncio.Future[Sent]] = field(default_factory=list)
    before: Callable[[str, int, EncodedBatch], object] | None = None

    def send(self, topic: str, partition: int, encoded: EncodedBatch) -> asyncio.Future[Any]:
        if self.dead is not None:
            raise SenderDeadError(self.dead)
        if self.before is not None:
            self.before(topic, partition, encoded)
        self.sent.append((topic, partition, encoded.count))
        future = asyncio.get_running_loop().create_future()
        if self.dead is not None:
            future.set_result(Sent(Outcome.UNKNOWN, -1, self.dead, Failure.WITHDRAWN))
        elif self.holding:
            self.unanswered.append(future)
        else:
            offset = 10 if self.outcome is Outcome.ACKED else -1
            future.set_result(
                Sent(self.outcome, offset, *(("no", Failure.REFUSED) if offset < 0 else ()))
            )
        return future

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def stamps(self, topic: str) -> bool:
        return False

    def die(self) -> None:
        self.dead = "it died"
        for future in self.unanswered:
            if not future.done():
                future.set_result(Sent(Outcome.UNKNOWN, -1, self.dead, Failure.WITHDRAWN))

    async def stop(self) -> None:
        self.die()


async def until(condition: Callable[..., Any]) -> None:
    """Let the other tasks run until a condition is true."""
    while not condition():  # noqa: ASYNC110  # any of several tasks may bring it about
        await asyncio.sleep(0)


@dataclass
class World:
    topic: MemoryTopic
    view: LedgerView
    log: MemoryLog
    clock: Clock
    numbers: TopicNumbers = field(default_factory=lambda: TopicNumbers(100))
    """Those of the newest incarnation."""

    @classmethod
    @contextlib.asynccontextmanager
    async def followed(cls) -> AsyncIterator[World]:
        """A new world, whose ledger is followed until the context ends."""
        topic = MemoryTopic()
        view = LedgerView(cast("CompactedLog", topic), "r", "p")
        task = asyncio.create_task(view.follow())
        yield cls(topic, view, MemoryLog(), Clock())
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def claim(self, session: str = "s1") -> Registration:
        return await register(self.view, run="r", producer="p", session=session, lanes=LANES)

    async def incarnation(
        self,
        sender: MemorySender,
        *,
        throughput: float | None = None,
        total: int | None = 1000,
        drain: float = 0.2,
        paces: list[Pace] | None = None,
        memory: int = 1 << 20,
        batches: int | None = None,
        sizes: MessageSizes | None = None,
        linger_ms: int = 0,
    ) -> tuple[Incarnation, list[Lane]]:
        claim = await self.claim()
        pool = BufferPool(memory)
        recorded = []
        self.numbers = numbers = TopicNumbers(100)
        paces = paces or [
            pace_of(throughput, index=index, lanes=2, total=total) for index in range(2)
        ]
        for index, number in enumerate(LANES["t"]):
            encoder = LaneEncoder(
                "t", ProducerId("p", "r", claim.incarnation), number, index, 2, Form.BODY, 100
            )
            lane = Lane(
                StreamId("t", "r", "p", claim.incarnation, number),
                partition=index,
                source_partitions=2,
                destination_partitions=2,
                pace=paces[index],
                reservation=Reservation(
                    ahead=paces[index].ahead,
                    limit=paces[index].limit,
                    first=64,
                    batch=batches or 1,
                ),
                encoder=encoder,
                most=encoder.most_within(4000),
                pool=pool,
                batches=None
                if batches is None
                else BatchCounts(batches, seed=0, topic="t", lane=index),
                sizes=None
                if sizes is None
                else LaneSizes(
                    sizes,
                    index=index,
                    of=2,
                    actual=encoder.value_sizes,
                    framing=encoder.framing,
                    batch_bytes=4000 - HEADER_SIZE,
                ),
            )
            recorder = LaneRecorder(
                lane,
                numbers,
                warmup=0,
                clock=self.clock,
                per_message=False,
                append=self.log.append,
                append_arrays=self.log.append_arrays,
            )
            recorded.append(RecordedLane(lane, recorder))
        ledger_writer = LedgerWriter(cast("Log", self.log), self.view, claim, recorded, self.clock)
        rules = SendRules(linger_ns=linger_ms * 1_000_000, drain_seconds=drain)
        incarnation = Incarnation(
            recorded, ledger_writer, sender, self.clock, rules, reasons=Counter()
        )
        await ledger_writer.round()
        for pace in paces:
            pace.start(self.clock.now())
        return incarnation, [each.lane for each in recorded]
