"""The judging rounds over all topics, and the last one.

A round is done in time slices: between them, arriving batches get their arrival times and go into
the buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.consume.closing import Closing
from mirrortest.consume.conclusion import conclusion
from mirrortest.consume.consume_report import counts_of
from mirrortest.consume.consume_status import (
    QUIET_SECONDS,
    ConsumeStatus,
    PartitionLag,
    slowest,
)
from mirrortest.consume.end_offsets import EndOffsetSnapshot
from mirrortest.consume.ledger_follower import UnrecordedProducers
from mirrortest.consume.partition_views import PartitionViews
from mirrortest.consume.topic_judge import TopicRound
from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.model.findings import WRONG, Finding
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.timing.recent import Recent
from mirrortest.verify.judge import RunVerdict
from mirrortest.verify.loss import all_ends_known

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.batch_judge import BatchJudge
    from mirrortest.consume.closing import TopicRounds
    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.end_offsets import Views
    from mirrortest.consume.saves import Saves
    from mirrortest.kafka.fetched import ReadPosition

_LAST_ROUND_SECONDS = 10.0
"""How long the last round waits for the cluster's end offsets."""


class _Round(NamedTuple):
    """A round's results; `complete`: every acknowledged message has a verdict, and all is read."""

    ledger_complete: bool
    complete: bool
    views: Views
    snapshot: EndOffsetSnapshot
    topics: TopicRounds


class JudgingRounds:
    """Compares the ledger with what all consumers together have seen."""

    def __init__(
        self, context: ConsumerContext, assignment: Assignment, batches: BatchJudge, saves: Saves
    ) -> None:
        self._context = context
        self._ledger = context.ledger.ledger
        self._assignment = assignment
        self._batches = batches
        self._saves = saves
        self._views = PartitionViews(context)
        self._closing = Closing(context, saves)
        self._unrecorded = UnrecordedProducers(context.options, context.ledger)
        self._slice = TimeSlice()
        self.idle = False
        """Whether the last round left nothing to judge, although producers may go on."""
        self._concluding = False
        """Whether this is the last round: nothing more is fetched, as it would not be judged."""
        self._began_ns = time.monotonic_ns()
        self._recent, self._recent_sent = Recent(), Recent()

    @property
    def unread(self) -> Collection[TopicPartition]:
        """Other consumers' partitions that still have to be read, as of the last round."""
        return self._closing.unread

    async def judge(self) -> tuple[bool, ConsumeStatus]:
        """Run one round; whether the run is complete, and the status.

        Raises:
            ClusterError: the destination does not answer the request for its ends.
        """
        context = self._context
        found = await self._round()
        self._batches.end_backlogs(found.snapshot.ends)
        context.metrics.follow_ledger(
            context.ledger.last_record_ns, self._ledger.malformed, ended=found.ledger_complete
        )
        context.metrics.observe_process(context.log.durable_rows)
        self._note_clocks()
        total = await self._publish(found)
        # If a consumer ended during a rebalance, no consumer might log its partitions' ends.
        return found.complete and not self._assignment.rebalancing, self._status(total, found)

    async def conclude(self) -> ConsumeReport:
        """Run the last round, log what its verdict rests on, and report the verdict.

        If the destination does not answer the request for its ends, nothing is claimed lost, and
        the run is not complete.
        """
        context = self._context
        # During a rebalance, the new owners of the released partitions cannot log them yet.
        ours = [*context.partitions.values(), *self._assignment.released]
        self._concluding, complete, unreachable = True, False, ""
        try:
            complete, views, snapshot = await self._last_round(_LAST_ROUND_SECONDS)
            context.outage.over()  # else the last save would be skipped
        except (*TRANSIENT_ERRORS, TimeoutError) as error:
            context.outage.begin(error)
            unreachable = context.outage.why
            views = await self._views.of(context.topics.judges, self._pause)
            snapshot = EndOffsetSnapshot({topic: {} for topic in views}, 0)
        self._note_clocks()
        return conclusion(
            context,
            self._views,
            views,
            snapshot,
            ours=ours,
            complete=complete,
            unreachable=unreachable,
        )

    def _note_clocks(self) -> None:
        """Log by how much latencies may be off because clocks, here or at producers, were set."""
        clocks, lanes = (
            self._context.metrics.clocks,
            self._ledger.lanes_of(self._context.options.run),
        )
        clocks.poll()
        clocks.note_producer_clock(max((lane.clock_set_ns for lane in lanes.values()), default=0))
        self._context.log.clocks_set(clocks.off_ns)

    async def _last_round(
        self, patience: float | None = None
    ) -> tuple[bool, Views, EndOffsetSnapshot]:
        """Run a round; whether the run is complete, the views, and the ends for the verdict.

        If the run is complete, the ends are those of the closing snapshot.
        """
        found = await self._round(patience)
        if found.complete and self._closing.snapshot:
            return True, found.views, self._closing.snapshot.raised(found.views)
        return found.complete, found.views, found.snapshot

    async def _round(self, patience: float | None = None) -> _Round:
        """Judge all topics once, and claim what is lost.

        Raises TimeoutError if the cluster's ends take longer than `patience` seconds.
        """
        context, options = self._context, self._context.options
        # The order matters (`verify.loss`). What is overdue now had its whole deadline before the
        # partitions are counted and their ends asked for. A state that is read before the ends is
        # beyond them only if the topic was recreated.
        now = time.monotonic_ns()
        context.shared.merge_written()
        # If an assignment adds a topic during this round, the next round judges it.
        judges = dict(context.topics.judges)
        # The lanes are taken before the first pause: `now` is too early for what arrives later.
        for judge, lanes in [(judge, judge.lanes(self._ledger)) for judge in judges.values()]:
            for lane in lanes.values():
                judge.note(lane, now)
                await self._pause()
        views = await self._views.of(judges, self._pause)
        ledger_complete = context.ledger.complete(options.run, options.expect_producers)
        of_run = {*views}
        if ledger_complete:
            # Other topics only happen to match the pattern.
            of_run = context.topics.of_run(views) | (of_run & {*options.topics})
        async with asyncio.timeout(patience) if patience else contextlib.nullcontext():
            await context.outage.noticed(context.topics.discover())
            await context.log.update_topics(context.topics)
            snapshot = await self._ends({topic: views[topic] for topic in of_run}, now)
        all_judged, unreadable = True, self._views.unreadable()
        rounds: TopicRounds = {}
        for topic, judge in judges.items():
            checkers, ends = views[topic], snapshot.ends.get(topic, {})
            topic_round = rounds[topic] = TopicRound(judge, self._ledger, checkers, now)
            for _ in topic_round.steps():
                await self._pause()
            # A topic that existed and that no consumer has judged may have had any message.
            unseen = topic in unreadable or (bool(judge.topic_ids) and not ends)
            unseen = unseen or any(at.topic == topic for at in snapshot.doubts)
            ends_known = all_ends_known(snapshot.present(topic, checkers), ends) and not unseen
            judge.losses.cancel(ends)
            if ends_known:
                judge.losses.open(topic_round.overdue, ends)
            new_claims = judge.claim_losses(topic_round, checkers)
            for stream, numbers in new_claims.items():
                context.log.claimed(stream, numbers)
                context.metrics.claimed(judge.source, numbers.count)
            if new_claims:
                self._carry_claims(topic)
                self._saves.request()
            awaited = judge.awaits_ledger(topic_round, now)
            judged = not awaited and ends_known and topic_round.judged
            all_judged = all_judged and (judged or topic not in of_run)
        if not ledger_complete:
            self._unrecorded.check(rounds.values(), now)
        all_exist = 0 < len(rounds) <= len(rounds.keys() & context.topics.counts.keys())
        self.idle = all_exist and all_judged and not ledger_complete
        complete = self._closing.passed(
            views, snapshot, rounds, all_judged=all_judged and ledger_complete
        )
        return _Round(ledger_complete, complete, views, snapshot, rounds)

    async def _pause(self) -> None:
        """Yield after a small step, and buffer arrived batches, so that fetching goes on."""
        if await self._slice.over() and not self._concluding:
            await self._batches.buffer_arrived()

    async def _ends(self, views: Views, elapsed_ns: int) -> EndOffsetSnapshot:
        """Ask the cluster where every partition of these topics ends now."""
        context = self._context
        at_ns = context.metrics.clocks.earliest_ns()
        read: dict[tuple[str, int], ReadPosition] = {
            at: self._views.read_position(at)
            for topic in views.keys() & context.topics.counts.keys()
            for at in (
                TopicPartition(topic, number)
                for number in {*range(context.topics.counts[topic]), *views[topic]}
            )
        }
        there = {at: place for at, place in read.items() if at[1] < context.topics.counts[at[0]]}
        found = await context.reader.ends(there) if there else {}
        for (topic, _), end in found.items():
            context.topics.judges[topic].first_topic_id(end.topic_id)
        # Brokers may have more partitions than the one broker reported that counted them.
        counts = {topic: number + 1 for topic, number in sorted(found)}
        for topic, count in counts.items():
            if count > context.topics.counts[topic]:
                context.topics.in_force(topic, (count,))
        unproven = {at for at, assigned in context.partitions.items() if assigned.resumed}
        return EndOffsetSnapshot.of(at_ns, elapsed_ns, views, read, found, unproven)

    def _carry_claims(self, topic: str) -> None:
        """Put a topic's claims into one of our partitions, so that its state saves them."""
        mine = self._context.partitions
        ours = min((at for at in mine if at.topic == topic), default=None)
        if ours is not None:
            mine[ours].claimed = dict(self._context.topics.judges[topic].losses.claimed)

    async def _publish(self, found: _Round) -> RunVerdict:
        """Publish each topic's verdict as metrics; the verdict over all topics."""
        context, metrics = self._context, self._context.metrics
        all_topics = RunVerdict()
        recorded = context.ledger.missing_reason(context.options.run) is None
        of_run = context.topics.of_run(found.views)
        unread: dict[str, int] = {}
        for topic, topic_round in found.topics.items():
            source, checkers = context.topics.judges[topic].source, found.views[topic].values()
            ours, others = (checkers, ()) if topic in of_run else ((), checkers)
            total, lanes = RunVerdict.of((), ours, others), Counter[tuple[str, Finding]]()
            partitions: dict[str, set[int]] = {}
            for stream, verdict in topic_round.verdicts.items():
                counts = total.add_stream(verdict)
                for finding, count in counts.items():
                    lanes[str(stream.lane), finding] += count
                if not WRONG.isdisjoint(counts):
                    where = partitions.setdefault(str(stream.lane), set())
                    where.update(topic_round.partitions(stream))
                await self._pause()
            all_topics.add(total)
            metrics.judged(source, total, late=total.counts[Finding.LATE], with_ledger=recorded)
            metrics.lanes_judged(source, lanes, partitions)
            metrics.filled(source, max((c.fullness for c in checkers), default=0.0))
            unread[source] = sum(c.unread_offsets.count for c in checkers)
        lags = found.snapshot.lags(context.partitions.values())
        metrics.progressed(lags, unread, complete=found.complete)
        return all_topics

    def _status(self, total: RunVerdict, found: _Round) -> ConsumeStatus:
        context, options, metrics = self._context, self._context.options, self._context.metrics
        now_ns, wall_ns = time.monotonic_ns(), self._context.metrics.clocks.latest_ns()
        silent = context.ledger.missing_reason(options.run) is not None
        intended, sent = metrics.merged_latency()
        grown = self._recent.sample(now_ns, (metrics.messages, total.acked), intended)
        unread = found.snapshot.lags(context.partitions.values())
        lags = [
            PartitionLag(
                str(at),
                unread.get(TopicPartition(assigned.source, at.partition), 0),
                (wall_ns - assigned.newest_ns) / 1e9 if assigned.newest_ns else None,
            )
            for at, assigned in context.partitions.items()
        ]
        return ConsumeStatus(
            run=options.run,
            name=options.name,
            role=options.role,
            elapsed_seconds=(now_ns - self._began_ns) / 1e9,
            duration_seconds=options.duration,
            total=options.num_records,
            read=metrics.messages,
            read_per_second=grown.per_second[0],
            value_bytes=metrics.value_bytes.total(),
            rebalance_ns=metrics.read_clock.rebalanced_ns,
            acked_per_second=grown.per_second[1],
            counts=counts_of(total, with_ledger=not silent),
            excused=total.excused,
            partitions=len(lags),
            unread=sum(lag.unread for lag in lags),
            age_seconds=min((lag.age_seconds for lag in lags if lag.age_seconds), default=None),
            slowest=slowest(lags),
            latency=grown.latencies,
            sent_latency=self._recent_sent.sample(now_ns, (), sent).latencies,
            thresholds=options.thresholds,
            complete=found.complete,
            ledger_silent=silent,
            ledger_since="" if found.complete else self._ledger_since(),
            quiet_seconds=now_ns / 1e9 - metrics.last_message,
        )

    def _ledger_since(self) -> str:
        """Since when the ledger has been silent, UTC; empty if it is not, or had no record yet."""
        last_ns = self._context.ledger.last_record_ns
        silent = 0.0 if last_ns is None else (time.monotonic_ns() - last_ns) / 1e9
        if silent < QUIET_SECONDS:
            return ""
        return f"{datetime.fromtimestamp(time.time() - silent, tz=UTC):%H:%M:%S}Z"
