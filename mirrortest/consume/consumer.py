"""The consumer: read, judge, log, and hand over.

One task reads and judges; beside it run the followers of ledger and state topic. Once a second a
judging round runs between two reads.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from mirrortest.consume.holdings import Holdings
from mirrortest.consume.logbook import Logbook
from mirrortest.consume.measuring import Measures
from mirrortest.consume.rounds import Rounds
from mirrortest.consume.state import Scope, StateStore
from mirrortest.consume.topics import Topics
from mirrortest.consume.vouching import LedgerFollower
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.reader import Reader
from mirrortest.seqlog.schema import Role
from mirrortest.seqlog.session import new_session_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outcome import ConsumeProgress, ConsumeReport

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
        UsageError: the metrics' port is taken, or a topic's name fits no mapping.
    """
    session = new_session_id(time.time_ns())
    measures = Measures(options)
    async with AsyncExitStack() as stack:
        stack.enter_context(measures.serving())
        admin = await stack.enter_async_context(Admin(options.client))
        cluster = await admin.cluster_id()
        follower, topic = _ledger(options)
        stack.push_async_callback(topic.close)
        topics = Topics(options, admin, follower.ledger)
        await topics.discover()
        states = await stack.enter_async_context(
            CompactedTopic(options.client, options.state_topic)
        )
        await states.create()
        scope = Scope(options.run, cluster, Role.CONSUMER.value, options.reader_name)
        store = StateStore(states, scope, session)
        log = await Logbook.open(
            options, session=session, cluster=cluster, partitions=topics.counts
        )
        stack.push_async_exit(log)
        reader = await stack.enter_async_context(Reader(options.client, group=options.group))
        holdings = Holdings(
            options,
            admin=admin,
            topics=topics,
            store=store,
            reader=reader,
            log=log,
            measures=measures,
        )
        stack.push_async_callback(holdings.close)
        rounds = Rounds(
            options,
            topics=topics,
            holdings=holdings,
            store=store,
            ledger=follower,
            reader=reader,
            log=log,
            measures=measures,
        )

        async def work() -> ConsumeReport:
            await holdings.begin()
            await _consume(options, holdings, rounds, topics, log, measures, stop, on_progress)
            holdings.drop_fenced()
            report = await rounds.conclude()
            await holdings.hand_over()
            return report

        return await _beside(work, store.follow, follower.follow)


async def _consume(
    options: ConsumeOptions,
    holdings: Holdings,
    rounds: Rounds,
    topics: Topics,
    log: Logbook,
    measures: Measures,
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeProgress], None],
) -> None:
    """Read until an end condition holds."""
    started = next_round = measures.last_message = time.monotonic()
    complete, complete_since = False, started
    while not stop.is_set():
        await holdings.read(_POLL_SECONDS)
        now = time.monotonic()
        if now < next_round:
            continue
        next_round = now + _ROUND_SECONDS
        holdings.drop_fenced()
        await topics.discover()
        await log.know(topics.counts)
        await holdings.take_share()
        before, (complete, progress) = complete, await rounds.judge()
        holdings.save_beside()
        on_progress(progress)
        complete_since = complete_since if complete and before else now
        quiet = now - measures.last_message
        settled = min(quiet, now - complete_since) >= options.settle_time
        if options.until_complete and complete and settled:
            break
        if options.duration is not None and now - started >= options.duration:
            break
        if options.idle_timeout is not None and quiet >= options.idle_timeout:
            break


async def _beside(
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
        # More than once: the client library swallows a cancellation now and then.
        pending = {future for future in everybody if not future.done()}
        while pending:
            for future in pending:
                future.cancel()
            _, pending = await asyncio.wait(pending, timeout=1)
        for future in everybody:
            if not future.cancelled():
                future.exception()  # told by whoever failed first


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
