"""The demo up to the online verdicts: producers, consumers, and a mirror that is killed."""

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
from mirrortest.produce.new_topics import NewTopics
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
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
KILL_AT, DOWN_SECONDS = 0.4, 3.0
"""When the mirror is killed, as a share of the producers' time; for how many seconds."""


@dataclass
class Board:
    """One line of progress for each participant; `on_change` is called when one changes."""

    on_change: Callable[[Board], None]
    lines: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, line: object) -> None:
        """Replace a line."""
        self.lines[name] = str(line)
        self.on_change(self)

    def of(self, name: str) -> Callable[[object], None]:
        """A function that replaces one participant's line."""
        return lambda line: self.put(name, line)


@dataclass(frozen=True)
class Reports:
    """The reports of producers and consumers."""

    producers: list[ProduceReport]
    consumers: list[ConsumeReport]


def demo_lab(board: Board) -> Lab:
    """The lab of the demo, not started yet: use it as a context manager."""
    # A mirror that stores its position every 10 s repeats up to 10 s of messages after a kill.
    return Lab(mirror=MirrorSettings(offset_flush_ms=10_000), on_step=board.of("lab"))


async def perform(
    lab: Lab, logs: Path, run: str, board: Board, *, seconds: int, stop: asyncio.Event
) -> Reports:
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
                )
            )
            for name in PRODUCERS
        ]
        await _fault(lab, board, EventLog(logs, run), stop, seconds * KILL_AT)
    return Reports([t.result() for t in producing], [t.result() for t in consuming])


async def _fault(
    lab: Lab, board: Board, events: EventLog, stop: asyncio.Event, after: float
) -> None:
    board.put("mirror", f"running; SIGKILL in {after:.0f} s")
    if await _stopped_within(stop, after):
        return
    events.note("kill", "mirror")
    await asyncio.to_thread(lab.mirror.kill)
    board.put("mirror", "killed by SIGKILL")
    await _stopped_within(stop, DOWN_SECONDS)
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
        create=NewTopics(create_topics=True, partitions=PARTITIONS, replication_factor=1),
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
