"""The options of `mirrortest produce`, as far as they work without a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirrortest.cli import main
from mirrortest.cli.produce import _notices
from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError, PartitionCountError, TopicMissingError, UsageError
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.ports import Configuration
from mirrortest.produce.incarnation_setup import _encoder
from mirrortest.produce.new_topics import NewTopics
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.topic_plan import TopicAdmin as Admin
from mirrortest.produce.topic_plan import TopicPlan, find_compacted, plan_topics
from mirrortest.produce.workload import _parse_percent
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_key, lane_numbers, partition_of
from mirrortest.wire.message import least_proven
from mirrortest.wire.record_batch import decode_records
from mirrortest.workers.producers import split

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

CLIENT = ClientConfig(bootstrap_servers=("h:1",))


def options(**given: Any) -> ProduceOptions:
    return ProduceOptions(**{"run": "r", "name": "p", "client": CLIENT, "topics": ("t",), **given})


def test_a_size_without_room_for_a_worker_s_proof_is_noticed() -> None:
    """Workers' names are longer than their command's: once, messages silently became unproven."""
    room = least_proven(len(b"p@r.1"))
    alone = options(message_size=room)
    assert not list(_notices(alone, split(alone, 1)))
    (notice,) = _notices(alone, split(alone, 10))
    assert f"Use --message-size {room + len('.10')} or more" in notice
    enough = options(message_size=room + len(".10"))
    assert not list(_notices(enough, split(enough, 10)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": ()},
        {"topics": ("a", "a")},
        {"topics": ("mirrortest.ledger",)},
        {"throughput": 0},
        {"throughput": float("nan")},
        {"throughput": float("inf")},
        {"num_records": 0},
        {"duration_ns": 0},
        {"warmup_records": -1},
        {"warmup_records": 10, "num_records": 10},
        {"message_size": -1},
        {"payload_compressibility": -1},
        {"payload_compressibility": 101},
        {"message_size": 1 << 30},
        {"payload_file": "f"},
        {"payload_file": "f", "form": Form.HEADERS, "message_size": 999},
        {"payload_file": "f", "form": Form.HEADERS, "payload_compressibility": 1},
        {"destination_partitions": 0},
        {"create": NewTopics(partitions=3)},
        {"drain_timeout": -1},
    ],
)
def test_what_cannot_be_done_is_refused(wrong: dict[str, Any]) -> None:
    """Each value or combination that is not possible is a UsageError."""
    with pytest.raises(UsageError):
        options(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"replication_factor": -3},
        {"topic_config": ["cleanup.policy"]},
        {"topic_config": ["=delete"]},
        {"topic_config": ["a=1", "a=2"]},
        {"topic_config": ["retention.ms=1"], "retention_ms": 2},
    ],
)
def test_what_no_topic_can_have_is_refused(wrong: dict[str, Any]) -> None:
    """Numbers out of range, and settings that are invalid or given twice."""
    with pytest.raises(UsageError):
        NewTopics(create_topics=True, **wrong)


class Cluster:
    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.policy = "delete"
        self.timestamp_type = "CreateTime"
        self.configs: tuple[int, dict[str, str] | None] | None = None
        self.requests = 0

    async def partition_counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    async def topic_config(self, topic: str) -> dict[str, str]:
        if not self.policy:
            raise ClusterError("who may write need not be allowed to see this")
        return {
            "max.message.bytes": "5000",
            "cleanup.policy": self.policy,
            "message.timestamp.type": self.timestamp_type,
        }

    async def configurations(
        self, topics: Iterable[str], *, brokers: bool = True
    ) -> list[Configuration]:
        assert not brokers
        self.requests += 1
        refused = RequestError(Code.TOPIC_AUTHORIZATION_FAILED)
        return [
            Configuration("topics", topic, None, await self.topic_config(topic))
            if topic in self.counts
            else Configuration("topics", topic, refused, {})
            for topic in topics
        ]

    async def create_topics(
        self,
        topics: dict[str, int],
        *,
        replication_factor: int = -1,
        configs: dict[str, str] | None = None,
    ) -> set[str]:
        self.counts.update(topics)
        self.configs = (replication_factor, configs)
        return set(topics)


async def test_topics_are_made_only_when_asked_for() -> None:
    """A missing topic is an error; with `create`, it is created with the given settings."""
    cluster = Cluster(a=2)
    with pytest.raises(TopicMissingError, match="create-topics"):
        await plan_topics(cast("Admin", cluster), options(topics=("a", "b")))
    create = NewTopics(
        create_topics=True,
        partitions=2,
        retention_ms=60_000,
        topic_config=["cleanup.policy = compact,delete"],
    )
    plans = await plan_topics(cast("Admin", cluster), options(topics=("a", "b"), create=create))
    assert [(plan.topic, plan.source_partitions) for plan in plans] == [("a", 2), ("b", 2)]
    assert cluster.configs == (
        -1,
        {"retention.ms": "60000", "cleanup.policy": "compact,delete"},
    )
    assert {plan.max_batch_bytes for plan in plans} == {5000}
    with pytest.raises(PartitionCountError, match="--partitions 2"):
        await plan_topics(
            cast("Admin", cluster),
            options(topics=("a",), create=NewTopics(create_topics=True, partitions=3)),
        )
    assert await plan_topics(
        cast("Admin", cluster), options(topics=("a",), create=NewTopics(create_topics=True))
    )


async def test_a_compacted_source_is_seen() -> None:
    """The mirror did not lose what compaction removed; a hidden policy counts as delete."""
    cluster = Cluster(a=3)
    for policy, compacted in (("delete", False), ("compact", True), ("compact,delete", True)):
        cluster.policy = policy
        (plan,) = await plan_topics(cast("Admin", cluster), options(topics=("a",)))
        assert plan.compacted is compacted

    cluster.policy = ""
    (plan,) = await plan_topics(cast("Admin", cluster), options(topics=("a",)))
    assert not plan.compacted


async def test_a_source_whose_brokers_stamp_is_seen() -> None:
    """Which timestamps a mirror should copy is then unknown; without permission, responses show it.

    Without such responses, as with acks=0 or --portable, the source counts as stamped.
    """
    cluster = Cluster(a=3)
    for kind, stamped in (("CreateTime", False), ("LogAppendTime", True)):
        cluster.timestamp_type = kind
        (plan,) = await plan_topics(cast("Admin", cluster), options(topics=("a",)))
        assert plan.stamped is stamped
    cluster.policy = ""
    client = options(topics=("a",)).client
    silent = replace(client, acks=0, enable_idempotence=False)
    for how, stamped in ((client, False), (silent, True), (replace(client, portable=True), True)):
        (plan,) = await plan_topics(cast("Admin", cluster), options(topics=("a",), client=how))
        assert plan.stamped is stamped


async def test_lanes_are_one_for_each_destination_partition() -> None:
    """Keys reach every destination partition; source partitions follow from the partitioner."""
    (plan,) = await plan_topics(
        cast("Admin", Cluster(a=3)), options(topics=("a",), destination_partitions=5)
    )
    assert [partition_of(lane_key(lane), 5) for lane in plan.lanes] == [0, 1, 2, 3, 4]
    assert plan.partitions == tuple(partition_of(lane_key(lane), 3) for lane in plan.lanes)


async def test_messages_can_go_to_one_partition_only() -> None:
    """Only its lanes are there; a partition that is missing, or that no key reaches, is refused."""
    admin = cast("Admin", Cluster(a=3))
    (plan,) = await plan_topics(admin, options(topics=("a",), only_partition=1))
    assert plan.lanes == (lane_numbers(3)[1],)
    assert plan.partitions == (1,)
    (plan,) = await plan_topics(
        admin, options(topics=("a",), only_partition=1, destination_partitions=8)
    )
    assert set(plan.partitions) == {1}
    assert set(plan.lanes) < set(lane_numbers(8))
    with pytest.raises(PartitionCountError, match="topic 'a' at h:1 has partitions 0 to 2"):
        await plan_topics(admin, options(topics=("a",), only_partition=3))
    elsewhere = next(each for each in range(3) if each != partition_of(lane_key(0), 3))
    with pytest.raises(PartitionCountError, match="no key of 'a' goes there"):
        await plan_topics(
            admin, options(topics=("a",), only_partition=elsewhere, destination_partitions=1)
        )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--bootstrap-server", "h:1"], "--topics"),
        (["--topics", "t"], "--bootstrap-server"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--id", "a b"], "--id"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--run", "A"], "--run"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--throughput", "0"], "--throughput"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--throughput", "inf"], "--throughput"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--duration", "5"], "--duration"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--partitions", "5"], "--create-topics"),
        (
            [
                *("--topics", "t", "--bootstrap-server", "h:1"),
                *("--num-records", "5", "--warmup-records", "5"),
            ],
            "--warmup-records",
        ),
    ],
)
def test_usage_errors_exit_2(
    arguments: list[str],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong option is named on stderr, without a traceback, and exits 2."""
    for name in [name for name in os.environ if name.startswith("MIRRORTEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["mirrortest", "produce", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.run()
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert shown in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_the_process_itself_ends_with_2() -> None:
    """The entry point's exit code is that of the process."""
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", "produce", "--topics", "t"],
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--bootstrap-server" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_asked_for_is_told_without_secrets() -> None:
    """Reports show a run's set-up: each option that is set, but no password."""
    client = ClientConfig(bootstrap_servers=("h:1",), sasl_password="hush")
    shown = options(throughput=2000.0, num_records=5000, client=client).settings
    assert (shown["throughput"], shown["records"], shown["acks"]) == ("2000/s", "5,000", "all")
    assert "duration" not in shown
    assert options(throughput=1_234_567.0).settings["throughput"] == "1234567/s"
    assert "hush" not in str(shown)


@pytest.mark.parametrize(("text", "percent"), [("0", 0), ("0.3", 30), ("1", 100), ("0.07", 7)])
def test_a_payloads_compressibility_reaches_its_messages(text: str, percent: int) -> None:
    """This share of the payload, times 1.01, is zeros."""
    given = options(payload_compressibility=_parse_percent(text, option="--x"), message_size=1000)
    encoder = _encoder(given, TopicPlan("t", 1, 1000), 0, 1)
    batch = encoder.encode(0, np.zeros(1, np.int64), 0)
    value = decode_records(batch.buffer).value(0) or b""
    zeros = len(value) - len(value.rstrip(b"\0"))
    filled = 1000 - len(value.rpartition(b";")[0]) - 33
    assert abs(zeros - min(filled, filled * percent * 1.01 / 100)) <= 3


@pytest.mark.parametrize("text", ["1.01", "0.305", "30", "a"])
def test_no_share_is_refused(text: str) -> None:
    """A share is in 0..1, in hundredths."""
    with pytest.raises(UsageError, match=r"--payload-compressibility '"):
        _parse_percent(text, option="--payload-compressibility")


async def test_a_source_that_becomes_compacted_is_seen_if_anybody_answers() -> None:
    """Its policy is read again while the producer runs; an error ends nothing.

    One request asks for all topics: once, the time was over before the last of many was asked for.
    """
    cluster = Cluster(a=3, b=3)

    def connect() -> AbstractAsyncContextManager[Admin]:
        if not cluster.policy:
            raise ClusterError("nobody answers")
        return contextlib.nullcontext(cast("Admin", cluster))

    for policy, found in (("delete", []), ("compact", ["a", "b"]), ("", [])):
        cluster.policy = policy
        assert await find_compacted(connect, ["a", "hidden", "b"]) == found
    assert cluster.requests == 2
