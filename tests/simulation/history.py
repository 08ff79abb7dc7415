"""Runs one history: clusters, mirror, and each real application under its own supervisor."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.config.threshold import thresholds
from mirrortest.consume import consumer
from mirrortest.consume.consume_report import ConsumeReport
from mirrortest.consume.options import CONSUMER_DEFAULTS, ConsumeOptions, Shard
from mirrortest.errors import FencedError, MirrortestError
from mirrortest.produce import producer
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
from mirrortest.seqlog.options import Detail, Role
from mirrortest.verify.placement import ExpectPartition

from . import faults, installed
from .loop import HangError
from .mirror import Habits, Mirror
from .plan import LEDGER, RUN, STATES, STRANGER, Plan
from .world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from mirrortest.produce.produce_report import ProduceReport

    from .cluster import Cluster
    from .loop import Process

PATIENCE_SECONDS = 200.0
"""Virtual seconds within which everything must end, long after the last fault."""
_RESTART_SECONDS = 1.0
_MOST_STARTS = 100


@dataclass
class Session:
    """One process of an application, from its start to its end."""

    application: str
    name: str
    process: Process
    started_ns: int
    ended_ns: int | None = None
    report: Any = None
    error: BaseException | None = None
    killed: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by SIGTERM: it drains and ends."""

    @property
    def why(self) -> BaseException | None:
        """The error that ended it."""
        error: BaseException | None = self.error or getattr(self.report, "error", None)
        return error

    def __str__(self) -> str:
        """How it ended, in one line."""
        if self.error is not None:
            return repr(self.error)
        if self.report is None:
            return "killed" if self.killed else "still running"
        return told(self.report)


@dataclass
class Outcome:
    """The outcome of a history."""

    plan: Plan
    world: World
    mirror: Mirror
    sessions: list[Session] = field(default_factory=list)
    hang: str = ""

    @property
    def consumers(self) -> list[Session]:
        """Sessions of consumers that ended with a verdict."""
        return [s for s in self.sessions if s.application == "consume" and s.report is not None]

    @property
    def reports(self) -> list[ConsumeReport]:
        """Their reports."""
        return [session.report for session in self.consumers]


class Stage:
    """Everything that takes part in a history."""

    def __init__(self, plan: Plan, seed: str) -> None:
        self.plan = plan
        self.world = World(seed)
        self.topics = [f"t{number}" for number in range(plan.topics)]
        copied = {topic: topic for topic in self.topics}
        if not (plan.direct_ledger or plan.source_role):
            copied[LEDGER] = LEDGER
        self.mirror = Mirror(
            self.world,
            copied,
            Habits(
                lag=plan.mirror_lag,
                rehash=plan.rehash,
                partitions=plan.partitions - 1 if plan.folded else None,
                transactional=plan.transactional,
                drop_every=plan.drop_every,
                stamps=plan.stamps == "destination",
                compacts=plan.compacted,
                remembers=any(s.kind == "unclean_election_resent" for s in plan.strikes),
            ),
        )
        self.outcome = Outcome(plan, self.world, self.mirror)
        self.current: dict[str, Session] = {}
        """application's name -> its current session"""
        self.complaints: list[str] = []
        """Problems that a script found."""
        self.scripted = False
        self.over = False
        self._busy = 0
        self._all_over = self.world.loop.create_future()

    @property
    def read_cluster(self) -> Cluster:
        """The cluster whose copy of the topics is judged."""
        return self.world.source if self.plan.source_role else self.world.destination

    @property
    def ledger_cluster(self) -> Cluster:
        """The cluster where consumers read the ledger."""
        direct = self.plan.direct_ledger or self.plan.source_role
        return self.world.source if direct else self.world.destination

    def run(self, direct: Callable[[Stage], Coroutine[Any, Any, None]] | None = None) -> Outcome:
        """Play it; the script `direct` runs in place of the plan's applications and faults."""
        world = self.world
        self.scripted = direct is not None
        for topic in self.topics:
            world.source.create(
                topic,
                self.plan.partitions,
                compacted=self.plan.compacted and not self.plan.copies_alone,
                stamps=self.plan.stamps == "source",
            )
        try:
            world.loop.run_until_complete(world.task(self._main(direct)))
        except HangError as error:
            self.outcome.hang = str(error)
        finally:
            world.loop.put_away()
        return self.outcome

    async def _main(self, direct: Callable[[Stage], Coroutine[Any, Any, None]] | None) -> None:
        plan, world = self.plan, self.world
        world.task(self.mirror.run())
        striking = faults.Faults(self)
        if direct is None:
            striking.schedule()
            for number in range(plan.producers):
                self.supervise("produce", f"p{number}", 0.2 * number)
            if plan.second_run:
                self.supervise("produce", "q0", 1.0, run="other", throughput=4.0, num_records=60)
            for number in range(plan.consumers):
                self.supervise("consume", f"c{number}", plan.consumer_starts + 0.3 * number)
            if plan.second_group:
                self.supervise("consume", "d0", plan.consumer_starts + 4.0, group="h")
            if plan.stranger:
                world.task(self._stranger(plan.stranger))
            if plan.successor:
                world.task(self._succession(plan.successor))
        else:
            self._busy += 1
            world.task(self._directed(direct))
        if plan.policy_lapses:
            world.later(plan.policy_lapses, self._set_policy_back)
        timer = world.later(PATIENCE_SECONDS, self._too_long)
        await self._all_over
        timer.cancel()
        striking.end()
        self.over = True

    async def _stranger(self, befalls: str) -> None:
        cluster, world = self.read_cluster, self.world
        topic = cluster.create(STRANGER, 1, now_ns=world.now_ns)
        await asyncio.sleep(3.0)
        if befalls == "leaderless":
            topic.partitions[0].leaderless = True
            await asyncio.sleep(30.0)  # a consumer that begins meanwhile waits for it
            topic.partitions[0].leaderless = False
        elif befalls != "nothing":
            cluster.delete(STRANGER, world.now_ns)
        if befalls == "recreated":
            cluster.create(STRANGER, 1, now_ns=world.now_ns)

    async def _succession(self, after: float) -> None:
        await asyncio.sleep(after)
        first, cluster = self.current.get("p0"), self.world.source
        if first is None or first.ended_ns is not None:
            return
        first.process.name = "p0, cut off"  # its successor must reach brokers
        cluster.unreachable_for.add(first.process.name)
        self.supervise("produce", "p0")
        self.world.count("successor")
        await asyncio.sleep(13.0)  # longer than `delivery.timeout.ms`
        cluster.unreachable_for.discard(first.process.name)
        if self.world.happened[f"request of {first.process.name} refused"]:
            self.world.count("successor took effect")

    async def _directed(self, direct: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        await direct(self)
        self._one_less()

    def _one_less(self) -> None:
        self._busy -= 1
        if not self._busy and not self._all_over.done():
            self._all_over.set_result(None)

    def _set_policy_back(self) -> None:
        for name in self.topics:
            if (topic := self.read_cluster.topics.get(name)) is not None:
                topic.compacted = False

    def _too_long(self) -> None:
        waiting = [n for n, s in self.current.items() if s.ended_ns is None]
        self.outcome.hang = f"{', '.join(waiting)} did not end within {PATIENCE_SECONDS:g} s"
        if not self._all_over.done():
            self._all_over.set_result(None)

    # -- applications -----------------------------------------------------------------------------

    def supervise(self, application: str, name: str, after: float = 0.0, **changes: Any) -> None:
        """Start an application, and restart it after each kill or error."""
        self._busy += 1
        self.world.task(self._supervise(application, name, after, changes))

    async def _supervise(
        self, application: str, name: str, after: float, changes: dict[str, Any]
    ) -> None:
        await asyncio.sleep(after)
        for _ in range(_MOST_STARTS):
            session = await self.session(application, name, **changes)
            if session.report is not None and not getattr(session.report, "error", None):
                break
            if isinstance(session.why, FencedError):
                break
            await asyncio.sleep(_RESTART_SECONDS)
        self._one_less()

    async def session(self, application: str, name: str, **changes: Any) -> Session:
        """One process of an application, until it ends or is killed."""
        world = self.world
        ahead = world.random.randrange(-4, 5) * 500_000_000 if self.plan.skewed else 0
        process = world.process(name, wall_offset_ns=ahead)
        session = Session(application, name, process, world.now_ns)
        self.outcome.sessions.append(session)
        self.current[name] = session
        over = world.loop.create_future()
        process.on_kill = lambda: None if over.done() else over.set_result(None)
        options = self.options(application, name, **changes)
        main = process.start(_main(application, options, session.stop))
        main.add_done_callback(
            lambda _: None if over.done() else over.set_result(None), context=world.context
        )
        world.note("started", name)
        await over
        session.ended_ns = world.now_ns
        if not process.alive:
            session.killed = True
            world.note("killed", name)
        elif main.cancelled():
            session.error = asyncio.CancelledError()
        elif (error := main.exception()) is not None:
            session.error = error
            world.note("failed", name, repr(error))
        else:
            session.report = main.result()
            world.note("ended", name, told(session.report))
        return session

    @property
    def _detail(self) -> Detail:
        return Detail.MESSAGES if self.plan.detailed else Detail.INTERVALS

    def options(self, application: str, name: str, **changes: Any) -> Any:
        """The application's options."""
        make = self.produce_options if application == "produce" else self.consume_options
        return make(name, **changes)

    def produce_options(self, name: str, **changes: Any) -> ProduceOptions:
        """A producer's options."""
        plan = self.plan
        properties = {
            "bootstrap.servers": self.world.source.address,
            "linger.ms": str(plan.linger_ms),
            "request.timeout.ms": "3000",
            "delivery.timeout.ms": "6000",
            "enable.idempotence": str(plan.idempotent).lower(),
            "acks": "all" if plan.idempotent else "1",
        }
        asked: dict[str, Any] = {
            "run": RUN,
            "name": name,
            "client": ClientConfig.from_properties(properties, defaults=PRODUCER_DEFAULTS),
            "topics": tuple(self.topics),
            "throughput": plan.rate,
            "num_records": plan.messages,
            "message_size": 120,
            "ledger_topic": LEDGER,
            "drain_timeout": 10.0,
            "log_detail": self._detail,
        }
        return ProduceOptions(**(asked | changes))

    @property
    def _policy(self) -> ExpectPartition:
        """Where a consumer session that starts now expects messages."""
        every = self.plan.any_every
        number = sum(session.application == "consume" for session in self.outcome.sessions)
        if every and not number % every:
            return ExpectPartition.ANY
        return ExpectPartition.MURMUR2 if self.plan.rehash else ExpectPartition.SOURCE

    def consume_options(self, name: str, **changes: Any) -> ConsumeOptions:
        """A consumer's options."""
        plan = self.plan
        source = plan.source_role
        cluster = self.world.source if source else self.world.destination
        isolation = "read_committed" if plan.read_committed else "read_uncommitted"
        properties = {
            "bootstrap.servers": cluster.address,
            "request.timeout.ms": "3000",
            "delivery.timeout.ms": "6000",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "max.poll.interval.ms": "20000",
            "isolation.level": isolation,
        }
        client = ClientConfig.from_properties(properties, defaults=CONSUMER_DEFAULTS)
        index, shares = int(name[1:]) + 1, plan.consumers + plan.idle_share
        asked: dict[str, Any] = {
            "run": RUN,
            "name": name,
            "client": client,
            "role": Role.SOURCE if source else Role.CONSUMER,
            "mapping": TopicMapping(),
            "thresholds": thresholds(()),
            "topics": () if plan.stranger else tuple(self.topics),
            "topic_pattern": "t[0-9]" if plan.stranger else None,
            "group": "g" if plan.group else None,
            "shard": None if plan.group or shares == 1 else Shard(index, shares),
            "ledger_topic": LEDGER,
            "ledger_client": replace(client, bootstrap_servers=(self.world.source.address,))
            if plan.direct_ledger and not source
            else None,
            "state_topic": STATES,
            "expect_producers": tuple(f"p{n}" for n in range(plan.producers)),
            "expect_partition": self._policy,
            "deadline": plan.deadline,
            "settle_time": 1.0,
            "state_interval": 1.0,
            "log_detail": self._detail,
        }
        return ConsumeOptions(**(asked | changes))


async def _main(
    application: str, options: Any, stop: asyncio.Event
) -> ProduceReport | ConsumeReport:
    run: Any = producer.run if application == "produce" else consumer.run
    report: ProduceReport | ConsumeReport = await run(options, stop=stop)
    return report


def told(report: Any) -> str:
    """A report in one line."""
    if not isinstance(report, ConsumeReport):
        return str(report.error or "done")
    counts = {name: count for name, count in report.counts.items() if count}
    return f"{report.verdict} {counts} {list(report.inconclusive)}"


@contextmanager
def simulating() -> Iterator[None]:
    """Run `mirrortest` on simulated parts; it logs nothing."""
    before = structlog.get_config()
    structlog.configure(
        processors=[_drop], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
    )
    try:
        with installed.installed():
            yield
    finally:
        structlog.configure(**before)


def _drop(*_: Any) -> Any:
    raise structlog.DropEvent


__all__ = ["MirrortestError", "Outcome", "Session", "Stage", "simulating", "told"]
