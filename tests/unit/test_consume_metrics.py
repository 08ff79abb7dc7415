"""The metrics that a consumer publishes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

from mirrortest.consume.assigned_partition import JudgedBatch
from mirrortest.consume.consumer_metrics import Clocks, ConsumerMetrics
from mirrortest.consume.outage import Outage
from mirrortest.errors import UnreachableError
from mirrortest.metrics.kernel_clock import clock_error_bound
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.judge import RunVerdict, StreamVerdict
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Callable


def _published(measures: ConsumerMetrics) -> dict[tuple[str, str | None], float]:
    return {
        (sample.name, sample.labels.get("topic")): sample.value
        for family in measures._metrics.collect()
        for sample in family.samples
    }


def _measures() -> ConsumerMetrics:
    return ConsumerMetrics(consume_options())


def test_clock_steps_log_rows_and_a_damaged_ledger_are_published() -> None:
    """Each round publishes them, so that an alert on them can fire."""
    measures = _measures()
    wall = iter([0, -3600 * 10**9, -3600 * 10**9])
    measures.clocks = Clocks(lambda: 0, lambda: next(wall))
    for rows in (10, 25):
        measures.observe_process(rows)
        measures.follow_ledger(None, rows - 3, ended=False)
    found = _published(measures)
    assert found["mirrortest_clock_steps_total", None] == 1
    assert found["mirrortest_clock_stepped_seconds_total", None] == 3600
    assert found["mirrortest_log_rows_total", None] == 25
    assert found["mirrortest_consumer_ledger_malformed_total", None] == 22


def test_only_messages_of_the_run_break_the_silence_that_ends_it() -> None:
    """Others may write to its topics for ever; corrupted messages count as its own."""
    measures = _measures()
    nothing = np.empty(0, np.int64)
    stream = StreamId("t", "r1", "p", 1, 0)
    for of, finding, heard in (
        (None, Finding.FOREIGN, False),
        (None, Finding.OTHER_RUN, False),
        (None, Finding.CORRUPTED, True),
        (stream, Finding(0), True),
    ):
        measures.last_message = measures.last_of_run = 0.0
        row = SeenRow(of, 0, int(of is not None), 0, 1, int(finding), 1, 1, 1, 1, 2, 2)
        measures.count("t", JudgedBatch([row], nothing, nothing, nothing, 1, 9))
        assert measures.last_message > 0
        assert (measures.last_of_run > 0) is heard, finding


def _judged(
    measures: ConsumerMetrics, lanes: dict[int, tuple[int, int]]
) -> dict[tuple[str, str], float]:
    """Publish verdicts on streams with (lost, duplicated) messages in each lane."""
    verdicts = [
        StreamVerdict(
            StreamId("t", "r1", "p", 1, lane),
            found={
                finding: IntervalSet([(0, count)])
                for finding, count in ((Finding.LOST, lost), (Finding.DUPLICATED, twice))
                if count
            },
        )
        for lane, (lost, twice) in lanes.items()
    ]
    found = {
        (str(verdict.stream.lane), finding): count
        for verdict in verdicts
        for finding, count in verdict.counts().items()
    }
    measures.lanes_judged("t", found, {str(lane): {lane % 6} for lane in lanes})
    return {
        (sample.labels["lane"], sample.labels["finding"]): sample.value
        for family in measures._metrics.collect()
        if family.name == "mirrortest_consumer_lane_findings"
        for sample in family.samples
    }


def test_the_lanes_that_are_wrong_are_published_and_no_others() -> None:
    """Each lane's findings are published by themselves; those that become 0 are removed."""
    measures = _measures()
    found = _judged(measures, {3: (2, 0), 7: (0, 5), 8: (0, 0)})
    assert found == {("3", "lost"): 2, ("7", "duplicated"): 5}
    assert _judged(measures, {3: (0, 0), 7: (0, 6)}) == {("7", "duplicated"): 6}
    assert _judged(measures, {3: (0, 0), 7: (0, 0)}) == {}


def test_a_wrong_lane_is_published_with_its_partition() -> None:
    """Dashboards link to the partition; the label is empty unless there is exactly one."""
    measures = _measures()
    lost = {(lane, Finding.LOST): 1 for lane in ("3", "4", "5")}

    def published() -> dict[str, str]:
        return {
            sample.labels["lane"]: sample.labels["partition"]
            for family in measures._metrics.collect()
            if family.name == "mirrortest_consumer_lane_findings"
            for sample in family.samples
        }

    measures.lanes_judged("t", lost, {"3": {11}, "4": {1, 2}})
    assert published() == {"3": "11", "4": "", "5": ""}
    measures.lanes_judged("t", lost, {"3": {11}, "4": {2}, "5": {0}})
    assert published() == {"3": "11", "4": "2", "5": "0"}


def test_a_topic_whose_partitions_all_went_away_has_none_assigned() -> None:
    """The number of partitions shows a rebalance that takes the last one."""
    measures = _measures()
    lags = {TopicPartition("t", 0): 5, TopicPartition("u", 0): 6}
    measures.progressed(lags, {}, complete=False)
    measures.progressed({TopicPartition("u", 0): 6}, {}, complete=False)
    found = _published(measures)
    assert found["mirrortest_consumer_assigned_partitions", "t"] == 0
    assert found["mirrortest_consumer_assigned_partitions", "u"] == 1
    assert ("mirrortest_consumer_lag_messages", "t") not in found


def test_a_topic_s_counters_begin_at_0_before_its_first_message() -> None:
    """`rate()` ignores a counter's first value: a first burst would look like a standstill."""
    measures = _measures()
    measures.progressed({TopicPartition("t", 0): 0}, {}, complete=False)
    found = _published(measures)
    counters = {name for name, topic in found if topic and name.endswith(("_total", "_count"))}
    assert {found[name, "t"] for name in counters} == {0}
    one = np.array([7])
    measures.count("t", JudgedBatch([], one, one, np.empty(0, np.int64), 3, 9))
    measures.claimed("t", 2)
    measures.judged("t", RunVerdict.of([]), late=1, with_ledger=True)
    measures.progressed({TopicPartition("t", 0): 0}, {}, complete=False)
    found = _published(measures)
    assert counters == {n for n, topic in found if topic and n.endswith(("_total", "_count"))}
    assert found["mirrortest_consumer_messages_total", "t"] == 3
    assert found["mirrortest_consumer_latency_seconds_count", "t"] == 1


def test_of_many_wrong_lanes_the_worst_are_published() -> None:
    """A mirror that breaks every lane does not break the scrape."""
    found = _judged(_measures(), {lane: (lane, 0) for lane in range(1, 1001)})
    assert sorted(int(lane) for lane, _ in found) == list(range(901, 1001))


def test_the_least_latency_is_published_negative_ones_too() -> None:
    """It bounds how far the two machines' clocks are apart."""
    measures = _measures()
    for values in ([5_000_000, 2_000_000], [-3_000_000], [9_000_000]):
        taken = SimpleNamespace(
            rows=(),
            latency_intended=np.array(values),
            latency_sent=np.array([], np.int64),
            messages=len(values),
            value_bytes=1,
            backlog=0,
        )
        measures.count("t", cast("JudgedBatch", taken))
    assert _published(measures)["mirrortest_consumer_least_latency_seconds", "t"] == -0.003
    since = {
        sample.labels["since"]
        for family in measures._metrics.collect()
        if family.name == "mirrortest_consumer_least_latency_seconds"
        for sample in family.samples
    }
    assert since == {"intended"}  # no values have no minimum


def test_an_outage_is_published_while_it_lasts() -> None:
    """It shows when the cluster became unreachable, and when it answered again."""
    measures, outage = _measures(), Outage("destination")
    measures.follow_outage(outage)
    published = []
    steps: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: outage.begin(UnreachableError("no")),
        outage.over,
    )
    for step in steps:
        step()
        published.append(_published(measures)["mirrortest_consumer_unreachable", None])
    assert published == [0, 1, 0]


def test_the_kernels_bound_of_the_clock_is_published() -> None:
    """The kernel is asked at each scrape; a bound is never below zero."""
    bound = clock_error_bound()
    found = _published(_measures()).get(("mirrortest_clock_error_bound_seconds", None))
    assert (bound is None) is (found is None)
    assert found is None or 0 <= found <= 16.5
