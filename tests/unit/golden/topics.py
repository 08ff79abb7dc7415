"""The records of the ledger and of the state topic: key and value of each kind."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.partition_views import SavedState
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.state_table import Scope
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger_parts import LaneParts
from mirrortest.verify.ledger_record import (
    CLOSED,
    ClosedLane,
    LaneRecord,
    Registration,
    lane_key,
    lane_value,
    registration_key,
    registration_value,
)
from mirrortest.verify.loss import Losses
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.unit.memory_topic import MemoryTopic, following

if TYPE_CHECKING:
    from mirrortest.consume.judged_topics import JudgedTopics

STREAM = StreamId("orders", "run7", "pa", 3, 11)
START = 1_700_000_000_123_456_789
SCOPE = Scope("run7", "cluster", "consumer", "group")
AT = TopicPartition("A.orders", 5)
SECOND = 10**9


def document() -> dict[str, Any]:
    """Everything, as JSON's types."""
    return {"ledger": _ledger(), "states": asyncio.run(_states())}


def _ledger() -> dict[str, Any]:
    lane = LaneRecord(
        STREAM,
        reserved=40,
        acked=IntervalSet([(0, 9), (10, 20)]),
        failed=IntervalSet([(9, 10)]),
        unknown=IntervalSet([(20, 21)]),
        destination_partitions=8,
        source_partitions=4,
    )
    ended = LaneRecord(
        **{**_fields(lane), "end": 21, "compacted": True, "stamped": True, "repeats": True}
    )
    claim = Registration("run7", "pa", 3, "20231114T221320Z-1f2e3d4c", {"orders": (0, 11)})
    closing = Registration(
        "run7", "pa", 3, "s", {"a": (1,), "b": ()}, (ClosedLane("orders", 11, 40),), failed=True
    )
    return {
        "a lane": [_text(lane_key(STREAM)), _text(lane_value(lane))],
        "a lane of which nothing is known": [
            _text(lane_key(STREAM)),
            _text(lane_value(LaneRecord(STREAM))),
        ],
        "a lane that has ended": _records(LaneParts().records(ended)),
        "a lane in parts": _records(LaneParts(2).records(lane)),
        "a lane in parts that has ended": _records(LaneParts(2).records(ended)),
        "a lane that a successor has closed": _records(
            LaneParts(ended=CLOSED).records(lane.closed(45))
        ),
        "a registration": [_text(registration_key(claim)), _text(registration_value(claim))],
        "a registration that closes lanes and has failed": [
            _text(registration_key(closing)),
            _text(registration_value(closing)),
        ],
    }


def _fields(record: LaneRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _records(records: list[tuple[bytes, bytes]]) -> list[list[str]]:
    return [[_text(key), _text(value)] for key, value in records]


async def _states() -> list[list[str | None]]:
    """All records of a consumer that saves twice, and of its successor, which ends."""
    topic = MemoryTopic()
    async with following(topic, "20231114T221320Z-00000001", SCOPE) as first:
        generation, _ = await first.claim(AT)
        await first.save(AT, generation, _assigned().to_state())
        await first.save(AT, generation, {"v": 1})
        await SharedState(_topics(), first, lambda: 1000 * SECOND).write()
    async with following(topic, "20231114T221320Z-00000002", SCOPE) as second:
        await second.caught_up()
        generation, _ = await second.claim(AT)
        await second.save(AT, generation, {"v": 2}, parting=True)
    return _readable([(key, value) for _, key, value in topic.records])


def _assigned() -> AssignedPartition:
    """A partition that fills every field of its state."""
    assigned = AssignedPartition.fresh(
        AT,
        1,
        source="orders",
        run="run7",
        policy=ExpectPartition.MURMUR2,
        counts=[4, 8],
        identity=2,
        topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
        left_ids=["AAAAAAAAAAAAAAAAAAAAAg"],
        begins_at=3,
        cuts=1,
        epochs=[(1, 3), (4, 20)],
        claimed={STREAM: IntervalSet([(30, 31)])},
        notes=["a note"],
        last_record=(24, 0xDEADBEEF),
    )
    checker = assigned.checker
    times = (START, START + 5, START + 1, START + 6, START + 2, START + 7)
    checker.apply(SeenRow(STREAM, 0, 5, 3, 8, 0, *times))
    checker.apply(SeenRow(STREAM, 8, 10, 8, 10, int(Finding.ALTERED_KEY), *times))
    checker.apply(SeenRow(STREAM, 3, 6, 10, 13, 0, *times))  # 3 and 4 again, 5 after later ones
    checker.apply(SeenRow(STREAM._replace(lane=4), 7, 8, 13, 14, int(Finding.MISROUTED), *times))
    checker.apply(SeenRow(None, 0, 0, 14, 16, int(Finding.FOREIGN), *times))
    checker.apply(SeenRow(None, 0, 0, 16, 17, int(Finding.CORRUPTED), *times, 11))
    checker.apply(SeenRow(STREAM._replace(lane=5), 0, 1, 17, 18, 0, *times))
    checker.fragments[STREAM._replace(lane=5)].collapse()  # as at the memory bound
    checker.untracked["seen"] = 1
    checker.unread(18, 20, START)
    checker.apply(SeenRow(STREAM, 20, 25, 20, 25, 0, *times))
    state = json.loads(json.dumps(assigned.to_state()))
    assert (
        SavedState.read(state, AT, run="run7", policy=assigned.policy).checker.to_state()
        == checker.to_state()
    )
    return assigned


def _topics() -> JudgedTopics:
    """One topic whose consumers share claims, a deadline and a closing snapshot."""
    judge = TopicJudge("orders", "run7", ExpectPartition.ANY, Losses(60 * SECOND))
    judge.losses.merge({STREAM: IntervalSet([(30, 31), (35, 37)])})
    judge.losses.note(STREAM, IntervalSet([(30, 31)]), 900 * SECOND)
    judge.losses.note(STREAM, IntervalSet([(31, 40)]), 990 * SECOND)
    judge.close(ClosingSnapshot((2, 40), {5: 25, 0: 7}, START))
    return cast("JudgedTopics", SimpleNamespace(judges={"A.orders": judge}))


def _readable(records: list[tuple[bytes, bytes | None]]) -> list[list[str | None]]:
    """Keys and values as text, decompressed: the compressed bytes depend on zlib."""
    shown: list[list[str | None]] = []
    chunks: dict[str, bytes] = {}
    for key, value in records:
        kind, *_ = json.loads(key)
        if value is None:
            text = None
        elif kind in {"chunk", "topic"}:
            text = " | ".join(f"zlib {content}" for content in _unpacked(value))
        else:
            text = _text(value)
        if kind == "chunk" and value is not None:
            chunks[hashlib.sha256(value).hexdigest()] = value
        elif kind == "commit" and text is not None:
            digest = json.loads(text)["sha256"]
            assert digest in chunks
            text = text.replace(digest, "of the chunk")
        shown.append([_text(key), text])
    return shown


def _unpacked(data: bytes) -> list[str]:
    """The contents of several concatenated compressed streams."""
    contents = []
    while data:
        stream = zlib.decompressobj()
        contents.append(_text(stream.decompress(data)))
        data = stream.unused_data
    return contents


def _text(data: bytes) -> str:
    return data.decode()
