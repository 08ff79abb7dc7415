"""The judging rounds over all topics, and the last one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import structlog

from mirrortest.consume.assigned_partition import JudgedUpTo, SavedState
from mirrortest.consume.closing import ClosingSnapshot
from mirrortest.consume.conclusion import Conclusion
from mirrortest.consume.consume_report import ConsumeProgress, ConsumeReport
from mirrortest.consume.end_offsets import EndOffsetSnapshot
from mirrortest.consume.state_store import Partition
from mirrortest.consume.topic_judge import TopicRound
from mirrortest.consume.unrecorded import UnrecordedProducers
from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.kafka.fetched import Place
from mirrortest.model.findings import Finding
from mirrortest.verify.judge import RunVerdict
from mirrortest.verify.loss import all_ends_known, ended_earlier, read_past
from mirrortest.verify.untrusted import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.consumer_metrics import ConsumerMetrics
    from mirrortest.consume.end_offsets import Ends, Views
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.ledger_follower import LedgerFollower
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outage import Outage
    from mirrortest.consume.shared_state import SharedState
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.reader import Reader
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.wire.stream import StreamId

_log = structlog.get_logger()

TopicRounds: TypeAlias = dict[str, TopicRound]
"""Destination topic -> how it stands in this round."""

_LAST_WORD_SECONDS = 10.0
"""How long the cluster may take to tell its ends for the last round."""


class JudgingRounds:
    """Holds the ledger against what all consumers together have seen."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        topics: JudgedTopics,
        assignment: Assignment,
        store: StateStore,
        ledger: LedgerFollower,
        reader: Reader,
        log: ConsumerLog,
        measures: ConsumerMetrics,
        outage: Outage,
        common: SharedState,
    ) -> None:
        self._shared_state = common
        self._outage = outage
        self._options = options
        self._topics = topics
        self._assignment = assignment
        self._store = store
        self._follower = ledger
        self._ledger = ledger.ledger
        self._reader = reader
        self._log_rows = log
        self._measures = measures
        self._told = (time.monotonic(), 0)
        self._away = ""
        """Why the destination could not be read to its end, in the last round."""
        self._own: EndOffsetSnapshot | None = None
        """A look of our own since which all is judged that the ledger vouches for."""
        self._closing: EndOffsetSnapshot | None = None
        """What is to be read up to: of our partitions by our own look, of others' by all looks."""
        self.unread: set[Partition] = set()
        """Others' partitions that were not yet read as far as they must be, as of this round."""
        self._saved: dict[Partition, tuple[int, SavedState | None]] = {}
        """Others' states, each with its serial; None where it cannot be read."""
        self._slice = TimeSlice()
        self._concluding = False
        """Whether nothing more is to be read: what came now would not be judged."""
        self._unrecorded = UnrecordedProducers(options, ledger)
        self._conclusion = Conclusion(
            options,
            topics=topics,
            assignment=assignment,
            ledger=ledger,
            measures=measures,
            log=log,
        )

    async def judge(self) -> tuple[bool, ConsumeProgress]:
        """Judge once. Whether all that the ledger vouches for has been judged, and how it stands.

        Raises:
            ClusterError: the destination does not tell its offsets.
        """
        complete, views, look, topic_rounds = await self._round()
        self._measures.follow_ledger(self._follower.last_record_ns, self._ledger.malformed)
        self._measures.observe_process(self._log_rows.durable_rows)
        total = await self._publish(views, look.ends, topic_rounds, complete=complete)
        # Who ends between two assignments leaves partitions whose end nobody tells.
        return complete and not self._assignment.rebalancing, self._progress(total)

    async def _round(
        self, patience: float | None = None
    ) -> tuple[bool, Views, EndOffsetSnapshot, TopicRounds]:
        """Claim what is lost; whether all has been judged, and by what.

        In slices: what comes in meanwhile is stamped as it arrives, and waits to be judged. Raises
        TimeoutError where the cluster takes longer than `patience` seconds to tell its ends.
        """
        # In this order: what is overdue now had its chance to stand below the ends told after, and
        # a state that is known before them goes beyond them only in a topic made again.
        now = time.monotonic_ns()
        self._shared_state.take_over()
        # An assignment may bring a topic meanwhile: the next round has it.
        judges = dict(self._topics.judges)
        # What the ledger tells from here on is not as old as that.
        lanes = [(judge, judge.lanes(self._ledger)) for judge in judges.values()]
        for judge, told in lanes:
            for lane in told.values():
                judge.note(lane, now)
                await self._pause()
        views = await self._views(judges)
        async with asyncio.timeout(patience) if patience else contextlib.nullcontext():
            look = await self._look(views, now)
        ended = self._follower.complete(self._options.run, self._options.expect_producers)
        over = ended
        topic_rounds: TopicRounds = {}
        for topic, judge in judges.items():
            checkers, ends = views[topic], look.ends[topic]
            topic_round = topic_rounds[topic] = TopicRound(judge, self._ledger, checkers, now)
            for _ in topic_round.steps():
                await self._pause()
            all_there = all_ends_known(checkers, ends)
            judge.losses.cancel(ends)
            if all_there:
                judge.losses.open(topic_round.overdue, ends)
            news = judge.claim_losses(topic_round, checkers)
            for stream, numbers in news.items():
                self._log_rows.claimed(stream, numbers)
                self._measures.claimed(judge.source, numbers.count)
            if news:
                self._keep_claims(topic)
                self._assignment.save_soon()
            over = (
                not judge.awaits_ledger(topic_round, now)
                and over
                and all_there
                and topic_round.judged
            )
        if not ended:
            self._unrecorded.check(topic_rounds.values(), now)
        complete = self._close(views, look, topic_rounds, over=over)
        self.unread = self._unread(views, self._closing or look) | self._replaced(views, look)
        return complete, views, look, topic_rounds

    async def _pause(self) -> None:
        """After each small step: nothing is fetched of a partition of which something waits."""
        if await self._slice.over() and not self._concluding:
            await self._assignment.buffer_arrived()

    def _close(
        self, views: Views, look: EndOffsetSnapshot, topic_rounds: TopicRounds, *, over: bool
    ) -> bool:
        """Whether all that stood in the destination when all was judged has been read.

        Not what stands there now: others may go on writing to the topic, and other consumers tell
        what they have read from time to time, or have ended. Of theirs the lowest end counts that
        any consumer saw; ours are read up to what we saw ourselves.
        """
        if not over:
            self._own = self._closing = None
            return False
        if self._own is None or look.passed(views):
            self._own = look
        self._own = self._own.lowered(look.ends)
        self._closing = self._shared(self._own, topic_rounds)
        return self._closing.passed(views)

    def _shared(self, own: EndOffsetSnapshot, topic_rounds: TopicRounds) -> EndOffsetSnapshot:
        """Share our own look, and take in the others'."""
        ends, at_ns = dict(own.ends), own.at_ns
        for topic, topic_round in topic_rounds.items():
            judge, mark = self._topics.judges[topic], topic_round.mark
            before = judge.closing
            judge.close(ClosingSnapshot(mark, own.ends[topic], own.at_ns))
            if judge.closing != before:
                self._assignment.save_soon()
            shared = judge.closing
            # A ledger that vouches for more than ours does is one that we shall see, too.
            if shared is None or shared.mark != mark:
                continue
            ends[topic] = {
                number: end
                if Partition(topic, number) in self._assignment.partitions
                else min(end, shared.ends.get(number, end))
                for number, end in own.ends[topic].items()
            }
            if ends[topic] != own.ends[topic]:
                at_ns = min(at_ns, shared.at_ns)
        return own._replace(ends=ends, at_ns=at_ns)

    def _unread(self, views: Views, look: EndOffsetSnapshot) -> set[Partition]:
        return {
            Partition(topic, number)
            for topic, ends in look.ends.items()
            for number, end in ends.items()
            if Partition(topic, number) not in self._assignment.partitions
            and not read_past(views[topic], {number: end})
        }

    def _replaced(self, views: Views, look: EndOffsetSnapshot) -> set[Partition]:
        """Others' partitions whose log is not the one that was read: somebody must read it anew."""
        shorter = {
            (topic, number)
            for topic, ends in look.ends.items()
            for number in ended_earlier(views[topic], ends)
        }
        replaced = {Partition(*at) for at in shorter | look.doubts.keys()}
        return replaced - self._assignment.partitions.keys()

    async def conclude(self) -> ConsumeReport:
        """The verdict of a last round; what it rests on goes into the log.

        A destination that does not tell its ends by now claims and completes nothing.
        """
        # Told to end amid a rebalance, we are the last who can tell of what it took from us.
        ours = [*self._assignment.partitions.values(), *self._assignment.released]
        self._concluding, complete = True, False
        try:
            complete, views, look = await self._last_round(_LAST_WORD_SECONDS)
        except (*TRANSIENT_ERRORS, TimeoutError) as error:
            self._outage.begin(error)
            self._away = self._outage.why
            views = await self._views(self._topics.judges)
            look = EndOffsetSnapshot({topic: {} for topic in views}, 0)
        if not self._away:
            self._log_rows.looked(look.at_ns)
        verdicts = self._verdicts(views, closed=complete)
        self._log_expired(views, look)
        self._log_tails(views, look, ours)
        for stream, verdict in verdicts.items():
            self._log_rows.verdict(stream, verdict)
        self._log_rows.vouched(self._ledger)
        notes = [
            note
            for at, serial in self._store.serials().items()
            if at.topic in self._topics.judges and at not in self._assignment.partitions
            for note in self._notes_of(at, serial)
        ]
        return self._conclusion.report(views, look, verdicts, away=self._away, notes=notes)

    def _notes_of(self, at: Partition, serial: int) -> list[str]:
        """What befell another consumer's partition, as its state tells."""
        if saved := self._saved_state(at, serial):
            return saved.notes
        return [f"{at.topic}-{at.partition}: the state of its consumer cannot be read"]

    async def _last_round(
        self, patience: float | None = None
    ) -> tuple[bool, Views, EndOffsetSnapshot]:
        """A round, and the look that it rests on: where all is judged, maybe an earlier one."""
        complete, views, look, _ = await self._round(patience)
        if complete and self._closing:
            look = self._closing.raised(views)
        return complete, views, look

    def _log_expired(self, views: Views, look: EndOffsetSnapshot) -> None:
        """Log whose deadlines were past at the look, of topics whose ends it has.

        What the reconciliation finds missing, and read up to these ends, is lost if it is in here:
        it need not compare this host's wall clock with the producers'.
        """
        for topic, view in views.items():
            if look.ends[topic] and all_ends_known(view, look.ends[topic]):
                losses = self._topics.judges[topic].losses
                for stream, numbers in losses.all_expired(look.elapsed_ns):
                    self._log_rows.expired(stream, numbers)

    def _log_tails(
        self, views: Views, look: EndOffsetSnapshot, ours: Iterable[AssignedPartition]
    ) -> None:
        """Log where each partition ended; of ours, how far they were judged.

        Whoever is given a partition while it ends says nothing of it: so everybody tells all ends.
        """
        mine = {held.at: held.reached for held in ours}
        others = {
            at: JudgedUpTo(
                self._topics.judges[at.topic].source,
                at.partition,
                saved.identity,
                views[at.topic][at.partition].next_offset,
            )
            for at, serial in self._store.serials().items()
            if at.partition in views.get(at.topic, ())
            and at not in mine
            and (saved := self._saved_state(at, serial))
        }
        for at, reached in sorted((others | mine).items()):
            end = look.ends[at.topic].get(at.partition)
            if end is None:
                continue
            if at in mine:
                self._log_rows.tail(reached, end)
            elif end >= reached.next_offset:
                # How far it was found clean is its judge's to tell.
                self._log_rows.tail(reached._replace(next_offset=0), end)

    async def _views(self, judges: Iterable[str]) -> Views:
        """Of these topics, every partition's newest checker: ours, else the last state told."""
        mine = self._assignment.partitions
        views: Views = {topic: {} for topic in judges}
        for at, serial in self._store.serials().items():
            if at.topic not in views or at in mine:
                continue
            await self._pause()
            saved = self._saved_state(at, serial)
            # One of another name is of a consumer that was given another alias.
            if saved and saved.checker.topic == self._topics.judges[at.topic].source:
                views[at.topic][at.partition] = saved.checker
        for at, held in mine.items():
            if at.topic in views:
                views[at.topic][at.partition] = held.checker
        return views

    def _saved_state(self, at: Partition, serial: int) -> SavedState | None:
        """What a partition's consumer saved, read once for each serial; None: it cannot be read."""
        known = self._saved.get(at)
        if known is None or known[0] != serial:
            known = self._saved[at] = serial, self._read_state(at)
        return known[1]

    def _read_state(self, at: Partition) -> SavedState | None:
        judge, state = self._topics.judges[at.topic], self._store.state(at)
        try:
            saved = SavedState.read(state or {}, at, run=judge.run)
        except RecordError as error:
            _log.warning(
                "a consumer's state cannot be read: what it has judged is not known here",
                partition=f"{at.topic}-{at.partition}",
                why=str(error),
            )
            return None
        if saved.checker.topic == judge.source:
            # Whoever claims it: what comes after all is late for everybody.
            judge.losses.merge(saved.claimed)
        return saved

    def _saved_place(self, at: Partition) -> Place:
        """How far another consumer had judged, when its state was last read."""
        _, saved = self._saved.get(at, (0, None))
        return saved.place if saved else Place(0)

    async def _look(self, topics: Iterable[str], elapsed_ns: int) -> EndOffsetSnapshot:
        """Look where every partition of these topics ends now."""
        at_ns = self._measures.clocks.earliest_ns()
        topics = set(topics)
        mine = self._assignment.partitions
        read = {
            at: mine[at].place if at in mine else self._saved_place(at)
            for topic, count in self._topics.counts.items()
            if topic in topics
            for at in (Partition(topic, number) for number in range(count))
        }
        places = {(at.topic, at.partition): place for at, place in read.items()}
        found = await self._reader.ends(places) if places else {}
        for (topic, _), end in found.items():
            self._topics.judges[topic].first_topic_id(end.topic_id)
        unproven = {at for at, held in mine.items() if held.resumed}
        return EndOffsetSnapshot.of(at_ns, elapsed_ns, topics, places, found, unproven)

    def _keep_claims(self, topic: str) -> None:
        """Put a topic's claims into a partition of ours, whose state carries them on."""
        mine = self._assignment.partitions
        ours = min((at for at in mine if at.topic == topic), default=None)
        if ours is not None:
            mine[ours].claimed = dict(self._topics.judges[topic].losses.claimed)

    def _verdicts(self, views: Views, *, closed: bool) -> dict[StreamId, StreamVerdict]:
        return {
            stream: verdict
            for topic, view in views.items()
            for stream, verdict in sorted(
                TopicRound(self._topics.judges[topic], self._ledger, view, closed=closed)
                .whole()
                .verdicts.items(),
                key=itemgetter(0),
            )
        }

    async def _publish(
        self, views: Views, ends: Ends, topic_rounds: TopicRounds, *, complete: bool
    ) -> RunVerdict:
        """Publish what there is to tell of each topic; what it comes to in all."""
        all_topics = RunVerdict()
        vouched = self._follower.silence(self._options.run) is None
        unread: dict[str, int] = {}
        for topic, topic_round in topic_rounds.items():
            judge, checkers = self._topics.judges[topic], views[topic].values()
            total, lanes = RunVerdict.of((), checkers), Counter[tuple[str, Finding]]()
            for stream, verdict in topic_round.verdicts.items():
                for finding, count in total.add_stream(verdict).items():
                    lanes[str(stream.lane), finding] += count
                await self._pause()
            all_topics.add(total)
            self._measures.judged(
                judge.source, total, late=total.counts[Finding.LATE], vouched=vouched
            )
            self._measures.lanes_judged(judge.source, lanes)
            self._measures.filled(judge.source, max((c.fullness for c in checkers), default=0.0))
            unread[judge.source] = sum(c.unread_offsets.count for c in checkers)
        lags = {
            at: max(ends[at.topic].get(at.partition, 0) - held.checker.next_offset, 0)
            for at, held in self._assignment.partitions.items()
            if at.topic in ends
        }
        self._measures.progressed(lags, unread, complete=complete)
        return all_topics

    def _progress(self, total: RunVerdict) -> ConsumeProgress:
        now, messages = time.monotonic(), self._measures.messages
        last, before = self._told
        self._told = (now, messages)
        return ConsumeProgress(
            consumed=messages,
            per_second=(messages - before) / max(now - last, 1e-9),
            acked=total.acked,
            delivered=total.delivered,
            findings={f.label: count for f, count in sorted(total.counts.items()) if count},
            partitions=len(self._assignment.partitions),
            ledger_silent=self._follower.silence(self._options.run) is not None,
            role=self._options.role,
        )
