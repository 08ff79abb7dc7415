"""The consumer: read, judge, log, and hand over.

One task reads and judges; beside it run the followers of ledger and state topic. Once a second a
judging round runs between two reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrortest.consume.assignment import Assignment
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.judging_rounds import JudgingRounds
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.consume.outage import Outage
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.state_store import Scope, StateStore
from mirrortest.consume.takeover import Takeover
from mirrortest.host.interpreter import favour_the_loop
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.error_table import TRANSIENT_ERRORS
from mirrortest.kafka.reader import Reader
from mirrortest.metrics.server_process import serve_apart
from mirrortest.seqlog.schema import Role
from mirrortest.seqlog.session import new_session_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirrortest.consume.consume_report import ConsumeProgress, ConsumeReport
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.metrics.endpoint import Serve

_ROUND_SECONDS = 1.0
_ROUND_SHARE = 0.2
"""The most of the time that judging may take, and nothing is read meanwhile."""
_MOST_SECONDS = 10.0
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 3.0
"""How long what is being done may go on once it is enough."""


async def run(
    options: ConsumeOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeProgress], None] = lambda _: None,
    serve: Serve = serve_apart,
) -> ConsumeReport:
    """Consume and judge until the options say that it is enough, or `stop` is set.

    Raises:
        ClusterError: the cluster cannot be reached or refuses.
        FencedError: another consumer has taken this one's fixed share.
        SequenceLogError: the log cannot be written; nothing after that is judged.
        UsageError: the metrics' port is taken, or a topic's name fits no mapping.
    """
    favour_the_loop()
    session = new_session_id(time.time_ns())
    measures = ConsumerMetrics(options, serve)
    place = "source" if options.role is Role.SOURCE else "destination"
    outage = Outage(place, on_answer=measures.health.beat)
    measures.follow_outage(outage)
    async with AsyncExitStack() as stack:
        stack.enter_context(measures.serving())
        admin = await stack.enter_async_context(Admin(options.client))
        cluster = await admin.cluster_id()
        follower, topic = _ledger(options)
        stack.push_async_callback(topic.close)
        topics = JudgedTopics(options, admin, follower.ledger)
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
        common = SharedState(topics, store)
        assignment = Assignment(
            options,
            admin=admin,
            topics=topics,
            store=store,
            reader=reader,
            log=log,
            measures=measures,
            outage=outage,
            common=common,
        )
        stack.push_async_callback(assignment.close)
        rounds = JudgingRounds(
            options,
            topics=topics,
            assignment=assignment,
            store=store,
            ledger=follower,
            reader=reader,
            log=log,
            measures=measures,
            outage=outage,
            common=common,
        )

        async def work() -> ConsumeReport:
            enough = asyncio.Event()
            takeover = Takeover(options, assignment=assignment, store=store)
            reading = _consume(
                options,
                assignment,
                rounds,
                takeover,
                topics,
                log,
                measures,
                outage,
                enough,
                on_progress,
            )
            await _until_end(reading, stop, enough, options.duration)
            return await _conclusion(rounds, assignment)

        return await _with_background(work, store.follow, follower.follow)


async def _consume(
    options: ConsumeOptions,
    assignment: Assignment,
    rounds: JudgingRounds,
    takeover: Takeover,
    topics: JudgedTopics,
    log: ConsumerLog,
    measures: ConsumerMetrics,
    outage: Outage,
    enough: asyncio.Event,
    on_progress: Callable[[ConsumeProgress], None],
) -> None:
    """Read until an end condition holds, or it is `enough`; an outage is none."""
    started = next_round = time.monotonic()
    measures.last_message = measures.last_of_run = started
    complete, complete_since = False, started
    progress: ConsumeProgress | None = None
    await assignment.begin()
    measures.health.started = True
    while not enough.is_set():
        measures.health.beat()
        try:
            if outage.why:
                await topics.discover()
                await assignment.recheck()
            await assignment.read(_POLL_SECONDS)
            now = time.monotonic()
            if now < next_round:
                continue
            began = now
            assignment.drop_fenced()
            await assignment.settle()
            await topics.discover()
            await log.update_topics(topics)
            await assignment.take_share()
            await assignment.recheck(topics.returned())
            before, (complete, progress) = complete, await rounds.judge()
            await takeover.look(rounds.unread)
            assignment.save_if_due()
            outage.over()
            next_round = began + _pause(time.monotonic() - began)
        except TRANSIENT_ERRORS as error:
            outage.begin(error)
            next_round = time.monotonic() + _ROUND_SECONDS
            now, before, complete = time.monotonic(), False, False
            if progress is not None:
                progress = replace(progress, per_second=0.0, outage=str(outage))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), _ROUND_SECONDS)
        if progress is not None:
            on_progress(progress)
        complete_since = complete_since if complete and before else now
        quiet = now - measures.last_message
        settled = now - max(measures.last_of_run, complete_since) >= options.settle_time
        if options.until_complete and complete and settled:
            break
        if options.idle_timeout is not None and quiet >= options.idle_timeout:
            break
    assignment.drop_fenced()
    await assignment.settle()


async def _conclusion(rounds: JudgingRounds, assignment: Assignment) -> ConsumeReport:
    """The last round's report, and the last save.

    A run whose last state is not saved does not pass: others' verdicts rest on that state.
    """
    assignment.drop_fenced()
    report = await rounds.conclude()
    unsaved = await assignment.hand_over()
    if unsaved is None:
        return report
    return replace(report, inconclusive=[*report.inconclusive, unsaved])


def _pause(took: float) -> float:
    """Seconds from one round to the next: with very many streams a round is no small thing."""
    return min(max(_ROUND_SECONDS, took / _ROUND_SHARE), _MOST_SECONDS)


async def _until_end(
    reading: Awaitable[None], stop: asyncio.Event, enough: asyncio.Event, seconds: float | None
) -> None:
    """Let the reading end by itself; after a signal or so many seconds it is told that it should.

    A cluster that does not answer may hold it up: then it is ended.
    """
    task = asyncio.ensure_future(reading)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        enough.set()
        await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if task.done():
            task.result()
    finally:
        await _cancelled({task, stopped})


async def _with_background(
    work: Callable[[], Awaitable[ConsumeReport]],
    *others: Callable[[], Awaitable[None]],
) -> ConsumeReport:
    """Do the work while the others run for ever; whatever fails first ends all and is raised."""
    main = asyncio.ensure_future(work())
    beside = [asyncio.ensure_future(follow()) for follow in others]
    everybody: set[asyncio.Future[Any]] = {main, *beside}
    try:
        await asyncio.wait(everybody, return_when=asyncio.FIRST_COMPLETED)
        for other in beside:
            if other.done() and not main.done():
                await other
        return await main
    finally:
        await _cancelled(everybody)


async def _cancelled(futures: set[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and wait for it; what the others met is told by whoever awaits it."""
    pending = {future for future in futures if not future.done()}
    # More than once: the client library swallows a cancellation now and then.
    while pending:
        for future in pending:
            future.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for future in futures:
        if not future.cancelled():
            future.exception()


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
