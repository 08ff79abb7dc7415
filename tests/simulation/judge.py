"""What each verdict may contain, computed by brute force from the simulated world's records.

It shares no code with `mirrortest.verify`. The world keeps every record with the times of its
append and removal, so a message's copies are simply looked up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.errors import ClusterError, FencedError, MirrortestError, SequenceLogError
from mirrortest.wire.stream import ProducerId

from .batch import MessageId
from .cluster import NEVER_NS
from .loop import START_NS
from .own_records import first_ended, forgotten, ledger_lacks, saved_states, taken_from
from .plan import RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .batch import Record
    from .history import Outcome, Session, Stage
    from .loop import Process
    from .sequence_log import SimulatedLog

NEVER = ("corrupted", "altered_key", "altered_headers", "altered_timestamp", "misrouted",
         "phantom", "unproven")  # fmt: skip
"""Findings that nothing in a simulated world causes."""
HARMLESS = frozenset(
    {"mirror_killed", "leaderless", "log_slow",
     "producer_paused", "consumer_paused", "foreign_records", "own_topics_compacted",
     "own_topic_leaderless", "own_topic_stops", "clock_set"}
)  # fmt: skip
"""Faults after which a verdict must still be conclusive."""
_SLACK_NS = 50_000_000


class Copy(NamedTuple):
    """A copy of a message: `place` orders the copies of a partition as they were appended."""

    record: Record
    partition: int
    place: tuple[int, int]


class Judge:
    """Compares the reports of a history with the truth; `problems` are the violations."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.outcome: Outcome = stage.outcome
        self.plan = stage.plan
        self.problems: list[str] = []
        self.checked: Counter[str] = Counter()
        self.injected = self.plan.faults
        if stage.scripted:
            self.injected.add("script")
        if self.outcome.world.faults["successor"]:
            # What the first process had not recorded when the second registered is unknown.
            self.injected.add("successor")
        self.copies: dict[MessageId, list[Copy]] = defaultdict(list)
        for topic in stage.read_cluster.all_topics:
            if topic.name in stage.topics:
                for partition in topic.partitions:
                    for index, record in enumerate(partition.history):
                        if record.message is not None:
                            copy = Copy(record, partition.number, (topic.id, index))
                            self.copies[record.message].append(copy)
        self._saved = saved_states(stage)
        self._claimed_ns: dict[MessageId | None, int] = {}
        """When any consumer first claimed a message lost."""
        for _, at_ns, ids in self._claimed():
            for message in ids:
                self._claimed_ns[message] = min(at_ns, self._claimed_ns.get(message, at_ns))
        orderly = [
            s for s in self.outcome.sessions if s.application == "produce" and s.report is not None
        ]
        self.acked = dict(self._acknowledged(orderly))
        """message -> when a producer that ended with a report logged its acknowledgement"""
        failed = {s.name for s in orderly if s.report.error is not None}
        ended, marks_deleted = first_ended(stage), forgotten(stage)
        self.recorded = [
            message
            for message, acked_ns in self.acked.items()
            if (sender := ProducerId.parse(message.sender.encode())) is not None
            and sender.name not in failed
            and sender.incarnation <= ended.get(sender.name, sender.incarnation)
            and not (
                sender.incarnation < marks_deleted.get(sender.name, (0, 0))[0]
                and acked_ns > marks_deleted[sender.name][1]
            )
        ]
        """The acknowledged messages that a pass must cover. Left out are those of a producer whose
        log failed: they were not durable, or it restarted after its end marks and sent more once
        consumers had ended. So are those of incarnations after one with all end marks, and those
        that an earlier one logged after the ledger with such end marks was deleted."""

    def judge(self) -> list[str]:
        """All problems of the history: violations at any time, and of what must hold in the end.

        `checked` counts what was checked.
        """
        always = [*self._crashes(), *self._claims(), *self._verdicts()]
        self.problems += [f"always: {problem}" for problem in always]
        self.problems += [f"in the end: {problem}" for problem in self._eventually()]
        return self.problems

    def offline(self, found: dict[str, set[MessageId]]) -> list[str]:
        """The problems of a reconciliation's findings, from all logs."""
        problems = [f"always: {problem}" for problem in self._false_findings("offline", found)]
        if self.injected <= HARMLESS and not self.plan.compacted and not self.outcome.hang:
            missed = [m for m in self.acked if not self.copies.get(m) and m not in found["lost"]]
            if missed:
                problems.append(
                    f"in the end: {_problem('offline', 'truly lost, and not claimed', missed)}"
                )
        return problems

    def _nothing_vouches(self) -> bool:
        """Whether consumers correctly wait for records that the ledger has lost."""
        waiting = {s.application for s in self.outcome.sessions if s.ended_ns is None}
        return waiting == {"consume"} and ledger_lacks(self.stage)

    # -- the truth --------------------------------------------------------------------------------

    def _acknowledged(self, sessions: Iterable[Session]) -> Iterator[tuple[MessageId, int]]:
        processes = {session.process for session in sessions}
        for log in self.outcome.world.logs:
            if log.process in processes and log.session.run == RUN:
                for at_ns, row in log.stamped:
                    if row.kind == "sent" and row.outcome == 1:
                        for seq in range(row.seq_lo or 0, row.seq_hi or 0):
                            yield MessageId(row.topic, _sender(row), row.lane or 0, seq), at_ns

    def _stood(self, message: MessageId, before_ns: int) -> list[Copy]:
        """Copies that were visible by then, except aborted ones for read_committed."""
        return [
            copy
            for copy in self.copies.get(message, ())
            if copy.record.born_ns <= before_ns
            and not (self.plan.read_committed and copy.record.aborted)
        ]

    def _in_time(self, message: MessageId, claimed_by: Process | None = None) -> bool:
        """Whether a copy existed before the deadline where a consumer could or should have seen it.

        A copy that an unclean election removed does not count: the message is truly lost. Nor does
        one that was removed before any consumer started, or deleted with a topic before consumers
        knew of it: no consumer can know of these.
        """
        acked_ns = self.acked.get(message)
        if acked_ns is None:
            return False
        began = min(s.started_ns for s in self.outcome.sessions if s.application == "consume")
        for copy in self._stood(message, acked_ns + int(self.plan.deadline * 1e9) - _SLACK_NS):
            removed_ns, by = copy.record.removed_ns, copy.record.removed_by
            if removed_ns is None:
                return True
            if began < removed_ns and by != "truncation" and self._known(copy, claimed_by):
                return True
        return False

    def _known(self, copy: Copy, claimed_by: Process | None) -> bool:
        """Whether consumers knew of a copy's topic; while the topic exists, they can know of it.

        Of a deleted topic, one of these must have known before the deletion: the process that
        claims the loss; all consumers with a report; a saved state that existed when the loss was
        claimed, if it was. Other consumers' knowledge ended with them. The deletion counts for
        copies that retention removed before it, too.
        """
        topic = self.stage.read_cluster.all_topics[copy.place[0] - 1]
        if topic.deleted_ns is None:
            return True
        if claimed_by is not None and topic.learned_ns.get(claimed_by, NEVER_NS) < topic.deleted_ns:
            return True
        learned = [
            topic.learned_ns.get(session.process, NEVER_NS) for session in self.outcome.consumers
        ]
        claimed_ns = self._claimed_ns.get(copy.record.message, NEVER_NS)
        saved = [
            state.at_ns
            for state in self._saved.get((topic.name, copy.partition), ())
            if state.there_ns <= claimed_ns
        ]
        since = min(topic.learned_ns.values(), default=NEVER_NS)
        known_ns = min([max(learned, default=NEVER_NS), *(ns for ns in saved if ns > since)])
        return known_ns < topic.deleted_ns

    # -- what must hold always --------------------------------------------------------------------

    def _crashes(self) -> Iterator[str]:
        """No process may end with an error that has no cause, at any time."""
        for session in self.outcome.sessions:
            error = session.why
            self.checked["sessions"] += 1
            if error is None:
                continue
            if not isinstance(error, MirrortestError):
                yield f"{session.name}: crashed: {error!r}"
            elif isinstance(error, SequenceLogError) and "log_fails" not in self.injected:
                yield f"{session.name}: its log failed by itself: {error}"
            elif type(error) is ClusterError and " refuses: " in str(error):
                yield f"{session.name}: refused by a cluster that refuses nothing: {error}"
            elif isinstance(error, FencedError) and not taken_from(session, self.stage):
                yield f"{session.name}: fenced, and nobody had taken what it held: {error}"

    def _claims(self) -> Iterator[str]:
        """No claim of loss may be false, whatever happens to the consumer afterwards."""
        for log, _, claimed in self._claimed():
            self.checked["claims"] += len(claimed)
            if false := [m for m in claimed if self._in_time(m, log.process)]:
                yield _problem(log.session.name, "claimed lost at a time, and stood in time", false)

    def _claimed(self) -> Iterator[tuple[SimulatedLog, int, list[MessageId]]]:
        """Each claim: the consumer's log, the time, and the messages claimed lost."""
        for log in self.outcome.world.logs:
            for at_ns, row in log.stamped:
                if row.kind == "claimed":
                    numbers = range(row.seq_lo or 0, row.seq_hi or 0)
                    stream = row.topic, _sender(row), row.lane or 0
                    yield log, at_ns, [MessageId(*stream, seq) for seq in numbers]

    def _verdicts(self) -> Iterator[str]:
        for session in self.outcome.consumers:
            report, at_ns = session.report, session.ended_ns or 0
            found = _by_finding(report)
            self.checked["verdicts"] += 1
            yield from self._false_findings(session.name, found)
            if never := [m for m in found["delivered"] if not self._stood(m, at_ns)]:
                yield _problem(session.name, "delivered, and never stood", never)
            if report.exit_code == 99 and not found["lost"]:
                yield f"{session.name}: failed without a loss: {report.counts}"
            if report.exit_code == 0 and not self.plan.compacted:
                self.checked["passes"] += 1
                if missing := [m for m in self.recorded if not self._stood(m, at_ns)]:
                    what = "passed, though acknowledged messages never stood"
                    yield _problem(session.name, what, missing)

    def _false_findings(self, name: str, found: dict[str, set[MessageId]]) -> Iterator[str]:
        """Findings without a cause, online or offline."""
        causes: dict[str, tuple[str, Callable[[MessageId], bool]]] = {
            "lost": ("claimed lost, and stood in time", lambda m: not self._in_time(m)),
            "late": ("told late, and stood in time", lambda m: not self._in_time(m)),
            "duplicated": (
                "duplicated, and written once",
                lambda m: len(self.copies.get(m, ())) > 1,
            ),
            "reordered": ("reordered, and written in order", self._out_of_order),
            "compacted": ("compacted, in a topic that is not", lambda _: self.plan.compacted),
        }
        for finding, (what, has_cause) in causes.items():
            if false := [message for message in found[finding] if not has_cause(message)]:
                yield _problem(name, what, false)
        for finding in NEVER:
            if found[finding]:
                yield _problem(name, finding, found[finding])
        if self.plan.copies_alone and len(found["compacted"]) > self._removed_by_compaction:
            yield _problem(name, "compacted, and more than was removed", found["compacted"])

    @cached_property
    def _removed_by_compaction(self) -> int:
        """At most how many copies compaction removed: all truncated ones count, too."""
        return sum(
            record.removed_by in {"compaction", "truncation"}
            for topic in self.outcome.world.destination.all_topics
            if topic.name in self.stage.topics
            for partition in topic.partitions
            for record in partition.history
        )

    def _out_of_order(self, message: MessageId) -> bool:
        """Whether a copy of it comes after a copy of a later message of its stream."""
        for copy in self.copies.get(message, ()):
            for other, copies in self.copies.items():
                if other[:3] == message[:3] and other.seq > message.seq:
                    for later in copies:
                        if later.partition == copy.partition and later.place < copy.place:
                            return True
        return False

    # -- what must hold in the end ----------------------------------------------------------------

    def _leaderless(self, at_ns: int) -> bool:
        """Whether a partition had no leader then: a consumer that ends waits only a while."""
        seconds = (at_ns - START_NS) / 1e9
        return any(
            strike.kind == "leaderless" and strike.at <= seconds <= strike.at + strike.lasts
            for strike in self.plan.strikes
        )

    def _eventually(self) -> Iterator[str]:
        """Everything must end, with a verdict that is as good as the faults allow."""
        self.checked["histories"] += 1
        if self.outcome.hang and not self._nothing_vouches():
            yield f"hang: {self.outcome.hang}"
        for session in self.outcome.sessions:
            error = session.why
            if isinstance(error, ClusterError) and not self.injected:
                yield f"{session.name}: ended by an error without any fault: {error}"
        if not self.injected <= HARMLESS:
            return
        for session in self.outcome.consumers:
            self.checked["conclusive"] += 1
            report = session.report
            # Without acknowledgements, as from a source without a leader, nothing is proven.
            if report.exit_code == 3 and self.acked and not self._leaderless(session.ended_ns or 0):
                yield f"{session.name}: inconclusive without cause: {list(report.inconclusive)}"
            lost = _by_finding(report)["lost"]
            missed = [m for m in self.acked if not self.copies.get(m) and m not in lost]
            if missed and not self.plan.compacted and report.exit_code != 3:
                yield _problem(session.name, "truly lost, and not claimed", missed)


def _problem(name: str, what: str, ids: Iterable[MessageId]) -> str:
    some = sorted(ids)
    shown = ", ".join(f"{m.sender}/{m.topic}/{m.lane}#{m.seq}" for m in some[:6])
    return f"{name}: {what} ({len(some)}) {shown}"


def _by_finding(report: Any) -> dict[str, set[MessageId]]:
    """The messages of each finding, from a report's verdicts by stream."""
    found: dict[str, set[MessageId]] = defaultdict(set)
    for stream, verdict in report.verdicts.items():
        sender = f"{stream.producer}@{stream.run}.{stream.incarnation}"
        sets = {finding.label: numbers for finding, numbers in verdict.found.items()}
        for name, numbers in (sets | {"delivered": verdict.delivered}).items():
            for lo, hi in numbers.intervals():
                found[name] |= {
                    MessageId(stream.topic, sender, stream.lane, seq) for seq in range(lo, hi)
                }
    return found


def _sender(row: Any) -> str:
    return f"{row.producer}@{row.run}.{row.incarnation}"
