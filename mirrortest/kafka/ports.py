"""The interface to a Kafka client library, in mirrortest's own types.

`Sender`, `Reader`, `Admin` and `CompactedTopic` are written against these protocols. Two packages
implement them: `fast` with aiokafka's internals, `public` with aiokafka's public API. `library`
selects one by the configuration (`--portable`).

Ports raise `error_table.RequestError`, OSError (also TimeoutError), or errors of
`mirrortest.errors`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.error_table import RequestError
    from mirrortest.kafka.fetched import End, Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

    OnDelivery = Callable[[int | None, RequestError | None], None]
    """Called once with a batch's offset (None with acks=0; -1 if unknown) or the error."""


class Encoded(Protocol):
    """What a producer needs of an encoded batch (`wire.batch.EncodedBatch`)."""

    @property
    def buffer(self) -> bytearray | memoryview:
        """The complete record batch, header included."""

    @property
    def count(self) -> int:
        """Number of records."""

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer id, epoch, base sequence and the CRC."""


class Batch(Protocol):
    """A batch that is being sent."""

    withdrawn: bool
    """Whether it was given up: the client no longer sends its bytes, if it can prevent that."""
    queued: bool
    """Whether the client accepted it for delivery: only then can it have sequence numbers."""

    @property
    def handed_over(self) -> int:
        """An upper bound on how often its bytes were handed over for transmission."""


class ClientPort(Protocol):
    """What all clients share."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self, seconds: float) -> None:
        """Disconnect; wait about `seconds` at most for a clean end. Raises nothing."""


class ProducerPort(ClientPort, Protocol):
    """Writes encoded batches, or single records."""

    def batch(self, encoded: Encoded) -> Batch:
        """Wrap a batch for `send`."""

    def send(self, batch: Batch, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """Queue a batch behind earlier batches of its partition."""

    async def write(
        self, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int | None:
        """Write a record and wait for its offset; None if the broker no longer has the offset."""

    def partition_count(self, topic: str) -> int:
        """A topic's partition count in the latest metadata."""

    def stamps(self, topic: str) -> bool:
        """Whether a response showed that brokers set a topic's timestamps (LogAppendTime).

        Always False if the client does not report it.
        """

    def numbers_left(self, topic: str, partition: int) -> int:
        """How many sequence numbers this producer has left for a partition."""

    def failure(self) -> str | None:
        """Why delivery ended by itself; None while it runs."""

    def abandon(self, why: str) -> None:
        """Send no more requests, if the client can prevent it; pending responses still count."""


class RebalanceListener(Protocol):
    """Callbacks of a rebalance, called by a consumer's own task; the rebalance waits for them."""

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Give up these partitions, which are about to be revoked."""

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Take over these partitions, which are now assigned."""


class ConsumerPort(ClientPort, Protocol):
    """A consumer of batches, in a group or with assigned partitions; it never resets an offset.

    If client and broker support it, every fetch carries topic ids and leader epochs. The broker
    then detects that a topic was recreated, or that a log was truncated below the position.
    """

    @property
    def sees_topic_ids(self) -> bool:
        """Whether every fetch so far was by topic id: then no recreated topic was missed."""

    @property
    def sees_markers(self) -> bool:
        """Whether batches distinguish markers and aborted records from compacted records."""

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Join the group for topics by name."""

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener) -> None:
        """Join the group for all topics whose name the pattern matches."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; the caller must seek each one before it is fetched."""

    def seek(self, partition: TopicPartition, read_position: ReadPosition) -> None:
        """Set the position of an assigned partition.

        A position without a topic id refers to the topic that exists at the next fetch.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[TopicPartition, int]
    ) -> list[list[Fetched]]:
        """What has arrived, as one list per partition, in offset order.

        `portion` is about how many bytes are returned at once. `reached` is the next offset of
        each partition that has a position. If a position no longer exists, its partition yields
        only OutOfRange, Recreated or Diverged, until the caller seeks it.
        """

    async def topics(self) -> set[str]:
        """The names of all topics."""

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The beginning offset (log start offset) of each partition."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offset of each partition, as the consumer's isolation level shows it."""

    async def topic_id(self, topic: str) -> str | None:
        """The topic's id; None if client or brokers report none.

        It can be the id of a topic that was just deleted: the next fetch detects that.
        """

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """The partitions' ends, and whether the logs still contain what was read.

        No end comes from a leader that a broker reports as replaced, or from a topic that was
        recreated meanwhile. The call fails if fewer than half of the brokers answer. The result
        also contains other partitions of these topics that any broker reports.
        """

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit each partition's next offset for the group."""

    def failure(self) -> str | None:
        """Why fetching ended by itself; None while it runs, or if the client does not report it."""


class Operation(IntEnum):
    """An operation on a topic that ACLs can permit, with Kafka's code (AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11

    @property
    def shown(self) -> str:
        """The name that Kafka's tools use: ``DescribeConfigs``."""
        return self.name.title().replace("_", "")


class TopicDescription(NamedTuple):
    """A topic as one broker describes it.

    Attributes:
        error: the broker's error for the topic, or None.
        leaders: node id by partition, -1 if it has no leader.
    """

    name: str
    error: RequestError | None
    internal: bool
    partitions: int
    leaders: list[int]


class Configuration(NamedTuple):
    """The configuration of a broker or topic, defaults included, or the error of the request."""

    kind: str
    """``brokers`` or ``topics``."""
    name: str
    error: RequestError | None
    values: Mapping[str, str]


class AdminPort(ClientPort, Protocol):
    """An admin client; it sends each request once."""

    async def describe_cluster(self) -> tuple[str, int]:
        """The cluster's id and its number of brokers."""

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        """Describe these topics; all if None."""

    async def create_topics(
        self, topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, str]
    ) -> set[str]:
        """Create topics (name -> partitions); return the names of those that were missing."""

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count."""

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Delete a partition's records below an offset; return its new beginning offset."""

    async def configurations(
        self, topics: list[str], *, brokers: bool = True
    ) -> list[Configuration]:
        """The complete configurations of all `brokers` and of these topics, without secrets."""

    async def permitted_operations(self, topics: list[str]) -> dict[str, frozenset[Operation]]:
        """The operations that we may do with each topic; topics with unknown ones are left out."""


class Library(Protocol):
    """A module that creates clients with one library."""

    METADATA_CREATES_TOPICS: bool
    """Whether a metadata request creates a missing topic if the broker allows that."""

    def producer(
        self,
        config: ClientConfig,
        *,
        batch_bytes: int | None = None,
        after: ProducerPort | None = None,
    ) -> ProducerPort:
        """A producer of encoded batches; with `batch_bytes`, of records in batches up to that.

        `after` is an idempotent producer of this library that was abandoned and is stopped, or
        being stopped: in each partition none of its records is appended behind one of the new
        producer, not even by a request that is still in flight.
        """

    def consumer(self, config: ClientConfig, *, group: str | None = None) -> ConsumerPort:
        """A consumer."""

    def admin(self, config: ClientConfig) -> AdminPort:
        """An admin client."""

    async def try_connection(self, config: ClientConfig) -> None:
        """Connect to one bootstrap server and disconnect; raise the error if that fails."""
