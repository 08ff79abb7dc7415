"""Following a compacted topic through outages, and what is told to those who wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError
from mirrortest.kafka import follower
from mirrortest.kafka.follower import Follower

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Topic:
    """A topic whose tails are given: records (offset, key), and an error that ends one."""

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
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    monkeypatch.setattr(follower, "_RETRY_SECONDS", 0)
    with structlog.testing.capture_logs() as told:
        yield told


async def _followed(topic: Topic, offset: int) -> tuple[list[bytes], int]:
    """What was applied once an offset is passed."""
    applied = []
    following = Follower(topic, lambda key, _: applied.append(key))
    task = asyncio.create_task(following.run())
    try:
        async with asyncio.timeout(60):
            await following.passed(offset)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return applied, following.position


@pytest.mark.parametrize("error", [UnreachableError("away"), TopicMissingError("deleted")])
async def test_an_outage_is_waited_for_and_the_topic_read_again(
    error: TopicMissingError | UnreachableError, told: list[dict[str, str]]
) -> None:
    """Records come again from the beginning: nothing between is missed. It is told once."""
    topic = Topic(
        [error], [error], [(0, b"a"), (1, b"b"), error], [(0, b"a"), (1, b"b"), (2, b"c")]
    )
    assert await _followed(topic, 2) == ([b"a", b"b", b"a", b"b", b"c"], 3)
    assert [line["log_level"] for line in told] == ["warning", "info"] * 2


async def test_a_refusal_ends_it_and_is_told_to_who_waits() -> None:
    """What they wait for will never come."""
    with pytest.raises(ClusterError, match="not authorized"):
        await _followed(Topic([(0, b"a"), ClusterError("not authorized")]), 5)
