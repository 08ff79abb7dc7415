"""What was sent and what the mirror did to it: the ground truth, unknown to the consumers.

Producers register incarnations, send on lanes, die and restart; a ledger records this, with its
records repeated and out of order; a mirror copies the messages, with faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding, Outcome
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.stream import StreamId

from .judge import HORIZON, INCARNATION, Lane, Message, belongs, by_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .tape import Tape

RUN = "r1"
POLICIES = (
    ExpectPartition.SOURCE,
    ExpectPartition.ANY,
    ExpectPartition.MURMUR2,
    ExpectPartition.SOURCE_MODULO,
)
_SHOWN = (
    frozenset({Finding.CORRUPTED}),
    frozenset({Finding.ALTERED_KEY}),
    frozenset({Finding.UNPROVEN}),
    frozenset({Finding.ALTERED_HEADERS, Finding.ALTERED_TIMESTAMP}),
    frozenset({Finding.CORRUPTED, Finding.UNPROVEN}),
)
_JUNK = (
    frozenset({Finding.FOREIGN}),
    frozenset({Finding.OTHER_RUN}),
    frozenset({Finding.CORRUPTED}),
    frozenset({Finding.OTHER_RUN, Finding.CORRUPTED}),
)


@dataclass
class Sent:
    """A stream as its producer's log has it."""

    stream: StreamId
    source_partition: int
    reserved: int
    """As the log has it; the ledger may have less."""
    outcomes: dict[int, Outcome | None]
    """Of each seq used; None: the producer died before the outcome."""
    ended: bool
    recent: frozenset[int] = frozenset()
    """Acknowledged less than a deadline before the end offsets were read."""

    @property
    def lane(self) -> Lane:
        """The outcomes by the log, which is complete: an open lane sent nothing else, either."""
        end = len(self.outcomes) if self.ended else self.reserved
        by = _by_outcome(self.outcomes)
        known = by[Outcome.ACKED] | by[Outcome.FAILED]
        unknown = by[Outcome.UNKNOWN] | {n for n in range(end) if n not in known}
        return Lane(by[Outcome.ACKED], by[Outcome.FAILED], frozenset(unknown), end)


class Recorded(NamedTuple):
    """A ledger's record of a lane."""

    stream: StreamId
    reserved: int
    outcomes: Mapping[int, Outcome]
    end: int | None


class Claimed(NamedTuple):
    """A ledger's record of a registration; `closes`: (lane, mark) of the previous incarnation."""

    topic: str
    producer: str
    incarnation: int
    session: str
    lanes: tuple[int, ...]
    closes: tuple[tuple[int, int], ...] = ()
    withdrawn: bool = False


@dataclass
class Truth:
    """All that was sent, all that is in the destination, all that the ledger has."""

    topic: str
    policy: ExpectPartition
    source_partitions: int
    counts: tuple[int, ...]
    """The destination's partition counts that were in force, the last one now.

    Consumers see the last one; descriptors and ledger have the first one."""
    compact: bool = False
    """Whether the destination's topic is compacted."""
    source_compact: bool = False
    """Whether the source's topic is."""
    sent: list[Sent] = field(default_factory=list)
    ledger: list[Recorded | Claimed] = field(default_factory=list)
    stood: list[dict[int, Message]] = field(default_factory=list)
    """Of each destination partition: place -> message."""
    ends: list[list[int]] = field(default_factory=list)
    """Of each destination partition, by incarnation of the topic: the place after its last."""

    def markers(self, partition: int) -> frozenset[int]:
        """The places of transaction markers; a compacted partition has holes instead."""
        ends = () if self.compact else self.ends[partition]
        begins = (n * INCARNATION for n in range(len(ends)))
        return frozenset(
            at
            for begin, end in zip(begins, ends, strict=True)
            for at in range(begin, end, 2)
            if at not in self.stood[partition]
        )

    @property
    def partitions(self) -> int:
        """The destination's partitions."""
        return self.counts[-1]

    @property
    def possible_counts(self) -> range:
        """Those in force and all between: the steps in which the topic grew are unknown."""
        return range(min(self.counts), max(self.counts) + 1)

    def many(self, *, recorded: bool = True) -> int:
        """In how many partitions a stream may be under the policy `any`; 0: it has homes.

        A consumer that the ledger has not `recorded` of lanes only knows the present count.
        """
        if self.policy is not ExpectPartition.ANY:
            return 0
        return len(self.possible_counts) if recorded else 1

    def source_of(self, lane: int) -> int:
        """A lane's source partition."""
        return by_key(lane, self.source_partitions)

    @property
    def planned(self) -> int:
        """The destination's partition count by the producers, in each message's descriptor."""
        return self.counts[0]

    def homes(self, stream: StreamId) -> frozenset[int]:
        """The destination partitions where a stream belongs or belonged, if known."""
        source = self.source_of(stream.lane)
        found = {belongs(self.policy, stream.lane, source, count) for count in self.possible_counts}
        return frozenset(number for number in found if number is not None)


def make_truth(
    tape: Tape, *, name: str = "", topic: str = "t", policy: ExpectPartition | None = None
) -> Truth:
    """A truth; `name` distinguishes its producers, and without `policy` the tape picks one."""
    policy = tape.pick(POLICIES) if policy is None else policy
    partitions = 1 + tape.below(3)
    counts: tuple[int, ...] = (partitions,)
    if partitions > 1 and tape.one_in(4):
        counts = (partitions - 1, partitions)
    source_partitions = 1 + tape.below(min(counts))
    truth = Truth(topic, policy, source_partitions, counts, compact=tape.one_in(4))
    truth.source_compact = tape.one_in(16)
    for letter in "ab"[: 1 + tape.below(2)]:
        _producer(tape, truth, f"{letter}{name}")
    _mirror(tape, truth)
    return truth


# -- producers ------------------------------------------------------------------------------------


def _producer(tape: Tape, truth: Truth, name: str) -> None:
    records: list[Recorded | Claimed] = []
    marks: tuple[tuple[int, int], ...] = ()
    last = 1 + max(0, tape.below(6) - 3)
    for incarnation in range(1, last + 1):
        lanes = tuple(range(1 + tape.below(2)))
        claim = Claimed(truth.topic, name, incarnation, "s", lanes, marks)
        records.append(claim)
        if tape.one_in(12):
            # Two processes register one number: the later one loses, but what it closed stays true.
            loser = claim._replace(session="loser")
            records += [loser, loser._replace(withdrawn=True)]
        made = [_lane(tape, truth, StreamId(truth.topic, RUN, name, incarnation, n)) for n in lanes]
        by_lane = [_ledger_of(tape, sent) for sent in made]
        truth.sent += made
        # A lane without a record is known from the registration that closes it.
        records += [record for line in by_lane if not tape.one_in(16) for record in line]
        marks = tuple(
            (line[-1].stream.lane, line[-1].reserved) for line in by_lane if not tape.one_in(12)
        )
    for _ in range(tape.below(4)):
        # A mirror repeats and reorders. Registrations keep their order: the first one wins.
        at, to = tape.below(len(records)), tape.below(len(records))
        if isinstance(records[at], Recorded):
            records.insert(to, records[at])
    truth.ledger += records


def _lane(tape: Tape, truth: Truth, stream: StreamId) -> Sent:
    outcomes: dict[int, Outcome | None] = {}
    fate = tape.pick(("ended", "ended", "ended", "died", "running"))
    options: tuple[Outcome | None, ...] = (Outcome.ACKED,) * 5 + (Outcome.FAILED, Outcome.UNKNOWN)
    if fate == "died":
        options += (None,)
    for _ in range(tape.below(4)):
        outcome = tape.pick(options)
        for _ in range(1 + tape.below(6)):
            outcomes[len(outcomes)] = outcome
    return Sent(
        stream,
        truth.source_of(stream.lane),
        max(1, len(outcomes) + tape.below(4)),
        outcomes,
        fate == "ended",
        frozenset(range(tape.below(len(outcomes) + 1), len(outcomes) * tape.one_in(8))),
    )


def _ledger_of(tape: Tape, sent: Sent) -> list[Recorded]:
    """The ledger's records of a lane, in order; if it did not end, they may be incomplete."""
    used = len(sent.outcomes)
    # The log has a reservation first.
    mark = sent.reserved if sent.ended else max(used, sent.reserved - tape.below(3))
    records = []
    for _ in range(tape.below(3)):
        # Batches end in any order.
        lo, hi = sorted((tape.below(used + 1), tape.below(used + 1)))
        known = {n: o for n, o in sent.outcomes.items() if o is not None and lo <= n < hi}
        if tape.one_in(8):
            # The outcome becomes known later.
            known = dict.fromkeys(known, Outcome.UNKNOWN)
        records.append(Recorded(sent.stream, max(used, mark - tape.below(3)), known, None))
    every = {n: o for n, o in sent.outcomes.items() if o is not None}
    if not sent.ended and tape.one_in(3):
        every = {n: o for n, o in every.items() if n < tape.below(used + 1)}
    records.append(Recorded(sent.stream, mark, every, used if sent.ended else None))
    return records


def lanes_of(records: Iterable[Recorded | Claimed]) -> tuple[dict[StreamId, Lane], bool]:
    """The lane of each stream by these ledger records, and whether the ledger is complete."""
    records = list(records)
    claims = claims_of(records)
    newest: dict[str, int] = {}
    for claim in claims:
        newest[claim.producer] = max(claim.incarnation, newest.get(claim.producer, 0))
    outcomes: dict[StreamId, dict[int, Outcome]] = {}
    reserved: dict[StreamId, int] = {}
    ends: dict[StreamId, int] = {}
    awaited: set[StreamId] = set()
    for record in records:
        if isinstance(record, Recorded):
            known = outcomes.setdefault(record.stream, {})
            reserved[record.stream] = max(record.reserved, reserved.get(record.stream, 0))
            for seq, outcome in record.outcomes.items():
                known[seq] = min(outcome, known.get(seq, outcome))
            if record.end is not None:
                ends[record.stream] = record.end
        else:
            for lane, mark in record.closes:
                before = _stream(record, lane)._replace(incarnation=record.incarnation - 1)
                reserved[before] = max(mark, reserved.get(before, 0))
                awaited.add(before)
            awaited |= {_stream(record, lane) for lane in record.lanes}
    lanes = {}
    for stream in awaited | set(outcomes):
        over = stream.incarnation < newest.get(stream.producer, 0)
        if stream in outcomes or over:
            end = ends.get(stream, reserved.get(stream, 0) if over else None)
            lanes[stream] = _recorded_lane(outcomes.get(stream, {}), end)._replace(
                by_successor=stream not in ends
            )
    mine = {_stream(claim, lane) for claim in claims for lane in claim.lanes}
    all_ended = all(s in lanes and lanes[s].end is not None for s in mine | set(lanes))
    return lanes, bool(claims) and all_ended


def claims_of(records: Collection[Recorded | Claimed]) -> list[Claimed]:
    """The registrations that were not withdrawn."""
    withdrawn = {r[:4] for r in records if isinstance(r, Claimed) and r.withdrawn}
    return [r for r in records if isinstance(r, Claimed) and r[:4] not in withdrawn]


def _recorded_lane(outcomes: Mapping[int, Outcome], end: int | None) -> Lane:
    by = _by_outcome(outcomes)
    silent = {seq for seq in range(end or 0) if seq not in outcomes}
    return Lane(by[Outcome.ACKED], by[Outcome.FAILED], by[Outcome.UNKNOWN] | silent, end)


def _stream(claim: Claimed, lane: int) -> StreamId:
    return StreamId(claim.topic, RUN, claim.producer, claim.incarnation, lane)


def _by_outcome(outcomes: Mapping[int, Outcome | None]) -> dict[Outcome, frozenset[int]]:
    return {
        wanted: frozenset(seq for seq, outcome in outcomes.items() if outcome is wanted)
        for wanted in Outcome
    }


# -- the mirror -----------------------------------------------------------------------------------


def _mirror(tape: Tape, truth: Truth) -> None:
    """Copy the messages of the source, with faults."""
    queues = [
        [
            n
            for n, o in sent.outcomes.items()
            if o is Outcome.ACKED or (o is not Outcome.FAILED and tape.below(2))
        ]
        for sent in truth.sent
    ]
    copies: list[list[Message | None]] = [[] for _ in range(truth.partitions)]
    count = truth.planned
    while any(queues):
        if tape.one_in(4):
            # The topic has grown, and later messages may belong in another partition.
            count = truth.partitions
        number = tape.pick([n for n, queue in enumerate(queues) if queue])
        sent, queue = truth.sent[number], queues[number]
        stretch, queues[number] = queue[: 1 + tape.below(6)], []
        queues[number] = queue[len(stretch) :]
        place = _place(truth, sent, count)
        copies[place] += [Message(sent.stream, seq) for seq in stretch]
    for _ in range(tape.below(8)):
        _wrong(tape, truth, copies)
    for messages in copies if truth.compact else ():
        for _ in range(tape.below(4)):
            # A message of another run, which may have the same key.
            other = Message(None, 0, frozenset({Finding.OTHER_RUN}), tape.below(2))
            messages.insert(tape.below(len(messages) + 1), other)
        for at, message in enumerate(messages):
            keyed = message is not None and message.lane >= 0 and tape.below(2)
            if message and keyed and any(m and m.lane == message.lane for m in messages[at + 1 :]):
                messages[at] = None
    for messages in copies:
        parts = _incarnations(tape, messages)
        truth.stood.append(
            {
                n * INCARNATION + at: message
                for n, part in enumerate(parts)
                for at, message in enumerate(part)
                if message
            }
        )
        truth.ends.append([n * INCARNATION + len(part) for n, part in enumerate(parts)])


def _incarnations(tape: Tape, messages: list[Message | None]) -> list[list[Message | None]]:
    """A partition's messages by incarnation of its topic, which is sometimes recreated.

    The mirror continues at its position, at its last committed position, or at the beginning.
    """
    parts = [messages]
    while len(parts) < 3 and tape.one_in(4):
        last = parts.pop()
        at = tape.below(len(last) + 1)
        parts += [last[:at], last[max(0, at - tape.pick((0, 3, at))) :]]
    return parts


def _place(truth: Truth, sent: Sent, count: int) -> int:
    """Where a correct mirror puts a lane's messages among `count` partitions."""
    home = belongs(truth.policy, sent.stream.lane, sent.source_partition, count)
    return sent.source_partition if home is None else home


def _wrong(tape: Tape, truth: Truth, copies: list[list[Message | None]]) -> None:
    """Apply one fault of a mirror to its copies."""
    messages = tape.pick(copies)
    other = tape.pick(copies)
    lo = tape.below(len(messages) + 1)
    hi = min(len(messages), lo + 1 + tape.below(5))
    to = tape.below(len(other) + 1)
    what = tape.pick(("gap", "drop", "repeat", "move", "mark", "junk", "phantom", "scatter"))
    some = messages[lo:hi]
    if what == "gap":
        messages[lo:lo] = [None]
    elif what == "drop":
        del messages[lo:hi]
    elif what == "repeat":
        other[to:to] = some
    elif what == "move":
        del messages[lo:hi]
        to = min(to, len(other))
        other[to:to] = some
    elif what == "mark":
        shown = tape.pick(_SHOWN)
        messages[lo:hi] = [
            m and (m if m.stream is None else m._replace(findings=shown)) for m in some
        ]
    elif what == "junk":
        junk = Message(None, 0, tape.pick(_JUNK), tape.below(3) - 1)
        other[to:to] = [junk] * (1 + tape.below(3))
    elif what == "phantom":
        other[to:to] = [Message(_nobody(tape, truth), tape.below(20))]
    else:
        for at in range(lo, hi):
            other.insert(min(to, len(other)), messages[at])
            to += 1 + tape.below(3)


def _nobody(tape: Tape, truth: Truth) -> StreamId:
    """A stream in which a seq may never have been sent, or that no producer has."""
    known = tape.pick(truth.sent).stream
    return tape.pick(
        (known, known._replace(lane=2), known._replace(incarnation=9), known._replace(producer="z"))
    )


assert HORIZON > 30  # the longest lane and the highest phantom stay below it
