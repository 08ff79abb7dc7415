"""How far each partition has been judged, by this consumer or by others, as their states show."""

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
    """Where a partition's checker comes from: another consumer's state, or our own partition."""

_log = structlog.get_logger()

STATE_VERSION = 1
MOST_EPOCHS = 128
"""How many leader epochs a partition's state has; the oldest are dropped."""
MOST_LEFT = 128
"""How many ids of topics of one name are saved."""
REPORTED = "latencies_reported"
"""The key of `SavedState.latencies_reported`, which only the last state of a consumer has."""
_MOST_COUNTS = 1000
_MOST_NOTES = 1000


@dataclass(frozen=True)
class SavedState:
    """A partition's saved state, ours or another consumer's; fields as in `AssignedPartition`."""

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
    """The --expect-partition policy of its consumer, if ours is another one. Then the checker's
    `misrouted` findings were dropped, and are judged anew by where the streams belong."""
    latencies_reported: bool = False
    """Whether its consumer's own report has the latencies: it went on without the partition, or had
    judged everything when it ended."""

    @property
    def read_position(self) -> ReadPosition:
        """How far the partition has been judged, in a form that brokers can check."""
        return read_position_of(self.checker, self.epochs, self.topic_id)

    @classmethod
    def read(
        cls, state: dict[str, Any], at: TopicPartition, *, run: str, policy: ExpectPartition
    ) -> SavedState:
        """Read what `AssignedPartition.to_state` wrote of this partition, to judge by this policy.

        Its checker may have another source topic, if its consumer had another --source-alias.

        Raises:
            RecordError: the state is malformed, of another version, or contradicts itself.
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
        # Earlier versions did not save the policy.
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
            untrusted.flag(state.get(REPORTED, False)),
        )


def claims_of(state: dict[str, Any], source: str, run: str) -> dict[StreamId, IntervalSet]:
    """The seqs of a topic's streams that a state has as claimed lost.

    Raises:
        RecordError: they are malformed, or of another topic or run.
    """
    claimed = untrusted.listed(untrusted.entry(state, "claimed"))
    return {
        untrusted.stream(stream, of_topic=source, of_run=run): untrusted.intervals(numbers)
        for stream, numbers in (untrusted.listed(claim, 2) for claim in claimed)
    }


def read_position_of(
    checker: PartitionChecker, epochs: list[tuple[int, int]], topic_id: str | None
) -> ReadPosition:
    """How far a partition has been judged, in a form that brokers can check."""
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
    """The ids of all topics of its name that a state has read; empty if the cluster has no ids."""
    return {*state.left_ids, *([state.topic_id] if state.topic_id else [])}


class _Earlier(NamedTuple):
    """An earlier state of a partition, which the present one should continue."""

    topic_ids: set[str]
    checker: PartitionChecker
    saved: bool
    """Whether it is saved, so that another consumer can continue it; False for our partitions."""

    @classmethod
    def of(cls, state: State) -> _Earlier:
        return cls(_topic_ids(state), state.checker, isinstance(state, SavedState))

    def is_continued_by(self, state: State) -> bool:
        """Whether a state continues this one, or its consumer has read everything again.

        Without topic ids only the messages can show it.
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
    """Every partition's newest checker, and what other consumers' states record besides.

    A state can be lost: with the state topic, or with that topic's last records in an unclean
    leader election. Its consumer can be killed before it writes the state again, or before it
    writes its first one. Then the next consumer starts anew, with no sign that the judged topic
    was recreated. So this object remembers what it had read of a lost state, and which topics there
    were.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._saved: dict[TopicPartition, tuple[int, SavedState | None]] = {}
        """Other consumers' states, each with its serial; None if it cannot be read."""
        self._last: dict[TopicPartition, State] = {}
        """The state from which each partition's checker was taken last."""
        self._lost: dict[TopicPartition, list[_Earlier]] = {}
        """Partition -> the earlier states that its present one does not continue. An empty list
        means that only an earlier topic's id is missing from the present state."""

    async def of(self, topics: Iterable[str], pause: Callable[[], Awaitable[None]]) -> Views:
        """The newest checker of each partition of these topics: ours, else the last saved one.

        `pause` is awaited before each state is read.
        """
        context = self._context
        views: Views = {topic: {} for topic in topics}
        found: dict[TopicPartition, State] = {}
        for at, serial in context.store.serials().items():
            if at.topic not in views or at in context.partitions:
                continue
            await pause()
            saved = self._state(at, serial)
            # A state of another source topic comes from a consumer with another --source-alias.
            if saved and saved.checker.topic == context.topics.judges[at.topic].source:
                found[at] = saved
        found |= {at: each for at, each in context.partitions.items() if at.topic in views}
        for at, state in found.items():
            views[at.topic][at.partition] = state.checker
            judge = context.topics.judges[at.topic]
            judge.topic_ids |= _topic_ids(state)
            judge.uncommitted |= state.uncommitted
        for at, state in found.items():
            self._update_lost(at, state)
        for topic in views:
            self._update_lost_without_state(topic, views[topic])
            lost = [states for at, states in self._lost.items() if at.topic == topic]
            checkers = [each.checker for states in lost for each in states]
            context.topics.judges[topic].lost_states = checkers if lost else None
        return views

    def lost(self) -> Iterator[TopicPartition]:
        """The partitions whose present state does not cover all that was read before."""
        return iter(self._lost)

    def _update_lost(self, at: TopicPartition, state: State) -> None:
        """Take in a partition's present state; earlier ones that it does not continue are lost."""
        earlier, last = self._lost.pop(at, []), self._last.get(at)
        if last is not None and last is not state:
            earlier.append(_Earlier.of(last))
        self._last[at] = state
        lost = [each for each in earlier if not each.is_continued_by(state)]
        read = _topic_ids(state)
        if lost or (read and not self._context.topics.judges[at.topic].topic_ids <= read):
            self._lost[at] = lost

    def _update_lost_without_state(self, topic: str, judged: Collection[int]) -> None:
        """Mark partitions without a state as lost, if there was a topic other than `first_id`."""
        judge, count = self._context.topics.judges[topic], self._context.topics.counts.get(topic, 0)
        if judge.first_id and judge.topic_ids - {judge.first_id}:
            for at in (TopicPartition(topic, n) for n in range(count) if n not in judged):
                self._lost.setdefault(at, [])

    def saved(self) -> Iterator[tuple[TopicPartition, SavedState | None]]:
        """Other consumers' states of the judged topics; None if a state cannot be read."""
        context = self._context
        for at, serial in context.store.serials().items():
            if at.topic in context.topics.judges and at not in context.partitions:
                yield at, self._state(at, serial)

    def unreadable(self) -> set[str]:
        """Topics with an unreadable state: the consumer that saved it may have seen any message."""
        return {at.topic for at, saved in self.saved() if saved is None}

    def read_position(self, at: TopicPartition) -> ReadPosition:
        """How far a partition has been judged, by the state that was read last."""
        if at in self._context.partitions:
            return self._context.partitions[at].read_position
        _, saved = self._saved.get(at, (0, None))
        if saved:
            return saved.read_position
        # No consumer has judged it. It is bound to the topic that was seen first, so that a
        # recreated topic does not pass for it: what the first one contained was not read.
        judge = self._context.topics.judges[at.topic]
        return ReadPosition(0, topic_id=judge.first_id or min(judge.topic_ids, default=None))

    def _state(self, at: TopicPartition, serial: int) -> SavedState | None:
        """A partition's saved state, parsed once for each serial; None: it cannot be read."""
        cached = self._saved.get(at)
        if cached is None or cached[0] != serial:
            cached = self._saved[at] = serial, self._read_state(at)
        return cached[1]

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
            # A message that arrives after any consumer claimed its loss is late.
            judge.losses.merge(saved.claimed)
        return saved
