"""The page of a comparison."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrortest.compare.comparison import compare
from mirrortest.compare.page import render, render_trend
from mirrortest.compare.repeat import ProcessLog, Repeat, Side
from mirrortest.compare.trend import trend
from mirrortest.config.units import SECOND_NS
from mirrortest.model.verdict import Verdict
from mirrortest.seqlog.interval_log import SCHEMA
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from tests.compared import drawn
from tests.compared import side as side_of


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
    """They are shares of the base's mean; percentiles are drawn as measured."""
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


def test_a_line_has_the_percentiles_of_one_repeat() -> None:
    """If a repeat lacked a percentile, lines mixed the values of several repeats."""
    values = [{"p(50)": at, "p(95)": 10 * at, "max": 100 * at} for at in (1.0, 2.0, 3.0)]
    del values[0]["p(95)"]
    sides = side_of(*values), side_of(*values[::-1])
    (pair,) = _charts(render(compare(sides[0], sides[1:])))["pairs"]
    (curve,) = pair["curves"]
    assert curve["statistics"] == ["p50", "max"]
    assert curve["base"] == [[1, 100], [2, 200], [3, 300]]
    assert curve["new"] == curve["base"][::-1]


def test_a_difference_from_0_is_in_words() -> None:
    """It has no size in per cent: the text was "worse by  %"."""
    by_name = [
        side_of(*({"p(50)": at, "lag": lag} for at, lag in zip(times, lags, strict=True)))
        for times, lags in (((1, 1.1, 1.2), (0, 0, 0)), ((9, 9.1, 9.2), (4.0, 4.1, 4.2)))
    ]
    assert "lag worse from 0" in render(compare(by_name[0], by_name[1:]))
    runs = [
        Repeat(run=f"r{at}", started_ns=at, figures={"lag": 9.0 * (at > 11)}) for at in range(24)
    ]
    assert "worse from 0 since run r12" in render_trend(trend(Side("nightly", runs)))


def test_what_cannot_be_told_is_not_drawn_with_an_interval() -> None:
    """For single runs the page has only the percentiles and the table."""
    base, new = _sides(1, verdicts={"consume": Verdict.INCONCLUSIVE})
    page = render(compare(base, [new]))
    (pair,) = _charts(page)["pairs"]
    assert pair["figures"] == []
    assert "chart-differences-0" not in page
    assert len(pair["curves"]) == 4
    assert "at least 3 on each side are needed" in page
    assert "verdict of consume: inconclusive -&gt; inconclusive" in page


def test_names_from_outside_are_escaped() -> None:
    """A directory may have any name."""
    base, new = _sides(3)
    assert "<after>" not in render(compare(base, [new]))


def _log(run: str, acked: int, lag: int | None = None) -> ProcessLog:
    """A process's intervals of 5 s, which start at another time than those of other runs."""
    began = 10**15 * (1 + sum(map(ord, run)))
    role = Role.PRODUCER if lag is None else Role.CONSUMER
    rows = [
        {"started_ns": at, "ended_ns": at + 5 * SECOND_NS, "topic": "t", "acked": acked * 5}
        | {"lag": lag, "arrived": acked * 5}
        for at in range(began, began + 30 * SECOND_NS, 5 * SECOND_NS)
    ]
    return ProcessLog(
        Session(run=run, role=role, name="a", session="s", started_ns=began),
        pa.Table.from_pylist(rows, SCHEMA),
    )


def test_the_repeats_are_drawn_over_each_other_from_their_starts() -> None:
    """The charts have the figures of both sides; each point of a scenario has its own."""
    sides = [
        Side(
            name,
            [
                Repeat(
                    run=(run := f"{name}{point}{at}"),
                    started_ns=0,
                    figures={"produce_rate": rate + at},
                    point=point,
                    logs=[_log(run, rate + at), *([_log(run, rate, 7)] if name == "old" else [])],
                )
                for point, rate in (("small", 100), ("large", 10))
                for at in range(3)
            ],
        )
        for name in ("old", "new")
    ]
    charts = _charts(render(compare(sides[0], sides[1:]), sides))["pairs"]
    for times, rate in ((charts[0]["times"], 100), (charts[1]["times"], 10)):
        by_title = {each["title"]: each for each in times}
        assert "Messages arrived per second" not in by_title  # only the base has consumers
        acknowledged = by_title["Messages acknowledged per second"]
        for side in ("base", "new"):
            assert [max(each["values"]) for each in acknowledged[side]] == [
                rate,
                rate + 1,
                rate + 2,
            ]
            assert {each["step"] for each in acknowledged[side]} == {5}
            assert {len(each["values"]) for each in acknowledged[side]} == {6}
