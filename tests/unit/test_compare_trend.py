"""Where the level of a figure changes over many runs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from mirrortest.cli.main import run as main
from mirrortest.compare import trend as trend_module
from mirrortest.compare.changepoints import changepoints
from mirrortest.compare.document import Change, percent
from mirrortest.compare.page import render_trend
from mirrortest.compare.repeat import Repeat, Side
from mirrortest.compare.terminal import trend_view
from mirrortest.compare.trend import Trend, trend
from mirrortest.config.units import format_seconds
from tests.compared import produced, write
from tests.false_alarms import DISTRIBUTIONS, FIGURES, changed_histories

if TYPE_CHECKING:
    from pathlib import Path


def _levels(draws: np.random.Generator, *levels: tuple[float, int]) -> list[float]:
    return [float(level * draws.lognormal(0, 0.1)) for level, size in levels for _ in range(size)]


def _side(values: list[float], name: str = "p(99)") -> Side:
    return Side(
        "nightly",
        [
            Repeat(run=f"n{at}", started_ns=at, figures={name: each})
            for at, each in enumerate(values)
        ],
    )


def test_each_new_level_is_found_where_it_begins() -> None:
    """A rise and a fall are placed within five runs: runs next to a change fit either level."""
    draws = np.random.default_rng(1)
    found = [
        [each.at for each in changepoints(_levels(draws, (1, 40), (1.5, 30), (1, 30)), series=30)]
        for _ in range(20)
    ]
    assert sum(each == pytest.approx([40, 70], abs=5) for each in found if len(each) == 2) >= 17


@pytest.mark.parametrize(("before", "after"), [(15, 5), (26, 4), (20, 20)])
def test_a_few_nights_of_a_new_level_are_found_among_many_figures(before: int, after: int) -> None:
    """They are found if they are slower by half."""
    draws = np.random.default_rng(2)
    values = [_levels(draws, (1, before), (1.5, after)) for _ in range(20)]
    assert sum(bool(changepoints(each, series=FIGURES)) for each in values) >= 17


@pytest.mark.parametrize("case", ["10 % spread", "one run in ten takes five times as long"])
def test_histories_without_a_change_have_no_changepoints(case: str) -> None:
    """At most 2 of 25 directories of 40 nights have one; with Welch's test, eight or more had."""
    assert changed_histories(DISTRIBUTIONS[case], 40, directories=25, seed=3) <= 2


def test_a_single_slow_run_is_no_new_level() -> None:
    """Nor are two consecutive ones: a level has at least three runs."""
    values = _levels(np.random.default_rng(3), (1, 30))
    values[17] = values[18] = 9.0
    assert changepoints(values) == changepoints([1.0] * 16 + [9.0] * 2) == []


@pytest.mark.parametrize("usual", [1.0, 0.0])
def test_two_slow_nights_at_an_end_are_no_level_of_three(usual: float) -> None:
    """Equal nights hardly ever have such a split by chance; a third slow night is a new level."""
    usually, slow = [usual] * 300, [9.0]
    for values in (usually + 2 * slow, 2 * slow + usually):
        assert changepoints(values, series=FIGURES) == []
    (found,) = changepoints(usually + 3 * slow, series=FIGURES)
    assert found.at == 300


def test_a_slow_newest_night_does_not_hide_an_earlier_change() -> None:
    """It is not a level, and the level before it is found."""
    values = [*_levels(np.random.default_rng(7), (1, 40), (2, 40)), 200.0]
    assert [each.at for each in changepoints(values)] == [40]


def test_few_or_equal_values_do_not_change() -> None:
    """Too few values show no level, nor do equal ones, to the resolution of their measurement."""
    assert changepoints([]) == changepoints([1, 1, 9, 9, 9]) == changepoints([0.0] * 20) == []
    assert changepoints([1.0] * 10 + [1.003] * 10) == []


def test_a_change_has_a_direction_and_a_run() -> None:
    """A rate that falls got worse; runs that lack the figure are skipped."""
    side = _side(_levels(np.random.default_rng(4), (2, 20), (1, 20)), "produce_rate")
    lacking = Repeat(run="lacking", started_ns=-1, figures={"lag": 0.0})
    found = trend(Side("nightly", [*side.repeats, lacking]))
    rate, lag = found.figures
    assert rate.values[0] is None
    (change,) = rate.changes
    assert (change.change, found.runs[change.at].run) == (Change.WORSE, "n20")
    assert change.difference == pytest.approx(-0.5, abs=0.1)
    assert lag.changes == []
    assert Trend.model_validate_json(found.encode()) == found


def test_more_runs_than_can_be_searched_are_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest runs are searched."""
    monkeypatch.setattr(trend_module, "MOST_RUNS", 5)
    side = _side(_levels(np.random.default_rng(5), (1, 9)))
    found = trend(Side("nightly", side.repeats[::-1]))
    assert [each.run for each in found.runs] == ["n4", "n5", "n6", "n7", "n8"]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(trend_view(found))
    assert "nightly: 5 runs; 4 older ones are left out" in captured.get()


@pytest.mark.parametrize("width", [40, 80])
def test_a_points_name_cuts_no_figure(width: int) -> None:
    """It is folded: on 80 columns only the first digits of the levels were left."""
    point = "slow-link: throughput=1000, message-size=1 kB, mirror tasks=4"
    levels = _levels(np.random.default_rng(5), (1, 12), (2, 12))
    runs = [
        Repeat(run=f"n{at}", started_ns=0, figures={"sent_latency.p(99.9)": each}, point=point)
        for at, each in enumerate(levels)
    ]
    found = trend(Side("nightly", runs))
    (change,) = found.figures[0].changes
    console = Console(width=width)
    with console.capture() as captured:
        console.print(trend_view(found))
    for level in (change.before, change.after):
        assert f" {format_seconds(level)}" in captured.get()
    assert percent(change.difference) in captured.get()


def test_the_page_draws_runs_and_levels() -> None:
    """Figures that changed come first."""
    values = _levels(np.random.default_rng(6), (1, 10), (2, 10))
    side = Side(
        "nightly",
        [
            Repeat(run=f"n{at}", started_ns=at, figures={"mean": 1.0, "p(99)": each})
            for at, each in enumerate(values)
        ],
    )
    page = render_trend(trend(side))
    found = re.search(r'id="chart-data">(.*?)</script>', page)
    assert found is not None
    charts = json.loads(found[1])
    assert [each["name"] for each in charts["figures"]] == ["p(99)", "mean"]
    assert charts["figures"][0]["changes"][0]["tone"] == "bad"
    assert len(charts["runs"]) == 20
    assert page.count('id="chart-trend-') == 2


def test_the_command_orders_runs_by_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the names and times of their files matter, nor the runs' ids."""
    runs = [f"r{7 * hour % 20:02}" for hour in range(20)]
    for hour in reversed(range(20)):
        document = produced(runs[hour], p99=(1.0 if hour < 12 else 2.0) + hour / 100)
        document["session"] = f"20260101T{hour:02}0000Z-1"
        write(tmp_path / f"{19 - hour}.json", document)
    monkeypatch.setattr("sys.argv", ["mirrortest", "compare", "--history", str(tmp_path), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    found = Trend.model_validate_json(capsys.readouterr().out)
    assert [each.run for each in found.runs] == runs
    changes = {each.name: [change.at for change in each.changes] for each in found.figures}
    assert changes["ack_latency.p(99)"] == [12]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "name BASE and at least one NEW, or a directory with --history DIR"),
        ("a", "name BASE and at least one NEW"),
        ("a --history b", "leave out BASE, NEW, --threshold and --details"),
        ("--history b --threshold p(99)<+1%", "leave out BASE, NEW, --threshold and --details"),
        ("--history nowhere", "nowhere: there is no such file or directory"),
        ("a b --html x --report ./x", "--html x: --report has this name: give another"),
    ],
)
def test_mistakes_are_reported(
    words: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each exits with 2, and says what to write instead."""
    monkeypatch.setattr("sys.argv", ["mirrortest", "compare", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_each_point_of_a_scenario_has_a_level_of_its_own() -> None:
    """Points that differ among themselves do not hide what changes in one of them."""
    draws = np.random.default_rng(7)
    slow, fast = _levels(draws, (9, 40)), _levels(draws, (1, 20), (1.5, 20))
    repeats = [
        Repeat(run=f"{point}{at}", started_ns=at, figures={"p(99)": value}, point=point)
        for at, pair in enumerate(zip(slow, fast, strict=True))
        for point, value in zip(("slow", "fast"), pair, strict=True)
    ]
    found = trend(Side("nightly", repeats))
    changes = {each.title: [found.runs[c.at].run for c in each.changes] for each in found.figures}
    assert changes == {"p(99), slow": [], "p(99), fast": ["fast20"]}
