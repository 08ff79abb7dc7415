"""A consumer that ends takes everything with it, whatever holds on."""

from __future__ import annotations

import asyncio

import pytest

from mirrortest.consume.consumer import _beside
from mirrortest.errors import ClusterError


async def _stubborn():
    """Swallow the first cancellation, as a library's task may."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


async def test_a_follower_that_swallows_a_cancellation_does_not_hang_the_end():
    """It is cancelled again."""

    async def work():
        return "report"

    async with asyncio.timeout(30):
        assert await _beside(work, _stubborn) == "report"


async def test_what_fails_beside_the_work_ends_it_and_is_raised():
    """The first failure is what the caller gets; the work is cancelled."""
    cancelled = asyncio.Event()

    async def work():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fails():
        raise ClusterError("gone")

    with pytest.raises(ClusterError, match="gone"):
        await _beside(work, fails, _stubborn)
    assert cancelled.is_set()
