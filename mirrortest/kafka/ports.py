"""What mirrortest asks of a Kafka client library, in our own types alone.

`Sender`, `Reader`, `Admin` and `CompactedTopic` are written against these protocols. A package of
this room implements them with one library: `fast` with aiokafka's internals, `public` with
aiokafka's public calls. `library` picks one by the configuration (`--portable`).

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
    """Called once with a batch's offset (None where no broker answers) or the error."""


class Encoded(Protocol):
    """What is asked of an encoded batch (`wire.batch.EncodedBatch`)."""

    @property
    def buffer(self) -> bytearray | memoryview:
        """The complete record batch, header included."""

    @property
    def count(self) -> int:
        """Number of records."""

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer's state and the CRC."""


class Batch(Protocol):
    """A batch that is being sent."""

    withdrawn: bool
    """Whether it was given up: then its bytes are not sent any more, where that is possible."""
    queued: bool
    """Whether it was taken up for delivery: only then may it have got sequence numbers."""

    @property
    def handed_over(self) -> int:
        """How often its bytes were handed over for transmission, at most: 0 is a proof."""


class ClientPort(Protocol):
    """What all clients share."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self, seconds: float) -> None:
        """Disconnect in order, or at once after so many seconds. Raises nothing."""


class ProducerPort(ClientPort, Protocol):
    """Writes encoded batches, or single records."""

    def batch(self, encoded: Encoded) -> Batch:
        """Wrap a batch for `send`."""

    def send(self, batch: Batch, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        """Queue a batch, behind those of its partition that came before."""

    async def write(
        self, topic: str, partition: int, key: bytes, value: bytes | None
    ) -> int | None:
        """Write a record and wait; its offset, None where the broker has forgotten it."""

    def partition_count(self, topic: str) -> int:
        """How many partitions the cluster last reported for a topic."""

    def stamps(self, topic: str) -> bool:
        """Whether a broker has answered that it stamps a topic's records (LogAppendTime).

        Never where the client does not report it.
        """

    def numbers_left(self, topic: str, partition: int) -> int:
        """How many more records of a partition this producer can number."""

    def failure(self) -> str | None:
        """Why delivery ended by itself; None while it runs."""

    def abandon(self, why: str) -> None:
        """Start no request any more, where that is possible; answers to others still count."""

    async def wait_closed(self) -> None:
        """After `stop`: wait until nothing more of it can be written."""


class RebalanceListener(Protocol):
    """Is called by a consumer's own task; the rebalance waits for it."""

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """These partitions are about to be taken away."""

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """These partitions are now assigned."""


class ConsumerPort(ClientPort, Protocol):
    """Fetches batches, in a group or of partitions assigned by hand; resets no offset by itself.

    Brokers that have topic ids and leader epochs are asked for them with every fetch, so that they
    notice a re-created topic, or a log that was cut back, behind the reader.
    """

    @property
    def sees_topic_ids(self) -> bool:
        """Whether everything was fetched by topic id so far: then no re-creation goes unnoticed."""

    @property
    def sees_markers(self) -> bool:
        """Whether batches distinguish markers and aborted records from what compaction removed."""

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """Join the group for topics by name."""

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener) -> None:
        """Join the group for all topics whose name the pattern matches."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; each is sought before it is fetched."""

    def seek(self, partition: TopicPartition, place: ReadPosition) -> None:
        """Read an assigned partition from here on.

        A place without a topic id refers to the topic that exists at the next fetch.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing for these."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch for these again."""

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[TopicPartition, int]
    ) -> list[list[Fetched]]:
        """What has arrived, in lists of one partition each, in order.

        `portion` is about how many bytes are returned at once. `reached` is the next offset of
        each partition that has a position. A position that does not exist any more comes
        as OutOfRange, Recreated or Diverged, all that comes of its partition, until it is sought.
        """

    async def topics(self) -> set[str]:
        """All topics' names."""

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset that is still in each partition."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record that this consumer may see."""

    async def topic_id(self, topic: str) -> str | None:
        """The topic's id; None where brokers have none.

        It may be that of a topic that was deleted just now: then a fetch finds out.
        """

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """Where partitions end, and whether that is the log that was read up to these places.

        No end comes from a leader of which a broker has heard that it was replaced, and none of a
        topic that was replaced meanwhile. It fails where fewer than half of the brokers answer.
        Of partitions that were not asked for the ends come, too, where any broker reports them.
        """

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit each partition's next offset for the group."""

    def failure(self) -> str | None:
        """Why fetching ended by itself; None while it runs, as far as that can be seen."""


class Operation(IntEnum):
    """What a principal may be allowed to do with a topic, by Kafka's codes (AclOperation)."""

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
        """As Kafka's tools name it: ``DescribeConfigs``."""
        return self.name.title().replace("_", "")


class TopicDescription(NamedTuple):
    """A topic as one broker describes it.

    Attributes:
        error: the broker's error for the topic, where it has one.
        leaders: by partition, -1 where it has none.
    """

    name: str
    error: RequestError | None
    internal: bool
    partitions: int
    leaders: list[int]


class Configuration(NamedTuple):
    """What a broker or a topic is configured with, defaults included; or why that is unknown."""

    kind: str
    """``brokers`` or ``topics``."""
    name: str
    error: RequestError | None
    values: Mapping[str, str]


class AdminPort(ClientPort, Protocol):
    """Requests that neither read nor write records; each is sent once."""

    async def describe_cluster(self) -> tuple[str, int]:
        """The cluster's id, and how many brokers it has."""

    async def describe_topics(self, topics: list[str] | None) -> list[TopicDescription]:
        """These topics, or all."""

    async def create_topics(
        self, topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, str]
    ) -> set[str]:
        """Create topics (name -> partitions); the names of those that did not exist before."""

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count."""

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Delete a partition's records below an offset; its first offset then."""

    async def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's complete configuration, defaults included."""

    async def configurations(self, topics: list[str]) -> list[Configuration]:
        """Of every broker, and of these topics; secrets have no value."""

    async def permitted_operations(self, topics: list[str]) -> dict[str, frozenset[Operation]]:
        """What we may do with each of these topics; those of which that is unknown are left out."""


class Library(Protocol):
    """A module that makes clients with one library."""

    METADATA_CREATES_TOPICS: bool
    """Whether a metadata request creates a missing topic, where the broker allows that."""

    def producer(self, config: ClientConfig, *, batch_bytes: int | None = None) -> ProducerPort:
        """A producer of encoded batches; with `batch_bytes` one of records, gathered up to that."""

    def consumer(self, config: ClientConfig, *, group: str | None = None) -> ConsumerPort:
        """A consumer."""

    def admin(self, config: ClientConfig) -> AdminPort:
        """An admin client."""

    async def try_connection(self, config: ClientConfig) -> None:
        """Connect to one bootstrap server and close; raises what goes wrong there."""
