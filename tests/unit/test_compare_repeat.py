"""Which figures, counts and verdicts a repeat has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mirrortest.compare.repeat import ProcessLog, repeat
from mirrortest.compare.settings import OPTIONS
from mirrortest.model.verdict import Verdict
from mirrortest.seqlog.interval_log import SCHEMA
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic
from tests.compared import consumed, produced, reconciled


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
    role: Role, *rows: dict[str, Any], name: str = "", session: str = "s", **settings: str
) -> ProcessLog:
    name = name or {Role.PRODUCER: "pa", Role.CONSUMER: "ca"}[role]
    topics = {name: Topic()} if role is Role.CONSUMER else {}
    started = Session(
        run="run7", role=role, name=name, session=session, started_ns=17, settings=settings,
        topics=topics,
    )  # fmt: skip
    began: list[dict[str, Any]] = [
        {"started_ns": at, "topic": "t"} | row for at, row in enumerate(rows)
    ]
    ended = [row | {"ended_ns": row["started_ns"] + 1} for row in began]
    return ProcessLog(started, pa.Table.from_pylist(ended, SCHEMA))


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
        *(
            {"started_ns": at, "topic": topic, "cpu_seconds": 1, "memory_bytes": 7}
            | {"arrived": arrived, "lag": lag}
            for at, topic, arrived, lag in ((1, "a", 50, 4), (1, "b", 50, 5), (2, "a", 0, 8))
        ),
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


def test_only_times_may_be_below_zero() -> None:
    """Clocks that disagree cause such latencies."""
    assert repeat("run7", [produced(p99=-0.5)]).figures["ack_latency.p(99)"] == -0.5
    with pytest.raises(ValueError, match="produce_rate is -1"):
        repeat("run7", [produced(records_per_second=-1.0)])
