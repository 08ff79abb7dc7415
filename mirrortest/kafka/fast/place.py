"""Where a partition is read, and what an answer brings there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fetched import Unreadable, batches, has_complete_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.kafka.fast.frames import Section
    from mirrortest.kafka.fast.requests import FetchRequest
    from mirrortest.kafka.fetched import Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

_TORN_READS = 3


class Place:
    """Where a partition is read, from one seek to the next."""

    __slots__ = (
        "arrived", "at", "leader_epoch", "node", "offset", "refused", "replica", "request",
        "topic_id", "torn", "waits",
    )  # fmt: skip

    def __init__(self, at: TopicPartition, place: ReadPosition) -> None:
        self.at = at
        self.offset, self.leader_epoch, self.topic_id = place
        """The next offset; the epoch of the batch before it, or -1; the topic that is read."""
        self.request: FetchRequest | None = None
        """The last one for it: what answers an earlier one is dropped."""
        self.node = -1
        """The broker that was asked last."""
        self.arrived = False
        """Whether something has come that is not yet taken."""
        self.waits = 0
        """For how many reasons it is not to be asked for, for a while."""
        self.torn = 0
        """How often in a row the batch at the offset was read torn."""
        self.refused: int = Code.NONE
        """With which error it was refused last, so that each is told once."""
        self.replica: tuple[int, float] | None = None
        """The broker that the leader sends us to, and until when."""

    def readable(
        self, records: Section, aborted: Sequence[tuple[int, int]] | None
    ) -> Iterator[Fetched]:
        """The batches of an answer; a torn one ends it, so that it is fetched again.

        `aborted` is as in `fetched.batches`.
        """
        topic, partition = self.at
        if not has_complete_batch(records.data):
            why = "it is larger than what is fetched at once (max.partition.fetch.bytes)"
            yield Unreadable(topic, partition, self.offset, why, torn=False)
        for item in batches(
            records.data,
            topic=topic,
            partition=partition,
            fetch_offset=self.offset,
            arrived_ns=records.arrived_ns,
            aborted=aborted,
            topic_id=self.topic_id,
        ):
            self.torn = self.torn + 1 if isinstance(item, Unreadable) else 0
            if not isinstance(item, Unreadable) or not item.torn or self.torn >= _TORN_READS:
                yield item
