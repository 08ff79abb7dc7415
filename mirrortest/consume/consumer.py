"""The consumer: it reads, judges, logs, and saves its partitions' states.

One task reads and judges; the followers of ledger and state topic run concurrently. Once a second
a judging round runs between two reads, less often while there is nothing to judge.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrortest.consume.assignment import Assignment
from mirrortest.consume.batch_judge import BatchJudge
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.judging_rounds import JudgingRounds
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.consume.load import ConsumerLoad
from mirrortest.consume.outage import Outage
from mirrortest.consume.saves import Saves
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.state_store import StateStore
from mirrortest.consume.state_table import Scope
from mirrortest.consume.takeover import Takeover
from mirrortest.host.interpreter import tune_for_event_loop
from mirrortest.host.waiting import cancel_and_wait, set_within
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.kafka.reader import Reader
from mirrortest.metrics.server_process import serve_in_child
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import new_session_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.consume_status import ConsumeStatus
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.metrics.endpoint import Serve

_ROUND_SECONDS = 1.0
_IDLE_ROUND_SECONDS = 5.0
"""The time between rounds while no message arrives and none waits for a verdict."""
_ROUND_SHARE = 0.2
"""The largest share of time for judging rounds, during which nothing is read."""
_MOST_SECONDS = 10.0
_POLL_SECONDS = 0.2
_SHOWN_SECONDS = 2.0
"""The greatest age of the status shown, also while the loop waits for a cluster's answer."""
_GRACE_SECONDS = 3.0
"""How long the reading loop may finish its work after it was asked to end."""


async def run(
    options: ConsumeOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeStatus], None] = lambda _: None,
    serve: Serve = serve_in_child,
) -> ConsumeReport:
    """Consume and judge until an end condition of the options is met, or `stop` is set.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses.
        FencedError: another consumer has claimed partitions of this one's fixed share.
        SequenceLogError: the log cannot be written; nothing after that is judged.
        UsageError: the metrics' port is taken, a topic's name fits no mapping, or messages prove
            another source topic's name than the mapping gives.
    """
    tune_for_event_loop()
    session = new_session_id(time.time_ns())
    metrics = ConsumerMetrics(options, serve)
    place = "source" if options.role is Role.SOURCE else "destination"
    outage = Outage(place, on_attempt=metrics.health.beat)
    metrics.follow_outage(outage)
    async with AsyncExitStack() as stack:
        stack.enter_context(metrics.serving())
        admin = await stack.enter_async_context(Admin(options.client))
        cluster = await admin.cluster_id()
        ledger, ledger_topic = _ledger(options)
        stack.push_async_callback(ledger_topic.close)
        topics = JudgedTopics(options, admin, ledger.ledger)
        await topics.discover()
        states = await stack.enter_async_context(
            CompactedTopic(options.client, options.state_topic)
        )
        await states.create()
        scope = Scope(options.run, cluster, options.role.value, options.reader_name)
        store = StateStore(states, scope, session)
        log = await ConsumerLog.open(options, session=session, cluster=cluster, topics=topics)
        stack.push_async_exit(log)
        reader = await stack.enter_async_context(Reader(options.client, group=options.group))
        consumer = Consumer(
            ConsumerContext(
                options=options,
                admin=admin,
                reader=reader,
                topics=topics,
                ledger=ledger,
                store=store,
                shared=SharedState(topics, store),
                log=log,
                metrics=metrics,
                outage=outage,
            )
        )
        stack.callback(consumer.load.end)
        stack.push_async_callback(consumer.saves.close)
        work = consumer.run(stop, on_progress)
        watch = consumer.context.stalls.watch()
        return await _with_background(work, store.follow(), ledger.follow(), watch)


class Consumer:
    """The parts of one consumer, and the loop that gives each its turn."""

    def __init__(self, context: ConsumerContext) -> None:
        self.context = context
        self.saves = Saves(context)
        self.assignment = Assignment(context, self.saves)
        self.batches = BatchJudge(context, self.assignment, self.saves)
        self.rounds = JudgingRounds(context, self.assignment, self.batches, self.saves)
        self.takeover = Takeover(context, self.assignment)
        self.load = ConsumerLoad(context)
        self._started = self._shown = time.monotonic()
        self._status: ConsumeStatus | None = None

    async def run(
        self, stop: asyncio.Event, on_progress: Callable[[ConsumeStatus], None]
    ) -> ConsumeReport:
        """Read and judge until an end condition is met, or `stop` is set; then conclude."""
        enough = asyncio.Event()
        self.context.metrics.last_message = time.monotonic()
        reading = self._read(enough, on_progress)
        showing = asyncio.create_task(self._show_waiting(on_progress))
        idling = asyncio.create_task(self._await_quiet(enough))
        try:
            await _until_end(reading, stop, enough, self.context.options.duration)
            return await self.conclude()
        finally:
            await cancel_and_wait(showing, idling)

    async def conclude(self) -> ConsumeReport:
        """Run the last round and the last save; the report.

        If the last save fails, the run does not pass: other consumers' verdicts need that state.
        """
        self.assignment.drop_fenced()
        report = await self.rounds.conclude()
        await self.context.log.update_topics(self.context.topics)
        unsaved = await self.saves.save_last(reported=report.outstanding == 0)
        if unsaved is None:
            return report
        doubts = [*report.inconclusive, unsaved]
        return replace(report, inconclusive=doubts, own_doubts=[unsaved])

    async def _read(
        self, enough: asyncio.Event, on_progress: Callable[[ConsumeStatus], None]
    ) -> None:
        """Read until an end condition is met or `enough` is set; an outage does not end it."""
        options, metrics, outage = self.context.options, self.context.metrics, self.context.outage
        started = next_round = judged_at = self._started = time.monotonic()
        metrics.last_message = metrics.last_of_run = started
        metrics.read_clock.begin()
        complete, complete_since = False, started
        judged = self._arrived()
        status: ConsumeStatus | None = None
        await self.assignment.begin()
        metrics.health.started = True
        while not enough.is_set():
            metrics.health.beat()
            try:
                if outage.why:
                    await outage.noticed(self.context.topics.discover())
                    await self.assignment.recheck()
                await self.batches.read(_POLL_SECONDS)
                if options.num_records is not None and metrics.messages >= options.num_records:
                    break
                now = time.monotonic()
                if now < next_round:
                    continue
                self.load.end_if_due()
                began, arrived = now, self._arrived()
                idle = self.rounds.idle and arrived == judged
                if status is not None and idle and now < judged_at + _IDLE_ROUND_SECONDS:
                    status = self._unchanged(status, now - started)
                else:
                    before, (complete, status) = complete, await self._judge()
                    judged, judged_at = arrived, began
                await self.takeover.take_abandoned(self.rounds.unread)
                self.saves.save_if_due()
                outage.over()
                next_round = began + _pause(time.monotonic() - began)
            except TRANSIENT_ERRORS as error:
                outage.begin(error)
                next_round = time.monotonic() + _ROUND_SECONDS
                now, before, complete = time.monotonic(), False, False
                if status is not None:
                    status = self._unchanged(status, now - started, outage=str(outage))
                # Messages are still read and judged, and others must see that this consumer lives.
                self.saves.save_if_due()
                await set_within(enough, _ROUND_SECONDS)
            complete_since = complete_since if complete and before else now
            silent = now - max(metrics.last_of_run, complete_since)
            settled = complete and silent >= options.settle_time
            if status is not None:
                status = replace(status, settled=settled)
                metrics.health.status = self._status = status
                self._shown = now
                on_progress(status)
            if options.until_complete and settled:
                break
        self.assignment.drop_fenced()
        await self.batches.judge_all()

    async def _await_quiet(self, enough: asyncio.Event) -> None:
        """Set `enough` after `--idle-timeout` without a message, even while the loop waits."""
        timeout, metrics = self.context.options.idle_timeout, self.context.metrics
        if timeout is None:
            return
        while not enough.is_set():
            left = metrics.last_message + timeout - time.monotonic()
            if left > 0:
                await set_within(enough, left)
            else:
                enough.set()

    async def _show_waiting(self, on_progress: Callable[[ConsumeStatus], None]) -> None:
        """Show the status while the loop waits for a cluster that does not answer."""
        while True:
            await asyncio.sleep(_SHOWN_SECONDS)
            now, outage = time.monotonic(), str(self.context.outage)
            if self._status is not None and now - self._shown >= _SHOWN_SECONDS:
                on_progress(self._unchanged(self._status, now - self._started, outage=outage))

    def _arrived(self) -> tuple[int, int | None]:
        """A value that changes whenever a message or a ledger record arrives."""
        return self.context.metrics.messages, self.context.ledger.last_record_ns

    def _unchanged(
        self, status: ConsumeStatus, elapsed_seconds: float, outage: str = ""
    ) -> ConsumeStatus:
        """The status after a time in which nothing was judged."""
        return replace(
            status,
            elapsed_seconds=elapsed_seconds,
            read_per_second=0.0,
            acked_per_second=0.0,
            outage=outage,
            quiet_seconds=time.monotonic() - self.context.metrics.last_message,
        )

    async def _judge(self) -> tuple[bool, ConsumeStatus]:
        """Judge what is fetched, take new partitions, and run a judging round."""
        topics = self.context.topics
        self.assignment.drop_fenced()
        await self.batches.judge_all()
        await self.assignment.take_share()
        await self.assignment.recheck(topics.returned())
        return await self.rounds.judge()


def _pause(took: float) -> float:
    """Seconds from one round to the next: with very many streams a round takes long."""
    return min(max(_ROUND_SECONDS, took / _ROUND_SHARE), _MOST_SECONDS)


async def _until_end(
    reading: Awaitable[None], stop: asyncio.Event, enough: asyncio.Event, seconds: float | None
) -> None:
    """Wait until the reading ends by itself, `stop` or `enough` is set, or `seconds` have passed.

    Then set `enough`. A reading that still waits for a cluster after that is cancelled.
    """
    task = asyncio.ensure_future(reading)
    stopped, idle = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(enough.wait())
    try:
        ends = {task, stopped, idle}
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        enough.set()
        await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if task.done():
            task.result()
    finally:
        await cancel_and_wait(task, stopped, idle)


async def _with_background(
    work: Awaitable[ConsumeReport], *background: Awaitable[None]
) -> ConsumeReport:
    """Do the work while the background tasks run; the first failure ends all and is raised."""
    main = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(each) for each in background]
    everything: set[asyncio.Future[Any]] = {main, *others}
    try:
        await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done() and not main.done():
                await other
        return await main
    finally:
        await cancel_and_wait(*everything)


def _ledger(options: ConsumeOptions) -> tuple[LedgerFollower, CompactedTopic]:
    client = options.ledger_client or options.client
    name = options.ledger_topic
    if options.ledger_client is None:
        name = options.mapping.destination_of(name)
    topic = CompactedTopic(client, name)

    async def exists() -> bool:
        async with Admin(client) as admin:
            return name in await admin.partition_counts([name])

    where = f"{name!r} at {','.join(client.bootstrap_servers)}"
    return LedgerFollower(topic, exists, where=where, now_ns=time.monotonic_ns), topic
