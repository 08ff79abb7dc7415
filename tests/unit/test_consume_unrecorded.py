"""A wait for ledger records that may never arrive is logged, once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import structlog

from mirrortest.consume import judging_rounds as consume_rounds
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger_record import LaneRecord, Registration
from mirrortest.verify.row import SeenRow
from tests.unit.judged_world import STREAM, World

if TYPE_CHECKING:
    from mirrortest.consume.judging_rounds import JudgingRounds
    from mirrortest.wire.stream import StreamId

ANN = STREAM._replace(producer="ann")
BOB = STREAM._replace(producer="bob")


class Waiting:
    """A consumer's rounds at times that the test sets, and what they log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        self.world = world
        self.rounds: JudgingRounds = world.rounds()
        self.now = 1000.0
        clock = SimpleNamespace(
            monotonic=lambda: self.now, monotonic_ns=lambda: int(self.now * 1e9)
        )
        monkeypatch.setattr(consume_rounds, "time", clock)

    async def round(self, seconds: float) -> list[dict[str, object]]:
        """Run a round `seconds` later; what it logs."""
        self.now += seconds
        with structlog.testing.capture_logs() as logged:
            await self.rounds.judge()
        return [dict(line) for line in logged]


async def test_a_run_of_whose_producers_one_is_forgotten_ends_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All records of that producer have expired in the ledger's copy: it sent no phantoms."""
    waiting = Waiting(monkeypatch, World())
    record(waiting.world, BOB, 2, end=2)
    read(waiting.world, BOB, 2)
    read(waiting.world, ANN, 3)
    await waiting.round(0)
    await waiting.round(61)
    assert (await waiting.rounds.judge())[0]
    report = await waiting.rounds.conclude()
    assert (report.verdict, report.counts["phantom"]) == ("inconclusive", 0)
    assert "the ledger has no records of 1 streams that were read" in report.inconclusive


def read(world: World, stream: StreamId, count: int) -> None:
    """Let `count` messages of a stream arrive."""
    at = world.assigned.checker.next_offset
    row = SeenRow(stream, 0, count, at, at + count, 0, 1, 1, 1, 1, 2, 2)
    world.assigned.checker.apply(row)
    assert isinstance(world.ends, dict)
    world.ends["A.t", 0] = at + count


def record(world: World, stream: StreamId, acked: int, end: int | None = None) -> None:
    """Let the ledger's record of a stream arrive."""
    ledger = world.follower.ledger
    ledger.add_registration(Registration("r1", stream.producer, 1, "s", {"t": (0,)}))
    ledger.merge(LaneRecord(stream, acked, IntervalSet([(0, acked)]), end=end))


def both_read() -> World:
    """Messages of both producers were read, and the ledger has no record of either."""
    world = World()
    read(world, ANN, 3)
    read(world, BOB, 4)
    return world


async def test_a_ledger_that_was_deleted_unread_is_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 30 s: how many messages, of which producers, which ledger, and what ends the wait."""
    world = both_read()
    waiting = Waiting(monkeypatch, world)
    assert await waiting.round(0) == await waiting.round(29) == []
    (line,) = await waiting.round(1)
    assert (line["messages"], line["producers"], line["ledger"]) == (7, "ann, bob", "'ledger'")
    assert line["log_level"] == "warning"
    for part in (
        "producers without a ledger record",
        "may have been deleted",
        "may not be mirrored",
        "--idle-timeout",
    ):
        assert part in str(line["event"])
    read(world, ANN._replace(lane=1), 3)
    assert await waiting.round(60) == await waiting.round(60) == []


async def test_the_wait_begins_anew_while_records_of_the_run_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger's copy that lags is not missing. Once all is recorded, nothing is awaited."""
    world = both_read()
    waiting = Waiting(monkeypatch, world)
    assert await waiting.round(0) == await waiting.round(29) == []
    record(world, ANN, 2)
    assert await waiting.round(29) == []
    record(world, ANN, 3)
    assert await waiting.round(29) == await waiting.round(29) == []
    (line,) = await waiting.round(1)
    assert (line["messages"], line["producers"]) == (4, "bob")
    world = World()
    read(world, ANN, 3)
    waiting = Waiting(monkeypatch, world)
    assert await waiting.round(0) == []
    record(world, ANN, 3)
    assert await waiting.round(29) == []
    read(world, BOB, 4)
    assert await waiting.round(29) == await waiting.round(29) == []


@pytest.mark.parametrize("case", ["no message", "another run's", "run is complete"])
async def test_where_no_record_is_awaited_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """It started first, it reads another run's messages, or its run is complete."""
    world = World()
    if case == "another run's":
        read(world, ANN._replace(run="r0"), 3)
    elif case == "run is complete":
        read(world, ANN, 3)
        read(world, BOB, 4)
        record(world, ANN, 3, end=3)
    waiting = Waiting(monkeypatch, world)
    assert await waiting.round(0) == await waiting.round(40) == await waiting.round(40) == []


async def test_of_many_producers_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line stays short enough to read."""
    world = World()
    for number in range(8):
        read(world, STREAM._replace(producer=f"p{number}"), 1)
    waiting = Waiting(monkeypatch, world)
    await waiting.round(0)
    (line,) = await waiting.round(30)
    assert line["producers"] == "p0, p1, p2, p3, p4 and 3 more"
