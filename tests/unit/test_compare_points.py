"""The points of scenarios, whose results an argument names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.compare.comparison import compare
from mirrortest.compare.document import Change
from mirrortest.compare.reading import read_side
from mirrortest.errors import UsageError
from mirrortest.model.observed import REQUEST
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from tests.compared import produced, reconciled, scenario_result, write
from tests.made_observation import requests, write_observation

if TYPE_CHECKING:
    from pathlib import Path


def test_a_scenario_s_runs_are_of_its_points(tmp_path: Path) -> None:
    """A point's directory alone has no point, so it can be compared with any other."""
    for number, run in enumerate(("r1", "r2"), 1):
        write(tmp_path / f"point-00{number}/clients/p1.json", produced(run))
    write(tmp_path / "scenario.json", scenario_result({"r1": "acks 1", "r2": "acks all"}))
    assert read_side(str(tmp_path)).points == ["acks 1", "acks all"]
    assert read_side(str(tmp_path / "point-001")).points == [""]


def test_the_points_of_several_scenarios_are_named_by_them(tmp_path: Path) -> None:
    """They were one group of repeats, so a mirror that lost messages in one of two passed."""
    for side, lost in (("before", 0), ("after", 5)):
        for name, its_lost in (("healthy", lost), ("lossy", 5)):
            runs = [f"{side}-{name}{number}" for number in (1, 2, 3)]
            folder = tmp_path / side / name
            write(folder / "scenario.json", scenario_result(dict.fromkeys(runs, ""), name))
            for run in runs:
                counts = {"acked": 20, "lost": its_lost}
                document = reconciled(run, counts=counts, inconclusive=[])
                write(folder / run / "result" / "summary.json", document)
    before, after = (read_side(str(tmp_path / side)) for side in ("before", "after"))
    assert before.points == after.points == ["healthy", "lossy"]
    changes = {pair.point: pair.counts[0].change for pair in compare(before, [after]).pairs}
    assert changes == {"healthy": Change.WORSE, "lossy": Change.NONE}
    alone = compare(before, [read_side(str(tmp_path / "after" / "healthy"))])
    assert "only one side has unnamed points" in alone.inconclusive[0]


def test_a_scenario_is_named_once_its_results_are_of_several(tmp_path: Path) -> None:
    """Nights of one scenario have its labels alone."""
    for night, name in (("1", "fast"), ("2", "fast"), ("3", "slow")):
        write(tmp_path / night / "p1.json", produced(f"r{night}"))
        write(tmp_path / night / "scenario.json", scenario_result({f"r{night}": "acks 1"}, name))
    assert read_side(str(tmp_path)).points == ["fast: acks 1", "slow: acks 1"]
    (tmp_path / "3" / "scenario.json").unlink()
    (tmp_path / "3" / "p1.json").unlink()
    assert read_side(str(tmp_path)).points == ["acks 1"]


def test_values_that_print_alike_are_different_points(tmp_path: Path) -> None:
    """1000 and "1000" were one group of repeats; equal values are one point."""
    label = "produce.message-size 1000"
    points = []
    for number, value in enumerate((1000, "1000", 1000), 1):
        write(tmp_path / f"point-00{number}" / "p1.json", produced(f"r{number}"))
        settings = {"produce.message-size": value}
        points += scenario_result({f"r{number}": label}, settings=settings)["points"]
    write(tmp_path / "scenario.json", scenario_result({}) | {"points": points})
    assert [each.point for each in read_side(str(tmp_path)).repeats] == [
        '{"produce.message-size": 1000}',
        '{"produce.message-size": "1000"}',
        '{"produce.message-size": 1000}',
    ]


@pytest.mark.parametrize("points", [{}, {"points": [{"run": "r1"}]}, {"points": 7}])
def test_a_damaged_scenario_is_named(tmp_path: Path, points: dict[str, object]) -> None:
    """A deeply nested document of another program is skipped."""
    write(tmp_path / "p1.json", produced())
    (tmp_path / "other.json").write_text("[" * 100_000)
    assert len(read_side(str(tmp_path)).repeats) == 1
    write(tmp_path / "scenario.json", {"kind": "scenario", "version": 1, **points})
    with pytest.raises(UsageError, match=r"scenario\.json: not the results of a scenario"):
        read_side(str(tmp_path))


def test_a_point_that_left_nothing_is_a_repeat_without_verdicts(tmp_path: Path) -> None:
    """It was run, so a comparison must not pass with the others alone."""
    write(tmp_path / "point-001/clients/p1.json", produced("r1"))
    write(tmp_path / "scenario.json", scenario_result({"r1": "acks 1", "r2": "acks 1"}))
    side = read_side(str(tmp_path))
    assert {each.run: [*each.verdicts] for each in side.repeats} == {"r1": ["produce"], "r2": []}
    assert side.points == ["acks 1"]
    assert "no verdict of produce in run r2" in compare(side, [side]).inconclusive


def test_a_point_that_ended_in_an_error_is_a_repeat_without_results(tmp_path: Path) -> None:
    """A point whose fault was never injected counted as a good repeat."""
    for run in ("r1", "r2"):
        write(tmp_path / run / "clients" / "p1.json", produced(run))
    good, bad = scenario_result({"r1": ""}), scenario_result({"r2": ""}, verdict=None)
    write(tmp_path / "scenario.json", good | {"points": good["points"] + bad["points"]})
    rows = [requests(1, "A1", "Produce", 10, 0.5)]
    write_observation(tmp_path / "r2" / "observations", {REQUEST: rows}, run="r2")
    side = read_side(str(tmp_path))
    assert {each.run: [*each.verdicts] for each in side.repeats} == {"r1": ["produce"], "r2": []}
    assert [each.run for each in side.repeats if each.figures] == ["r1"]
    assert "no verdict of produce in run r2" in compare(side, [side]).inconclusive
    write(tmp_path / "scenario.json", bad)
    (tmp_path / "r1" / "clients" / "p1.json").unlink()
    with pytest.raises(UsageError, match="each point ended in an error"):
        read_side(str(tmp_path))


def test_files_that_a_scenario_came_with_are_no_results(tmp_path: Path) -> None:
    """`run` copies a scenario's directory, and a summary in it counted as a repeat of every run."""
    for folder in ("point-001", "scenario"):
        write(tmp_path / folder / "p1.json", produced(folder))
    assert len(read_side(str(tmp_path)).repeats) == 2
    write(tmp_path / "scenario.json", scenario_result({"point-001": ""}))
    write(tmp_path / "scenario" / "scenario.json", {"not": "ours"})
    assert [each.run for each in read_side(str(tmp_path)).repeats] == ["point-001"]


def test_the_directory_of_a_points_is_one_repeat(tmp_path: Path) -> None:
    """Its clients' summaries and its logs are in two directories."""
    session = Session(run="r1", role=Role.PRODUCER, name="pa", session="s", started_ns=17)
    folder = tmp_path / "logs" / "run=r1" / "role=producer" / "a-s"
    write(folder / "summary.json", produced("r1"))
    (folder / "session.json").write_bytes(session.encode())
    write(tmp_path / "clients" / "p1.json", produced("r1"))
    assert len(read_side(str(tmp_path)).repeats) == 1
