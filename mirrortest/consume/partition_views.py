"""How far each partition has been judged: by this consumer, or by another that saved its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from mirrortest.kafka.fetched import ReadPosition
from mirrortest.model.findings import Finding
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify import untrusted
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
    from typing import TypeAlias

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.end_offsets import Views
    from mirrortest.model.intervals import IntervalSet
    from mirrortest.verify.placement import ExpectPartition
    from mirrortest.wire.stream import StreamId

    State: TypeAlias = "SavedState | AssignedPartition"
    """What has a partition's checker: another consumer's saved state, or a partition of ours."""

_log = structlog.get_logger()

STATE_VERSION = 1
MOST_EPOCHS = 128
"""Changes of the leader that are kept of what was read of one partition."""
MOST_LEFT = 128
"""Topics of one name that are known not to come back."""
_MOST_COUNTS = 1000
_MOST_NOTES = 1000


@dataclass(frozen=True)
class SavedState:
    """What a partition's state holds, whose ever it is; the fields are `AssignedPartition`'s."""

    checker: PartitionChecker
    identity: int
    counts: list[int]
    claimed: dict[StreamId, IntervalSet]
    notes: list[str]
    last_record: tuple[int, int] | None
    topic_id: str | None
    left_ids: list[str]
    begins_at: int
    cuts: int
    epochs: list[tuple[int, int]]
    uncommitted: bool = False
    rerouted_from: str | None = None
    """The policy by which its consumer judged where messages belong, if it is another one: what of
    them is misrouted is forgotten, and judged anew by where their streams belong."""

    @property
    def place(self) -> ReadPosition:
        """How far it has been judged, as the cluster can check it."""
        return place_of(self.checker, self.epochs, self.topic_id)

    @classmethod
    def read(
        cls, state: dict[str, Any], at: TopicPartition, *, run: str, policy: ExpectPartition
    ) -> SavedState:
        """Read what `AssignedPartition.to_state` wrote of this partition, to judge by this policy.

        Its checker may be of another source topic: one that another --source-alias names.

        Raises:
            RecordError: it is no such state, of another version, or it contradicts itself.
        """
        if untrusted.entry(state, "v") != STATE_VERSION:
            raise RecordError(f"a state of version {state['v']!r:.80}, not {STATE_VERSION}")
        checker = PartitionChecker.from_state(untrusted.entry(state, "checker"))
        if checker.partition != at.partition:
            raise RecordError(f"a state of partition {checker.partition}")
        if any(stream.run != run for stream in checker.fragments):
            raise RecordError("messages of another run")
        counts = untrusted.listed(untrusted.entry(state, "counts"))
        notes = untrusted.listed(state.get("notes", []))
        if len(counts) > _MOST_COUNTS or len(notes) > _MOST_NOTES:
            raise RecordError(f"{len(counts):,} partition counts and {len(notes):,} notes")
        topic_id = state.get("topic_id")
        begins_at = untrusted.number(state.get("begins_at", 0))
        left_ids = untrusted.listed(state.get("left_ids", []))
        if len(left_ids) > MOST_LEFT:
            raise RecordError(f"{len(left_ids):,} topics of one name")
        last = untrusted.entry(state, "last_record")
        if last is not None:
            offset, fingerprint = untrusted.listed(last, 2)
            untrusted.number(fingerprint, 0, 1 << 32)
            last = untrusted.number(offset, 0, checker.next_offset), fingerprint
        # The version before did not note it.
        judged_by = untrusted.text(state.get("policy", policy.value))
        if judged_by != policy:
            checker.forget(Finding.MISROUTED)
        return cls(
            checker,
            untrusted.number(untrusted.entry(state, "identity"), 0, untrusted.COUNTS_END),
            [untrusted.number(count, 1, untrusted.COUNTS_END) for count in counts],
            claims_of(state, checker.topic, run),
            [untrusted.text(note) for note in notes],
            last,
            None if topic_id is None else untrusted.topic_id(topic_id),
            [untrusted.topic_id(each) for each in left_ids],
            begins_at,
            untrusted.number(state.get("cuts", int(begins_at > 0)), 0, untrusted.COUNTS_END),
            _epochs_of(state),
            untrusted.flag(state.get("uncommitted", False)),
            None if judged_by == policy else judged_by,
        )


def claims_of(state: dict[str, Any], source: str, run: str) -> dict[StreamId, IntervalSet]:
    """The numbers of a topic's streams that were claimed lost, by a state.

    Raises:
        RecordError: they are of another topic or run, or no such numbers.
    """
    claimed = untrusted.listed(untrusted.entry(state, "claimed"))
    return {
        untrusted.stream(stream, of_topic=source, of_run=run): untrusted.intervals(numbers)
        for stream, numbers in (untrusted.listed(claim, 2) for claim in claimed)
    }


def place_of(
    checker: PartitionChecker, epochs: list[tuple[int, int]], topic_id: str | None
) -> ReadPosition:
    """How far a partition has been judged, as the cluster can check it."""
    return ReadPosition(checker.next_offset, epochs[-1][0] if epochs else -1, topic_id)


def _epochs_of(state: dict[str, Any]) -> list[tuple[int, int]]:
    epochs = untrusted.listed(state.get("epochs", []))
    if len(epochs) > MOST_EPOCHS:
        raise RecordError(f"{len(epochs):,} leader epochs")
    return [
        (untrusted.number(epoch, 0, untrusted.COUNTS_END), untrusted.number(offset))
        for epoch, offset in (untrusted.listed(each, 2) for each in epochs)
    ]


def _topic_ids(state: State) -> set[str]:
    """Of the topics that it has read, one after the other; none where the cluster has no ids."""
    return {*state.left_ids, *([state.topic_id] if state.topic_id else [])}


class _Earlier(NamedTuple):
    """What a partition's present state should go on from."""

    topic_ids: set[str]
    checker: PartitionChecker
    saved: bool
    """Whether a consumer could go on from it: not so what we had not saved ourselves."""

    @classmethod
    def of(cls, state: State) -> _Earlier:
        return cls(_topic_ids(state), state.checker, isinstance(state, SavedState))

    def is_continued_by(self, state: State) -> bool:
        """Whether a state went on from this, or its consumer has read it all again.

        Without topic ids that is seen by the messages alone.
        """
        present_ids = _topic_ids(state)
        if present_ids and self.topic_ids:
            return self.topic_ids <= present_ids
        for stream, fragment in self.checker.fragments.items() if self.saved else ():
            present = state.checker.fragments.get(stream)
            if present is None or not (present.inconclusive or not fragment.seen - present.seen):
                return False
        return True


class PartitionViews:
    """Every partition's newest checker, and what else another consumer's state says of it.

    A state can be lost with its topic, or with the end of it that an unclean election takes, and
    its consumer can be killed before it writes it again, or before its first one. The next consumer
    begins anew, and does not know that the judged topic was another one before. What we had read of
    the lost state, and that there was another topic, stays true.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._saved: dict[TopicPartition, tuple[int, SavedState | None]] = {}
        """Others' states, each with its serial; None where it cannot be read."""
        self._last: dict[TopicPartition, State] = {}
        """What each partition's checker was taken from last."""
        self._lost: dict[TopicPartition, list[_Earlier]] = {}
        """What it does not continue; none where only a topic of before is unknown to it."""

    async def of(self, topics: Iterable[str], pause: Callable[[], Awaitable[None]]) -> Views:
        """Of these topics, every partition's newest checker: ours, else the last one saved.

        `pause` is called before each state is read.
        """
        context = self._context
        views: Views = {topic: {} for topic in topics}
        found: dict[TopicPartition, State] = {}
        for at, serial in context.store.serials().items():
            if at.topic not in views or at in context.partitions:
                continue
            await pause()
            saved = self._state(at, serial)
            # One of another name is of a consumer that was given another alias.
            if saved and saved.checker.topic == context.topics.judges[at.topic].source:
                found[at] = saved
        found |= {at: each for at, each in context.partitions.items() if at.topic in views}
        for at, state in found.items():
            views[at.topic][at.partition] = state.checker
            judge = context.topics.judges[at.topic]
            judge.topic_ids |= _topic_ids(state)
            judge.uncommitted |= state.uncommitted
        for at, state in found.items():
            self._succeed(at, state)
        for topic in views:
            self._succeed_nothing(topic, views[topic])
            lost = [states for at, states in self._lost.items() if at.topic == topic]
            checkers = [each.checker for states in lost for each in states]
            context.topics.judges[topic].lost_states = checkers if lost else None
        return views

    def lost(self) -> Iterator[TopicPartition]:
        """The partitions of which it is unknown what else was read, in topics of before."""
        return iter(self._lost)

    def _succeed(self, at: TopicPartition, state: State) -> None:
        """Take in a partition's present state; what it does not continue is lost."""
        earlier, last = self._lost.pop(at, []), self._last.get(at)
        if last is not None and last is not state:
            earlier.append(_Earlier.of(last))
        self._last[at] = state
        lost = [each for each in earlier if not each.is_continued_by(state)]
        read = _topic_ids(state)
        if lost or (read and not self._context.topics.judges[at.topic].topic_ids <= read):
            self._lost[at] = lost

    def _succeed_nothing(self, topic: str, judged: Collection[int]) -> None:
        """Of a partition without a state, what a topic before the first one we saw held is lost."""
        judge, count = self._context.topics.judges[topic], self._context.topics.counts.get(topic, 0)
        if judge.first_id and judge.topic_ids - {judge.first_id}:
            for at in (TopicPartition(topic, n) for n in range(count) if n not in judged):
                self._lost.setdefault(at, [])

    def saved(self) -> Iterator[tuple[TopicPartition, SavedState | None]]:
        """Other consumers' states of the judged topics; None where one cannot be read."""
        context = self._context
        for at, serial in context.store.serials().items():
            if at.topic in context.topics.judges and at not in context.partitions:
                yield at, self._state(at, serial)

    def unreadable(self) -> set[str]:
        """Topics of which some state cannot be read: whoever saved it may have seen anything."""
        return {at.topic for at, saved in self.saved() if saved is None}

    def place(self, at: TopicPartition) -> ReadPosition:
        """How far a partition has been judged, as far as that was read last."""
        if at in self._context.partitions:
            return self._context.partitions[at].place
        _, saved = self._saved.get(at, (0, None))
        if saved:
            return saved.place
        # Nobody has judged it: what the topic held when it was first seen counts as not read.
        judge = self._context.topics.judges[at.topic]
        return ReadPosition(0, topic_id=judge.first_id or min(judge.topic_ids, default=None))

    def _state(self, at: TopicPartition, serial: int) -> SavedState | None:
        """What a partition's consumer saved, read once for each serial; None: it cannot be read."""
        known = self._saved.get(at)
        if known is None or known[0] != serial:
            known = self._saved[at] = serial, self._read_state(at)
        return known[1]

    def _read_state(self, at: TopicPartition) -> SavedState | None:
        judge, state = self._context.topics.judges[at.topic], self._context.store.state(at)
        try:
            saved = SavedState.read(state or {}, at, run=judge.run, policy=judge.policy)
        except RecordError as error:
            _log.warning(
                "a consumer's state cannot be read: what it has judged does not count here",
                partition=str(at),
                why=str(error),
            )
            return None
        if saved.checker.topic == judge.source:
            # A message that comes after its loss was claimed is late, whichever consumer claimed.
            judge.losses.merge(saved.claimed)
        return saved
