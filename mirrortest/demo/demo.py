"""Producers, consumers and a kill, between two clusters: all but the reconciliation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run import TopicMapping
from mirrortest.config.threshold import thresholds
from mirrortest.consume import consumer
from mirrortest.consume.options import CONSUMER_DEFAULTS, ConsumeOptions
from mirrortest.lab.mirrors import MirrorSettings
from mirrortest.lab.testbed import Lab
from mirrortest.produce import producer
from mirrortest.produce.options import PRODUCER_DEFAULTS, NewTopics, ProduceOptions
from mirrortest.seqlog.events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.produce.produce_report import ProduceReport

TOPICS = ("orders", "clicks.eu")
PARTITIONS = 4
PRODUCERS = ("ann", "bob")
CONSUMERS = ("carl", "dora")
RATE = 2_000.0
"""Messages/s of each producer to each topic."""
KILL_AT, AWAY = 0.4, 3.0
"""When the mirror is killed, as a share of the producers' time; how long it is away, seconds."""


@dataclass
class Board:
    """What everybody is doing right now, a line each; `tell` is called when one changes."""

    tell: Callable[[Board], None]
    lines: dict[str, str] = field(default_factory=dict)

    def put(self, who: str, line: object) -> None:
        """Renew a line."""
        self.lines[who] = str(line)
        self.tell(self)

    def of(self, who: str) -> Callable[[object], None]:
        """The line of one, for who only knows what to say."""
        return lambda line: self.put(who, line)


@dataclass(frozen=True)
class Played:
    """What producers and consumers reported."""

    producers: list[ProduceReport]
    consumers: list[ConsumeReport]


def raised(board: Board) -> Lab:
    """The lab of the demo, not up yet: use it as a context manager."""
    # A mirror that stores its place every 10 s repeats up to 10 s after a kill: worth seeing.
    return Lab(mirror=MirrorSettings(offset_flush_ms=10_000), on_step=board.of("lab"))


async def perform(
    lab: Lab, logs: Path, run: str, board: Board, *, seconds: int, stop: asyncio.Event
) -> Played:
    """Produce, consume, kill the mirror in between, and wait for the online verdicts."""
    board.put(
        "lab",
        f"source {lab.source.bootstrap_servers}, destination "
        f"{lab.destination.bootstrap_servers}, run {run}",
    )
    async with asyncio.TaskGroup() as group:
        consuming = [
            group.create_task(
                consumer.run(
                    _consume_options(lab, logs, run, name), stop=stop, on_progress=board.of(name)
                )
            )
            for name in CONSUMERS
        ]
        producing = [
            group.create_task(
                producer.run(
                    _produce_options(lab, logs, run, name, seconds),
                    stop=stop,
                    on_progress=board.of(name),
                    progress_seconds=1.0,
                )
            )
            for name in PRODUCERS
        ]
        await _fault(lab, board, EventLog(logs, run), stop, seconds * KILL_AT)
    return Played([t.result() for t in producing], [t.result() for t in consuming])


async def _fault(
    lab: Lab, board: Board, events: EventLog, stop: asyncio.Event, after: float
) -> None:
    board.put("mirror", f"running; SIGKILL in {after:.0f} s")
    if await _stopped_within(stop, after):
        return
    events.note("kill", "mirror")
    await asyncio.to_thread(lab.mirror.kill)
    board.put("mirror", "killed by SIGKILL")
    await _stopped_within(stop, AWAY)
    events.note("start", "mirror")
    await asyncio.to_thread(lab.mirror.start)
    board.put("mirror", "killed by SIGKILL, starting again")
    await asyncio.to_thread(lab.mirror.wait_ready)
    events.note("ready", "mirror")
    board.put("mirror", "killed by SIGKILL, running again")


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _produce_options(lab: Lab, folder: Path, run: str, name: str, seconds: int) -> ProduceOptions:
    return ProduceOptions(
        run=run,
        name=name,
        client=ClientConfig.load(
            bootstrap_server=lab.source.bootstrap_servers, defaults=PRODUCER_DEFAULTS
        ),
        topics=TOPICS,
        throughput=RATE,
        duration_ns=seconds * 1_000_000_000,
        message_size=200,
        create=NewTopics(partitions=PARTITIONS, replication_factor=1),
        log_dir=str(folder),
    )


def _consume_options(lab: Lab, folder: Path, run: str, name: str) -> ConsumeOptions:
    alias = lab.source.alias
    return ConsumeOptions(
        run=run,
        name=name,
        client=ClientConfig.load(
            bootstrap_server=lab.destination.bootstrap_servers, defaults=CONSUMER_DEFAULTS
        ),
        mapping=TopicMapping.parse(source_alias=alias),
        thresholds=thresholds((), exactly_once=False),
        topics=tuple(f"{alias}.{topic}" for topic in TOPICS),
        group="demo",
        expect_producers=PRODUCERS,
        deadline=60.0,
        state_interval=2.0,
        settle_time=3.0,
        log_dir=str(folder),
    )
