"""Waiting for the ledger's topic."""

from __future__ import annotations

import asyncio

import pytest

from mirrortest.check.intervals import IntervalSet
from mirrortest.check.ledger import LaneRecord, lane_key, lane_value
from mirrortest.consume import vouching
from mirrortest.consume.vouching import LedgerFollower
from mirrortest.errors import UnreachableError
from mirrortest.wire.stream import StreamId

STREAM = StreamId("t", "r1", "p", 1, 0)
AWAY = UnreachableError("no Kafka broker answers")


class OneRecord:
    """A ledger's topic with one record."""

    async def tail(self):
        record = LaneRecord(STREAM, 3, IntervalSet([(0, 3)]))
        yield 0, lane_key(record.stream), lane_value(record)


def _follower(*answers):
    given = iter(answers)

    async def exists():
        answer = next(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return LedgerFollower(OneRecord(), exists, where="'ledger'", now_ns=lambda: 7)


async def test_an_outage_while_the_topic_is_awaited_is_sat_out(monkeypatch):
    """A broker that restarts must not end a consumer that only waits for the ledger."""
    monkeypatch.setattr(vouching, "_POLL_SECONDS", 0)
    follower = _follower(False, AWAY, False, AWAY, True)
    assert "does not exist" in follower.silence("r1")
    await asyncio.wait_for(follower.follow(), 10)
    assert follower.silence("r1") is None
    assert (follower.present, follower.last_record_ns) == (True, 7)
    assert "nothing of run 'r2'" in follower.silence("r2")


async def test_a_ledger_that_cannot_be_reached_at_the_start_is_an_error():
    """A wrong --ledger-bootstrap-server is told at once."""
    with pytest.raises(UnreachableError):
        await _follower(AWAY).follow()
