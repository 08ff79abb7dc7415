"""A follower of a compacted topic: outages, and the results that its waiters get."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from mirrortest.errors import (
    ClusterError,
    TopicMissingError,
    TopicReplacedError,
    UnreachableError,
)
from mirrortest.kafka import follower
from mirrortest.kafka.follower import Follower, FollowerPosition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Topic:
    """A topic with given tails: records (offset, key), and perhaps an error that ends the tail."""

    topic = "ledger"

    def __init__(self, *tails: list[Any]) -> None:
        self._tails = iter(tails)

    async def tail(self) -> AsyncIterator[tuple[int, bytes, bytes | None]]:
        for item in next(self._tails, ()):
            if isinstance(item, Exception):
                raise item
            yield (*item, b"value")
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0)
    with structlog.testing.capture_logs() as entries:
        yield entries


@contextlib.asynccontextmanager
async def following(topic: Topic) -> AsyncIterator[tuple[Follower, list[bytes]]]:
    applied: list[bytes] = []
    made = Follower(topic, lambda key, _: applied.append(key))
    task = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(60):
            yield made, applied
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reached(made: Follower, place: FollowerPosition) -> None:
    while made.place != place:  # noqa: ASYNC110  # the follower's task advances it
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [UnreachableError("away"), TopicMissingError("deleted")])
async def test_an_outage_is_waited_for_and_the_topic_read_again(
    error: TopicMissingError | UnreachableError, logged: list[dict[str, str]]
) -> None:
    """All records are read again, from the beginning; each outage is logged once."""
    topic = Topic(
        [error], [error], [(0, b"a"), (1, b"b"), error], [(0, b"a"), (1, b"b"), (2, b"c")]
    )
    async with following(topic) as (made, applied):
        await reached(made, FollowerPosition(isinstance(error, TopicMissingError), 3))
    assert applied == [b"a", b"b", b"a", b"b", b"c"]
    levels = [line["log_level"] for line in logged if "beginning" not in line["event"]]
    assert levels == ["warning", "info"] * 2


async def test_a_refusal_ends_it_and_waiters_hear_of_it() -> None:
    """Waiters get the follower's error, since their record will never be applied."""
    refused = Topic([(0, b"a"), ClusterError("not authorized")])
    async with following(refused) as (made, _):
        with pytest.raises(ClusterError, match="not authorized"):
            await made.wait_applied(5, made.place)


@pytest.mark.parametrize("error", [TopicReplacedError("cut"), TopicMissingError("deleted")])
async def test_the_epoch_steps_where_the_topic_holds_no_more_what_was_read(
    error: ClusterError,
) -> None:
    """The position then belongs to the new topic, and a waiting writer must write again."""
    topic = Topic([(0, b"a"), (7, b"b"), error], [(0, b"c")])
    async with following(topic) as (made, applied):
        before = made.place
        assert not await made.wait_applied(9, before)
        await reached(made, FollowerPosition(1, 1))
    assert applied == [b"a", b"b", b"c"]


async def test_the_epoch_stays_where_nothing_was_read_and_nobody_waits() -> None:
    """Retries on a topic that does not exist yet give no writer a reason to write again."""
    missing = TopicMissingError("not yet")
    async with following(Topic([missing], [missing], [missing], [(0, b"a")])) as (made, _):
        await reached(made, FollowerPosition(0, 1))


async def test_an_offset_below_the_position_proves_that_the_topic_is_another_one() -> None:
    """A follower's old high position does not satisfy a wait for a small new offset.

    The tail of the old topic, which would wait forever, is abandoned; the new topic is read.
    """
    async with following(Topic([(0, b"a"), (7, b"b")], [(0, b"c"), (1, b"d")])) as (made, applied):
        await reached(made, FollowerPosition(0, 8))
        assert not await made.wait_applied(1, made.place)
        assert made.place == FollowerPosition(1, 0)
        assert await made.wait_applied(1, made.place)
    assert applied == [b"a", b"b", b"c", b"d"]


async def test_a_record_that_is_not_read_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait ends with an error that names the topic; the caller may retry."""
    monkeypatch.setattr(follower, "STALLED_SECONDS", 0.01)
    async with following(Topic([(0, b"a")])) as (made, _):
        with pytest.raises(UnreachableError, match="written to ledger were not read back within"):
            await made.wait_applied(5, made.place)
