"""Changed records of each kind, read by the code that reads them in a consumer.

A reader gets a random number generator. It creates a real record, changes it, has it read, and
returns whether it was understood. It raises if the record was neither understood nor counted, if it
changed what is recorded of others, or if the code that reads it raised.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import zlib
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import structlog

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.state_store import StateStore
from mirrortest.model.findings import MISSING, Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.judge import RunVerdict, judge
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord, lane_key, lane_value, parse
from mirrortest.verify.row import SeenRow
from mirrortest.verify.untrusted import RecordError

from . import records
from .mutate import garbled, mutated
from .records import HURT, RUN, SCOPE, TOPIC, UNHURT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.wire.stream import StreamId

    from .records import Record

Reader: TypeAlias = "Callable[[Random], bool]"

_BATCH = 200
"""How many different sets of records are changed."""
_POSSIBLE = 1 << 62


def read_ledger(rng: Random) -> bool:
    """Read a changed record of producer p, after other records of p and q."""
    good = _ledger_records(rng.randrange(_BATCH))
    changed = rng.randrange(len(good[0]))
    ledger = Ledger()
    for record in (*good[0][:changed], *good[1]):
        ledger.apply(*record)
    before = dict(ledger.lanes)
    key, value = _mutant(rng, good[0][changed])
    ledger.apply(key, value)
    found = parse(key, value) if value is not None else None
    if (found is None) is not bool(ledger.malformed):
        raise AssertionError("neither understood nor counted")
    named = found.stream if isinstance(found, LaneRecord) else found
    whose = named and (named.run, named.producer)
    for stream in before.keys() | ledger.lanes.keys():
        if stream[1:3] != whose and before.get(stream) != ledger.lanes.get(stream):
            raise AssertionError(f"{stream} is none of the record's")
    ledger.complete(RUN)
    for stream, lane in ledger.lanes.items():
        _check_stream(stream)
        _check_numbers(lane.acked, lane.failed, lane.unknown)
        lane_value(lane), lane_key(stream)
    return found is not None


def read_state_records(rng: Random) -> bool:
    """Read the state records of two partitions with one of them changed."""
    seed = rng.randrange(_BATCH)
    good = _state_records(seed)
    changed = rng.randrange(len(good))
    store = _store()
    key, value = _mutant(rng, good[changed])
    for record in (*good[:changed], (key, value), *good[changed + 1 :]):
        store._apply(*record)
    _use(store)
    of_hurt = key == good[changed][0] and json.loads(key)[5:7] == [*HURT]
    if of_hurt and store.state(UNHURT) != _undamaged_state(seed):
        raise AssertionError("the other partition's state is another one")
    return not store.damaged


def read_state(rng: Random) -> bool:
    """Read a state that was changed inside its compressed body, with the right digest."""
    at = HURT
    state = _states(rng.randrange(_BATCH))[at]
    body = json.dumps(state).encode()
    raw = mutated(rng, json.loads(body)) if rng.random() < 0.9 else garbled(rng, body)
    packed = zlib.compress(raw, 1)
    if rng.random() < 0.05:
        packed = garbled(rng, packed)
    store = _store()
    commit: dict[str, Any] = {"v": 1, "version": 1, "slot": 1, "chunks": 1}
    commit["sha256"] = hashlib.sha256(packed).hexdigest()
    for key, value in (
        (store._table.key("claim", at, 1, "s"), b"{}"),
        (store._table.key("chunk", at, 1, 1, 0), packed),
        (store._table.key("commit", at, 1), json.dumps(commit).encode()),
    ):
        store._apply(key, value)
    found = store.state(at)
    if found is None:
        raise AssertionError("a whole state is not there")
    try:
        assigned = AssignedPartition.restored(at, 2, found, **records.about())
    except RecordError as error:
        assigned = AssignedPartition.unreadable(at, 2, found, str(error), **records.about())
        json.dumps(assigned.to_state()).encode()
        return False
    if assigned.checker.topic != assigned.source:
        return False  # a copy of another topic: its consumer judges it again
    _begin_incarnation(assigned)
    return True


def read_shared(rng: Random) -> bool:
    """Read a shared record that was changed inside one of its two compressed bodies."""
    document, lines = _shared(rng.randrange(_BATCH))
    parts = [json.dumps(document).encode(), b"\n".join(json.dumps(line).encode() for line in lines)]
    at = rng.randrange(3)
    if at == 0:
        parts[0] = mutated(rng, json.loads(parts[0]))
    elif at == 1 and lines:
        changed = rng.randrange(len(lines))
        made = [json.dumps(line).encode() for line in lines]
        made[changed] = mutated(rng, json.loads(made[changed]))
        parts[1] = b"\n".join(made)
    else:
        part = rng.randrange(2)
        parts[part] = garbled(rng, parts[part])
    raw = b"".join(zlib.compress(part, 1) for part in parts)
    if at and rng.random() < 0.1:
        raw = garbled(rng, raw)
    judged = records.judge()
    store: Any = SimpleNamespace(written=lambda _: [raw], written_elsewhere=lambda _: [raw])
    topics = cast("JudgedTopics", SimpleNamespace(judges={TOPIC: judged}))
    with structlog.testing.capture_logs() as logged:
        SharedState(topics, store, lambda: 0).merge_written()
    for stream, numbers in judged.losses.claimed.items():
        _check_stream(stream)
        _check_numbers(numbers)
    waiting = list(judged.losses.clocks_to_state(lambda: 0))
    if logged and (
        judged.closing
        or (waiting and not judged.losses.claimed and b'"claimed":[]' not in parts[0])
    ):
        raise AssertionError("what comes behind what is refused is taken over")
    for elapsed_ns in (0, 1 << 60):
        for stream in records.streams():
            _check_numbers(judged.losses.expired(stream, elapsed_ns))
    return not logged


READERS: dict[str, Reader] = {
    "ledger": read_ledger,
    "state records": read_state_records,
    "states": read_state,
    "shared records": read_shared,
}


def _mutant(rng: Random, record: Record) -> Record:
    """The record with its key or its value changed: as JSON, or as bytes."""
    key, value = record
    if value is None or rng.random() < 0.4:
        return _changed(rng, key), value
    return key, _changed(rng, value)


def _changed(rng: Random, raw: bytes) -> bytes:
    try:
        document = json.loads(raw)
    except ValueError:
        return garbled(rng, raw)
    return mutated(rng, document) if rng.random() < 0.8 else garbled(rng, raw)


def _store() -> StateStore:
    return StateStore(records.Written(), SCOPE, "reader")


def _use(store: StateStore) -> None:
    """Query a store as a consumer does."""
    for at in store.serials():
        store.fenced(at, 1)
        state = store.state(at)
        try:
            AssignedPartition.restored(at, 1, state or {}, **records.about())
        except RecordError:
            continue
    store.written(TOPIC)


@functools.cache
def _undamaged_state(seed: int) -> dict[str, Any] | None:
    store = _store()
    for record in _state_records(seed):
        store._apply(*record)
    return store.state(UNHURT)


def _begin_incarnation(assigned: AssignedPartition) -> None:
    """Judge and save, as the next consumer does."""
    checker = assigned.checker
    for seq in (0, 30):
        at = checker.next_offset
        row = SeenRow(records.streams()[0], seq, seq + 3, at, at + 3, 0, 1, 2, 1, 2, 3, 4)
        checker.apply(row)
    verdicts: list[StreamVerdict] = []
    for stream, fragment in checker.fragments.items():
        _check_stream(stream)
        acked = IntervalSet([(0, 80)])
        lane = LaneRecord(stream, 80, acked, end=80)
        claimed = assigned.claimed.get(stream)
        verdicts.append(judge(stream, {0: fragment}, lane, claimed=claimed, ledger_complete=True))
        found = verdicts[-1]
        _check_numbers(found.having(Finding.LOST), found.having(Finding.LATE), fragment.seen)
        counted = (
            found.delivered,
            *map(found.having, MISSING),
        )
        if sum(numbers.count for numbers in counted) != acked.count:
            raise AssertionError("an acknowledged number has no verdict, or two")
    RunVerdict.of(verdicts, [checker])
    if assigned.start_offset < 0 or assigned.start_offset > checker.next_offset:
        raise AssertionError("reading goes on where nothing was read")
    json.dumps(assigned.to_state()).encode()


def _check_stream(stream: StreamId) -> None:
    """Fail unless a stream fits the columns of a log."""
    stream.producer.encode(), stream.topic.encode(), stream.run.encode()
    if not (0 < stream.incarnation < 1 << 31 and 0 <= stream.lane < 1 << 63):
        raise AssertionError(f"{stream} fits no log")


def _check_numbers(*of: IntervalSet) -> None:
    for numbers in of:
        if numbers and not 0 <= numbers.min < numbers.end <= _POSSIBLE:
            raise AssertionError(f"{numbers} fit no log")


@functools.cache
def _ledger_records(seed: int) -> tuple[list[Record], list[Record]]:
    return records.ledger(Random(seed), "p"), records.ledger(Random(seed + 1), "q")


@functools.cache
def _states(seed: int) -> dict[TopicPartition, dict[str, Any]]:
    rng = Random(seed)
    return {at: records.assigned(rng, at).to_state() for at in (HURT, UNHURT)}


@functools.cache
def _state_records(seed: int) -> list[Record]:
    return asyncio.run(records.states(_states(seed)))


@functools.cache
def _shared(seed: int) -> tuple[dict[str, Any], list[Any]]:
    return records.judged_document(Random(seed))
