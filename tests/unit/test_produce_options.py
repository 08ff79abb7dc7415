"""The command line of `mirrortest produce`, as far as it goes without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mirrortest.config.client import ClientConfig
from mirrortest.errors import PartitionCountError, TopicMissingError, UsageError
from mirrortest.produce.options import NewTopics, ProduceOptions
from mirrortest.produce.plan import plan_topics
from mirrortest.wire.lanes import lane_key, partition_of

CLIENT = ClientConfig(bootstrap_servers=("h:1",))


def options(**given):
    return ProduceOptions(**{"run": "r", "name": "p", "client": CLIENT, "topics": ("t",), **given})


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": ()},
        {"topics": ("a", "a")},
        {"topics": ("mirrortest.ledger",)},
        {"throughput": 0},
        {"num_records": 0},
        {"duration_ns": 0},
        {"warmup_records": -1},
        {"warmup_records": 10, "num_records": 10},
        {"message_size": -1},
        {"message_size": 1 << 30},
        {"destination_partitions": 0},
        {"create": NewTopics(partitions=0)},
        {"create": NewTopics(replication_factor=-3)},
        {"drain_timeout": -1},
    ],
)
def test_what_cannot_be_done_is_refused(wrong):
    """Each value out of range is the user's mistake, said in one line."""
    with pytest.raises(UsageError):
        options(**wrong)


class Cluster:
    def __init__(self, **counts):
        self.counts = counts
        self.configs = None

    async def partition_counts(self, topics):
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}

    async def create_topics(self, topics, *, replication_factor=-1, configs=None):
        self.counts.update(topics)
        self.configs = (replication_factor, configs)
        return set(topics)


async def test_topics_are_made_only_when_asked_for():
    """A missing topic is an error; with `create` it is made as told."""
    cluster = Cluster(a=2)
    with pytest.raises(TopicMissingError, match="create-topics"):
        await plan_topics(cluster, options(topics=("a", "b")))
    create = NewTopics(partitions=2, retention_ms=60_000)
    plans = await plan_topics(cluster, options(topics=("a", "b"), create=create))
    assert [(plan.topic, plan.source_partitions) for plan in plans] == [("a", 2), ("b", 2)]
    assert cluster.configs == (-1, {"retention.ms": "60000"})
    with pytest.raises(PartitionCountError, match="--partitions 2"):
        await plan_topics(cluster, options(topics=("a",), create=NewTopics(partitions=3)))
    assert await plan_topics(cluster, options(topics=("a",), create=NewTopics()))


async def test_lanes_are_one_for_each_destination_partition():
    """Keys reach every destination partition; the source's are where the partitioner puts them."""
    (plan,) = await plan_topics(Cluster(a=3), options(topics=("a",), destination_partitions=5))
    assert [partition_of(lane_key(lane), 5) for lane in plan.lanes] == [0, 1, 2, 3, 4]
    assert plan.partitions == tuple(partition_of(lane_key(lane), 3) for lane in plan.lanes)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--bootstrap-server", "h:1"], "--topics"),
        (["--topics", "t"], "--bootstrap-server"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--id", "a b"], "--id"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--run", "A"], "--run"),
        (["--topics", "t", "--bootstrap-server", "h:1", "--throughput", "0"], "--throughput"),
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
def test_usage_errors_exit_2(arguments, told):
    """A wrong option is named on stderr, without a traceback, and exits 2."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MIRRORTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", "produce", *arguments],
        env={**environment, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
