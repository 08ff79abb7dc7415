"""What the admin client waits for when brokers' answers lag behind each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaConnectionError,
    KafkaError,
    UnknownTopicOrPartitionError,
)

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError, PartitionCountError, TopicMissingError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.error_table import Code
from mirrortest.kafka.public.administration import PublicAdmin

if TYPE_CHECKING:
    from aiokafka.admin import NewTopic
    from aiokafka.admin.config_resource import ConfigResource
    from aiokafka.admin.new_partitions import NewPartitions


def admin_of(client: Any, **more: str) -> Admin:
    """An `Admin` over the test's client."""
    properties = {"bootstrap.servers": "nowhere:1", "retry.backoff.ms": "1", **more}
    config = ClientConfig.from_properties(properties)

    class Played(PublicAdmin):
        client_type = staticmethod(lambda **_: client)

    admin = Admin(config)
    admin._client = Played(config)
    return admin


class Lagging:
    """A broker that accepts at once, and whose metadata lags behind for two requests."""

    def __init__(self) -> None:
        self.asked = 0

    async def create_partitions(self, _: dict[str, NewPartitions]) -> None:
        """Accept it."""

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.asked += 1
        numbers = range(3 if self.asked <= 2 else 5)
        return [
            {
                "topic": topic,
                "error_code": 0,
                "is_internal": False,
                "partitions": [{"partition": n, "leader": 1, "error_code": 0} for n in numbers],
            }
            for topic in topics
        ]


async def test_a_topic_has_grown_when_the_brokers_say_so() -> None:
    """`add_partitions` returns once the metadata lists the new partitions."""
    admin = admin_of(Lagging())
    await admin.add_partitions("t", 5)
    assert await admin.partition_counts(["t"]) == {"t": 5}


async def test_partitions_without_a_leader_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers list them with an error, in any order."""
    brokers = Lagging()

    async def described(_: list[str]) -> list[dict[str, Any]]:
        found = [(2, -1, 5), (0, 3, 0), (1, -1, 5)]
        partitions = [{"partition": n, "leader": led, "error_code": e} for n, led, e in found]
        topic = {"topic": "t", "error_code": 0, "is_internal": False, "partitions": partitions}
        missing = {"topic": "u", "error_code": 3, "is_internal": False, "partitions": []}
        return [topic, missing]

    monkeypatch.setattr(brokers, "describe_topics", described)
    assert await admin_of(brokers).leaderless(["t", "u"]) == {("t", 1), ("t", 2)}


class Headless(Lagging):
    """A cluster without a known controller for three requests, which fail as aiokafka's do."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    async def _trip(self) -> None:
        self.asked += 1
        if self.asked <= 3:
            none: Any = None
            none.nodeId  # noqa: B018  # as in aiokafka's `_send_to_controller`

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        await self._trip()
        self.made += [topic.name for topic in topics]
        return SimpleNamespace(topic_errors=[(topic.name, 0, None) for topic in topics])

    async def create_partitions(self, _: dict[str, NewPartitions]) -> None:
        await self._trip()

    async def delete_topics(self, topics: list[str]) -> Any:
        await self._trip()
        self.made = []
        return SimpleNamespace(topic_error_codes=[(topic, 0) for topic in topics])

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        described = await super().describe_topics(topics)
        return [topic for topic in described if topic["topic"] in self.made]


async def test_a_cluster_without_a_controller_is_waited_for() -> None:
    """After brokers restart, topics are created, extended and deleted once there is one."""
    cluster = Headless()
    admin = admin_of(cluster)
    for change in (
        lambda: admin.create_topic("t", 5),
        lambda: admin.add_partitions("t", 5),
        lambda: admin.delete_topic("t"),
    ):
        cluster.asked = 0
        await change()
        assert cluster.asked > 3
    assert cluster.made == []


async def test_a_cluster_that_gets_no_controller_is_told_in_words() -> None:
    """The user does not get a Python error."""
    cluster = Headless()
    cluster.asked = -(10**9)
    admin = admin_of(cluster, **{"request.timeout.ms": "20"})
    with pytest.raises(ClusterError, match="no controller"):
        await admin.create_topic("t", 1)


async def test_a_topic_that_we_may_create_and_not_describe_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is the refusal, and no longer that Kafka does not answer."""
    brokers = Unheard()

    async def described(topics: list[str]) -> list[dict[str, Any]]:
        brokers.asked += 1
        refused = {"error_code": Code.TOPIC_AUTHORIZATION_FAILED, "is_internal": False}
        return [refused | {"topic": topic, "partitions": []} for topic in topics]

    monkeypatch.setattr(brokers, "describe_topics", described)
    with pytest.raises(ClusterError, match="refuses: creating t"):
        await admin_of(brokers, **{"request.timeout.ms": "100"}).create_topic("t", 3)
    assert brokers.asked == 1


class Forgetful(Lagging):
    """A broker with a topic of three partitions: it makes each change, and loses some answers."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost
        self.count = 3

    def _answered(self, *, legal: bool, otherwise: type[KafkaError]) -> None:
        if self.lost:
            self.lost -= 1
            raise KafkaConnectionError("closed")
        if not legal:
            raise otherwise

    async def create_partitions(self, wanted: dict[str, NewPartitions]) -> None:
        (new,) = wanted.values()
        legal, self.count = self.count < new.total_count, max(self.count, new.total_count)
        self._answered(legal=legal, otherwise=InvalidPartitionsError)

    async def delete_topics(self, topics: list[str]) -> Any:
        legal, self.count = self.count > 0, 0
        self._answered(legal=legal, otherwise=UnknownTopicOrPartitionError)
        return SimpleNamespace(topic_error_codes=[])

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.asked = 10
        (described,) = await super().describe_topics(topics)
        return [described | {"partitions": described["partitions"][: self.count]}]


async def test_a_change_whose_answer_is_lost_is_made() -> None:
    """The repeated request is refused because the first one made the change."""
    for lost in (0, 1, 2):
        admin = admin_of(Forgetful(lost))
        await admin.add_partitions("t", 5)
        await admin.delete_topic("t")
        with pytest.raises(TopicMissingError):
            await admin.delete_topic("t")
    with pytest.raises(PartitionCountError):
        await admin_of(Forgetful(0)).add_partitions("t", 2)


class Unheard(Lagging):
    """Three brokers, of which two do not list the topic that the third has just created."""

    async def create_topics(self, topics: list[NewTopic]) -> Any:
        return SimpleNamespace(topic_errors=[(topic.name, 0, None) for topic in topics])

    async def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        described = await super().describe_topics(topics)
        return described if self.asked in {1, 4} else []


async def test_a_topic_that_was_just_made_is_looked_for_until_all_brokers_know_it() -> None:
    """Even if another client created it: otherwise an existing topic would count as missing."""
    admin = admin_of(Unheard())
    await admin.create_topic("t", 3)
    assert await admin.partitions("t") is not None
    brokers = Unheard()
    other = admin_of(brokers)
    brokers.asked = 1
    assert await other.partitions("t") is None
    brokers.asked = 1
    other.expect("t")
    assert await other.partitions("t") is not None


async def test_a_topic_that_never_comes_is_missing_after_a_while() -> None:
    """That an expected topic is deleted meanwhile is not an error."""
    brokers = Unheard()
    brokers.asked = 10
    admin = admin_of(brokers, **{"request.timeout.ms": "100"})
    admin.expect("t")
    assert await admin.partitions("t") is None


class Configured:
    """A cluster of two brokers and a topic; the second broker does not describe itself to us."""

    async def describe_cluster(self) -> dict[str, Any]:
        return {"cluster_id": "c", "brokers": [{"node_id": 1}, {"node_id": 2}]}

    async def describe_configs(self, resources: list[ConfigResource]) -> list[Any]:
        """Answer for each broker by itself, as aiokafka asks."""
        entries = [("retention.ms", "1000", False, 4, False), ("ssl.key", None, False, 4, True)]
        return [
            SimpleNamespace(
                resources=[
                    (0 if each.name != "2" else 31, "not you", int(each.resource_type), each.name,
                     entries if each.name != "2" else [])
                ]
            )
            for each in resources
        ]  # fmt: skip


async def test_brokers_and_topics_are_described_each_by_itself() -> None:
    """One that we may not see has its error; secrets are left out."""
    found = await admin_of(Configured()).configurations(["t"])
    assert [(each.kind, each.name, str(each.error), each.values) for each in found] == [
        ("brokers", "1", "None", {"retention.ms": "1000"}),
        ("brokers", "2", str(found[1].error), {}),
        ("topics", "t", "None", {"retention.ms": "1000"}),
    ]
    assert "not you" in str(found[1].error)
    assert await admin_of(Configured()).configurations(["t"], brokers=False) == found[2:]
