"""Real records, as the classes behind the commands write them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.state_store import StateStore
from mirrortest.consume.state_table import Scope
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger_parts import LaneParts
from mirrortest.verify.ledger_record import (
    ClosedLane,
    LaneRecord,
    Registration,
    registration_key,
    registration_value,
)
from mirrortest.verify.loss import Losses
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from random import Random

    from mirrortest.consume.judged_topics import JudgedTopics

RUN, SOURCE, TOPIC = "r1", "t", "A.t"
SCOPE = Scope(RUN, "cluster", "consumer", "g")
HURT, UNHURT = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
"""A partition, and another one that changes to its records must not affect."""
Record = tuple[bytes, bytes | None]


def streams(producers: str = "pq") -> list[StreamId]:
    """Two lanes of two incarnations of each producer."""
    return [
        StreamId(SOURCE, RUN, producer, incarnation, lane)
        for producer in producers
        for incarnation in (1, 2)
        for lane in (0, 7)
    ]


def _numbers(rng: Random, lo: int, hi: int) -> IntervalSet:
    found = IntervalSet()
    for _ in range(rng.randrange(4)):
        begin = rng.randrange(lo, hi)
        found.add(begin, min(hi, begin + rng.randrange(1, 20)))
    return found


def ledger(rng: Random, producer: str = "p") -> list[Record]:
    """What a producer writes in two incarnations: registrations, lanes, lanes in parts."""
    found: list[Record] = []
    for incarnation in (1, 2):
        closes = () if incarnation == 1 else (ClosedLane(SOURCE, 0, 90), ClosedLane(SOURCE, 7, 99))
        claim = Registration(
            RUN, producer, incarnation, f"s{incarnation}", {SOURCE: (0, 7)}, closes
        )
        found.append((registration_key(claim), registration_value(claim)))
    for stream in streams(producer):
        acked = _numbers(rng, 0, 80)
        failed = _numbers(rng, 0, 80) - acked
        end = rng.choice((None, 80))
        unknown = (acked | failed).missing(0, 80) if end else IntervalSet()
        record = LaneRecord(stream, 100, acked, failed, unknown, end, 3, 3)
        found += LaneParts(rng.choice((2, 100))).records(record)
    return found


def checker(rng: Random, at: TopicPartition) -> PartitionChecker:
    """A partition with random events of every kind that a state can describe."""
    made = PartitionChecker(SOURCE, at.partition, max_intervals=rng.choice((40, 10_000)))
    findings = [0, 0, 0, Finding.CORRUPTED, Finding.ALTERED_KEY, Finding.MISROUTED]
    for _ in range(rng.randrange(4, 20)):
        lo, count = made.next_offset, rng.randrange(1, 9)
        match rng.randrange(12):
            case 0:
                made.unread(lo, lo + count)
            case 1 if made.next_offset:
                made.begin_incarnation()
            case 2:
                made.apply(SeenRow(None, 0, 0, lo, lo + count, Finding.OTHER_RUN, *[0] * 6))
            case _:
                stream, seq = rng.choice(streams()), rng.randrange(60)
                times = (1, 2, 1, 2, 3, 4)
                row = SeenRow(
                    stream, seq, seq + count, lo, lo + count, rng.choice(findings), *times
                )
                made.apply(row)
    return made


def assigned(rng: Random, at: TopicPartition) -> AssignedPartition:
    """A partition that is assigned to a consumer."""
    made = checker(rng, at)
    last = (made.next_offset - 1, rng.getrandbits(32)) if made.next_offset else None
    return AssignedPartition(
        at=at,
        generation=1,
        checker=made,
        identity=rng.randrange(3),
        claimed={stream: _numbers(rng, 0, 60) for stream in streams()[: rng.randrange(3)]},
        notes=["a topic was created again"] * rng.randrange(2),
        last_record=last,
        **about(),
    )


def about() -> dict[str, Any]:
    """The fields that restoring a partition takes."""
    return {"source": SOURCE, "run": RUN, "policy": ExpectPartition.ANY, "counts": [2]}


def judge() -> TopicJudge:
    """The topic's judge, with nothing claimed lost yet."""
    return TopicJudge(SOURCE, RUN, ExpectPartition.ANY, Losses(60_000_000_000))


def claimed(rng: Random) -> TopicJudge:
    """The same with claimed losses, deadlines and a closing snapshot."""
    made = judge()
    for stream in streams():
        made.losses.merge({stream: _numbers(rng, 0, 50)})
        for second in range(3):
            made.losses.note(stream, _numbers(rng, 0, 99), second * 30_000_000_000)
    made.close(ClosingSnapshot((8, 400), {0: 70, 1: 90}, 5))
    return made


def judged_document(rng: Random) -> tuple[dict[str, Any], list[Any]]:
    """The content of a shared record: the document, and the lines of the deadlines."""
    raw: list[bytes] = []

    async def share(_: str, record: bytes) -> bool:
        raw.append(record)
        return True

    async def renewed() -> None:
        """The topic is never recreated."""

    nothing: Any = lambda _: []  # noqa: E731  # no other consumer writes
    store: Any = SimpleNamespace(
        written=nothing, written_elsewhere=nothing, share=share, renewed=renewed
    )
    topics = cast("JudgedTopics", SimpleNamespace(judges={TOPIC: claimed(rng)}))
    asyncio.run(SharedState(topics, store, lambda: 90_000_000_000).write())
    reader = zlib.decompressobj()
    document = json.loads(reader.decompress(raw[-1]))
    lines = zlib.decompress(reader.unused_data).splitlines() if reader.unused_data else []
    return document, [json.loads(line) for line in lines]


class Written:
    """A topic in memory."""

    topic = "states"

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._grown = asyncio.Event()

    async def create(self) -> bool:
        """The topic exists."""
        return False

    async def write(self, key: bytes, value: bytes | None) -> int:
        self.records.append((key, value))
        self._grown.set()
        self._grown = asyncio.Event()
        return len(self.records) - 1

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        position = 0
        while True:
            grown = self._grown
            for key, value in self.records[position:]:
                yield position, key, value
                position += 1
            if position >= len(self.records):
                await grown.wait()


async def states(states: dict[TopicPartition, dict[str, Any]]) -> list[Record]:
    """The records of a consumer that takes these partitions and saves these states."""
    topic = Written()
    store = StateStore(topic, SCOPE, "session")
    following = asyncio.create_task(store.follow())
    await store.caught_up()
    for at, state in states.items():
        generation, _ = await store.claim(at)
        await store.save(at, generation, state)
    await store.share(TOPIC, b"of all")
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    return topic.records
