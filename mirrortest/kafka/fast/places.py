"""Where the assigned partitions are read, and what has come for them and is not yet taken."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fetched import FetchedBatches, Unreadable, batches, has_complete_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirrortest.kafka.fast.frames import Section
    from mirrortest.kafka.fast.requests import FetchRequest
    from mirrortest.kafka.fetched import Fetched, ReadPosition
    from mirrortest.model.topic_partition import TopicPartition

_TORN_READS = 3
_MOST_ENDS = 10_000
"""That a place remembers: of a reader that is far behind, the last one stands for those after."""


class Place:
    """Where a partition is read, from one seek to the next."""

    __slots__ = (
        "_ends", "at", "leader_epoch", "node", "offset", "refused", "replica", "request",
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
        self.waits = 0
        """For how many reasons it is not to be asked for, for a while."""
        self.torn = 0
        """How often in a row the batch at the offset was read torn."""
        self.refused: int = Code.NONE
        """With which error it was refused last, so that each is logged once."""
        self.replica: tuple[int, float] | None = None
        """The broker that the leader sends us to, and until when, in the event loop's seconds."""
        self._ends: deque[tuple[int, int]] = deque()
        """Ends beyond what is read, ascending, each with the wall time of the first answer that
        shows it."""

    def reaches(self, end: int, at_ns: int) -> None:
        """An answer shows that there are records up to an offset."""
        if self._ends and end < self._ends[-1][0]:
            self._ends.clear()  # cut back, or another leader
        if end > self.offset and (not self._ends or end > self._ends[-1][0]):
            if len(self._ends) == _MOST_ENDS:
                self._ends.pop()
            self._ends.append((end, at_ns))

    def _known_ns(self, offset: int, now_ns: int) -> int:
        """Since when it is known that there are records up to an offset, which comes now."""
        while self._ends and self._ends[0][0] < offset:
            self._ends.popleft()
        return min(self._ends[0][1], now_ns) if self._ends else now_ns

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
            if isinstance(item, FetchedBatches):
                item.arrived_ns = self._known_ns(item.next_offset, item.arrived_ns)
            if not isinstance(item, Unreadable) or not item.torn or self.torn >= _TORN_READS:
                yield item


class Places:
    """One consumer's, of its present assignment.

    Args:
        subscriptions: aiokafka's, which knows what is assigned.
    """

    def __init__(self, subscriptions: Any) -> None:
        self._subscriptions = subscriptions
        self._assignment: Any = None
        self._places: dict[TopicPartition, Place] = {}
        """Those that brought something last come last."""
        self._paused: set[TopicPartition] = set()
        self._arrived: deque[tuple[Place, Iterator[Fetched]]] = deque()

    def __contains__(self, place: Place) -> bool:
        """Whether the partition is still read from this seek on."""
        return self._places.get(place.at) is place

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    @property
    def arrived(self) -> bool:
        """Whether something has come."""
        return bool(self._arrived)

    def renew(self) -> bool:
        """Begin anew if there is another assignment; whether there is."""
        subscription = self._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        if assignment is not None and not assignment.active:
            assignment = None
        if assignment is self._assignment:
            return False
        self._assignment = assignment
        self._places, self._paused = {}, set()
        # Until it is taken, or dropped, its brokers would not be asked.
        self._arrived.clear()
        return True

    def seek(self, at: TopicPartition, position: ReadPosition) -> None:
        """Read a partition from here on; raises IllegalStateError where it is not assigned."""
        if self._assignment is None or at not in self._assignment.tps:
            raise IllegalStateError(f"No current assignment for partition {at}")
        self._places[at] = Place(at, position)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for, and return, nothing of these."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for these again."""
        self._paused.difference_update(partitions)

    def wanted(self) -> tuple[list[Place], set[int]]:
        """What is to be asked for, and the brokers of which something is still to be taken."""
        arrived = {place for place, _ in self._arrived}
        places = [
            place
            for place in self._places.values()
            if not place.waits and place not in arrived and place.at not in self._paused
        ]
        return places, {place.node for place in arrived}

    def add(self, place: Place, found: Iterator[Fetched]) -> None:
        """Something has come for a place."""
        self._arrived.append((place, found))

    def take(self, portion: int) -> list[list[Fetched]]:
        """About `portion` bytes of what has come, in lists of one partition each."""
        taken: list[list[Fetched]] = []
        left = portion
        while self._arrived and left > 0:
            place, found = self._arrived[0]
            if place not in self or place.at in self._paused:
                self._arrived.popleft()
                continue
            items: list[Fetched] = []
            for item in found:
                items.append(item)
                if isinstance(item, FetchedBatches):
                    place.offset, place.leader_epoch = item.next_offset, item.leader_epoch
                    left -= 0 if item.buffer is None else len(item.buffer)
                    if left <= 0:
                        break
            else:
                self._arrived.popleft()
                # Next time others come first: what a broker returns at once is limited.
                self._places[place.at] = self._places.pop(place.at)
            if items:
                taken.append(items)
        return taken
