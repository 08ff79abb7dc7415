"""A script played on plain sets: the expected content of every checker, round and log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.model.findings import Finding

from .compaction import Missing, Partition, explained, removed_from_source
from .coverage import Facts, covered
from .judge import (
    INCARNATION,
    Fragment,
    Message,
    Passed,
    doubted,
    incarnation_of,
    judge,
    misrouted,
    offset_of,
    streamless,
)
from .script import DEADLINE, Die, Drop, Read, Renew, Round, Save, Take, Unread
from .truth import Recorded, claims_of, lanes_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.wire.stream import StreamId

    from .judge import Lane
    from .script import Event, History

Id = tuple["StreamId", int]
"""(stream, seq)"""
Answer = dict[tuple["StreamId", str], set[int]]
"""(stream, finding or outcome) -> its seqs"""


Lowest = tuple[tuple[int, int], dict[int, int]]
"""How much the ledger had (lanes, acked seqs), and the lowest ends of partitions."""


def _joined(one: Lowest, other: Lowest | None) -> Lowest:
    """The one of the later ledger state; of the same state, the lower ends."""
    if other is None or other[0] != one[0]:
        return one if other is None else max(one, other, key=lambda each: each[0])
    both = {**other[1], **one[1]}
    return one[0], {n: min(end, other[1].get(n, end)) for n, end in both.items()}


class Content(NamedTuple):
    """The expected content of a partition's checker at its next offset."""

    streams: dict[StreamId, Fragment]
    streamless: dict[Finding, int]
    next_offset: int


@dataclass
class _State:
    """A partition as one consumer has read it; the claims are those in its state."""

    passed: list[Passed] = field(default_factory=list)
    claimed: set[Id] = field(default_factory=set)

    @property
    def next_offset(self) -> int:
        return self.passed[-1].hi if self.passed else 0

    def copy(self) -> _State:
        return _State(list(self.passed), set(self.claimed))


@dataclass
class _Consumer:
    """One session of a consumer."""

    assigned: dict[int, _State] = field(default_factory=dict)
    begun: bool = False
    noted: dict[Id, int] = field(default_factory=dict)
    claimed: set[Id] = field(default_factory=set)
    decoded: set[int] = field(default_factory=set)
    """States of others whose claims were taken over."""
    hearing: tuple[dict[int, int], set[Id]] | None = None
    lowest: Lowest | None = None
    """The lowest ends, including those from other consumers."""
    closing: dict[int, int] | None = None
    """Where all partitions ended when all was judged."""
    unvouched: dict[StreamId, int] = field(default_factory=dict)
    # Its log.
    written: list[tuple[Any, ...]] = field(default_factory=list)
    durable: int = 0
    read_from: dict[int, int] = field(default_factory=dict)


class Reference:
    """Plays the events of a script one by one."""

    def __init__(self, history: History) -> None:
        self.truth = history.truth
        self.stood = [
            {at: self._shown(message, place) for at, message in messages.items()}
            for place, messages in enumerate(self.truth.stood)
        ]
        self.logged_lost: set[Id] = set()
        """What any consumer claimed lost, or judged lost at the end, so that its log has it."""
        self.undecided: set[Id] = set()
        """What the last consumer with a verdict could not decide."""
        self.facts = Facts([], set(), set(), looked_at=False)
        """What the logs show, once they are judged."""
        self.logged: list[tuple[Any, ...]] = []
        """Of all sessions that ended: (kind, partition, lo, hi); unread ones also have the minute,
        and whether the consumer read on in the next incarnation."""
        self._consumers: dict[int, _Consumer] = {}
        self._states: dict[int, _State] = {}
        self._newest: dict[int, int] = {}
        self._now = 0
        self._shared: tuple[set[Id], dict[Id, int], Lowest | None] = (set(), {}, None)
        """The shared state that was last written: claims, ages of awaited ids, lowest ends."""
        self._ledgers: dict[int, tuple[dict[StreamId, Lane], bool]] = {}
        self._known: list[StreamId] = sorted(
            {m.stream for messages in self.stood for m in messages.values() if m.stream}
            | {s.stream for s in self.truth.sent}
        )

    def _shown(self, message: Message, partition: int) -> Message:
        """The message, with the finding that follows from its partition."""
        truth, stream = self.truth, message.stream
        if stream is not None and misrouted(
            truth.policy,
            stream.lane,
            truth.source_of(stream.lane),
            partition,
            truth.possible_counts,
        ):
            return message._replace(findings=message.findings | {Finding.MISROUTED})
        return message

    def consumer(self, number: int) -> _Consumer:
        """The running session."""
        return self._consumers.setdefault(number, _Consumer())

    # -- reading --------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Play any event but a round."""
        me = self.consumer(event.consumer)
        if isinstance(event, Take):
            state = _State() if event.state is None else self._states[event.state].copy()
            me.assigned[event.partition] = state
            me.claimed |= state.claimed
            me.read_from[event.partition] = state.next_offset
        elif isinstance(event, Read):
            state = me.assigned[event.partition]
            me.written.append(("seen", event.partition, state.next_offset, event.hi))
            state.passed.append(Passed(state.next_offset, event.hi))
        elif isinstance(event, Unread):
            self._log_read(me, event.partition)
            me.read_from[event.partition] = event.hi
            self._pass_blind(me, event.partition, event.lo, event.hi, event.minute)
        elif isinstance(event, Renew):
            state = me.assigned[event.partition]
            lo = state.next_offset
            hi = (incarnation_of(lo) + 1) * INCARNATION
            self._log_read(me, event.partition)
            me.read_from[event.partition] = hi
            self._pass_blind(me, event.partition, lo, hi, event.minute)
        elif isinstance(event, Save):
            self._log_read(me, event.partition)
            me.durable = len(me.written)
            self._states[event.number] = me.assigned[event.partition].copy()
            if not event.zombie:
                self._newest[event.partition] = event.number
            self._take_over(me)
            if me.noted or me.claimed or me.lowest or self.truth.compact:
                ages = {an_id: self._now - at for an_id, at in me.noted.items()}
                self._shared = (set(me.claimed), ages, me.lowest)
        elif isinstance(event, Drop):
            del me.assigned[event.partition]
        elif isinstance(event, Die):
            self._close(event.consumer, kept=event.kept)

    @staticmethod
    def _pass_blind(me: _Consumer, partition: int, lo: int, hi: int, minute: int) -> None:
        me.written.append(("unread", partition, lo, hi, minute))
        me.assigned[partition].passed.append(Passed(lo, hi, blind=True, minute=minute))

    def _take_over(self, me: _Consumer) -> None:
        """Take the shared claims in each case, the ages of awaited ids only once at the start."""
        claimed, ages, lowest = self._shared
        me.claimed |= claimed
        if lowest is not None:
            me.lowest = _joined(lowest, me.lowest)
        if not me.begun:
            me.begun = True
            me.noted = {an_id: self._now - age for an_id, age in ages.items()}

    def _log_read(self, me: _Consumer, partition: int) -> None:
        start, end = me.read_from[partition], me.assigned[partition].next_offset
        if start < end:
            me.written.append(("read", partition, start, end))
        me.read_from[partition] = end

    def _close(self, consumer: int, *, kept: bool) -> None:
        me = self._consumers.pop(consumer, _Consumer())
        log = me.written if kept else me.written[: me.durable]
        reads = [(row[1], row[2]) for row in log if row[0] == "read"]
        # Whether it read on in the next incarnation.
        self.logged += [
            (*row, any((row[1], row[3]) <= place < (row[1] + 1,) for place in reads))
            if row[0] == "unread"
            else row
            for row in log
        ]

    def content(self, consumer: int, partition: int) -> Content:
        """The expected content of a consumer's checker of a partition."""
        state = self.consumer(consumer).assigned[partition]
        return Content(
            {s: Fragment(s, self.stood[partition], state.passed) for s in self._known},
            streamless(self.stood[partition], state.passed),
            state.next_offset,
        )

    # -- judging --------------------------------------------------------------------------------

    def view(self, event: Round) -> dict[int, _State]:
        """Each partition's state: the consumer's own, else the newest one that was saved."""
        mine = self.consumer(event.consumer).assigned
        states = {at: self._states[number] for at, number in self._newest.items()}
        return {**states, **mine}

    def judge(self, event: Round) -> tuple[set[Id], bool]:
        """Run a round; returns what is newly claimed lost, and whether all has been judged."""
        me, self._now = self.consumer(event.consumer), event.now
        self._take_over(me)
        for partition, number in self._newest.items():
            if partition not in me.assigned and number not in me.decoded:
                me.decoded.add(number)
                me.claimed |= self._states[number].claimed
        lanes, all_ended = self._lanes(event)
        for stream, lane in lanes.items():
            for seq in lane.acked:
                me.noted.setdefault((stream, seq), event.now)
        view = self.view(event)
        fragments = self._fragments(view)
        ends_current = all(
            offset_of(s.next_offset) <= event.ends.get(at, -1) for at, s in view.items()
        )
        homes = self._homes(event)
        by_compaction = self._explained(self._missing(event, fragments), self._seen(view), homes)
        doubts = {s: doubted(fragments[s], homes.get(s, ())) for s in fragments}

        def missing(ids: Iterable[Id]) -> set[Id]:
            return {
                (stream, seq)
                for stream, seq in ids
                if (stream, seq) not in me.claimed
                and all(seq not in fragment.seqs for fragment in fragments[stream].values())
                and seq not in doubts[stream]
                and all(seq not in numbers for numbers in by_compaction.get(stream, ()))
            }

        def read(ends: Mapping[int, int]) -> bool:
            return all(
                not end or (at in view and offset_of(view[at].next_offset) >= end)
                for at, end in ends.items()
            )

        if me.hearing and any(event.ends.get(n, 0) < end for n, end in me.hearing[0].items()):
            me.hearing = None
        expired = {an_id for an_id, at in me.noted.items() if at + DEADLINE <= event.now}
        overdue = missing(expired)
        if ends_current and me.hearing is None and overdue:
            me.hearing = (event.ends, overdue)
        news: set[Id] = set()
        if me.hearing and read(me.hearing[0]):
            news = missing(me.hearing[1])
            me.hearing = None
        if news:
            me.claimed |= news
            me.written += [("claimed", *an_id, 0) for an_id in sorted(news)]
            if me.assigned:
                me.assigned[min(me.assigned)].claimed = set(me.claimed)
        strangers = {
            s for s in self._known if s not in lanes and any(f.seqs for f in fragments[s].values())
        }
        me.unvouched = {s: me.unvouched.get(s, event.now) for s in strangers}
        waiting = any(event.now - since < DEADLINE for since in me.unvouched.values())
        every = {(stream, seq) for stream, lane in lanes.items() for seq in lane.acked}
        ends, complete = event.ends, False
        if not (all_ended and ends_current and not waiting and not missing(every)):
            me.closing = None
        else:
            before = ends if me.closing is None or read(ends) else me.closing
            me.closing = {n: min(end, before.get(n, end)) for n, end in ends.items()}
            # For others' partitions, the lowest end counts that anyone saw with as much judged.
            mark = (len(lanes), len(every))
            me.lowest = _joined((mark, me.closing), me.lowest)
            closing = me.closing
            if me.lowest[0] == mark:
                lowest = me.lowest[1]
                closing = {
                    n: end if n in me.assigned else min(end, lowest.get(n, end))
                    for n, end in closing.items()
                }
            complete = read(closing)
            ends = closing if complete else ends
        if event.final:
            for at, state in view.items():
                judged = offset_of(state.next_offset)
                if at in ends and (complete or ends[at] >= judged):
                    end = state.next_offset - judged + max(ends[at], judged)
                    me.written.append(("tail", at, end, end))
            nobodys = ((at, end) for at, end in ends.items() if end and at not in view)
            me.written += [("tail", at, end, end) for at, end in nobodys]
        return news, complete

    def verdict(self, event: Round, *, closed: bool) -> Answer:
        """The verdict on every stream as of a round."""
        me = self.consumer(event.consumer)
        lanes, _ = self._lanes(event)
        claims = claims_of(self.truth.ledger[: event.ledger])
        claimed = {(claim.producer, claim.incarnation) for claim in claims}
        view = self.view(event)
        fragments, homes = self._fragments(view), self._homes(event)
        by_compaction = self._explained(self._missing(event, fragments), self._seen(view), homes)
        answer = {
            (stream, name): numbers
            for stream in self._known
            for name, numbers in judge(
                fragments[stream],
                lanes.get(stream),
                claimed={seq for of, seq in me.claimed if of == stream},
                nobody_else=closed and stream[2:4] in claimed,
                homes=homes.get(stream, ()),
                any_partition=self.truth.many(recorded=bool(homes)),
                removed=by_compaction.get(stream, (set(), set()))[0],
                doubted_holes=by_compaction.get(stream, (set(), set()))[1],
                compacted=self.truth.compact or self.truth.source_compact,
            ).items()
        }
        for (stream, name), numbers in answer.items():
            if name == "lost":
                self.logged_lost |= {(stream, seq) for seq in numbers}
        if lanes or any(at in event.ends for at in me.assigned):
            self.undecided = {
                (stream, seq)
                for (stream, name), numbers in answer.items()
                if name in {"in_flight", "inconclusive"}
                for seq in numbers
            }
        return answer

    def _fragments(self, view: Mapping[int, _State]) -> dict[StreamId, dict[int, Fragment]]:
        return {
            stream: {at: Fragment(stream, self.stood[at], s.passed) for at, s in view.items()}
            for stream in self._known
        }

    def _seen(self, view: Mapping[int, _State]) -> dict[int, Partition]:
        return {
            at: Partition.of(self.stood[at], state.passed, self.truth.markers(at))
            for at, state in view.items()
        }

    def _explained(
        self,
        missing: Missing,
        partitions: Mapping[int, Partition],
        homes: Mapping[StreamId, Collection[int]],
    ) -> dict[StreamId, tuple[set[int], set[int]]]:
        """The missing seqs that compaction removed, and those that may be in its holes."""
        found = explained(missing, partitions, homes)
        for stream, (removed, _) in found.items() if self.truth.source_compact else ():
            bound = removed_from_source(stream, partitions, homes.get(stream, ()))
            removed |= {seq for seq in missing[stream][0] if seq < bound}
        return found

    def _missing(
        self, event: Round, fragments: Mapping[StreamId, Mapping[int, Fragment]]
    ) -> Missing:
        """The missing seqs of a round, and those of them that are overdue, claimed or in doubt."""
        me, (lanes, _), homes = (
            self.consumer(event.consumer),
            self._lanes(event),
            self._homes(event),
        )
        missing: Missing = {}
        for stream, lane in lanes.items():
            seen = {seq for fragment in fragments[stream].values() for seq in fragment.seqs}
            numbers = {seq for seq in lane.acked if seq not in seen}
            doubts = doubted(fragments[stream], homes.get(stream, ()))
            due = {
                seq
                for seq in numbers
                if seq in doubts
                or (stream, seq) in me.claimed
                or me.noted.get((stream, seq), event.now) + DEADLINE <= event.now
            }
            missing[stream] = numbers, due
        return missing

    def _lanes(self, event: Round) -> tuple[dict[StreamId, Lane], bool]:
        if event.ledger not in self._ledgers:
            self._ledgers[event.ledger] = lanes_of(self.truth.ledger[: event.ledger])
        return self._ledgers[event.ledger]

    def _homes(self, event: Round) -> dict[StreamId, frozenset[int]]:
        """Where the lanes belong of which the ledger has records."""
        records = self.truth.ledger[: event.ledger]
        return {r.stream: self.truth.homes(r.stream) for r in records if isinstance(r, Recorded)}

    # -- the logs -------------------------------------------------------------------------------

    def offline(self) -> Answer:
        """The verdict on every stream from the logs of all sessions, which are ended first."""
        for consumer in list(self._consumers):
            self._close(consumer, kept=True)
        unread: set[Finding] = set()
        facts = self.facts = Facts(
            [covered(self.logged, at, messages, unread) for at, messages in enumerate(self.stood)],
            unread,
            {(of, seq) for kind, of, seq, *_ in self.logged if kind == "claimed"},
            any(kind == "tail" for kind, *_ in self.logged),
        )
        self.logged_lost |= facts.claimed
        fragments = {
            stream: {
                at: Fragment(stream, self.stood[at], passed, known_before=True)
                for at, passed in enumerate(facts.passed)
            }
            for stream in self._known
        }
        partitions = {
            at: Partition.of(self.stood[at], passed, self.truth.markers(at))
            for at, passed in enumerate(facts.passed)
        }
        sent = {each.stream: each for each in self.truth.sent}
        homes = {stream: self.truth.homes(stream) for stream in sent}
        producers = {each[2:4] for each in sent}

        def verdict(stream: StreamId, removed: set[int], doubted: set[int]) -> dict[str, set[int]]:
            log = sent.get(stream)
            return judge(
                fragments[stream],
                log.lane if log else None,
                claimed={seq for of, seq in facts.claimed if of == stream},
                due=log.lane.acked - log.recent if log and facts.looked_at else (),
                nobody_else=stream[2:4] in producers,
                homes=self.truth.homes(stream) if log else (),
                any_partition=self.truth.many(),
                unread=unread,
                removed=removed,
                doubted_holes=doubted,
                compacted=self.truth.compact or self.truth.source_compact,
            )

        missing: Missing = {}
        for stream in sent:
            by_finding = verdict(stream, set(), set())
            due = by_finding.get("lost", set()) | by_finding.get("inconclusive", set())
            missing[stream] = due | by_finding.get("in_flight", set()), due
        removed = self._explained(missing, partitions, homes)
        answer: Answer = {}
        for stream in self._known:
            by_finding = verdict(stream, *removed.get(stream, (set(), set())))
            answer.update({(stream, name): numbers for name, numbers in by_finding.items()})
        return answer
