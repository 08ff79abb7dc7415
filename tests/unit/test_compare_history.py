"""What is reported of a night, compared with those before it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirrortest.compare import history as history_module
from mirrortest.compare import trend as trend_module
from mirrortest.compare.history import COMPARISON_PAGE, TREND_PAGE, judge, nights, prune
from mirrortest.compare.reading import read_side
from mirrortest.errors import MirrortestError
from tests.compared import produced, reconciled, scenario_result, write

if TYPE_CHECKING:
    from mirrortest.compare.repeat import Side


def _night(
    history: Path, day: int, *seconds: float, lost: int = 0, of_points: bool = False
) -> Path:
    """A night's results, with a repeat for each of these latencies, or a scenario's point each."""
    night = history / f"202601{day:02}T020000Z"
    for number, value in enumerate(seconds):
        run = f"d{day:02}r{number}"
        document = produced(run, p99=value)
        document["session"] = f"202601{day:02}T02000{number}Z-1"
        clients = night / f"point-00{number}"
        write(clients / "p1.json", document)
        write(clients / "summary.json", reconciled(run, counts={"acked": 20, "lost": lost}))
    if of_points:
        labels = {f"d{day:02}r{at}": f"p{at}" for at in range(len(seconds))}
        write(night / "scenario.json", scenario_result(labels))
    return night


def test_the_first_night_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    """Only its trend is drawn."""
    assert judge(_night(tmp_path, 1, 1.0)) == ([], "the first of its history")
    assert (tmp_path / TREND_PAGE).exists()


def test_a_night_is_compared_with_the_one_before(tmp_path: Path) -> None:
    """Equal nights are not worse, and a figure that is worse is named."""
    _night(tmp_path, 1, 9.0, 9.1, 8.9, 9.05)
    _night(tmp_path, 2, 1.0, 1.01, 0.99, 1.02)
    same = _night(tmp_path, 3, 1.01, 1.0, 0.99, 1.02)
    assert judge(same) == ([], "not worse than 20260102T020000Z")
    slow = _night(tmp_path, 4, 2.01, 2.0, 1.99, 2.02)
    worse, text = judge(slow)
    assert text == "worse than 20260103T020000Z"
    assert "ack_latency.p(99) by +99.5 %" in worse
    assert (slow / COMPARISON_PAGE).exists()


def test_one_lost_message_is_worse_without_repeats(tmp_path: Path) -> None:
    """Counts of findings are exact, so they need none."""
    _night(tmp_path, 1, 1.0)
    worse, _ = judge(_night(tmp_path, 2, 1.0, lost=1))
    assert worse == ["lost: 0 -> 1 messages"]


def test_few_repeats_are_inconclusive(tmp_path: Path) -> None:
    """That is not the same as no difference."""
    _night(tmp_path, 1, 1.0)
    text = "comparison with 20260101T020000Z is inconclusive"
    assert judge(_night(tmp_path, 2, 2.0)) == ([], text)


def test_a_new_level_is_said_once(tmp_path: Path) -> None:
    """The first night whose trend shows it reports it, though two nights cannot be compared."""
    draws = np.random.default_rng(3)
    reported = [
        day
        for day in range(1, 26)
        if judge(_night(tmp_path, day, (1 if day < 16 else 1.5) * draws.lognormal(0, 0.02)))[0]
    ]
    assert len(reported) == 1
    assert 18 <= reported[0] <= 21


def test_a_known_level_is_not_new_where_the_oldest_runs_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a history of more than 2,000 runs, every old change was reported again each night."""
    monkeypatch.setattr(trend_module, "MOST_RUNS", 30)
    for day in range(1, 12):
        level = 1.0 if day < 7 else 1.5
        night = _night(tmp_path, day, *(level * each for each in (1.0, 1.01, 0.99)))
    assert judge(night) == ([], "not worse than 20260110T020000Z")


def test_a_known_level_may_begin_a_run_later_whatever_the_number_of_points(tmp_path: Path) -> None:
    """It was reported again, as consecutive runs of one of three points are three runs apart."""
    values = [1.0, 1.01, 0.99, 1.005] * 3 + [1.225] + [1.5, 1.51, 1.49, 1.505] * 2 + [1.5, 1.51]
    for day, value in enumerate(values, start=1):
        night = _night(tmp_path, day, value, 1.0, 1.0, of_points=True)
    assert judge(night)[0] == []


def test_an_earlier_night_without_figures_is_passed_over(tmp_path: Path) -> None:
    """So are other files and directories."""
    _night(tmp_path, 1, 1.0, 1.01, 0.99, 1.02)
    (tmp_path / "20260102T020000Z").mkdir()
    (tmp_path / "notes").mkdir()
    _, text = judge(_night(tmp_path, 3, 1.0, 1.01, 0.99, 1.02))
    assert text == "not worse than 20260101T020000Z"


@pytest.mark.parametrize(
    ("left", "why"), [({}, "no summary of a run"), ({"whole": None}, "damaged or incomplete")]
)
def test_a_night_whose_results_cannot_be_read_is_an_error(
    tmp_path: Path, left: dict[str, None], why: str
) -> None:
    """Nothing was compared, so the night must not pass."""
    _night(tmp_path, 1, 1.0)
    tonight = tmp_path / "20260102T020000Z"
    tonight.mkdir()
    if left:
        write(tonight / "p1.json", produced("r") | left)
    with pytest.raises(MirrortestError, match=why):
        judge(tonight)


def test_a_night_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    """Whatever the reason is, the error is one for the user."""
    for day in range(1, 4):
        _night(tmp_path, day, 1.0)
    elsewhere = (tmp_path / "20260101T020000Z").rename(tmp_path / "elsewhere")
    (tmp_path / "20260101T020000Z").symlink_to(elsewhere)
    with pytest.raises(MirrortestError, match="20260101T020000Z: cannot be removed"):
        prune(tmp_path / "20260103T020000Z", 2)


def test_the_two_nights_that_are_compared_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night without figures between them does not matter; logs of older nights are not kept."""
    drawn = []

    def noting(where: str, *, with_logs: bool) -> Side:
        side = read_side(where, with_logs=with_logs)
        drawn.extend([Path(where).name[6:8]] if with_logs else [])
        return side

    monkeypatch.setattr(history_module, "read_side", noting)
    _night(tmp_path, 1, 1.0)
    _night(tmp_path, 2, 1.0)
    (tmp_path / "20260103T020000Z").mkdir()
    judge(_night(tmp_path, 4, 1.0))
    assert sorted(drawn) == ["02", "04"]


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (9, [1, 2, 3, 4])])
def test_only_the_newest_nights_are_kept(keep: int, left: list[int], tmp_path: Path) -> None:
    """Files that are not nights are kept, too."""
    for day in range(1, 5):
        tonight = _night(tmp_path, day, 1.0)
    (tmp_path / TREND_PAGE).touch()
    prune(tonight, keep)
    assert [int(each.name[6:8]) for each in nights(tmp_path)] == left
    assert (tmp_path / TREND_PAGE).exists()


def test_a_night_is_not_removed_by_its_own_run(tmp_path: Path) -> None:
    """It was, if a clock that was ahead had dated the nights before it later than this one."""
    tonight = _night(tmp_path, 1, 1.0)
    for day in (7, 8, 9):
        _night(tmp_path, day, 1.0)
    prune(tonight, 2)
    assert [int(each.name[6:8]) for each in nights(tmp_path)] == [1, 9]


def test_an_earlier_night_whose_log_is_damaged_is_named_and_passed_over(tmp_path: Path) -> None:
    """It ended the comparison of each later night, until it was removed."""
    equal = (1.0, 1.01, 0.99, 1.02)
    for day in (1, 2):
        _night(tmp_path, day, *equal)
    session = tmp_path / "20260101T020000Z/point-000/logs/run=r/role=producer/p1-x/session.json"
    session.parent.mkdir(parents=True)
    session.touch()
    worse, text = judge(_night(tmp_path, 3, *equal))
    assert worse == []
    assert text.startswith("not worse than 20260102T020000Z; passed over: ")
    assert str(session) in text
    assert judge(tmp_path / "20260102T020000Z")[1].startswith("the first of its history; passed")
