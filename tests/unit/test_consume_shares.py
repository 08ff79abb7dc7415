"""Fixed shares: no consumer waits for ever for one that has ended, or ends too early."""

from __future__ import annotations

import json
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.consumer import Consumer
from mirrortest.consume.takeover import PARTED_SECONDS, SILENT_SECONDS
from mirrortest.errors import FencedError, UnreachableError
from mirrortest.verify.untrusted import RecordError
from tests.unit.judged_world import World
from tests.unit.shared_world import Destination, Peer, Peers, at

if TYPE_CHECKING:
    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.saves import Saves


async def _rounds(peer: Peer, seconds: int) -> bool:
    """Read everything and run a round, each second; whether the consumer would end."""
    complete = False
    for _ in range(seconds):
        peer.read()
        complete = await peer.round()
    return complete


async def test_a_consumer_ends_though_its_peer_ended_and_others_go_on_writing() -> None:
    """Its own snapshot is above all that its peer read; but the peer shared its snapshot."""
    world = Destination([0], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        for peer in (first, second):
            peer.read()
            await peer.save()
        assert await first.round()
        assert (await first.end()).verdict == "passed"
        world.others_write()
        second.read()
        assert await second.round()
        assert second.reads == [1]
        report = await second.end()
        assert (report.verdict, report.inconclusive) == ("passed", [])
        # Its own partition was read to its end, the other up to the peer's snapshot.
        assert second.cluster.tails == {0: 1, 1: 2}


async def test_nobody_ends_before_its_own_partitions_are_read() -> None:
    """An old snapshot does not end a consumer that restarts: it judges later records, too."""
    world = Destination([0], [0])
    async with Peers(world) as peers:
        for shard in ("1/2", "2/2"):
            peer = await peers.add(shard)
            peer.read()
            await peer.save()
        assert await peer.round()
        await peer.end()
        world.records[1] += [None, 0]  # a copy of our message, after another's
        again = await peers.add("2/2")
        assert not await again.round()
        again.read()
        assert await again.round()
        report = await again.end()
        assert (report.counts["duplicated"], again.cluster.tails[1]) == (1, 3)


async def test_when_the_ends_were_asked_for_is_told_of_those_that_count() -> None:
    """Those of our own snapshot, unless another consumer's earlier end counts."""
    world = Destination([0], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        for peer in (first, second):
            peer.read()
            await peer.save()
        assert await first.round()
        await first.end()
        between = time.time_ns()
        assert await second.round()
        await second.end()
        assert first.cluster.looked_ns < between < second.cluster.looked_ns
        world.others_write(0)
        again = await peers.add("2/2")
        assert await again.round()
        await again.end()
        assert 0 < again.cluster.looked_ns <= first.cluster.looked_ns
        assert again.cluster.tails == {0: 1, 1: 1}


async def test_a_look_counts_no_longer_once_the_ledger_vouches_for_more() -> None:
    """Messages that are acknowledged later are above the shared snapshot, and must be read."""
    world = Destination([0], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        for peer in (first, second):
            peer.read()
            await peer.save()
        assert await first.round()
        assert await second.round()
        for records in world.records:
            records += [None, 1, None]
        world.vouch()
        second.read()
        assert not await second.round()
        first.read()
        await first.save()
        await second.save()
        assert await second.round()
        assert await first.round()
        await first.end()
        assert (await second.end()).verdict == "passed"
        assert second.cluster.tails == {0: 4, 1: 4}


async def test_who_said_goodbye_leaves_its_share_to_a_survivor() -> None:
    """It ended early, with messages unread. The survivor waits a while for its return."""
    world = Destination([0, 1, 2], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        first.read(most=1)
        await first.end()
        assert not await _rounds(second, int(PARTED_SECONDS))
        assert second.reads == [1]
        assert not await _rounds(second, 1)
        assert second.reads == [0, 1]
        assert await _rounds(second, 1)
        report = await second.end()
        assert (report.verdict, report.counts["delivered"]) == ("passed", 4)


async def test_who_was_killed_is_waited_for_longer() -> None:
    """It saved no last state; one that restarts in time goes on with its own share."""
    world = Destination([0, 1], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        await first.save()
        assert not await _rounds(second, int(SILENT_SECONDS))
        again = await peers.add("1/2")
        assert not await _rounds(second, int(SILENT_SECONDS))
        assert (second.reads, again.reads) == ([1], [0])
        assert not await _rounds(second, 1)
        assert second.reads == [0, 1]
        assert await _rounds(second, 1)


async def test_a_share_that_nobody_ever_took_is_read_in_the_end() -> None:
    """Its command was never run, or its pod found no node."""
    world = Destination([0], [0], [0])
    async with Peers(world) as peers:
        only = await peers.add("1/3")
        assert await _rounds(only, int(SILENT_SECONDS) + 3)
        assert only.reads == [0, 1, 2]


async def test_who_is_slow_and_alive_keeps_its_share() -> None:
    """Each save is a sign of life, even without progress."""
    world = Destination([0, 1], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        for _ in range(10):
            await first.save()
            await _rounds(second, 30)
        assert second.reads == [1]


async def test_who_stood_still_itself_takes_nobody_for_dead() -> None:
    """One long gap between two rounds does not count as a minute of others' silence."""
    world = Destination([0, 1], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        await first.save()
        await second.round()
        await second.round(seconds=3600)
        assert second.reads == [1]
        second.read()
        await first.save()
        await _rounds(second, int(SILENT_SECONDS))
        assert second.reads == [1]


async def test_what_was_taken_over_goes_back_to_its_owner() -> None:
    """The owner claims its share when it restarts; its zombie finds that it is fenced."""
    world = Destination([0, 1], [0])
    async with Peers(world) as peers:
        zombie, second = await peers.add("1/2"), await peers.add("2/2")
        await zombie.save()
        await _rounds(second, int(SILENT_SECONDS) + 2)
        assert second.reads == [0, 1]
        with pytest.raises(FencedError, match="paused for a minute"):
            await zombie.round()
        again = await peers.add("1/2")
        await second.round()
        assert second.reads == [1]
        assert second.cluster.paused == {at(0)}
        await _rounds(second, int(SILENT_SECONDS) + 2)
        assert (second.reads, second.cluster.paused) == ([0, 1], set())
        assert again.reads == [0]


async def test_of_two_survivors_one_takes_a_share() -> None:
    """The first claim wins; to the other survivor it is a sign of life."""
    world = Destination([0, 1], [0], [0])
    async with Peers(world) as peers:
        first = await peers.add("1/3")
        survivors = [await peers.add("2/3"), await peers.add("3/3")]
        await first.end()
        for _ in range(int(PARTED_SECONDS) + 5):
            for peer in survivors:
                peer.read()
                await peer.round()
        assert sorted(number for peer in survivors for number in peer.reads) == [0, 1, 2]


@pytest.mark.parametrize("killed", [False, True])
async def test_survivors_end_whatever_order_things_happen_in(killed: bool) -> None:
    """Two shards, another run that never ends, and 40 random histories of each kind.

    One consumer ends or is killed at a random moment; the other passes within minutes.
    """
    for seed in range(40):
        chance = random.Random(f"{seed}/{killed}")
        world = Destination(*(list(range(chance.randrange(1, 6))) for _ in range(3)))
        async with Peers(world) as peers:
            pair = [await peers.add("1/2"), await peers.add("2/2")]
            if chance.random() < 0.5:
                pair.reverse()
            leaver, survivor = pair
            for _ in range(chance.randrange(40)):
                world.others_write(chance.randrange(3))
                peer = chance.choice(pair)
                peer.read(most=chance.randrange(3))
                if chance.random() < 0.5:
                    await peer.save()
                if await peer.round() and chance.random() < 0.5:
                    leaver, survivor = peer, next(other for other in pair if other is not peer)
                    break
            if not killed:
                await leaver.end()
            for _ in range(200):
                world.others_write()
                survivor.read()
                if chance.random() < 0.2:
                    await survivor.save()
                if await survivor.round():
                    break
            else:
                pytest.fail(f"seed {seed}: waits for ever")
            report = await survivor.end()
            assert (report.verdict, report.inconclusive) == ("passed", []), seed


CLOSINGS = st.builds(
    ClosingSnapshot,
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.dictionaries(st.integers(0, 3), st.integers(0, 5)),
    st.integers(0, 5),
)


@given(CLOSINGS, CLOSINGS, CLOSINGS)
def test_shared_looks_come_to_the_same_in_any_order(
    a: ClosingSnapshot, b: ClosingSnapshot, c: ClosingSnapshot
) -> None:
    """Consumers write at any time; no clock and no race decides how far is read."""
    assert a.joined(a) == a.joined(None) == a
    assert a.joined(b) == b.joined(a)
    assert a.joined(b).joined(c) == a.joined(b.joined(c))
    assert ClosingSnapshot.from_state(json.loads(json.dumps(a.to_state()))) == a


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    | st.fixed_dictionaries(
        {
            "mark": st.lists(st.integers() | st.booleans() | st.floats()),
            "ends": st.lists(st.lists(st.integers() | st.none())),
            "at_ns": st.integers() | st.text(),
        }
    )
)
def test_what_is_no_shared_look_is_refused_as_such(junk: Any) -> None:
    """Junk is a RecordError, which readers skip; what is accepted can be written and read again."""
    try:
        read = ClosingSnapshot.from_state(junk)
    except RecordError:
        return
    assert ClosingSnapshot.from_state(read.to_state()) == read


async def test_a_last_state_that_is_not_saved_is_no_pass() -> None:
    """The other consumers' verdicts rest on that state."""
    world = World(0).vouch((0, 1), end=1)
    report = await world.report()
    assert report.exit_code == 0
    unsaved = "the last state could not be saved (no broker answers)"

    async def save_last(*, reported: bool) -> str:
        return unsaved

    rounds = world.rounds()
    consumer = Consumer(rounds._context)
    consumer.rounds = rounds
    consumer.saves = cast("Saves", SimpleNamespace(save_last=save_last))
    consumer.assignment = cast("Assignment", SimpleNamespace(drop_fenced=lambda: None))
    doubted = await consumer.conclude()
    assert (doubted.exit_code, doubted.inconclusive) == (3, [unsaved])
    assert doubted.own_doubts == [unsaved]


async def test_a_take_over_that_the_cluster_does_not_answer_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The round fails as in any outage; an unanswered claim does not end the consumer."""
    world = Destination([0, 1], [0])
    async with Peers(world) as peers:
        first, second = await peers.add("1/2"), await peers.add("2/2")
        await first.end()
        caught_up = second.store.caught_up
        await _rounds(second, int(PARTED_SECONDS))
        asked = 0

        async def unanswered() -> None:
            nonlocal asked
            asked += 1
            if asked == 2:
                raise UnreachableError("no broker answers")
            await caught_up()

        monkeypatch.setattr(second.store, "caught_up", unanswered)
        with pytest.raises(UnreachableError):
            await second.round()
        await second.round()
        assert second.reads == [0, 1]
