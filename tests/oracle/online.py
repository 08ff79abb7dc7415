"""A script played through the consumer's own judgement: checkers, states, ledger, rounds, log.

Stubs that return offsets replace Kafka. What a consumer does between the events of the script
(claim a generation, decode a batch) is done here.
"""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mirrortest.consume import judging_rounds as consume_rounds
from mirrortest.consume.assigned_partition import AssignedPartition, JudgedBatch
from mirrortest.consume.conclusion import final_verdicts, log_tails
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judging_rounds import JudgingRounds
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.kafka.fetched import End
from mirrortest.model.findings import Finding, Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.fragment import CLOCK_TOLERANCE_NS
from mirrortest.verify.ledger_record import ClosedLane, LaneRecord, Registration, registration_key
from mirrortest.verify.loss import Losses
from mirrortest.verify.routing import misrouted
from mirrortest.verify.row import MINUTE_NS, Messages, rows_of, streams_of
from mirrortest.wire.stream import ProducerId, StreamId

from .judge import ALWAYS, INCARNATION, STEP_SECONDS, incarnation_of, offset_of
from .script import DEADLINE, Die, Drop, Read, Renew, Round, Save, Take, Unread
from .truth import RUN, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirrortest.consume.outage import Outage
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.follower import FollowedTopic
    from mirrortest.kafka.reader import Reader
    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.writer import SequenceLog
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.verify.ledger import Ledger
    from mirrortest.verify.partition import PartitionChecker

    from .judge import Message
    from .reference import Answer
    from .script import Event, History
    from .truth import Claimed, Truth

START = 28_000_000 * 60_000_000_000
STEP = STEP_SECONDS * 1_000_000_000


def found_ns(minute: int) -> int | None:
    """When offsets were found deleted, if no message intended after `minute` was there.

    None: the time is unknown.
    """
    return None if minute == ALWAYS else START + minute * MINUTE_NS - CLOCK_TOLERANCE_NS


def ids(numbers: IntervalSet) -> set[int]:
    """An interval set as single numbers."""
    return {n for lo, hi in numbers.intervals() for n in range(lo, hi)}


def intervals(numbers: Iterable[int]) -> IntervalSet:
    """Single numbers as an interval set."""
    return IntervalSet((n, n + 1) for n in sorted(numbers))


class Log:
    """A sequence log in memory; its consumer's death may lose what was not synced."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.durable = 0

    def append(self, rows: Iterable[Row]) -> None:
        self.rows += rows

    def sync(self) -> None:
        self.durable = len(self.rows)


class _Session:
    """One consumer's session, assembled as in `consume.consumer.run`."""

    def __init__(self, truth: Truth, play: Online) -> None:
        self.truth = truth
        self.log = Log()
        topics: Any = SimpleNamespace(
            counts={truth.topic: truth.partitions},
            compacted=set(),
            policy_hidden=set(),
            discover=self.renewed,
            stamped=set(),
            stamped_at_source=set(),
            of_run=lambda views: {*views},
        )
        options: Any = SimpleNamespace(run=RUN, expect_producers=(), topics=(truth.topic,))
        self.log_rows = ConsumerLog(cast("SequenceLog", self.log), options, topics)
        follower = LedgerFollower(
            cast("FollowedTopic", None), _there, where="", now_ns=lambda: play.now
        )
        self.ledger = follower.ledger
        self.heard = 0
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.news: dict[StreamId, IntervalSet] = {}
        self.judge = TopicJudge(truth.topic, RUN, truth.policy, Losses(DEADLINE))
        self.judge.counts = [truth.partitions]
        self.judge.compact = truth.compact
        self._play = play
        topics.judges = {truth.topic: self.judge}
        plays: Any = self  # all that the rounds call is below
        self.shared = SharedState(topics, plays, lambda: play.now)
        self.context = ConsumerContext(
            options=options,
            admin=cast("Admin", None),
            reader=cast("Reader", SimpleNamespace(ends=self.scripted_ends)),
            topics=topics,
            ledger=follower,
            store=plays,
            shared=self.shared,
            log=self.log_rows,
            metrics=plays,
            outage=cast("Outage", SimpleNamespace(noticed=lambda asking: asking)),
            partitions=self.partitions,
        )
        self.rounds = JudgingRounds(self.context, assignment=plays, batches=plays, saves=plays)

    # What the rounds call.

    def serials(self) -> dict[TopicPartition, int]:
        return {at: serial for at, (serial, _) in self._play.store.items()}

    def state(self, at: TopicPartition) -> Any:
        return json.loads(self._play.store[at][1])

    def written(self, topic: str) -> list[bytes]:
        """The newest record, as nobody else writes at the same time here."""
        return [self._play.shared[topic]] if topic in self._play.shared else []

    def written_elsewhere(self, _: str) -> list[bytes]:
        """There is one group."""
        return []

    async def renewed(self) -> None:
        """The topic is never recreated, and its partitions are not added to."""

    async def share(self, topic: str, raw: bytes) -> bool:
        self._play.shared[topic] = raw
        return True

    def request(self) -> None:
        """The script decides when to save."""

    async def buffer_arrived(self) -> None:
        """The script decides what arrives."""

    async def scripted_ends(self, _: object) -> dict[tuple[str, int], End]:
        return {at: End(end, end) for at, end in self.ends.items()}

    @property
    def clocks(self) -> Any:
        return SimpleNamespace(earliest_ns=lambda: self._play.now)

    def claimed(self, topic: str, lost: int) -> None:
        """This metric is not checked."""


class Online:
    """Plays the events of a script one by one."""

    def __init__(self, history: History) -> None:
        self.truth = history.truth
        self.logs: list[list[Row]] = []
        """Of sessions that ended."""
        self._sessions: dict[int, _Session] = {}
        self._states: dict[int, str] = {}
        self._last: dict[StreamId, StreamVerdict] = {}
        self.now = 0
        self.store: dict[TopicPartition, tuple[int, str]] = {}
        self.shared: dict[str, bytes] = {}
        self._records = [_record(self.truth, record) for record in self.truth.ledger]

    def session(self, consumer: int) -> _Session:
        """The running session."""
        if consumer not in self._sessions:
            self._sessions[consumer] = _Session(self.truth, self)
        return self._sessions[consumer]

    def checker(self, consumer: int, partition: int) -> PartitionChecker:
        """A consumer's checker."""
        return self._assigned(consumer, partition).checker

    def place(self, consumer: int, partition: int) -> int:
        """The next place that it judges."""
        assigned = self._assigned(consumer, partition)
        return assigned.identity * INCARNATION + assigned.checker.next_offset

    def close(self) -> list[list[Row]]:
        """End all sessions in order; returns the rows of every log of the play."""
        for _, session in sorted(self._sessions.items()):
            self.logs.append(session.log.rows)
        self._sessions.clear()
        return self.logs

    def apply(self, event: Event) -> None:
        """Play any event but a round."""
        session = self.session(event.consumer)
        if isinstance(event, Take):
            self._take(session, event)
        elif isinstance(event, Read):
            self._read(session, self._assigned(event.consumer, event.partition), event)
        elif isinstance(event, Unread):
            assigned = self._assigned(event.consumer, event.partition)
            assert incarnation_of(event.lo) == assigned.identity
            lo, hi = offset_of(event.lo), offset_of(event.hi)
            session.log_rows.unread(assigned, lo, hi, found_ns(event.minute))
            assigned.checker.unread(lo, hi, found_ns(event.minute))
        elif isinstance(event, Renew):
            assigned = self._assigned(event.consumer, event.partition)
            session.log_rows.left(assigned, found_ns(event.minute))
            assigned.start_over(found_ns(event.minute))
            assigned.read_from = assigned.checker.next_offset
        elif isinstance(event, Save):
            assigned = self._assigned(event.consumer, event.partition)
            session.log_rows.read(assigned)
            if event.parting and not event.zombie:
                session.log_rows.found(assigned)
            session.log.sync()
            state = self._states[event.number] = json.dumps(assigned.to_state())
            if not event.zombie:
                self.store[assigned.at] = (event.number, state)
            _now(session.shared.write())
        elif isinstance(event, Drop):
            del session.partitions[TopicPartition(self.truth.topic, event.partition)]
        elif isinstance(event, Die):
            del self._sessions[event.consumer]
            rows = session.log.rows
            self.logs.append(rows if event.kept else rows[: session.log.durable])

    def judge(self, event: Round) -> tuple[dict[StreamId, set[int]], bool]:
        """Run a round; returns what is newly claimed lost, and whether all has been judged."""
        session = self.session(event.consumer)
        topic, self.now = self.truth.topic, event.now
        for record in self._records[session.heard : event.ledger]:
            record(session.ledger)
        session.heard = event.ledger
        session.ends = {(topic, at): end for at, end in event.ends.items()}
        before = {stream: ids(numbers) for stream, numbers in session.judge.losses.claimed.items()}
        logged = len(session.log.rows)
        with _clock(event.now):
            complete, views, look = _now(session.rounds._last_round())
        news: dict[StreamId, set[int]] = {}
        for row in session.log.rows[logged:]:
            assert row.seq_lo is not None
            assert row.seq_hi is not None
            news.setdefault(_stream_of(row), set()).update(range(row.seq_lo, row.seq_hi))
        assert all(not numbers & before.get(s, set()) for s, numbers in news.items())
        if event.final:
            self._last = self._verdicts(session, closed=complete)
            ours = session.partitions.values()
            log_tails(session.context, session.rounds._views, views, look, ours)
            for stream, verdict in self._last.items():
                session.log_rows.verdict(stream, verdict)
            session.log_rows.vouched(session.ledger)
        return news, complete

    def verdict(self) -> Answer:
        """The verdict on every stream in the last final round."""
        found: Answer = {}
        for stream, verdict in self._last.items():
            sets = {finding.label: numbers for finding, numbers in verdict.found.items()}
            sets |= {name: getattr(verdict, name) for name in ("acked", "delivered", "unknown")}
            found |= {(stream, name): ids(numbers) for name, numbers in sets.items() if numbers}
        return found

    @staticmethod
    def _verdicts(session: _Session, *, closed: bool) -> dict[StreamId, StreamVerdict]:
        views = _now(session.rounds._views.of([session.truth.topic], session.rounds._pause))
        return final_verdicts(session.context, views, complete=closed)

    def _assigned(self, consumer: int, partition: int) -> AssignedPartition:
        return self.session(consumer).partitions[TopicPartition(self.truth.topic, partition)]

    def _take(self, session: _Session, event: Take) -> None:
        truth = self.truth
        at = TopicPartition(truth.topic, event.partition)
        about: dict[str, Any] = {
            "source": truth.topic,
            "run": RUN,
            "policy": truth.policy,
            "counts": [truth.partitions],
        }
        if event.state is None:
            assigned = AssignedPartition.fresh(at, 1, **about)
        else:
            state = json.loads(self._states[event.state])
            assigned = AssignedPartition.restored(at, 1, state, **about)
            session.judge.losses.merge(assigned.claimed)
        assigned.read_from = assigned.checker.next_offset
        session.partitions[at] = assigned

    def _read(self, session: _Session, assigned: AssignedPartition, event: Read) -> None:
        stood = self.truth.stood[event.partition]
        assert incarnation_of(event.lo) == assigned.identity
        messages = [(offset_of(at), stood[at]) for at in range(event.lo, event.hi) if at in stood]
        fresh = [(at, m) for at, m in messages if at >= assigned.checker.next_offset]
        rows = judged = rows_of(arrays(self.truth, assigned.at.partition, messages))
        if len(fresh) < len(messages):
            rows = rows_of(arrays(self.truth, assigned.at.partition, fresh))
        markers = self.truth.markers(event.partition)
        assigned.checker.expect_markers(
            (offset_of(at), offset_of(at) + 1)
            for at in sorted(markers)
            if event.lo <= at < event.hi
        )
        for row in judged:
            assigned.checker.apply(row)
        starts = np.array([row.offset_lo for row in rows], np.int64)
        ours = np.array([at for at, m in fresh if m.stream is not None], np.int64)
        index = np.searchsorted(starts, ours, side="right") - 1
        latency = np.full(len(ours), STEP, np.int64)
        session.log_rows.seen(assigned, JudgedBatch(rows, latency, latency, index, 0, 0))
        assigned.checker.advance(offset_of(event.hi))


def arrays(truth: Truth, partition: int, messages: list[tuple[int, Message]]) -> Messages:
    """Messages as the consumer has them after decoding, streams and routing."""
    ids_: list[ProducerId] = []
    index: list[int] = []
    known: dict[ProducerId, int] = {}
    for _, message in messages:
        if message.stream is None:
            run = "other" if Finding.OTHER_RUN in message.findings else None
            producer = None if run is None else ProducerId("a", run, 1)
        else:
            producer = ProducerId(message.stream.producer, RUN, message.stream.incarnation)
        if producer is None:
            index.append(-1)
        else:
            if producer not in known:
                known[producer] = len(ids_)
                ids_.append(producer)
            index.append(known[producer])
    lanes = np.array([m.stream.lane if m.stream else -1 for _, m in messages], np.int64)
    sources = np.array([truth.source_of(int(n)) if n >= 0 else -1 for n in lanes], np.int32)
    seqs = np.array([m.seq for _, m in messages], np.int64)
    shown = np.array([int(sum(m.findings)) for _, m in messages], np.uint32)
    streams, stream, findings = streams_of(
        truth.topic, RUN, ids_, np.array(index, np.int32), lanes, shown
    )
    wrong = misrouted(
        truth.policy,
        lanes=lanes,
        source_partitions=sources,
        counted=np.full(len(messages), truth.planned, np.int32),
        partition=partition,
        counts=[truth.partitions],
    )
    findings |= np.where(wrong & (stream >= 0), Finding.MISROUTED.value, 0).astype(np.uint32)
    intended = START + seqs * STEP
    offsets = np.array([at for at, _ in messages], np.int64)
    keys = np.array([-1 if m.stream else m.key for _, m in messages], np.int64)
    early = np.array([m.early for _, m in messages], dtype=bool)
    arrived = intended + np.where(early, -2 * CLOCK_TOLERANCE_NS, STEP)
    columns = (streams, stream, seqs, offsets, intended, intended, findings, arrived, keys)
    return Messages(*columns)


def _record(truth: Truth, record: Recorded | Claimed) -> Callable[[Ledger], None]:
    """What a ledger does with a record once it is parsed; parsing has tests of its own."""
    if isinstance(record, Recorded):
        by = {o: intervals(n for n, of in record.outcomes.items() if of is o) for o in Outcome}
        lane = LaneRecord(
            record.stream,
            record.reserved,
            by[Outcome.ACKED],
            by[Outcome.FAILED],
            by[Outcome.UNKNOWN],
            record.end,
            truth.planned,
            truth.source_partitions,
            compacted=truth.source_compact,
        )
        return lambda ledger: ledger.merge(lane)
    closes = tuple(ClosedLane(truth.topic, lane, mark) for lane, mark in record.closes)
    lanes = {truth.topic: record.lanes}
    claim = Registration(RUN, record.producer, record.incarnation, record.session, lanes, closes)
    if record.withdrawn:
        return lambda ledger: ledger.apply(registration_key(claim), None)
    return lambda ledger: ledger.add_registration(claim)


def _stream_of(row: Row) -> StreamId:
    assert row.run is not None
    assert row.producer is not None
    assert row.incarnation is not None
    assert row.lane is not None
    return StreamId(row.topic, row.run, row.producer, row.incarnation, row.lane)


@contextlib.contextmanager
def _clock(now: int) -> Iterator[None]:
    """Run rounds at this time; a mock would cost more than the rounds."""
    there = vars(consume_rounds)
    real = there["time"]
    there["time"] = SimpleNamespace(monotonic=real.monotonic, monotonic_ns=lambda: now)
    try:
        yield
    finally:
        there["time"] = real


async def _there() -> bool:
    return True


def _now(coroutine: Any) -> Any:
    """The result of a coroutine that yields to others but waits for nothing."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
