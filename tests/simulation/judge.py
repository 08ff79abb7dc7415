"""What each verdict may say, computed from all that the simulated world knows; by brute force.

It shares nothing with `mirrortest.check`. The world recorded every record from its birth to its
removal, so a message's copies are simply looked up.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.errors import ClusterError, FencedError, MirrortestError, SequenceLogError

from .batch import MessageId
from .plan import LEDGER, RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .batch import Record
    from .history import Outcome, Session, Stage

NEVER = ("corrupted", "altered_key", "altered_headers", "altered_timestamp", "misrouted",
         "phantom", "unproven")  # fmt: skip
"""Findings that nothing in a simulated world gives cause for."""
HARMLESS = frozenset(
    {"mirror_killed", "leaderless", "log_slow",
     "producer_paused", "consumer_paused", "foreign_records", "own_topics_compacted", "clock_set"}
)  # fmt: skip
"""Faults after which a verdict must still be conclusive."""
_SLACK_NS = 50_000_000


class Copy(NamedTuple):
    """A copy of a message: `place` orders the copies of a partition as they were appended."""

    record: Record
    partition: int
    place: tuple[int, int]


class Judge:
    """Holds the reports of a history against the truth; `problems` are what must not be."""

    def __init__(self, stage: Stage) -> None:
        self.outcome: Outcome = stage.outcome
        self.plan = stage.plan
        self.problems: list[str] = []
        self.injected = {strike.kind for strike in self.plan.strikes}
        if stage.scripted:
            self.injected.add("script")
        self.copies: dict[MessageId, list[Copy]] = defaultdict(list)
        for topic in stage.read_cluster.all_topics:
            if topic.name in stage.topics:
                for partition in topic.partitions:
                    for index, record in enumerate(partition.history):
                        if record.message is not None:
                            copy = Copy(record, partition.number, (topic.id, index))
                            self.copies[record.message].append(copy)
        self.acked = dict(self._acknowledged())
        """message -> when its acknowledgement was logged, by a producer that ended in order"""

    def judge(self) -> list[str]:
        """All problems of the history."""
        if self.outcome.hang and not self._nothing_vouches():
            self.problems.append(f"hang: {self.outcome.hang}")
        for session in self.outcome.sessions:
            self._end(session)
        for session in self.outcome.consumers:
            self._always(session)
            self._eventually(session)
        return self.problems

    def _nothing_vouches(self) -> bool:
        """Whether consumers wait, rightly, for a ledger deleted after its writers had ended."""
        deleted = [
            topic.deleted_ns
            for topic in self.outcome.world.source.all_topics
            if topic.name == LEDGER and topic.deleted_ns is not None
        ]
        waiting = {s.application for s in self.outcome.sessions if s.ended_ns is None}
        return waiting == {"consume"} and any(
            (session.ended_ns or 0) <= at_ns
            for at_ns in deleted
            for session in self.outcome.sessions
            if session.application == "produce" and session.name.startswith("p") and session.report
        )

    def _say(self, name: str, what: str, ids: Iterable[MessageId] = ()) -> None:
        some = sorted(ids)
        shown = ", ".join(f"{m.sender}/{m.topic}/{m.lane}#{m.seq}" for m in some[:6])
        self.problems.append(f"{name}: {what} {f'({len(some)}) {shown}' if some else ''}")

    # -- the truth --------------------------------------------------------------------------------

    def _acknowledged(self) -> Iterator[tuple[MessageId, int]]:
        orderly = {s.process for s in self.outcome.sessions if s.report is not None}
        for log in self.outcome.world.logs:
            if log.process in orderly and log.session.run == RUN:
                for at_ns, row in log.stamped:
                    if row.kind == "sent" and row.outcome == 1:
                        for seq in range(row.seq_lo or 0, row.seq_hi or 0):
                            yield MessageId(row.topic, _sender(row), row.lane or 0, seq), at_ns

    def _stood(self, message: MessageId, before_ns: int) -> list[Copy]:
        """Copies that were written by then, and that readers may see."""
        return [
            copy
            for copy in self.copies.get(message, ())
            if copy.record.born_ns <= before_ns
            and not (self.plan.read_committed and copy.record.aborted)
        ]

    def _in_time(self, message: MessageId) -> bool:
        """Whether a copy stood before the deadline, where a consumer could or should have seen it.

        What an unclean election took away before anybody read it is lost indeed; and what was
        deleted before any consumer began is nobody's to know.
        """
        acked_ns = self.acked.get(message)
        if acked_ns is None:
            return False
        began = min(s.started_ns for s in self.outcome.sessions if s.application == "consume")
        for copy in self._stood(message, acked_ns + int(self.plan.deadline * 1e9) - _SLACK_NS):
            gone = copy.record.removed_ns
            if gone is None or (gone > began and copy.record.removed_by != "truncation"):
                return True
        return False

    # -- what must hold always --------------------------------------------------------------------

    def _always(self, session: Session) -> None:
        report, at_ns = session.report, session.ended_ns or 0
        found = _by_finding(report)
        self._false_findings(session.name, found)
        never = [m for m in found["delivered"] if not self._stood(m, at_ns)]
        if never:
            self._say(session.name, "delivered, and never stood", never)
        if report.exit_code == 0:
            missing = [m for m, _ in self.acked.items() if not self._stood(m, at_ns)]
            if missing and not self.plan.compacted:
                self._say(session.name, "passed, though acknowledged messages never stood", missing)

    def _false_findings(self, session: str, found: dict[str, set[MessageId]]) -> None:
        """Findings without cause, whoever tells them."""
        false = [m for m in found["lost"] | found["late"] if self._in_time(m)]
        if false:
            self._say(session, "claimed lost, and stood in time", false)
        once = [m for m in found["duplicated"] if len(self.copies.get(m, ())) < 2]
        if once:
            self._say(session, "duplicated, and written once", once)
        in_order = [m for m in found["reordered"] if not self._out_of_order(m)]
        if in_order:
            self._say(session, "reordered, and written in order", in_order)
        for finding in NEVER:
            if found[finding]:
                self._say(session, finding, found[finding])
        if found["compacted"] and not self.plan.compacted:
            self._say(session, "compacted, in a topic that is not", found["compacted"])

    def _out_of_order(self, message: MessageId) -> bool:
        """Whether some copy of it stands behind a copy of a later one of its stream."""
        for copy in self.copies.get(message, ()):
            for other, copies in self.copies.items():
                if other[:3] == message[:3] and other.seq > message.seq:
                    for later in copies:
                        if later.partition == copy.partition and later.place < copy.place:
                            return True
        return False

    # -- what must hold in the end ----------------------------------------------------------------

    def _end(self, session: Session) -> None:
        error = session.error or getattr(session.report, "error", None)
        if error is None:
            return
        if not isinstance(error, MirrortestError):
            self._say(session.name, f"crashed: {error!r}")
        elif isinstance(error, SequenceLogError):
            if "log_fails" not in self.injected:
                self._say(session.name, f"its log failed by itself: {error}")
        elif isinstance(error, FencedError):
            self._say(session.name, f"fenced: {error}")
        elif isinstance(error, ClusterError) and not self.injected:
            self._say(session.name, f"ended by an error without any fault: {error}")

    def _eventually(self, session: Session) -> None:
        report = session.report
        if report.exit_code == 3 and self.injected <= HARMLESS:
            self._say(session.name, f"inconclusive without cause: {list(report.inconclusive)}")
        if report.exit_code == 99 and not _by_finding(report)["lost"]:
            self._say(session.name, f"failed without a loss: {report.counts}")
        if report.exit_code != 3 and not self.injected:
            found = _by_finding(report)
            missed = [m for m in self.acked if not self.copies.get(m) and m not in found["lost"]]
            if missed and not self.plan.compacted:
                self._say(session.name, "truly lost, and not claimed", missed)


def _by_finding(report: Any) -> dict[str, set[MessageId]]:
    """Every finding with its messages, read off a report's verdicts by stream."""
    found: dict[str, set[MessageId]] = defaultdict(set)
    for stream, verdict in report.verdicts.items():
        sender = f"{stream.producer}@{stream.run}.{stream.incarnation}"
        for name in ("delivered", "lost", "late", "duplicated", "reordered", "compacted",
                     "inconclusive", "in_flight", *NEVER):  # fmt: skip
            for lo, hi in getattr(verdict, name).intervals():
                found[name] |= {
                    MessageId(stream.topic, sender, stream.lane, seq) for seq in range(lo, hi)
                }
    return found


def _sender(row: Any) -> str:
    return f"{row.producer}@{row.run}.{row.incarnation}"
