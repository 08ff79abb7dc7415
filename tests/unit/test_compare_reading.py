"""Which repeats an argument names, and which figures they have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirrortest.compare.comparison import compare
from mirrortest.compare.reading import read_side
from mirrortest.compare.settings import OPTIONS
from mirrortest.errors import UsageError
from mirrortest.model.observed import REQUEST
from mirrortest.model.verdict import Verdict
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from tests.compared import consumed, produced, reconciled, write
from tests.made_observation import requests, write_observation
from tests.made_result import Made

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("places", "repeats"),
    [
        (["a.json", "b.json"], 2),
        (["1/p.json", "2/p.json"], 2),
        (["1/x/p.json", "2/y/p.json"], 2),
        (["run=a/result/summary.json", "run=b/result/summary.json"], 2),
        (["result/summary.json", "role=producer/x/p.json"], 1),
        (["logs-dc1/result/summary.json", "logs-dc2/p.json"], 1),
    ],
)
def test_files_of_one_run_are_one_repeat_unless_directories_have_different_ones(
    tmp_path: Path, places: list[str], repeats: int
) -> None:
    """A run with a directory for each data centre was two repeats, each without a part."""
    for number, place in enumerate(places):
        run = f"r{number}" if "/" not in place or place.startswith("run=") else "r"
        document = produced(run, p99=number)
        if place.endswith("summary.json"):
            document = reconciled(run)
        write(tmp_path / place, document)
    assert len(read_side(str(tmp_path)).repeats) == repeats


def test_a_runs_directory_is_read_with_its_logs(tmp_path: Path) -> None:
    """It has the result, sessions and settings, as after a reconciliation."""
    place = Made(minutes=1).write(tmp_path)
    for named in (place, place.parent, tmp_path):
        (found,) = read_side(str(named)).repeats
        assert "p(99)" in found.figures
    assert found.started_ns > 0
    assert found.settings[OPTIONS]["mirrortest"]


def _log_with_summary(logs: Path, producer: str, rate: float) -> None:
    session = Session(
        run="run7", role=Role.PRODUCER, name=producer, session=f"s-{producer}", started_ns=17
    )
    folder = logs / "run=run7" / "role=producer" / producer
    write(folder / "summary.json", produced(producer=producer, records_per_second=rate))
    (folder / "session.json").write_bytes(session.encode())


def test_a_producers_summary_in_its_log_counts_unless_the_command_wrote_one(
    tmp_path: Path,
) -> None:
    """With --workers, the command's summary covers all workers."""
    for name in ("a.1", "a.2"):
        _log_with_summary(tmp_path, name, 3.0)
    (found,) = read_side(str(tmp_path)).repeats
    assert found.figures["produce_rate"] == 6.0
    workers = [{"producer": name} for name in ("a.1", "a.2")]
    command = produced(producer="a", records_per_second=7.0) | {"workers": workers}
    write(tmp_path / "produce.json", command)
    (found,) = read_side(str(tmp_path)).repeats
    assert found.figures["produce_rate"] == 7.0


def test_a_producer_counts_by_its_log_next_to_anothers_own_summary(tmp_path: Path) -> None:
    """If only one of two producers had --report, the other was ignored, and the rate was halved."""
    for name in ("a", "b"):
        _log_with_summary(tmp_path, name, 3.0)
    write(tmp_path / "a.json", produced(producer="a", records_per_second=3.0))
    (found,) = read_side(str(tmp_path)).repeats
    assert found.figures["produce_rate"] == 6.0


def test_copies_of_a_summary_count_once(tmp_path: Path) -> None:
    """There are two, for example, if --report wrote next to the result."""
    for name in ("a.json", "b.json"):
        write(tmp_path / name, produced(records_per_second=3.0))
    (found,) = read_side(str(tmp_path)).repeats
    assert found.figures["produce_rate"] == 3.0


@pytest.mark.parametrize("above", ["", "repeat1"])
def test_copies_of_a_run_in_two_directories_are_one_repeat(tmp_path: Path, above: str) -> None:
    """Their logs count once, too, also below the directory of a repeat: rates were doubled."""
    for name in ("dc1", "dc2"):
        _log_with_summary(tmp_path / above / name, "a", 3.0)
        other = produced(producer="b", records_per_second=4.0)
        write(tmp_path / above / name / "p.json", other)
    (found,) = read_side(str(tmp_path), with_logs=True).repeats
    assert found.figures["produce_rate"] == 7.0
    assert len(found.logs) == 1


def test_copies_of_a_run_that_differ_in_part_are_named(tmp_path: Path) -> None:
    """They are not two repeats, and nothing shows which of the two is right."""
    for name, lost in (("dc1", 0), ("dc2", 5)):
        write(tmp_path / name / "p.json", produced())
        write(tmp_path / name / "summary.json", reconciled(counts={"acked": 20, "lost": lost}))
    side = read_side(str(tmp_path))
    (damage,) = side.damage
    assert damage == (
        "run run7: dc1 and dc2 have different files of reconcile: leave one directory out"
    )
    assert compare(side, [side]).verdict is Verdict.INCONCLUSIVE


def test_mistakes_are_told(tmp_path: Path) -> None:
    """Each gives an error that says what to do."""
    with pytest.raises(UsageError, match="nowhere: there is no such file or directory"):
        read_side(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"no summary of a run; produce, consume and reconcile"):
        read_side(str(tmp_path))
    other = write(tmp_path / "other.json", {"kind": "calibrate", "version": 1})
    with pytest.raises(UsageError, match=r"other\.json: not a summary of a run"):
        read_side(str(other))
    with pytest.raises(UsageError, match="no summary of a run"):
        read_side(str(tmp_path))
    newer = write(tmp_path / "newer.json", {**produced(), "version": 9})
    with pytest.raises(UsageError, match="version 9; this program reads version 1"):
        read_side(str(newer))
    newer.unlink()
    lacking = write(tmp_path / "lacking.json", {"version": 1, "kind": "produce", "run": "r"})
    with pytest.raises(UsageError, match="damaged or incomplete"):
        read_side(str(lacking))
    lacking.write_text(json.dumps(produced(records_per_second=1.0)))
    write(tmp_path / "again.json", produced(records_per_second=2.0))
    with pytest.raises(UsageError, match="put each repeat into a directory of its own"):
        read_side(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["run=r2/result/summary.json", "result/missing.json", "summary.json", "scenario.json"]
)
def test_a_half_written_result_is_damage(tmp_path: Path, name: str) -> None:
    """It was skipped, and the run's consumers were compared in place of its reconciliation."""
    write(tmp_path / "c1.json", consumed("r2"))
    text = write(tmp_path / name, reconciled("r2")).read_text()
    (tmp_path / name).write_text(text[: len(text) // 2])
    (damage,) = read_side(str(tmp_path)).damage
    assert damage.endswith(f"{name} is damaged: write it again, or leave its run out")


BROKER = {"clusters": {"a:1": {"cluster_id": "X", "brokers": {"1": {"num.io.threads": "4"}}}}}


@pytest.mark.parametrize("named", [True, False])
def test_what_an_observer_recorded_belongs_to_the_run(tmp_path: Path, named: bool) -> None:
    """It belongs to the run that it names, or without a name to the runs of the same time."""
    place = Made(minutes=1).write(tmp_path)
    run = place.parent.name.removeprefix("run=")
    observation = write_observation(tmp_path / "observations", {}, run=run if named else None)
    write(observation / "profile.json", BROKER)
    (found,) = read_side(str(tmp_path)).repeats
    brokers = [of for of in found.settings if of.endswith("brokers")]
    assert [found.settings[of]["num.io.threads"] for of in brokers] == [{"4"}]


def test_what_an_observer_recorded_of_another_run_is_not_taken(tmp_path: Path) -> None:
    """One directory may contain several runs, one after the other."""
    Made(minutes=1).write(tmp_path)
    observation = write_observation(tmp_path / "observations", {}, run="another")
    write(observation / "profile.json", BROKER)
    (found,) = read_side(str(tmp_path)).repeats
    assert not [of for of in found.settings if of.endswith("brokers")]


def test_damaged_configurations_are_reported(tmp_path: Path) -> None:
    """They could contain a difference."""
    Made(minutes=1).write(tmp_path)
    observation = write_observation(tmp_path / "observations", {})
    (observation / "profile.json").write_text("{")
    (damage,) = read_side(str(tmp_path)).damage
    assert damage.endswith("profile.json is damaged: settings of clusters are not compared")


def test_what_quotas_held_back_is_a_figure(tmp_path: Path) -> None:
    """It is the average over the requests of the most throttled broker, during the run."""
    place = Made(minutes=1).write(tmp_path)
    rows = [
        requests(1, "A1", "Produce", 10, 0.0),
        requests(2, "A1", "Produce", 30, 0.4),
        requests(2, "A2", "Produce", 10, 0.1),
        requests(2, "A1", "FetchConsumer", 10, 0.0),
        requests(2, "A1", "FetchFollower", 10, 9.0),
        requests(-100, "A1", "Produce", 1000, 9.0),
    ]
    run = place.parent.name.removeprefix("run=")
    write_observation(tmp_path / "observations", {REQUEST: rows}, run=run)
    (found,) = read_side(str(tmp_path)).repeats
    assert found.figures["produce_throttle"] == pytest.approx(0.3)
    assert found.figures["fetch_throttle"] == 0


@pytest.mark.parametrize("count", [1.5, -3, float("nan"), True, "7", 10**30])
def test_a_count_that_cannot_be_is_reported(count: object, tmp_path: Path) -> None:
    """The error names the count, whichever of several consumers has it."""
    for name, lost in (("a", 7), ("b", count), ("c", 7)):
        document = consumed(counts={"acked": 20, "lost": lost}, consumer=name)
        write(tmp_path / f"{name}.json", document)
    with pytest.raises(UsageError, match=r"summary of run run7 is damaged or incomplete \(lost is"):
        read_side(str(tmp_path))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400])
def test_a_figure_that_is_no_number_is_reported(number: float, tmp_path: Path) -> None:
    """A comparison with it could not be written as JSON."""
    place = write(tmp_path / "summary.json", produced(p99=number))
    with pytest.raises(UsageError, match="a summary of run run7 is damaged or incomplete"):
        read_side(str(place))
