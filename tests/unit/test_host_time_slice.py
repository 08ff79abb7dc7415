"""Long work lets others have their turn."""

from __future__ import annotations

import asyncio

import pytest

from mirrortest.host.time_slice import TimeSlice


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, 100), (3600.0, 0)])
async def test_others_have_a_turn_after_each_slice_and_not_within(
    seconds: float, turns: int
) -> None:
    """Whoever is ready runs between two pieces of work once the slice is over."""
    had = 0

    async def other() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    held = TimeSlice(seconds)
    task = asyncio.create_task(other())
    for _ in range(100):
        await held.over()
    task.cancel()
    assert had == turns
