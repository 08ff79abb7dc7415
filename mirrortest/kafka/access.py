"""How aiokafka is reached: by its insides (`seam`), which is fast, or by its public calls alone.

`Sender`, `Reader`, `Admin` and `CompactedTopic` are written once, against the few things that are
declared here. Which of the two serves a client is said by its configuration (`--portable`); what
is not asked for is not even imported, so that another series of aiokafka cannot be in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import aiokafka

from mirrortest.kafka.series import refusal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from mirrortest.config.client import ClientConfig
    from mirrortest.kafka.fetched import End, Fetched, Place
    from mirrortest.model.topic_partition import TopicPartition


class Encoded(Protocol):
    """What is asked of an encoded batch (`wire.batch.EncodedBatch`)."""

    @property
    def buffer(self) -> bytearray | memoryview:
        """The whole record batch, header included."""

    @property
    def count(self) -> int:
        """Number of records."""

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer's state and the CRC."""


class Batch(Protocol):
    """A batch on its way out."""

    withdrawn: bool
    """Whether it was given up: it is to be kept back, where that can still be done."""

    @property
    def handed_over(self) -> int:
        """How often its bytes were handed over for transmission, at most: 0 is a proof."""


class Outlet(Protocol):
    """A producer of aiokafka's, and what a sender needs beyond its public calls."""

    client: Any
    """The AIOKafkaProducer, for its public calls."""

    def batch(self, encoded: Encoded) -> Batch:
        """Make a batch for `send`."""

    async def send(self, batch: Any, topic: str, partition: int) -> asyncio.Future[Any]:
        """Queue a batch; the future of its metadata. If it raises, nothing was queued."""

    def numbers_left(self, topic: str, partition: int) -> int:
        """How many more records of a partition this producer can number."""

    def failure(self) -> BaseException | None:
        """Why delivery has ended by itself; None while it runs."""

    def abandon(self, why: str) -> None:
        """Take up no batch any more, where that can be told; what is on its way is answered."""

    async def stop(self, seconds: float, why: str) -> None:
        """Disconnect within so many seconds; what is then not answered never will be."""

    async def gone(self) -> None:
        """After `stop`: wait until nothing of it can be written any more."""


class Inlet(Protocol):
    """A consumer of aiokafka's, and what a reader needs beyond its public calls.

    Brokers that have topic ids and leader epochs are asked for them with every fetch, so that they
    notice themselves where a topic was re-created, or a log cut back, behind the reader.
    """

    client: Any
    """The AIOKafkaConsumer, for its public calls."""

    @property
    def sees_topic_ids(self) -> bool:
        """Whether everything was fetched by topic id so far: then no re-creation goes unnoticed."""

    def place(self, partition: TopicPartition, place: Place) -> None:
        """Where reading goes on: called with each seek, right after the consumer's own.

        A place without a topic id goes on in the topic that there is at the next fetch.
        """

    async def topic_id(self, topic: str) -> str | None:
        """The topic's id; None where brokers do not tell. Raises KafkaError: there is no topic.

        It may be that of a topic that was deleted just now: a fetch tells.
        """

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[TopicPartition, int]
    ) -> list[list[Fetched]]:
        """What has arrived, in lists of one partition each, in order; raises aiokafka's errors.

        `portion` is about how many bytes are returned at once. `reached` is where reading stands
        in each partition whose position is known. A position that does not exist any more comes
        alone, as OutOfRange, Recreated or Diverged, and again until it is sought.
        """

    async def ends(self, read: Mapping[TopicPartition, Place]) -> dict[TopicPartition, End]:
        """Where partitions end, and whether that is the log that was read up to these places.

        No end comes from a leader that another broker knows to be replaced, and none of a topic
        that is another by the time it is told. Raises KafkaError, also where fewer than half of the
        brokers answer.
        """

    def failure(self) -> BaseException | None:
        """Why fetching has ended by itself; None while it runs, as far as can be told."""

    async def stop(self, seconds: float) -> None:
        """Leave the group and disconnect, waiting for it so many seconds at most."""


class Access(Protocol):
    """A module that gives access to aiokafka."""

    ASKING_MAKES_TOPICS: bool
    """Whether the question for a missing topic has it made, where the broker allows that."""

    def outlet(self, arguments: dict[str, Any], *, compression: str = "none") -> Outlet:
        """Make a producer; `compression` is for batches that come uncompressed though it is set."""

    def inlet(self, arguments: dict[str, Any]) -> Inlet:
        """Make a consumer."""

    async def try_connection(self, arguments: dict[str, Any]) -> None:
        """Connect to one bootstrap server and close; what goes wrong there is raised."""


def access(config: ClientConfig) -> Access:
    """The access that a client is to have; to be asked before any client is made.

    Raises:
        ClusterError: this aiokafka is not the one that the seam was made for.
    """
    # Imported where it is asked for: see above.
    if config.portable:
        from mirrortest.kafka import portable  # noqa: PLC0415

        return portable
    try:
        from mirrortest.kafka import seam  # noqa: PLC0415
    except (ImportError, AttributeError) as error:
        raise refusal(f"it is {aiokafka.__version__}, and {error}") from error
    seam.install()
    return seam
