"""Which repeats an argument names, and which figures they have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mirrortest.compare.comparison import compare
from mirrortest.compare.reading import read_side
from mirrortest.compare.repeat import ProcessLog, repeat
from mirrortest.compare.settings import OPTIONS
from mirrortest.errors import UsageError
from mirrortest.model.observed import REQUEST
from mirrortest.model.verdict import Verdict
from mirrortest.seqlog.interval_log import SCHEMA
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic
from tests.compared import consumed, produced, reconciled, write
from tests.made_observation import requests, write_observation
from tests.made_result import Made

if TYPE_CHECKING:
    from pathlib import Path


def test_a_producers_figures_are_those_of_its_steady_state() -> None:
    """Latencies end at the acknowledgement; a warm-up is left out."""
    found = repeat("run7", [produced(records_per_second=7.0, p99=0.25)])
    assert found.figures["produce_rate"] == 7.0
    assert found.figures["ack_latency.p(99)"] == 0.25
    assert found.figures["produce_behind"] == 1.5
    assert found.verdicts == {"produce": Verdict.PASSED}
    assert found.counts["acked"] == 8


def test_rates_of_several_processes_are_added_and_the_slowest_ones_latency_counts() -> None:
    """Percentiles of several processes cannot be added."""
    of_two = [
        produced(producer="a", records_per_second=7.0, p99=0.25),
        produced(producer="b", records_per_second=5.0, p99=0.5),
    ]
    found = repeat("run7", of_two)
    assert found.figures["produce_rate"] == 12.0
    assert found.figures["ack_latency.p(99)"] == 0.5


def test_a_reconciliation_replaces_the_consumers_latencies_and_counts() -> None:
    """It is exact for all consumers together; only they report how fast they read."""
    online = consumed(counts={"acked": 20, "lost": 7})
    assert repeat("run7", [online]).counts["lost"] == 7
    found = repeat("run7", [online, reconciled(counts={"acked": 20, "lost": 1})])
    assert found.counts["lost"] == 1
    assert found.figures["consume_rate"] == online["reading"]["records_per_second"]
    assert set(found.verdicts) == {"consume", "reconcile"}


def test_reasons_of_any_verdict_are_doubts_of_its_command() -> None:
    """A failed verdict may leave a part undecided, too."""
    found = repeat("run7", [consumed(), reconciled(inconclusive=["a log has damage"])])
    assert found.doubts == {"reconcile"}
    assert found.undecided("reconcile")
    assert not found.undecided("consume")


def _judging(name: str, topics: str, lost: int) -> dict[str, Any]:
    streams = [{"topic": topic} for topic in topics]
    return consumed(consumer=name, streams=streams, counts={"acked": 20, "lost": lost})


def test_what_consumers_of_different_topics_count_is_added_up() -> None:
    """80 lost of one topic did not show next to 90 of another."""
    found = repeat("run7", [_judging("c1", "a", 90), _judging("c2", "b", 80)])
    assert found.counts == {"acked": 40, "lost": 170}
    groups = [_judging("c1", "ab", 90), _judging("c2", "ab", 91), _judging("c3", "b", 80)]
    found = repeat("run7", [*groups, _judging("c4", "c", 7)])
    assert found.counts == {"acked": 40, "lost": 98}
    assert not found.undecided("consume")


def test_counts_of_topics_that_overlap_in_part_are_unknown() -> None:
    """A sum would count one topic twice, and the highest count would lack another one."""
    found = repeat("run7", [_judging("c1", "ab", 90), _judging("c2", "bc", 80)])
    assert not found.counts
    assert found.undecided("consume")


def test_all_topics_together_are_taken_where_a_reconciliation_has_them() -> None:
    """A reconciliation of several topics has a latency of them all."""
    latency = {
        topic: {"count": 1, "negative": 0, "mean": seconds, "quantiles": {"p99": seconds}}
        for topic, seconds in (("all", 2.0), ("orders", 9.0))
    }
    found = repeat("run7", [reconciled(latency_seconds=latency)])
    assert found.figures["p(99)"] == 2.0


def test_a_topic_called_all_is_one_of_a_consumers_topics() -> None:
    """It was taken for all topics together, which hid a slower topic."""
    of = {"from_intended": {"p99": 2.0}, "from_sent": {"p99": 2.0}}
    slow = {"from_intended": {"p99": 9.0}, "from_sent": {"p99": 9.0}}
    found = repeat("run7", [consumed(latency_seconds={"all": of, "orders": slow})])
    assert found.figures["p(99)"] == 9.0


def test_an_observer_of_the_source_says_nothing_of_the_mirror() -> None:
    """Only its verdict is compared, as a verdict of its own kind."""
    found = repeat("run7", [consumed(role="source")])
    assert found.verdicts == {"source observer": Verdict.FAILED}
    assert not found.figures
    assert not found.counts


def _log(
    role: Role, *rows: dict[str, object], name: str = "", session: str = "s", **settings: str
) -> ProcessLog:
    name = name or {Role.PRODUCER: "pa", Role.CONSUMER: "ca"}[role]
    topics = {name: Topic()} if role is Role.CONSUMER else {}
    started = Session(
        run="run7", role=role, name=name, session=session, started_ns=17, settings=settings,
        topics=topics,
    )  # fmt: skip
    began = [
        {"started_ns": at, "ended_ns": at + 1, "topic": "t"} | row for at, row in rows_of(rows)
    ]
    return ProcessLog(started, pa.Table.from_pylist(began, SCHEMA))


def rows_of(rows: tuple[dict[str, object], ...]) -> list[tuple[int, dict[str, object]]]:
    return [(int(str(row.get("started_ns", at))), row) for at, row in enumerate(rows)]


def test_intervals_give_cpu_memory_batches_and_lag() -> None:
    """CPU and memory are in the row of each topic, and count once for an interval."""
    sent = _log(
        Role.PRODUCER,
        {"started_ns": 1, "topic": "a", "cpu_seconds": 0.5, "memory_bytes": 10, "acked": 100}
        | {"batches": 10, "batch_messages": 100},
        {"started_ns": 1, "topic": "b", "cpu_seconds": 0.5, "memory_bytes": 10, "acked": 100}
        | {"batches": 40, "batch_messages": 100},
        {"started_ns": 2, "topic": "a", "cpu_seconds": 0.5, "memory_bytes": 30, "acked": 0},
        throughput="5",
    )
    seen = _log(
        Role.CONSUMER,
        {
            "started_ns": 1,
            "topic": "a",
            "cpu_seconds": 1,
            "memory_bytes": 7,
            "arrived": 50,
            "lag": 4,
        },
        {
            "started_ns": 1,
            "topic": "b",
            "cpu_seconds": 1,
            "memory_bytes": 7,
            "arrived": 50,
            "lag": 5,
        },
        {
            "started_ns": 2,
            "topic": "a",
            "cpu_seconds": 1,
            "memory_bytes": 7,
            "arrived": 0,
            "lag": 8,
        },
    )
    found = repeat("run7", [], [sent, seen])
    assert found.figures == {
        "produce_cpu": 1.0 / 200,
        "produce_memory": 30,
        "batch_messages": 4,
        "consume_cpu": 2.0 / 100,
        "consume_memory": 7,
        "lag": 9,
    }
    assert found.started_ns == 17
    assert found.settings[OPTIONS]["producer: throughput"] == {"5"}


def test_intervals_without_memory_have_no_such_figure() -> None:
    """Without /proc there is none, and the repeat counted as damaged."""
    sent = _log(Role.PRODUCER, {"cpu_seconds": 0.5, "acked": 100})
    assert repeat("run7", [], [sent]).figures == {"produce_cpu": 0.005}


def test_levels_of_one_process_do_not_add_up_over_its_starts() -> None:
    """A restart doubled memory and lag, and the run got worse without a cause."""
    levels = {"memory_bytes": 100, "lag": 5, "arrived": 1, "cpu_seconds": 1.0}
    starts = [
        _log(Role.CONSUMER, {**levels, "memory_bytes": memory}, session=str(memory))
        for memory in (100, 90)
    ]
    figures = repeat("run7", [], starts).figures
    assert figures == {"consume_memory": 100, "lag": 5, "consume_cpu": 1.0}


def test_a_process_that_was_restarted_has_no_figures_of_its_last_start_alone() -> None:
    """They were taken for the run's: messages acknowledged before a fault counted nowhere."""
    summaries = [produced(), consumed(counts={"acked": 20, "lost": 7})]
    once = [_log(Role.PRODUCER), _log(Role.CONSUMER)]
    whole = repeat("run7", summaries, [*once, *once])  # the same sessions, copied
    assert not whole.incomplete
    assert whole.figures["produce_rate"]
    assert whole.counts["acked"] == 8

    again = [*once, _log(Role.PRODUCER, session="s2")]
    found = repeat("run7", summaries, again)
    assert found.incomplete == {Role.PRODUCER}
    assert found.figures.keys() & {"produce_rate", "ack_latency.p(99)", "consume_rate"} == {
        "consume_rate"
    }
    assert found.counts == {"acked": 20, "lost": 7}

    found = repeat("run7", summaries, [*again, _log(Role.CONSUMER, session="s2")])
    assert not found.figures
    assert repeat("run7", [*summaries, reconciled()], again).figures["p(99)"]


def test_figures_of_a_killed_process_are_not_those_of_the_others() -> None:
    """Its log has no summary: rates of the others alone were taken for the run's."""
    summaries = [produced(), consumed()]
    logs = [_log(Role.PRODUCER), _log(Role.CONSUMER)]
    assert not repeat("run7", summaries, logs).incomplete

    found = repeat("run7", summaries, [*logs, _log(Role.PRODUCER, name="pb")])
    assert found.incomplete == {Role.PRODUCER}
    assert found.figures.keys() & {"produce_rate", "consume_rate"} == {"consume_rate"}
    assert not found.undecided("consume")

    found = repeat("run7", summaries, [*logs, _log(Role.CONSUMER, name="cb")])
    assert found.incomplete == {Role.CONSUMER}
    assert "consume_rate" not in found.figures
    assert found.undecided("consume"), "nobody judged its topics"

    workers = [{"producer": "pa.1"}, {"producer": "pa.2"}]
    logs = [_log(Role.PRODUCER, name=each["producer"]) for each in workers]
    assert not repeat("run7", [produced() | {"workers": workers}], logs).incomplete


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


def test_only_times_may_be_below_zero() -> None:
    """Clocks that disagree cause such latencies."""
    assert repeat("run7", [produced(p99=-0.5)]).figures["ack_latency.p(99)"] == -0.5
    with pytest.raises(ValueError, match="produce_rate is -1"):
        repeat("run7", [produced(records_per_second=-1.0)])
