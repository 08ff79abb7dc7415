"""The page of a comparison."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np

from mirrortest.compare.comparison import Side, compare
from mirrortest.compare.page import render
from mirrortest.model.verdict import Verdict
from tests.compared import drawn


def _sides(repeats: int, **changes: Any) -> list[Side]:
    draws = np.random.default_rng(1)
    of = ([drawn(draws, slow=slow) for _ in range(repeats)] for slow in (1.0, 3.0))
    return [
        Side(name, [replace(each, **changes) for each in side])
        for name, side in zip(("before", "<after>"), of, strict=True)
    ]


def _charts(page: str) -> dict[str, Any]:
    found = re.search(r'id="chart-data">(.*?)</script>', page)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


def test_it_draws_each_repeat_and_the_interval() -> None:
    """As shares of the base's mean, and percentiles as they are."""
    base, new = _sides(4)
    page = render(compare(base, [new]))
    (pair,) = _charts(page)["pairs"]
    by_name = {each["name"]: each for each in pair["figures"]}
    slow = by_name["ack_latency.p(50)"]
    assert slow["change"] == "worse"
    assert slow["low"] > 0
    assert len(slow["base"]) == len(slow["new"]) == 4
    assert abs(sum(slow["base"])) < 1e-9
    assert "produce_behind" not in by_name  # of a base of 0 there are no shares
    assert [len(curve["new"]) for curve in pair["curves"]] == [4] * 4
    assert pair["curves"][0]["statistics"] == ["p50", "p90", "p99", "p99.9", "max"]
    assert page.count('id="chart-') == 1 + len(pair["curves"]) + 1
    assert "ack_latency.p(50) worse by +" in page


def test_what_cannot_be_told_is_not_drawn_with_an_interval() -> None:
    """Of single runs there are only the percentiles and the table."""
    base, new = _sides(1, verdicts={"consume": Verdict.INCONCLUSIVE})
    page = render(compare(base, [new]))
    (pair,) = _charts(page)["pairs"]
    assert pair["figures"] == []
    assert "chart-differences-0" not in page
    assert len(pair["curves"]) == 4
    assert "at least 3 on each side are needed" in page
    assert "verdict of consume: inconclusive -&gt; inconclusive" in page


def test_names_from_outside_are_escaped() -> None:
    """A directory may be called anything."""
    base, new = _sides(3)
    assert "<after>" not in render(compare(base, [new]))
