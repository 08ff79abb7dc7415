"""The read positions of the assigned partitions, and fetched data that was not taken yet."""

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
_MAX_ENDS = 10_000
"""How many a place keeps: if a reader is far behind, a new end replaces the last one."""


class Place:
    """The read position of a partition, from one seek to the next."""

    __slots__ = (
        "_ends", "at", "leader_epoch", "node", "offset", "refused", "replica", "request",
        "topic_id", "torn", "waits",
    )  # fmt: skip

    def __init__(self, at: TopicPartition, start: ReadPosition) -> None:
        self.at = at
        self.offset, self.leader_epoch, self.topic_id = start
        """The next offset; the leader epoch of the batch before it, or -1; the topic's id."""
        self.request: FetchRequest | None = None
        """The last request for it: responses to earlier ones are dropped."""
        self.node = -1
        """The broker that was asked last."""
        self.waits = 0
        """How many reasons currently defer the next request for it."""
        self.torn = 0
        """How often in a row the batch at the offset could not be read."""
        self.refused: int = Code.NONE
        """The last error with which a broker refused it, so that each error is logged once."""
        self.replica: tuple[int, float] | None = None
        """The follower to read from, by the leader's order, and until when, in the loop's time."""
        self._ends: deque[tuple[int, int]] = deque()
        """Ends above the position, ascending, each with the wall time of the first response
        that showed it."""

    def reaches(self, end: int, at_ns: int) -> None:
        """Note that a response of `at_ns` shows records up to `end`."""
        if self._ends and end < self._ends[-1][0]:
            self._ends.clear()  # truncated, or another leader
        if end > self.offset and (not self._ends or end > self._ends[-1][0]):
            if len(self._ends) == _MAX_ENDS:
                self._ends.pop()
            self._ends.append((end, at_ns))

    def _first_shown_ns(self, offset: int, now_ns: int) -> int:
        """When a response first showed records up to `offset`; `now_ns` at the latest."""
        while self._ends and self._ends[0][0] < offset:
            self._ends.popleft()
        return min(self._ends[0][1], now_ns) if self._ends else now_ns

    def readable(
        self, records: Section, aborted: Sequence[tuple[int, int]] | None
    ) -> Iterator[Fetched]:
        """Yield a response's batches; stop before a torn one, so that it is fetched again.

        `aborted` is as in `fetched.batches`. After some tries, a torn batch is yielded, too.
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
                item.arrived_ns = self._first_shown_ns(item.next_offset, item.arrived_ns)
            if not isinstance(item, Unreadable) or not item.torn or self.torn >= _TORN_READS:
                yield item


class Places:
    """The places of one consumer's current assignment.

    Args:
        subscriptions: aiokafka's SubscriptionState, which has the assignment.
    """

    def __init__(self, subscriptions: Any) -> None:
        self._subscriptions = subscriptions
        self._assignment: Any = None
        self._places: dict[TopicPartition, Place] = {}
        """In the order of requests: those that brought data last come last."""
        self._paused: set[TopicPartition] = set()
        self._arrived: deque[tuple[Place, Iterator[Fetched]]] = deque()

    def __contains__(self, place: Place) -> bool:
        """Whether this place is current: no later seek or assignment has replaced it."""
        return self._places.get(place.at) is place

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    @property
    def arrived(self) -> bool:
        """Whether there is fetched data to take."""
        return bool(self._arrived)

    def renew(self) -> bool:
        """Start from scratch if the assignment was replaced; return whether it was."""
        subscription = self._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        if assignment is not None and not assignment.active:
            assignment = None
        if assignment is self._assignment:
            return False
        self._assignment = assignment
        self._places, self._paused = {}, set()
        # While data waits, its brokers are not asked.
        self._arrived.clear()
        return True

    def seek(self, at: TopicPartition, position: ReadPosition) -> None:
        """Set a partition's position; raises IllegalStateError if it is not assigned."""
        if self._assignment is None or at not in self._assignment.tps:
            raise IllegalStateError(f"No current assignment for partition {at}")
        self._places[at] = Place(at, position)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning these partitions."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._paused.difference_update(partitions)

    def wanted(self) -> tuple[list[Place], set[int]]:
        """The places to fetch, and the brokers whose data was not taken yet."""
        arrived = {place for place, _ in self._arrived}
        places = [
            place
            for place in self._places.values()
            if not place.waits and place not in arrived and place.at not in self._paused
        ]
        return places, {place.node for place in arrived}

    def add(self, place: Place, found: Iterator[Fetched]) -> None:
        """Add data that was fetched for a place."""
        self._arrived.append((place, found))

    def take(self, portion: int) -> list[list[Fetched]]:
        """Take about `portion` bytes of fetched data, as one list per partition."""
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
                # Request the others first next time: the size of a response is limited.
                self._places[place.at] = self._places.pop(place.at)
            if items:
                taken.append(items)
        return taken
