"""Two sides of a comparison, from repeats on real clusters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirrortest.cli.compare import compare
from tests.lab.harness import run_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.harness import Scene

pytestmark = pytest.mark.lab

REPEATS = 4


def test_larger_batches_and_a_longer_linger_are_found_and_named(
    make_scene: Callable[..., Scene],
) -> None:
    """With a longer linger, sends are later and batches larger; only that setting is named."""
    scene = make_scene("orders.compared")
    scene.lab.source.create_topic(*scene.topics, 1)
    for repeat in range(REPEATS):
        for side, linger in (("before", "5"), ("after", "300")):
            place = scene.folder / side / str(repeat) / "produce.json"
            place.parent.mkdir(parents=True)
            producing = scene.produce(
                "ann", "--run", f"{scene.run}{side[0]}{repeat}", "--throughput", "800",
                "--num-records", "1200", "--linger-ms", linger, "--report", str(place),
                "--log-dir", str(place.parent), label=f"produce-{side}{repeat}",
            )  # fmt: skip
            assert producing.answer()["whole"]["acked"] == 1200
    sides = [str(scene.folder / side) for side in ("before", "after")]
    threshold = ("--threshold", "schedule_lag.p(50)<+20%")
    ended = run_here(compare, *sides, *threshold, "--json")
    assert ended.code == 99, ended.stdout
    (pair,) = json.loads(ended.stdout)["pairs"]
    figures = {each["name"]: each for each in pair["figures"]}
    assert figures["schedule_lag.p(50)"]["change"] == "worse"
    batches = figures["batch_messages"]
    assert batches["change"] == "differs"
    assert min(batches["new"]) > max(batches["base"])
    assert pair["settings"] == [{"name": "producer: linger.ms", "base": ["5"], "new": ["300"]}]
    again = run_here(compare, sides[0], sides[0], "--json")
    assert again.code == 0
    assert json.loads(again.stdout)["pairs"][0]["change"] == "no difference"
