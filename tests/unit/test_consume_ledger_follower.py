"""Waiting for the ledger topic, and for the parts of its records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mirrortest.consume import ledger_follower
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.errors import UnreachableError
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger_record import LaneRecord, Registration, lane_key, lane_value
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM = StreamId("t", "r1", "p", 1, 0)
AWAY = UnreachableError("no Kafka broker answers")


class OneRecord:
    """A ledger topic with one record; `read` is set once it was applied."""

    topic = "ledger"

    def __init__(self) -> None:
        self.read = asyncio.Event()

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        record = LaneRecord(STREAM, 3, IntervalSet([(0, 3)]))
        yield 0, lane_key(record.stream), lane_value(record)
        self.read.set()
        await asyncio.Event().wait()


def _follower(*answers: bool | UnreachableError, topic: OneRecord | None = None) -> LedgerFollower:
    given = iter(answers)

    async def exists() -> bool:
        answer = next(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return LedgerFollower(topic or OneRecord(), exists, where="'ledger'", now_ns=lambda: 7)


async def test_an_outage_while_the_topic_is_awaited_is_sat_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that restarts must not end a consumer that only waits for the ledger."""
    monkeypatch.setattr(ledger_follower, "_POLL_SECONDS", 0)
    topic = OneRecord()
    follower = _follower(False, AWAY, False, AWAY, True, topic=topic)
    assert "does not exist" in str(follower.missing_reason("r1"))
    following = asyncio.create_task(follower.follow())
    async with asyncio.timeout(60):
        await topic.read.wait()
    following.cancel()
    assert follower.missing_reason("r1") is None
    assert (follower.present, follower.last_record_ns) == (True, 7)
    assert "no record of run 'r2'" in str(follower.missing_reason("r2"))


async def test_a_ledger_that_cannot_be_reached_at_the_start_is_an_error() -> None:
    """A wrong --ledger-bootstrap-server is reported at once."""
    with pytest.raises(UnreachableError):
        await _follower(AWAY).follow()


async def test_missing_parts_of_a_lane_are_not_waited_for_for_ever() -> None:
    """A forged part, or one that was lost, kept a run from ever being complete."""
    now = 0
    follower = LedgerFollower(OneRecord(), _never, where="'ledger'", now_ns=lambda: now)
    ledger = follower.ledger
    ledger.add_registration(Registration("r1", "p", 1, "s", {"t": (0,)}))
    ledger.merge(LaneRecord(STREAM, 9, IntervalSet([(0, 3)]), end=9, outcomes=9))
    assert not follower.complete("r1")
    now = ledger_follower._PARTS_NS
    assert follower.complete("r1")
    assert not follower.complete("r1", ["q"])
    ledger.merge(LaneRecord(STREAM._replace(lane=1), 2))
    assert not follower.complete("r1"), "of a lane that goes on nothing is given up"
    ledger.merge(LaneRecord(STREAM._replace(lane=1), 2, IntervalSet([(0, 2)]), end=2))
    ledger.merge(LaneRecord(STREAM, 9, IntervalSet([(3, 9)]), end=9, outcomes=9))
    assert follower.complete("r1")
    assert not follower.given_up("r1")


async def _never() -> bool:
    raise AssertionError("the ledger is there")


async def test_a_misspelt_run_is_answered_with_the_runs_of_the_ledger() -> None:
    """Once the ledger exists, and has only records of another run."""
    topic = OneRecord()
    follower = _follower(True, topic=topic)
    assert follower.other_runs("r11") == ""
    following = asyncio.create_task(follower.follow())
    async with asyncio.timeout(60):
        await topic.read.wait()
    following.cancel()
    assert "It has records of r1; did you mean --run r1?" in str(follower.missing_reason("r11"))
    assert follower.missing_reason("r1") is None
