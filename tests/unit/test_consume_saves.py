"""Saves that run concurrently with reading: how they fail and end, and what they contain.

Reader, admin and store are doubles; the tests check the order of events.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mirrortest.errors import SequenceLogError, UnreachableError
from mirrortest.host.time_slice import TimeSlice
from tests.unit.played_cluster import Played, consumer_of, saving_of


async def test_a_save_that_failed_is_told_by_the_next_round() -> None:
    """However long the state interval is."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    played.broken = SequenceLogError("the disk is full")
    consumer.saves.save_if_due()
    await asyncio.gather(saving_of(consumer), return_exceptions=True)
    object.__setattr__(consumer.context.options, "state_interval", 3600.0)
    with pytest.raises(SequenceLogError, match="disk is full"):
        consumer.saves.save_if_due()


async def test_a_save_that_still_runs_ends_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user sees only the error that ended the work, and not the save's."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    unhandled = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    async def fails_as_it_is_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SequenceLogError("the disk is full") from None

    monkeypatch.setattr(played, "sync", fails_as_it_is_cancelled)
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    saving = saving_of(consumer)
    await consumer.saves.close()
    assert saving.done()
    del saving
    consumer.saves._saving = None
    assert unhandled == []


async def test_a_revocation_waits_for_the_save_that_runs_and_writes_the_last_state() -> None:
    """An older state is never written after a newer one."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    (assigned,) = consumer.context.partitions.values()
    assigned.checker.advance(5)
    played.may_save.clear()
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    assigned.checker.advance(9)
    revoked = asyncio.ensure_future(consumer.assignment._on_revoked([("a", 0)]))
    await asyncio.sleep(0)
    played.may_save.set()
    await revoked
    assert [next_offset for _, _, next_offset in played.saved] == [5, 9]
    assert not consumer.context.partitions


async def test_a_state_that_cannot_be_saved_is_tried_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is durable anyway; a consumer that ends meanwhile reports the consequences."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    played.away = UnreachableError("no broker answers")
    consumer.saves.save_if_due()
    await asyncio.wait({saving_of(consumer)})
    consumer.saves.save_if_due()
    with monkeypatch.context() as patched:
        patched.setattr("mirrortest.consume.saves._LAST_SAVE_SECONDS", 0.5)
        patched.setattr("mirrortest.consume.saves._RETRY_SECONDS", 3600)
        assert "no broker answers" in str(await consumer.saves.save_last(reported=False))
    assert (played.synced, played.saved) == (3, [])
    played.away = None
    assert await consumer.saves.save_last(reported=False) is None
    assert (len(played.saved), played.parted) == (1, 1)


async def test_the_last_save_is_tried_again_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that moves as a consumer ends loses no state; findings are logged once."""
    monkeypatch.setattr("mirrortest.consume.saves._RETRY_SECONDS", 0)
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",))
    await topics.discover()
    await consumer.assignment.begin()
    answers: list[Exception | None] = [UnreachableError("moving"), UnreachableError("moving"), None]
    found: list[int] = []
    object.__setattr__(played, "found", lambda assigned: found.append(assigned.at.partition))
    save = played.save

    async def at_last(*saved: Any, parting: bool = False) -> None:
        played.away = answers.pop(0)
        await save(*saved, parting=parting)

    monkeypatch.setattr(played, "save", at_last)
    assert await consumer.saves.save_last(reported=False) is None
    assert (answers, len(played.saved), played.parted, found) == ([], 1, 1, [0])


async def test_the_end_does_not_wait_for_a_save_that_hangs_in_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead broker may block the save for minutes; the log is durable anyway."""
    played = Played({"a": 1})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.take_share()
    stuck = asyncio.Event()

    async def hangs(*_: object, **__: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(played, "save", hangs)
    consumer.saves.save_if_due()
    await stuck.wait()
    consumer.context.outage.begin(UnreachableError("no broker answers"))
    async with asyncio.timeout(10):
        assert "no broker answers" in str(await consumer.saves.save_last(reported=False))
    assert played.synced == 2
    await consumer.saves.close()


async def test_no_older_state_is_written_after_a_newer_one() -> None:
    """States are taken in time slices; meanwhile a partition is revoked, and saved by that."""
    played = Played({"a": 50})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    consumer.saves._slice = TimeSlice(0)
    consumer.saves.save_if_due()
    await asyncio.sleep(0)
    first = consumer.context.partitions[min(consumer.context.partitions)]
    first.checker.advance(7)  # read on, after its state was taken
    await consumer.assignment._on_revoked([first.at])
    await saving_of(consumer)
    written = [offset for at, _, offset in played.saved if at == first.at]
    assert (written, len(played.saved)) == ([0, 7], 51)


async def test_states_are_told_in_slices() -> None:
    """Other tasks run between two partitions of a save."""
    played = Played({"a": 50})
    consumer, topics = consumer_of(played, ("a",), state_interval=0.0)
    await topics.discover()
    await consumer.assignment.begin()
    consumer.saves._slice = TimeSlice(0)
    consumer.saves.save_if_due()
    turns = 0
    while not saving_of(consumer).done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 50
