"""When a consumer ends, its tasks end, too, even if one resists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.consume import consumer
from mirrortest.consume.consumer import _pause, _until_end, _with_background
from mirrortest.errors import ClusterError

if TYPE_CHECKING:
    from mirrortest.consume.consume_report import ConsumeReport


async def _stubborn() -> None:
    """Swallow the first cancellation, as a library's task may."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


async def test_a_follower_that_swallows_a_cancellation_does_not_hang_the_end() -> None:
    """The follower is cancelled again."""
    report = cast("ConsumeReport", "report")

    async def work() -> ConsumeReport:
        return report

    async with asyncio.timeout(30):
        assert await _with_background(work(), _stubborn()) is report


async def test_what_fails_beside_the_work_ends_it_and_is_raised() -> None:
    """The caller gets the first failure; the work is cancelled."""
    cancelled = asyncio.Event()

    async def work() -> ConsumeReport:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError("nobody sets it")

    async def fails() -> None:
        raise ClusterError("gone")

    with pytest.raises(ClusterError, match="gone"):
        await _with_background(work(), fails(), _stubborn())
    assert cancelled.is_set()


async def _endless() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("signalled", [True, False])
async def test_a_reading_that_is_held_up_is_ended(
    monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    """By a signal or after its duration: the client may retry a dead broker for minutes."""
    monkeypatch.setattr(consumer, "_GRACE_SECONDS", 0.01)
    stop, enough = asyncio.Event(), asyncio.Event()
    if signalled:
        stop.set()
    async with asyncio.timeout(30):
        await _until_end(_endless(), stop, enough, None if signalled else 0.01)
    assert enough.is_set()


async def test_a_reading_ends_by_itself_where_it_can() -> None:
    """It is asked to end, and may finish its work."""
    stop, enough = asyncio.Event(), asyncio.Event()
    ended = []

    async def reading() -> None:
        await enough.wait()
        ended.append("in order")

    stop.set()
    await _until_end(reading(), stop, enough, None)
    assert ended == ["in order"]


async def test_what_a_reading_meets_is_raised() -> None:
    """A refusal is not an outage."""

    async def fails() -> None:
        raise ClusterError("not authorized")

    with pytest.raises(ClusterError, match="not authorized"):
        await _until_end(fails(), asyncio.Event(), asyncio.Event(), None)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 1.0), (0.1, 1.0), (1.0, 5.0), (60.0, 10.0)])
def test_judging_very_many_streams_leaves_time_to_read(took: float, pause: float) -> None:
    """Rounds begin further apart the longer they take, but often enough to save states."""
    assert _pause(took) == pytest.approx(pause)
