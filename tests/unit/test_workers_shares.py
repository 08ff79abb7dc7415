"""The options of each worker, and the merged reports of all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import GaugeMetricFamily

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.config.threshold import thresholds
from mirrortest.consume.consume_report import Basis, ConsumeReport
from mirrortest.consume.options import ConsumeOptions, Shard
from mirrortest.consume.statistics import ReadFigures
from mirrortest.errors import ClusterError, UsageError
from mirrortest.model.findings import Outcome
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.pace import lane_share, pace_of
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.produce_status import merged as merged_produce
from mirrortest.produce.recording import TopicNumbers
from mirrortest.timing.histogram import Histogram
from mirrortest.workers import consumers, producers
from mirrortest.workers.worker_metrics import merged_families
from mirrortest.workers.worker_pool import common_directory
from tests.unit.statuses import consuming, producing

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIENT = ClientConfig.load(bootstrap_server="h:1")
PRODUCE = ProduceOptions(run="r", name="p", client=CLIENT, topics=("t",), metrics_port=9)
CONSUME = ConsumeOptions(
    run="r",
    name="c",
    client=CLIENT,
    mapping=TopicMapping.parse(source_alias="", separator=".", topic_map=()),
    thresholds=thresholds(()),
    topics=("t",),
    duration=9.0,
    idle_timeout=3.0,
    metrics_port=9,
)


@given(st.integers(2, 12), st.integers(0, 500), st.integers(0, 600), st.integers(1, 7))
def test_producers_together_send_what_was_asked_for(
    workers: int, more: int, warmup: int, partitions: int
) -> None:
    """For any valid number of messages and any warm-up below it, each message is one lane's.

    They are due when a single producer's would be; the topic's first ones are the warm-up.
    """
    count = workers + more
    warmup = min(warmup, count - 1)
    asked = replace(PRODUCE, num_records=count, warmup_records=warmup, throughput=1000.0)
    parts = producers.split(asked, workers)
    assert len({part.name for part in parts}) == workers
    assert {part.metrics_port for part in parts} == {asked.metrics_port}
    times, warm = [], 0
    for part in parts:
        for lane in range(partitions):
            index, lanes = part.share.lane(lane, partitions)
            pace = pace_of(1000.0, index=index, lanes=lanes, total=part.num_records)
            warmups = lane_share(part.warmup_records, index, lanes) or 0
            taken = pace.take(pace.limit or 0, 0).tolist()
            assert taken[:warmups] == [each for each in taken if each < warmup * 10**6]
            times += taken
            warm += warmups
    assert sorted(times) == [index * 10**6 for index in range(count)]
    assert warm == warmup


def test_one_producer_is_not_split() -> None:
    """It keeps its name, and sends all messages."""
    assert producers.split(PRODUCE, 1) == [PRODUCE]


def test_too_many_workers_are_a_users_mistake() -> None:
    """Fewer messages than workers, and a name that becomes too long, are refused."""
    with pytest.raises(UsageError, match="--num-records 2"):
        producers.split(replace(PRODUCE, num_records=2), 3)
    with pytest.raises(UsageError, match="64"):
        producers.split(replace(PRODUCE, name="n" * 64), 2)


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 6), st.integers(0, 500))
def test_each_partition_of_a_shard_is_one_workers(
    of: int, index: int, workers: int, partition: int
) -> None:
    """The workers' shards split the user's shard, and contain nothing else."""
    shard = Shard(index % of + 1, of)
    parts = [consumers.shard_of(shard, at, workers) for at in range(workers)]
    assert sum(partition in part for part in parts) == (partition in shard)


def test_consumers_share_a_group_or_the_partitions() -> None:
    """Members of a group have no shard; no worker decides by itself when the run is over."""
    assert [str(part.shard) for part in consumers.split(CONSUME, 3)] == ["1/3", "2/3", "3/3"]
    members = consumers.split(replace(CONSUME, group="g"), 2)
    assert [(part.group, part.shard) for part in members] == [("g", None)] * 2
    assert [part.until_complete for part in members] == [False, False]
    assert {(part.duration, part.idle_timeout, part.metrics_port) for part in members} == {
        (None, None, CONSUME.metrics_port)
    }
    assert {part.client for part in members} == {CONSUME.client}


def test_static_members_of_a_group_have_ids_of_their_own() -> None:
    """Members with the same `group.instance.id` fence each other without end."""
    static = replace(CONSUME, group="g", client=replace(CLIENT, group_instance_id="me"))
    assert [part.client.group_instance_id for part in consumers.split(static, 2)] == [
        "me.1", "me.2",
    ]  # fmt: skip


def produced(
    name: str, acked: int, latency: int, *, error: ClusterError | None = None
) -> ProduceReport:
    """A producer's report."""
    numbers = TopicNumbers(100)
    numbers.steady.outcomes[Outcome.ACKED] = acked
    numbers.steady.span(acked, 10 * acked)
    numbers.steady.from_intended.histogram.add([latency] * acked)
    return ProduceReport(
        run="r", name=name, session=f"s{name}", log=f"/logs/r/{name}", numbers={"t": numbers},
        lanes=[], reasons={"timeout": 1}, behind_ns={"t": acked}, warmup_records=0,
        notes=["the same"], error=error,
    )  # fmt: skip


def test_producers_reports_become_one() -> None:
    """Counts add up, latencies are merged, and the first error is the report's."""
    merged = producers.merged(PRODUCE, [produced("p.1", 2, 1000), produced("p.2", 4, 5000)])
    assert merged.overall.outcomes[Outcome.ACKED] == 6
    assert (merged.overall.first_ns, merged.overall.last_ns) == (2, 40)
    assert merged.overall.from_intended.histogram.mean == pytest.approx(3666, rel=0.01)
    assert (merged.name, merged.log, merged.session) == ("p", "/logs/r", "sp.1,sp.2")
    assert (merged.reasons, merged.behind_ns, merged.notes) == (
        {"timeout": 2},
        {"t": 4},
        ["the same"],
    )
    assert merged.exit_code == 0
    assert merged.all_notes == ["the same"]
    broken = produced("p.2", 1, 1, error=ClusterError("away"))
    assert str(producers.merged(PRODUCE, [produced("p.1", 1, 1), broken]).error) == "away"


def test_what_producers_that_were_ready_late_left_out_adds_up() -> None:
    """Once, equal notes of several workers became one, with the count of one worker."""
    late = [
        replace(produced(f"p.{index}", 2, 1000), late_ns=late_ns, skipped=700)
        for index, late_ns in ((1, 30_000_000_000), (2, 30_400_000_000))
    ]
    assert producers.merged(PRODUCE, late).all_notes == [
        "ready 30.4 s after --start-at: 1,400 messages that were due before are left out",
        "the same",
    ]


def read(
    name: str,
    latencies: list[int],
    partitions: list[str],
    *,
    conditions: list[Any],
    rests_on: dict[str, Basis] | None = None,
    counts: dict[str, int] | None = None,
) -> ConsumeReport:
    """A consumer's report on 10 acknowledged messages."""
    histogram = Histogram()
    histogram.add(latencies)
    return ConsumeReport(
        run="r", name=name, counts={"acked": 10, "lost": 0} | (counts or {}), copies=0, verdicts={},
        latency={"t": (histogram, Histogram())}, thresholds=conditions, inconclusive=["a doubt"],
        notes=[], reading=ReadFigures(messages=len(latencies)),
        log=f"/logs/{name}", partitions=partitions,
        backlog={"t": 5}, rests_on=rests_on or {},
    )  # fmt: skip


def test_consumers_reports_become_the_firsts_verdict_on_all_latencies() -> None:
    """A latency threshold is compared with what all of them read."""
    options = replace(CONSUME, thresholds=thresholds(["max<1s"]))
    first = read("c.1", [], ["t-0"], conditions=[])
    second = read("c.2", [2 * 10**9] * 3, ["t-1"], conditions=[])
    merged = consumers.merged(options, [first, second])
    assert (merged.name, merged.reading.messages, merged.partitions) == ("c", 3, ["t-0", "t-1"])
    failed = [str(result.threshold) for result in merged.thresholds if not result.passed]
    assert failed == ["max<1s"]
    assert merged.inconclusive[0] == "a doubt"
    assert merged.exit_code == 99


def test_what_no_worker_measured_leaves_a_condition_on_latency_undecided() -> None:
    """A worker took over 4 messages from the state of a consumer that may have been killed."""
    options = replace(CONSUME, thresholds=thresholds(["max<1s"]))
    first = read("c.1", [1], ["t-0"], conditions=[])
    second = read("c.2", [1], ["t-1"], conditions=[])
    second.latency["t"][0].unmeasured = 4
    merged = consumers.merged(options, [first, second])
    assert merged.exit_code == 3
    assert "another consumer read up to 4 of the messages" in merged.inconclusive[-1]


def test_what_any_worker_found_in_what_it_read_fails_the_command() -> None:
    """It counts even if its state did not reach the first; what only others miss does not."""
    first = read("c.1", [], ["t-0"], conditions=[], counts={"misrouted": 0, "delivered": 10})
    second = read(
        "c.2", [], ["t-1"], conditions=[], counts={"misrouted": 2, "delivered": 5, "in_flight": 5}
    )
    merged = consumers.merged(CONSUME, [first, second])
    assert merged.exit_code == 99
    assert merged.counts["misrouted"] == 2
    assert (merged.counts["delivered"], merged.counts.get("in_flight", 0)) == (10, 0)


def test_what_another_worker_found_decides_no_more_than_alone() -> None:
    """If the producer may have sent the copies, they are excused; the first worker saw none."""
    options = replace(CONSUME, thresholds=thresholds(["duplicated==0"]))
    first = replace(read("c.1", [], [], conditions=[]), inconclusive=[])
    second = replace(
        read("c.2", [], [], conditions=[], counts={"duplicated": 2}), excused={"duplicated": 2}
    )
    assert consumers.merged(options, [first, second]).exit_code == 3
    assert consumers.merged(options, [first, replace(second, excused={})]).exit_code == 99


def test_what_any_worker_alone_doubts_is_doubted_once() -> None:
    """A worker could not save its state; the other doubts were settled by the first one."""
    passed = replace(read("c.1", [], [], conditions=[]), inconclusive=[])
    unsaved = replace(passed, inconclusive=["5 in flight", "not saved"], own_doubts=["not saved"])
    options = replace(CONSUME, thresholds=())
    merged = consumers.merged(options, [passed, unsaved, unsaved])
    assert (merged.inconclusive, merged.exit_code) == (["not saved"], 3)
    assert consumers.merged(options, [unsaved, unsaved]).inconclusive == unsaved.inconclusive


def test_what_a_worker_read_is_read_by_the_command() -> None:
    """Other workers know it only from a state, so its reader's basis counts; backlogs add up."""
    first = read(
        "c.1", [], ["t-0"], conditions=[], rests_on={"t-0": Basis(7, 0), "t-1": Basis(0, 9)}
    )
    second = read(
        "c.2", [], ["t-1"], conditions=[], rests_on={"t-0": Basis(0, 7), "t-1": Basis(5, 4)}
    )
    merged = consumers.merged(CONSUME, [first, second])
    assert merged.rests_on == {"t-0": Basis(7, 0), "t-1": Basis(5, 4)}
    assert merged.basis == Basis(12, 4)
    assert merged.backlog == {"t": 10}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, 3),  # numbers 0 to 2: a shard is of partition numbers
        ({"shard": Shard(1, 2)}, 2),
        ({"shard": Shard(9, 9)}, 1),
        ({"group": "g"}, 5),
        ({"topics": ("a", "missing")}, 8),
        ({"topics": (), "topic_pattern": "a|b"}, 8),
    ],
)
async def test_workers_without_partitions_are_not_started(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], found: int
) -> None:
    """If more topics may appear, all workers are started."""

    class Cluster:
        def __init__(self, _: ClientConfig) -> None:
            """Nothing is connected."""

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            """Nothing to close."""

        async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
            return {topic: count for topic, count in {"a": 3, "b": 2}.items() if topic in topics}

    monkeypatch.setattr(consumers, "Admin", Cluster)
    options = replace(CONSUME, **{"topics": ("a", "b"), "group": None, "shard": None} | changes)
    assert await consumers.useful_workers(options, 8) == found


async def test_an_error_while_waiting_is_not_the_end_of_a_run() -> None:
    """The error is raised, and no worker is stopped for it.

    The workers were stopped, and their verdict so far became the run's.
    """
    stopped: list[int] = []

    class Unsettled:
        @property
        def settled(self) -> bool:
            raise ZeroDivisionError

    def worker(number: int) -> Any:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def stop() -> None:
            stopped.append(number)
            ended.set_result("a report")

        return SimpleNamespace(progress=Unsettled(), ended=ended, stop=stop)

    pool: Any = SimpleNamespace(workers=[worker(1), worker(2)])
    view = consumers._View(CONSUME, lambda _: None)
    options = replace(CONSUME, until_complete=True)
    with pytest.raises(ZeroDivisionError):
        await consumers._ended(pool, options, view, asyncio.Event())
    assert stopped == []


def test_a_family_stands_once_with_all_workers_samples() -> None:
    """Some workers may have series that others lack."""

    def family(name: str, value: int) -> GaugeMetricFamily:
        made = GaugeMetricFamily(name, "help", labels=["topic"])
        made.add_metric(["t"], value)
        return made

    by_worker = [(1, [family("a", 1)]), (2, []), (3, [family("a", 2), family("b", 3)])]
    found = {made.name: made.samples for made in merged_families(by_worker)}
    assert [(s.labels, s.value) for s in found["a"]] == [
        ({"topic": "t", "worker": "1"}, 1),
        ({"topic": "t", "worker": "3"}, 2),
    ]
    assert [s.labels["worker"] for s in found["b"]] == ["3"]


def test_the_place_of_all_logs() -> None:
    """It is a directory or a URI."""
    assert common_directory(["s3://b/logs/r/p.1/x", "s3://b/logs/r/p.2/x"]) == "s3://b/logs/r"
    assert common_directory(["/logs/r/p.1"]) == "/logs/r/p.1"


def _worker(number: int, progress: Any, *, has_ended: bool = False) -> Any:
    return SimpleNamespace(number=number, progress=progress, has_ended=has_ended)


def test_the_status_of_workers_is_as_of_now() -> None:
    """It is computed on each call: a worker that has ended since its update has no rate."""
    view = producers._View(PRODUCE, lambda _: None)
    assert view.status() is None
    first, second = (_worker(number, producing()) for number in (1, 2))
    for worker in (first, second):
        view.update(worker)
    assert view.status() == merged_produce("p", [producing(), producing()])
    second.has_ended = True
    status = view.status()
    assert status is not None
    assert status.acked_per_second == producing().acked_per_second


def test_consumers_have_a_status_once_the_first_has_one() -> None:
    """The first worker's verdict is that of all."""
    shown: list[Any] = []
    view = consumers._View(CONSUME, shown.append)
    second = _worker(2, consuming())
    view.update(second)
    assert view.status() is None
    assert shown == []
    view.update(_worker(1, replace(consuming(), complete=True)))
    second.has_ended = True
    status = view.status()
    assert status is not None
    assert (status.complete, status.read) == (True, 2 * consuming().read)
    assert status.read_per_second == consuming().read_per_second
    assert len(shown) == 1
