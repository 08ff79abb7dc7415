"""Long work yields to other tasks."""

from __future__ import annotations

import pytest

from mirrortest.host.time_slice import TimeSlice
from tests.unit.turns import taking_turns


@pytest.mark.parametrize(("seconds", "turns"), [(0.0, 100), (3600.0, 0)])
async def test_others_have_a_turn_after_each_slice_and_not_within(
    seconds: float, turns: int
) -> None:
    """Ready tasks run between two pieces of work once the slice is over."""
    time_slice = TimeSlice(seconds)
    async with taking_turns() as other:
        for _ in range(100):
            await time_slice.over()
        assert other.had == turns
