"""A mirror has caught up once its copies have what the source had at the start."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from mirrortest.errors import UnreachableError
from mirrortest.scenario.catch_up import catch_up_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.lab.testbed import Lab


def lab(answers: list[dict[int, int] | None]) -> tuple[Lab, list[str]]:
    """A source with partitions of 10 and 20 messages; `answers` are the copy's ends, in order."""
    asked: list[str] = []
    answering: Iterator[dict[int, int] | None] = iter(answers)

    def ends(topic: str) -> dict[int, int]:
        asked.append(topic)
        answer = next(answering)
        if answer is None:
            raise UnreachableError("no answer")
        return answer

    made = SimpleNamespace(
        source=SimpleNamespace(end_offsets=lambda _: {0: 10, 1: 20}),
        destination=SimpleNamespace(end_offsets=ends),
        mirror=SimpleNamespace(copy_of=lambda topic: f"A.{topic}"),
    )
    return cast("Lab", made), asked


def test_each_partition_has_to_be_copied() -> None:
    """More in one does not make up for less in another; a cluster that is down is retried."""
    world, asked = lab([{}, {0: 50, 1: 19}, None, {0: 10, 1: 20}])
    seconds = catch_up_seconds(world, ["orders"], threading.Event())
    assert seconds is not None
    assert seconds > 0
    assert asked == ["A.orders"] * 4


def test_a_point_that_ends_before_has_no_figure() -> None:
    """How long it would have taken is unknown."""
    world, _ = lab([{}])
    ending = threading.Event()
    ending.set()
    assert catch_up_seconds(world, ["orders"], ending) is None
