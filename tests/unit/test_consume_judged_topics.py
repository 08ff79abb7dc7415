"""Which topics a pattern includes, and which it leaves out without ending the run."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.errors import ClusterError, UsageError
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.wire.stream import StreamId
from tests.unit.consuming import consume_options
from tests.unit.played_cluster import Played, consumer_of

if TYPE_CHECKING:
    from mirrortest.kafka.admin import Admin


class Cluster:
    """An admin of a cluster with these topics (name -> partitions)."""

    def __init__(self, **_: Any) -> None:
        self.counts: dict[str, int] = {}
        self.policy: frozenset[str] | Exception = frozenset({"delete"})

    async def cleanup_policy(self, topic: str) -> frozenset[str]:
        if isinstance(self.policy, Exception):
            raise self.policy
        return self.policy

    async def partition_counts(self, topics: tuple[str]) -> dict[str, int]:
        return {topic: n for topic, n in self.counts.items() if topic in topics}

    async def matching(self, pattern: str) -> dict[str, int]:
        return {topic: n for topic, n in self.counts.items() if re.fullmatch(pattern, topic)}


def _topics(
    *there: str,
    lanes: tuple[StreamId, ...] = (),
    topic_map: tuple[str, ...] = (),
    **changed: Any,
) -> tuple[JudgedTopics, Cluster]:
    options = consume_options(
        **{
            "mapping": TopicMapping.parse(source_alias="A", topic_map=topic_map),
            "topic_pattern": ".*",
            **changed,
        }
    )
    cluster = Cluster()
    cluster.counts = dict.fromkeys(there, 1)
    ledger = Ledger()
    for stream in lanes:
        ledger.merge(LaneRecord(stream))
    return JudgedTopics(options, cast("Admin", cluster), ledger), cluster


INTERNAL = (
    *("__consumer_offsets", "heartbeats", "A.heartbeats", "A.checkpoints.internal"),
    *("mm2-offset-syncs.A.internal", "A.mm2-offset-syncs.B.internal", "mm2-configs.A.internal"),
    *("mirrortest.state", "A.mirrortest.state", "A.mirrortest.ledger", "connect-offsets"),
)


async def test_a_pattern_leaves_out_what_brokers_mirrors_and_we_keep_for_ourselves() -> None:
    """Their records are no test messages: they would count as foreign."""
    topics, _ = _topics("A.orders", "A.orders.internal", *INTERNAL)
    await topics.discover()
    assert set(topics.judges) == {"A.orders", "A.orders.internal"}


async def test_a_topic_that_is_named_is_judged_whatever_it_is_called() -> None:
    """Only patterns exclude topics."""
    topics, _ = _topics("A.heartbeats", topic_pattern=None, topics=("A.heartbeats",))
    await topics.discover()
    assert set(topics.judges) == {"A.heartbeats"}


async def test_a_topic_that_fits_no_mapping_is_left_out_with_one_warning() -> None:
    """Anyone may create it during the run; it must not end the judging of the others."""
    topics, cluster = _topics("A.orders")
    await topics.discover()
    cluster.counts |= {"local": 3, "A.clicks": 2}
    with structlog.testing.capture_logs() as logged:
        await topics.discover()
        await topics.discover()
    assert set(topics.judges) == set(topics.counts) == {"A.orders", "A.clicks"}
    warned = [
        line for line in logged if line["log_level"] == "warning" and line["topic"] == "local"
    ]
    assert len(warned) == 1
    assert "--topic-map local=SOURCE" in warned[0]["why"]


async def test_a_second_copy_of_a_source_topic_is_left_out() -> None:
    """The copy that was found first is still judged."""
    topics, cluster = _topics("A.orders", topic_map=("backup=orders",))
    await topics.discover()
    cluster.counts["backup"] = 1
    await topics.discover()
    assert set(topics.judges) == {"A.orders"}


async def test_a_topic_of_which_only_the_ledger_tells_is_judged() -> None:
    """The mirror has not created it: all its messages are missing."""
    topics, _ = _topics("A.orders", lanes=(StreamId("never", "r1", "p", 1, 0),))
    await topics.discover()
    assert set(topics.judges) == {"A.orders", "A.never"}
    assert set(topics.counts) == {"A.orders"}


async def test_topics_that_are_named_and_fit_no_mapping_are_a_mistake() -> None:
    """The user gets the error at once."""
    topics, _ = _topics(topic_pattern=None, topics=("local",))
    with pytest.raises(UsageError, match="is not a copy from 'A'"):
        await topics.discover()


async def test_a_topic_that_was_seen_to_be_compacted_is_judged_so() -> None:
    """Messages that compaction removed stay removed, whatever the policy is later."""
    topics, cluster = _topics("A.orders")
    cluster.policy = frozenset({"compact", "delete"})
    await topics.discover()
    cluster.policy = frozenset({"delete"})
    await topics.discover()
    assert topics.compacted == {"A.orders"}
    assert topics.judges["A.orders"].compact


async def test_a_policy_that_may_not_be_seen_ends_nothing() -> None:
    """A consumer need not have permission to describe a topic's configuration."""
    topics, cluster = _topics("A.orders")
    cluster.policy = ClusterError("not authorized")
    with structlog.testing.capture_logs() as logged:
        await topics.discover()
        await topics.discover()
    assert not topics.judges["A.orders"].compact
    assert [line["event"] for line in logged] == ["cannot see whether the topic is compacted"]
    assert topics.policy_hidden == {"A.orders"}
    assert topics.may_compact("A.orders")


async def test_a_policy_that_can_be_seen_at_last_is_hidden_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer asks for it from time to time."""
    monkeypatch.setattr("mirrortest.consume.judged_topics._POLICY_SECONDS", 0.0)
    topics, cluster = _topics("A.orders")
    cluster.policy = ClusterError("not authorized")
    await topics.discover()
    cluster.policy = frozenset({"delete"})
    await topics.discover()
    assert not topics.may_compact("A.orders")


async def test_a_topic_that_was_gone_and_is_back_is_told_once() -> None:
    """It may be another topic of the same name by now."""
    topics, cluster = _topics("A.orders", "A.clicks")
    returned = []
    for there in ("orders", "clicks"), ("orders",), ("orders",), ("orders", "clicks"), ("orders",):
        cluster.counts = dict.fromkeys((f"A.{topic}" for topic in there), 1)
        await topics.discover()
        returned.append(topics.returned())
    assert returned == [set(), set(), set(), {"A.clicks"}, set()]


async def test_a_clock_that_was_set_back_keeps_no_partition_from_being_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise, messages in new partitions would count as misrouted for up to an hour."""
    played = Played({"a": 4})
    _, topics = consumer_of(played, ("a",))
    await topics.discover()
    now = time.time_ns()
    await topics.recount("a", now - 1)
    played.counts["a"] = 6
    monkeypatch.setattr(time, "time_ns", lambda: now - 3_600_000_000_000)
    await topics.recount("a", time.time_ns() - 1)
    assert topics.in_force("a") == [4, 6]


async def test_a_pattern_that_matches_nothing_is_logged_once_with_what_there_is() -> None:
    """The mirror may only be late, so the run goes on; internal topics are not listed."""
    topics, cluster = _topics("A.orders", "clicks", "__consumer_offsets", topic_pattern="orders")
    with structlog.testing.capture_logs() as logged:
        await topics.discover()
        await topics.discover()
        cluster.counts["orders"] = 1
        await topics.discover()
    found = [each for each in logged if "no topic matches --topic-pattern" in each["event"]]
    assert [each["topics"] for each in found] == ["A.orders, clicks"]
