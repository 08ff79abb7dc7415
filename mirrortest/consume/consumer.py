"""The consumer: read, judge, log, and hand over.

One task reads and judges; beside it run the followers of ledger and state topic. Once a second a
judging round runs between two batches. Saving is: log durable, then the state; it runs beside the
reading, but before a partition is given up it is waited for.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import structlog

from mirrortest.check.deadline import Deadlines
from mirrortest.check.judge import RunVerdict
from mirrortest.check.partition import PartitionChecker
from mirrortest.check.verdict import Finding
from mirrortest.config.threshold import Series, evaluate, undecided
from mirrortest.consume.assigned import AssignedPartition, Taken
from mirrortest.consume.judging import TopicJudge, read_past
from mirrortest.consume.logbook import Logbook
from mirrortest.consume.outcome import ConsumeProgress, ConsumeReport, counts_of
from mirrortest.consume.state import Partition, Scope, StateStore
from mirrortest.consume.vouching import LedgerFollower
from mirrortest.errors import FencedError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.reader import FetchedBatch, OutOfRange, Reader, TopicPartition
from mirrortest.seqlog.session import new_session_id
from mirrortest.timing.histogram import Histogram
from mirrortest.wire.record_batch import decode_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.consume.options import ConsumeOptions

_log = structlog.get_logger()

ROLE = "consumer"
Views: TypeAlias = dict[str, dict[int, PartitionChecker]]
"""Destination topic -> partition -> its newest checker."""
_ROUND_SECONDS = 1.0
_POLL_SECONDS = 0.2


async def run(
    options: ConsumeOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeProgress], None] = lambda _: None,
) -> ConsumeReport:
    """Consume and judge until the options say that it is enough, or `stop` is set.

    Raises:
        ClusterError: the destination cannot be reached or refuses.
        FencedError: another consumer has taken this one's fixed share.
        SequenceLogError: the log cannot be written; nothing after that is judged.
    """
    consumer = Consumer(options, on_progress)
    return await consumer.run(stop)


@dataclass
class Totals:
    """What this consumer itself has read."""

    messages: int = 0
    value_bytes: int = 0
    latency: dict[str, tuple[Histogram, Histogram]] = field(default_factory=dict)
    """source topic -> latencies from the intended and from the actual send"""

    def count(self, topic: str, taken: Taken) -> None:
        """Add what a response brought of one source topic."""
        self.messages += taken.messages
        self.value_bytes += taken.value_bytes
        intended, sent = self.latency.setdefault(topic, (Histogram(), Histogram()))
        intended.add(taken.latency_intended)
        sent.add(taken.latency_sent)


class Consumer:
    """See the module's text; `run` is its whole life."""

    def __init__(
        self, options: ConsumeOptions, on_progress: Callable[[ConsumeProgress], None]
    ) -> None:
        self._options = options
        self._on_progress = on_progress
        self._session = new_session_id(time.time_ns())
        self._mine: dict[Partition, AssignedPartition] = {}
        self._counts: dict[str, int] = {}
        """destination topic -> its partitions; only those that exist"""
        self._judges: dict[str, TopicJudge] = {}
        """destination topic -> its judge"""
        self.totals = Totals()
        self._read_last_ns = time.monotonic_ns()
        self._saved_last = time.monotonic()
        self._saving: asyncio.Task[None] | None = None
        self._notes: list[str] = []
        self._progressed = (time.monotonic(), 0)

    async def run(self, stop: asyncio.Event) -> ConsumeReport:
        """Set up, consume, wind up, report."""
        options = self._options
        async with Admin(options.client) as admin, asyncio.TaskGroup() as followers:
            self._admin = admin
            cluster = await admin.cluster_id()
            state_topic = CompactedTopic(options.client, options.state_topic)
            await state_topic.create()
            self._store = StateStore(
                state_topic,
                Scope(options.run, cluster, ROLE, options.reader_name),
                self._session,
            )
            self._ledger = self._follow_ledger()
            await self._discover()
            self._log = await Logbook.open(
                options, session=self._session, cluster=cluster, partitions=self._counts
            )
            tasks = [
                followers.create_task(self._store.follow()),
                followers.create_task(self._ledger.follow()),
            ]
            try:
                self._reader = Reader(options.client, group=options.group)
                async with self._reader:
                    await self._subscribe()
                    complete = await self._consume(stop)
                    report = await self._wind_up(complete=complete)
            finally:
                for task in tasks:
                    task.cancel()
                await state_topic.close()
        return report

    # -- setting up ---------------------------------------------------------------------------

    def _follow_ledger(self) -> LedgerFollower:
        options = self._options
        direct = options.ledger_client is not None
        client = options.ledger_client or options.client
        name = (
            options.ledger_topic if direct else options.mapping.destination_of(options.ledger_topic)
        )

        async def exists() -> bool:
            async with Admin(client) as admin:
                return name in await admin.partition_counts([name])

        async def topic() -> CompactedTopic:
            return CompactedTopic(client, name)

        where = f"{name!r} at {','.join(client.bootstrap_servers)}"
        return LedgerFollower(exists=exists, topic=topic, where=where, now_ns=time.monotonic_ns)

    async def _discover(self) -> None:
        """Learn which topics there are and how many partitions they have."""
        options = self._options
        if options.topics:
            self._counts = await self._admin.partition_counts(options.topics)
        else:
            self._counts = await self._admin.matching(self._pattern)
        for topic in (*options.topics, *self._counts, *self._vouched_topics()):
            if topic not in self._judges:
                self._judges[topic] = TopicJudge(
                    options.mapping.source_of(topic),
                    options.run,
                    options.expect_partition,
                    Deadlines(int(options.deadline * 1e9)),
                )
                if topic not in self._counts:
                    _log.warning("topic not there yet: the mirror has not made it", topic=topic)
            self._judges[topic].destination_partitions = self._counts.get(topic, 0)

    @property
    def _pattern(self) -> str:
        """The user's pattern, without our own topics and the mirror's heartbeats."""
        options = self._options
        ledger = options.mapping.destination_of(options.ledger_topic)
        heartbeats = options.mapping.destination_of("heartbeats")
        ours = "|".join(map(re.escape, (ledger, options.state_topic, heartbeats)))
        return f"(?!(?:{ours})$)(?:{options.topic_pattern})"

    def _vouched_topics(self) -> set[str]:
        """Topics that match the pattern and that the ledger tells of, copied or not."""
        if self._options.topic_pattern is None:
            return set()
        wanted = re.compile(self._pattern)
        lanes = self._ledger.ledger.lanes
        topics = {
            self._options.mapping.destination_of(stream.topic)
            for stream in lanes
            if stream.run == self._options.run
        }
        return {topic for topic in topics if wanted.fullmatch(topic)}

    async def _subscribe(self) -> None:
        options = self._options
        if options.group:
            await self._reader.subscribe(
                topics=list(options.topics) or None,
                pattern=self._pattern if options.topic_pattern else None,
                on_assigned=self._on_assigned,
                on_revoked=self._on_revoked,
            )
            return
        await self._take_share()

    async def _take_share(self) -> None:
        """Without a group: take our share of all partitions that are known now."""
        shard = self._options.shard
        share = [
            Partition(topic, number)
            for topic, count in sorted(self._counts.items())
            for number in range(count)
            if shard is None or number in shard
        ]
        new = [at for at in share if at not in self._mine]
        if new:
            await self._reader.assign(share)
            await self._on_assigned(list(new))

    async def _on_assigned(self, partitions: list[tuple[str, int]]) -> None:
        for at in map(Partition._make, partitions):
            if at.topic not in self._counts:
                await self._discover()
            mine = self._mine[at] = await self._claim(at)
            await self._seek(mine)

    async def _claim(self, at: Partition) -> AssignedPartition:
        options = self._options
        generation, state = await self._store.claim(at)
        about = {
            "source": options.mapping.source_of(at.topic),
            "run": options.run,
            "policy": options.expect_partition,
            "destination_partitions": self._counts[at.topic],
        }
        if state is None:
            return AssignedPartition.fresh(at, generation, **about)
        mine = AssignedPartition.restored(at, generation, state, **about)
        self._judges[at.topic].merge_claims(mine.claimed)
        # At once, so that the state does not hang on what a zombie may still overwrite.
        await self._store.save(at, generation, state)
        return mine

    async def _seek(self, mine: AssignedPartition) -> None:
        """Go to the next offset; what the destination no longer holds was not read."""
        at = TopicPartition(*mine.at)
        begin = (await self._admin.beginning_offsets([at]))[at]
        if mine.checker.next_offset < begin:
            self._log.unread(mine, mine.checker.next_offset, begin)
            mine.checker.unread(mine.checker.next_offset, begin)
            mine.resumed = False
        if mine.read_from is None:
            mine.read_from = mine.checker.next_offset
        self._reader.seek(at, max(mine.start_offset, begin))

    async def _on_revoked(self, partitions: list[tuple[str, int]]) -> None:
        # Taken out first: nothing may be judged beyond the state that is written now.
        gone = [self._mine.pop(Partition(*at), None) for at in partitions]
        await self._save([mine for mine in gone if mine is not None], parting=True)

    # -- consuming ----------------------------------------------------------------------------

    async def _consume(self, stop: asyncio.Event) -> bool:
        """Read until an end condition holds; whether it was that all has been judged."""
        options = self._options
        started = time.monotonic()
        next_round = started
        complete_since: float | None = None
        while not stop.is_set():
            await self._read()
            now = time.monotonic()
            if now < next_round:
                continue
            next_round = now + _ROUND_SECONDS
            complete = await self._round()
            quiet = (time.monotonic_ns() - self._read_last_ns) / 1e9
            complete_since = (complete_since or now) if complete else None
            if (
                options.until_complete
                and complete_since is not None
                and min(quiet, now - complete_since) >= options.settle_time
            ):
                return True
            if options.duration is not None and now - started >= options.duration:
                return complete
            if options.idle_timeout is not None and quiet >= options.idle_timeout:
                return complete
        return False

    async def _read(self) -> None:
        fetched: dict[Partition, list[FetchedBatch]] = {}
        for item in await self._reader.next(_POLL_SECONDS):
            at = Partition(item.topic, item.partition)
            if at not in self._mine:
                continue
            if isinstance(item, OutOfRange):
                await self._out_of_range(self._mine[at])
            else:
                fetched.setdefault(at, []).append(item)
        for at, batches in fetched.items():
            await self._judge_batches(self._mine[at], batches)

    async def _judge_batches(self, mine: AssignedPartition, batches: list[FetchedBatch]) -> None:
        """Judge what one response brought of a partition, all at once: mirrors write small."""
        buffers = [(batch.buffer, None) for batch in batches if batch.buffer is not None]
        if buffers:
            records = decode_batches(buffers)
            if mine.was_recreated(records):
                await self._start_over(mine)
                return
            taken = mine.take(records, batches[0].arrived_ns)
            self._log.seen(mine, taken)
            if taken.messages:
                self._read_last_ns = time.monotonic_ns()
            self.totals.count(mine.source, taken)
        mine.checker.advance(batches[-1].next_offset)

    async def _out_of_range(self, mine: AssignedPartition) -> None:
        """Retention overtook us, or the topic was made anew and is shorter than we had read."""
        at = TopicPartition(*mine.at)
        end = (await self._admin.end_offsets([at]))[at]
        if end < mine.checker.next_offset:
            await self._start_over(mine)
        else:
            await self._seek(mine)

    async def _start_over(self, mine: AssignedPartition) -> None:
        note = (
            f"{mine.at.topic}-{mine.at.partition} was deleted and made again after offset "
            f"{mine.checker.next_offset}: judged anew from its beginning"
        )
        _log.warning(note)
        self._notes.append(note)
        mine.identity += 1
        mine.checker = PartitionChecker(mine.source, mine.at.partition)
        mine.last_record, mine.resumed, mine.read_from = None, False, None
        await self._seek(mine)

    # -- judging and saving ---------------------------------------------------------------------

    async def _round(self) -> bool:
        """Judge once; whether all that the ledger vouches for has been judged and read past."""
        self._drop_fenced()
        await self._discover_missing()
        now = time.monotonic_ns()
        ledger = self._ledger.ledger
        complete = ledger.complete(self._options.run, self._options.expect_producers)
        views = self._views()
        for topic, judge in self._judges.items():
            checkers = views[topic]
            judge.note(ledger, now)
            if judge.overdue(ledger, checkers, now):
                judge.hear(ledger, checkers, await self._ends(topic), now)
            for stream, numbers in judge.decide(ledger, checkers).items():
                self._log.claimed(stream, numbers)
                home = self._home_of(topic)
                if home is not None:
                    home.claimed = dict(judge.claimed)
            complete = complete and judge.judged(ledger, checkers)
        if complete:
            for topic in self._judges:
                complete = complete and read_past(views[topic], await self._ends(topic))
        if time.monotonic() - self._saved_last >= self._options.state_interval:
            self._save_beside()
        self._on_progress(self._progress(views))
        return complete

    def _views(self) -> Views:
        """Of each topic, every partition's newest checker: ours, else the last state told."""
        views: Views = {topic: {} for topic in self._judges}
        for at, state in self._store.states().items():
            if at.topic in views and at not in self._mine:
                views[at.topic][at.partition] = PartitionChecker.from_state(state["checker"])
        for at, mine in self._mine.items():
            views[at.topic][at.partition] = mine.checker
        return views

    def _home_of(self, topic: str) -> AssignedPartition | None:
        ours = sorted(at for at in self._mine if at.topic == topic)
        return self._mine[ours[0]] if ours else None

    async def _ends(self, topic: str) -> dict[int, int]:
        partitions = [(topic, number) for number in range(self._counts.get(topic, 0))]
        ends = await self._reader.end_offsets(partitions) if partitions else {}
        return {number: end for (_, number), end in ends.items()}

    async def _discover_missing(self) -> None:
        """Look again for topics that the mirror had not made, and for new partitions."""
        await self._discover()
        if not self._options.group:
            await self._take_share()

    def _drop_fenced(self) -> None:
        fenced = [m for m in self._mine.values() if self._store.fenced(m.at, m.generation)]
        for mine in fenced:
            del self._mine[mine.at]
        if fenced and not self._options.group:
            named = ", ".join(f"{m.at.topic}-{m.at.partition}" for m in fenced)
            raise FencedError(
                f"another consumer of run {self._options.run!r} has taken {named}: "
                "two consumers were given the same --shard"
            )

    def _save_beside(self) -> None:
        if self._saving is None or self._saving.done():
            if self._saving is not None:
                self._saving.result()
            self._saving = asyncio.create_task(self._save(list(self._mine.values())))
            self._saved_last = time.monotonic()

    async def _save(self, partitions: list[AssignedPartition], *, parting: bool = False) -> None:
        """Make the log durable, then the states that were reached when this was called."""
        states = []
        for mine in partitions:
            if self._store.fenced(mine.at, mine.generation):
                continue
            self._log.read(mine)
            if parting:
                self._log.found(mine)
            states.append((mine, mine.to_state(), mine.checker.next_offset))
        await self._log.sync()
        for mine, state, _ in states:
            await self._store.save(mine.at, mine.generation, state)
        if self._options.group and states and not parting:
            await self._reader.commit({mine.at: at for mine, _, at in states})

    async def _wind_up(self, *, complete: bool) -> ConsumeReport:
        """A last judgement, then the last rows and states, then the report."""
        if self._saving is not None:
            await self._saving
        self._drop_fenced()
        views = self._views()
        ends = {topic: await self._ends(topic) for topic in self._judges}
        report = self._report(views, ends, complete=complete)
        for mine in self._mine.values():
            self._log.tail(mine, ends[mine.at.topic][mine.at.partition])
        for stream, verdict in report.verdicts.items():
            self._log.lost(stream, verdict.lost)
        self._log.vouched(self._ledger.ledger)
        await self._save(list(self._mine.values()), parting=True)
        await self._log.close()
        return report

    def _report(
        self, views: Views, ends: dict[str, dict[int, int]], *, complete: bool
    ) -> ConsumeReport:
        options, ledger = self._options, self._ledger.ledger
        verdicts = {
            stream: verdict
            for topic, judge in self._judges.items()
            for stream, verdict in judge.verdicts(ledger, views[topic], closed=complete).items()
        }
        total = RunVerdict.of(
            verdicts.values(), [checker for view in views.values() for checker in view.values()]
        )
        silence = self._ledger.silence(options.run)
        counts = counts_of(total, vouched=silence is None)
        intended, sent = Histogram(), Histogram()
        for of_intended, of_sent in self.totals.latency.values():
            intended.merge(of_intended)
            sent.merge(of_sent)
        results = evaluate(
            options.thresholds,
            counts | {"negative_latency": intended.negative},
            total=total.acked,
            latencies={Series.LATENCY: intended, Series.SENT_LATENCY: sent},
        )
        return ConsumeReport(
            run=options.run,
            name=options.name,
            counts=counts,
            copies=total.copies,
            verdicts=verdicts,
            latency=self.totals.latency,
            thresholds=results,
            inconclusive=[
                *([silence] if silence else self._doubts(total, views, ends)),
                *undecided(results),
            ],
            notes=self._notes,
            messages=self.totals.messages,
            log=self._log.where,
            partitions=[f"{at.topic}-{at.partition}" for at in sorted(self._mine)],
        )

    def _doubts(
        self, total: RunVerdict, views: Views, ends: dict[str, dict[int, int]]
    ) -> list[str]:
        """Why the verdict is not final, though the ledger speaks."""
        options, ledger = self._options, self._ledger.ledger
        doubts = []
        missing = sorted(set(options.expect_producers) - ledger.producers(options.run))
        if missing:
            doubts.append(f"producers never heard of: {', '.join(missing)}")
        if not ledger.complete(options.run, options.expect_producers):
            doubts.append("producers have not told their end")
        for topic, there in ends.items():
            if not there:
                doubts.append(f"{topic} does not exist in the destination")
            behind = [n for n in there if not read_past(views[topic], {n: there[n]})]
            if behind:
                doubts.append(f"{topic}: not read to the end: partitions {behind}")
        for finding, why in (
            (Finding.IN_FLIGHT, "acknowledged, not seen, and not overdue"),
            (Finding.INCONCLUSIVE, "may have stood where nobody could read"),
        ):
            if total.counts[finding]:
                doubts.append(f"{total.counts[finding]:,} messages {why}")
        if total.bounded or total.untracked:
            doubts.append("the checker passed its memory bound")
        return doubts

    def _progress(self, views: Views) -> ConsumeProgress:
        now, messages = time.monotonic(), self.totals.messages
        last, before = self._progressed
        self._progressed = (now, messages)
        ledger = self._ledger.ledger
        verdicts = [
            verdict
            for topic, judge in self._judges.items()
            for verdict in judge.verdicts(ledger, views[topic], closed=False).values()
        ]
        total = RunVerdict.of(verdicts, [c for view in views.values() for c in view.values()])
        return ConsumeProgress(
            consumed=messages,
            per_second=(messages - before) / max(now - last, 1e-9),
            acked=total.acked,
            delivered=total.delivered,
            findings={
                finding.label: count for finding, count in sorted(total.counts.items()) if count
            },
            partitions=len(self._mine),
            waiting_for=self._ledger.silence(self._options.run),
        )
