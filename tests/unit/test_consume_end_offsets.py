"""The end-offset snapshot: what it covers, what it decides, and when it no longer counts."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.end_offsets import EndOffsetSnapshot
from mirrortest.kafka.fetched import (
    End,
    ReadPosition,
)
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from tests.unit.judged_world import STREAM, World, reasons

if TYPE_CHECKING:
    from collections.abc import Callable


X, Y = (letter * 22 for letter in "XY")
"""Topic ids."""


async def test_nobody_ends_of_itself_between_two_assignments() -> None:
    """A consumer that is stopped then logs the revoked partitions' ends: they may have no owner."""
    world = World(0, 1).vouch((0, 2), end=2)
    rounds = world.rounds()
    assert (await rounds.judge())[0]
    # As after a revocation: saved and given up; the new assignment has not arrived yet.
    world.states = {world.assigned.at: (1, world.assigned.to_state())}
    world.partitions.clear()
    world.assignment.rebalancing, world.assignment.released = True, [world.assigned]
    assert not (await rounds.judge())[0]
    report = await rounds.conclude()
    assert (report.verdict, report.counts["delivered"]) == ("passed", 2)
    assert (report.partitions, world.log.tails) == ([], [(0, 2)])
    world.assignment.rebalancing = False
    assert (await rounds.judge())[0]


async def test_when_the_ends_were_asked_for_is_told() -> None:
    """Later messages cannot be below these ends, however long the consumer takes to end."""
    world = World(0, 1).vouch((0, 2), end=2)
    asked: list[int] = []
    world.while_asked = lambda: asked.append(time.time_ns())
    began = time.time_ns()
    await world.report()
    (then,) = asked
    assert began <= world.log.looked_ns <= then


async def test_what_is_taken_while_the_ends_are_asked_for_has_its_end_told() -> None:
    """Its end is logged here: its next owner may have nothing left to read, or be ending, too."""
    world = World(0, 1).vouch((0, 2), end=2)
    world.states = {world.assigned.at: (1, world.assigned.to_state())}
    world.while_asked = world.partitions.clear
    report = await world.report()
    assert (report.verdict, report.partitions) == ("passed", [])
    assert world.log.tails == [(0, 2)]


def _others_write(world: World) -> Callable[[], None]:
    """Append another writer's record to the partition whenever its end is asked for."""

    def more() -> None:
        assert isinstance(world.ends, dict)
        world.ends = {**world.ends, ("A.t", 0): world.ends["A.t", 0] + 1}

    return more


def _read(world: World, to: int) -> None:
    """Read other writers' records, which belong to no stream, up to an offset."""
    at = world.assigned.checker.next_offset
    world.assigned.checker.apply(
        SeenRow(None, 0, 0, at, to, Finding.FOREIGN.value, 1, 1, 1, 1, 2, 2)
    )


async def test_a_run_is_over_though_others_go_on_writing() -> None:
    """It must be read to its end when every message had a verdict: later ends are never reached."""
    world = World(0, 1).vouch((0, 2), end=2)
    world.while_asked = _others_write(world)
    rounds = world.rounds()
    assert not (await rounds.judge())[0]
    first = time.time_ns()
    _read(world, 3)
    assert (await rounds.judge())[0]
    _read(world, 4)
    report = await rounds.conclude()
    assert world.ends == {("A.t", 0): 5}
    assert (report.verdict, report.inconclusive) == ("passed", [])
    assert world.log.tails == [(0, 4)]
    assert world.log.looked_ns <= first


async def test_a_look_counts_no_longer_where_the_topic_was_made_again() -> None:
    """Its end moved back below what was read, so the run is not complete."""
    world = World(0, 1).vouch((0, 2), end=2)
    rounds = world.rounds()
    assert (await rounds.judge())[0]
    world.ends = {("A.t", 0): 1}
    assert not (await rounds.judge())[0]
    report = await rounds.conclude()
    assert report.verdict == "inconclusive"
    assert "recreated" in reasons(report)
    assert world.log.tails == [(0, 1)]


async def test_a_look_counts_no_longer_where_partitions_were_added() -> None:
    """The new partition must be read, too."""
    world = World(0, 1).vouch((0, 2), end=2)
    rounds = world.rounds()
    assert (await rounds.judge())[0]
    world.ends = {("A.t", 0): 2, ("A.t", 1): 1}
    assert not (await rounds.judge())[0]
    assert rounds._context.topics.in_force("A.t") == [2]  # one broker did not list it yet
    report = await rounds.conclude()
    assert "not read to the end: partition 1" in reasons(report)


async def test_the_ends_of_others_partitions_are_told_too() -> None:
    """A consumer that gets a partition while it ends, or that was killed, does not log its end.

    How far the partition was judged is not logged: only its own consumer can do that.
    """
    world = World(0, 1).vouch((0, 2), end=2)
    other = AssignedPartition.fresh(
        TopicPartition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.checker.apply(SeenRow(None, 0, 0, 0, 3, Finding.FOREIGN.value, 1, 1, 1, 1, 2, 2))
    world.states = {other.at: (1, json.loads(json.dumps(other.to_state())))}
    assert isinstance(world.ends, dict)
    world.ends[other.at] = 4
    report = await world.report()
    assert "not read to the end: partition 1" in reasons(report)
    assert world.log.tails == [(0, 2), (1, 4)]
    assert world.log.judged == [2, 0]


async def test_before_the_last_record_was_compared_nothing_is_claimed_or_complete() -> None:
    """A recreated topic may end at the same offset as the earlier one, with other seqs."""
    world = World(0, 1, 2, 3, 4, ends={("A.t", 0): 5})
    world.vouch((0, 10), end=10)
    world.assigned.resumed, world.assigned.last_record = True, (4, 1234)
    rounds = world.rounds()
    judge = rounds._context.topics.judges["A.t"]
    judge.losses.restore_clocks([[list(STREAM), [0, 10], []]], 0, of_topic="t", of_run="r1")
    complete, _ = await rounds.judge()
    assert (complete, judge.losses.claimed) == (False, {})
    world.assigned.resumed = False
    complete, _ = await rounds.judge()
    assert judge.losses.claimed == {STREAM: IntervalSet([(5, 10)])}


@pytest.mark.parametrize(
    ("end", "doubt"),
    [
        (End(2, 2, Y), "A.t-0 was deleted and recreated; the new one has not been read yet"),
        (End(2, 2, X, agrees=False), "A.t-0 was truncated, and has not been read again yet"),
    ],
)
async def test_the_end_of_a_log_that_was_not_read_completes_nothing(end: End, doubt: str) -> None:
    """It ends exactly at the next offset, before the reader has noticed."""
    world = World(0, 1).vouch((0, 3), end=3)
    world.assigned.topic_id = X
    rounds = world.rounds()
    world.logs = {("A.t", 0): end}
    assert not (await rounds.judge())[0]
    report = await rounds.conclude()
    assert report.verdict == "inconclusive"
    assert doubt in report.inconclusive
    assert world.log.tails == []


async def test_what_stands_behind_an_open_transaction_is_not_lost() -> None:
    """With `read_committed`, nothing above the last stable offset is returned."""
    world = World(0, 1, ends={("A.t", 0): 4}).vouch((0, 3), end=3)
    world.logs = {("A.t", 0): End(4, 2)}
    report = await world.report()
    assert report.verdict == "inconclusive"
    assert "an open transaction blocks all records behind it: A.t-0" in report.inconclusive
    assert report.counts["lost"] == 0
    # Nor is it this consumer's lag: an alert blamed the consumer for a mirror that had died.
    assert report.reading.lag == 0


def test_a_transaction_behind_which_nothing_stands_holds_nothing_back() -> None:
    """It is the reason only if all up to the last stable offset has been read, but not the end."""
    checker = PartitionChecker("t", 0, next_offset=3)
    found = {("A.t", 0): End(9, 5)}
    look = EndOffsetSnapshot.of(1, 0, ["A.t"], {("A.t", 0): ReadPosition(3)}, found)
    assert look.blocked_by_transactions({"A.t": {0: checker}}) == []
    checker.next_offset = 5
    assert look.blocked_by_transactions({"A.t": {0: checker}}) == ["A.t-0"]
    checker.next_offset = 9
    assert look.blocked_by_transactions({"A.t": {0: checker}}) == []
