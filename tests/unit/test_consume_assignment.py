"""Assignment: topics that come and go, rebalances, outages, states that cannot be read.

Reader, admin and store are played; the tests check the order of the steps.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from mirrortest.consume import outage
from mirrortest.consume.partition_views import SavedState
from mirrortest.errors import UnreachableError
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.unit.played_cluster import Played, consumer_of

if TYPE_CHECKING:
    from mirrortest.model.topic_partition import TopicPartition


async def test_a_topic_that_is_gone_for_now_stays_assigned() -> None:
    """Otherwise it would not be read once recreated: to the consumer it is not new."""
    played = Played({"a": 1, "b": 1})
    consumer, topics = consumer_of(played)
    for counts in ({"a": 1, "b": 1}, {"b": 2}):
        played.counts = counts
        await topics.discover()
        await consumer.assignment.take_share()
    assert played.assigned == [("a", 0), ("b", 0), ("b", 1)]


async def test_partitions_assigned_in_an_outage_are_taken_once_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rebalance is announced once: without retries, the consumer would never read them."""
    monkeypatch.setattr(outage, "_RETRY_SECONDS", 0)
    played = Played({"a": 2})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    answers = iter([UnreachableError("away"), UnreachableError("still"), None, None])

    async def claim(_: TopicPartition) -> tuple[int, None]:
        answer = next(answers)
        if answer is not None:
            raise answer
        return 1, None

    monkeypatch.setattr(played, "claim", claim)
    await consumer.assignment.begin()
    assert [at.partition for at in consumer.context.partitions] == [0, 1]
    assert played.sought == [("a", 0, 0), ("a", 1, 0)]


async def test_a_rebalance_is_under_way_until_what_is_ours_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lasts from the revocation until the claims are done, even if nothing is assigned."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    await consumer.assignment.begin()
    assert not consumer.assignment.rebalancing
    (assigned,) = consumer.context.partitions.values()
    await consumer.assignment._on_revoked([("a", 0)])
    assert (
        consumer.assignment.rebalancing,
        consumer.context.partitions,
        consumer.assignment.released,
    ) == (
        True,
        {},
        [assigned],
    )
    await consumer.assignment._on_revoked([])
    assert consumer.assignment.released == [assigned]
    claimed = asyncio.Event()

    async def claim(_: TopicPartition) -> tuple[int, None]:
        await claimed.wait()
        return 2, None

    monkeypatch.setattr(played, "claim", claim)
    taken = asyncio.ensure_future(consumer.assignment._on_assigned([("a", 0)]))
    await asyncio.sleep(0)
    assert consumer.assignment.rebalancing
    claimed.set()
    await taken
    assert (
        consumer.assignment.rebalancing,
        len(consumer.context.partitions),
        consumer.assignment.released,
    ) == (
        False,
        1,
        [],
    )
    await consumer.assignment._on_revoked([("a", 0)])
    await consumer.assignment._on_assigned([])
    assert (consumer.assignment.rebalancing, consumer.context.partitions) == (False, {})


async def test_what_is_assigned_without_a_revocation_is_moving_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No revocation precedes the first assignment of a member."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    seen = []

    async def claim(_: TopicPartition) -> tuple[int, None]:
        seen.append(consumer.assignment.rebalancing)
        return 1, None

    monkeypatch.setattr(played, "claim", claim)
    await consumer.assignment._on_assigned([("a", 0)])
    assert (seen, consumer.assignment.rebalancing) == ([True], False)


async def test_what_was_read_of_a_revoked_partition_is_logged_whoever_ends_the_wait() -> None:
    """A stop during a rebalance cancels the wait for a save, which has the lock."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    logged: list[str] = []
    object.__setattr__(
        played, "read", lambda assigned: logged.append(f"read {assigned.at.partition}")
    )
    object.__setattr__(
        played, "found", lambda assigned: logged.append(f"found {assigned.at.partition}")
    )
    async with consumer.saves._one_save:
        revoked = asyncio.ensure_future(consumer.assignment._on_revoked([("a", 0)]))
        await asyncio.sleep(0)
        revoked.cancel()
        await asyncio.wait({revoked})
    assert logged == ["read 0", "found 0"]


@pytest.mark.parametrize(
    ("state", "incarnation"),
    [
        ({}, (0, None)),
        ({"v": 2, "identity": 3, "topic_id": 4}, (3, None)),
        ({"v": 2, "identity": 3, "topic_id": "no id"}, (3, None)),
        ({"v": 2, "identity": 3, "topic_id": "X" * 22}, (3, "X" * 22)),
        ({"v": 1, "checker": {"next": 10**400}}, (0, None)),
    ],
)
async def test_a_partition_whose_state_cannot_be_read_is_judged_anew(
    state: dict[str, Any], incarnation: tuple[int, str | None]
) -> None:
    """A damaged state, or one of another version, ended every consumer of the run.

    What was seen of earlier incarnations of the topic is unknown, so seqs that are missing at the
    head of a stream are in doubt, never lost. Records that are already in logs are logged again
    under the same incarnation, if its number can be read: under another one they would be copies.
    """
    played = Played({"a": 1})
    played.state = state
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    with structlog.testing.capture_logs() as logged:
        await consumer.assignment.begin()
    (assigned,) = consumer.context.partitions.values()
    assert assigned.checker.next_offset == 0
    assert (assigned.identity, assigned.topic_id) == incarnation
    assert "a-0: the state of its last consumer cannot be read" in assigned.notes[0]
    assert [line["event"] for line in logged] == assigned.notes
    assert assigned.checker.unsure
    assigned.checker.apply(SeenRow(StreamId("a", "r1", "p", 1, 0), 5, 9, 0, 4, 0, 1, 1, 1, 1, 2, 2))
    fragment = assigned.checker.fragment(StreamId("a", "r1", "p", 1, 0))
    assert fragment is not None
    assert fragment.doubtful_below > 9
    again = SavedState.read(
        json.loads(json.dumps(assigned.to_state())), assigned.at, run="r1", policy=assigned.policy
    )
    assert again.notes == assigned.notes
