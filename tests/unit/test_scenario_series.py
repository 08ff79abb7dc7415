"""All points of a scenario, and how they continue after an interrupt."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.option_file import parse_table
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.scenario.board import Board
from mirrortest.scenario.matrix import Document
from mirrortest.scenario.outcome import SeriesOutcome
from mirrortest.scenario.overview import PAGE, render
from mirrortest.scenario.series import POINT_FILE, SERIES_FILE, Series
from mirrortest.seqlog.session_directory import BusyError
from tests.unit.scripted_clients import (
    PRODUCER,
    arguments,
    play,
    scripted_clients,  # noqa: F401  # a fixture
    series,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.scenario.outcome import PointOutcome


def _run_until_point_ends(number: int, text: str, output: Path) -> None:
    def interrupt(outcome: PointOutcome) -> None:
        if outcome.number == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        series(text, output).run(Board(lambda _: None), interrupt)


def test_an_interrupted_run_goes_on_at_the_point_that_had_not_ended(tmp_path: Path) -> None:
    """Points that have ended do not run again; a point without a result starts again."""
    text = PRODUCER + "[vary]\nrepeats = 3\n"
    _run_until_point_ends(2, text, tmp_path / "out")
    half = tmp_path / "out" / "point-003"
    half.mkdir()
    (half / "left").touch()
    runs = [outcome.run for outcome in series(text, tmp_path / "out").ended]
    assert len(runs) == 2
    again: list[int] = []
    series(text, tmp_path / "out").run(
        Board(lambda _: None), lambda each: again.append(each.number)
    )
    assert again == [3]
    assert not (half / "left").exists()
    written = json.loads((tmp_path / "out" / SERIES_FILE).read_text())
    assert [point["run"] for point in written["points"]][:2] == runs
    assert (written["planned"], len(written["points"])) == (3, 3)


@pytest.mark.parametrize("place", ["point-002", "scenario"])
@pytest.mark.parametrize(("left", "why"), [("link", "a link"), ("file", "Not a directory")])
def test_what_an_earlier_run_left_and_cannot_be_removed_is_named(
    tmp_path: Path, place: str, left: str, why: str
) -> None:
    """For example, files of another user that a container left; nothing is run."""
    text = PRODUCER + "[vary]\nrepeats = 2\n"
    _run_until_point_ends(1, text, tmp_path / "out")
    there = tmp_path / "out" / place
    shutil.rmtree(there, ignore_errors=True)
    if left == "link":
        there.symlink_to(tmp_path)
    else:
        there.touch()
    with pytest.raises(
        MirrortestError, match=f"{place}: cannot be replaced: .*{why}: remove .*{place}"
    ):
        play(text, tmp_path / "out")


@pytest.mark.parametrize("place", ["", "mine"])
def test_the_copy_of_a_scenario_is_kept_where_it_is_what_was_given(
    place: str, tmp_path: Path
) -> None:
    """For example, to continue results that were copied without the scenario's file."""
    output = tmp_path / "out"
    play(PRODUCER, output)
    copy = output / "scenario" / place / "small.toml"
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(PRODUCER)
    document = Document("small", str(copy), copy.parent, parse_table(PRODUCER, "small.toml"))
    Series(document, output, arguments)._keep_source()
    assert copy.read_text() == PRODUCER


def test_the_page_of_all_points_has_what_varies_and_how_each_ended(tmp_path: Path) -> None:
    """Text from files and messages is escaped."""
    text = PRODUCER + "[vary]\nproduce.do = ['pass', 'fail']\nproduce.acks = ['<b>']\n"
    series(text, tmp_path / "out").run(Board(lambda _: None), lambda _: None)
    page = (tmp_path / "out" / PAGE).read_text()
    assert "1 of 2 as expected" in page
    assert "produce.do" in page
    assert '<span class="tag bad">failed</span>' in page
    assert "failed, not passed (p1: failed)" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_the_page_has_how_long_the_mirror_took(tmp_path: Path) -> None:
    """To catch up after a fault, and to create a new topic: only the JSON file had it."""
    point = play(PRODUCER, tmp_path / "out")
    figures = {"catch_up_seconds.mirror": 12.5, "discovery_seconds.late": 3.25}
    measured = point.model_copy(update={"figures": figures})
    page = render(SeriesOutcome.of("small", "", "", 1, [measured]), {})
    for text in ("catch-up of mirror, s", "12.5", "discovery of late, s", "3.2"):
        assert text in page


def test_results_of_another_scenario_are_not_gone_on_with(tmp_path: Path) -> None:
    """Nor is a directory used that contains something else."""
    play(PRODUCER, tmp_path / "out")
    with pytest.raises(UsageError, match="it has results of another scenario"):
        series(PRODUCER + "acks = 1\n", tmp_path / "out")
    (tmp_path / "out" / SERIES_FILE).unlink()
    with pytest.raises(UsageError, match=r"it is not empty, and has no scenario[.]json"):
        series(PRODUCER, tmp_path / "out")


@pytest.mark.parametrize("name", ["scenario/mine.toml", "scenario.toml", "point-001/notes", "a"])
def test_a_users_own_files_are_not_replaced_by_results(name: str, tmp_path: Path) -> None:
    """Files whose names begin like those of results were removed."""
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(UsageError, match="it is not empty"):
        play(PRODUCER, tmp_path / "out")
    assert file.exists()


def test_results_of_the_same_points_in_another_order_are_not_continued(tmp_path: Path) -> None:
    """One combination never ran, another twice, and all were as expected."""
    varied = ["produce.acks = ['1', 'all']\n", "produce.linger = [0, 5, 9]\n"]
    text, reordered = (f"{PRODUCER}[vary]\n{''.join(each)}" for each in (varied, varied[::-1]))
    _run_until_point_ends(3, text, tmp_path / "out")
    with pytest.raises(UsageError, match="it has results of another scenario"):
        series(reordered, tmp_path / "out")


@pytest.mark.parametrize("change", [{"repeat": 2}, {"label": "produce.acks all"}])
def test_the_result_of_another_point_is_not_taken(
    change: dict[str, object], tmp_path: Path
) -> None:
    """A directory that was copied or renamed is run again."""
    text = PRODUCER + "[vary]\nproduce.acks = ['1']\n"
    play(text, tmp_path / "out")
    assert len(series(text, tmp_path / "out").ended) == 1
    file = tmp_path / "out" / "point-001" / POINT_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert series(text, tmp_path / "out").ended == []


def test_a_series_that_is_not_complete_has_not_passed(tmp_path: Path) -> None:
    """Its file said exit code 0 after `kill -9`."""
    text, file = PRODUCER + "[vary]\nrepeats = 2\n", tmp_path / "out" / SERIES_FILE
    _run_until_point_ends(1, text, tmp_path / "out")
    assert json.loads(file.read_text())["exit_code"] == 3
    play(text, tmp_path / "out")
    assert json.loads(file.read_text())["exit_code"] == 0


def test_points_that_another_process_has_run_meanwhile_are_kept(tmp_path: Path) -> None:
    """`run one two` reads what ended of `two` before `one` runs, for hours."""
    early = series(PRODUCER, tmp_path / "out")
    outcome = play(PRODUCER, tmp_path / "out")
    assert early.run(Board(lambda _: None), lambda _: None).points == [outcome]


def test_results_of_other_files_are_not_gone_on_with(tmp_path: Path) -> None:
    """For example, of a workload edited after an interrupt: one series had points of both."""
    file = tmp_path / "load.toml"
    file.write_text("throughput = 1\n")
    text = f"{PRODUCER}workload = 'load.toml'\n"
    play(text, tmp_path / "out")
    assert series(text, tmp_path / "out").ended
    file.write_text("throughput = 2\n")
    with pytest.raises(UsageError, match="it has results of another scenario"):
        series(text, tmp_path / "out")


def test_two_runs_do_not_write_to_one_directory(tmp_path: Path) -> None:
    """The second would restart the point that the first is running."""
    text, output = PRODUCER + "[vary]\nrepeats = 2\n", tmp_path / "out"

    def second(_: PointOutcome) -> None:
        with pytest.raises(BusyError, match="another process is writing here"):
            series(text, output).run(Board(lambda _: None), lambda _: None)

    first = series(text, output)
    first.run(Board(lambda _: None), second)
    assert len(first.ended) == 2
