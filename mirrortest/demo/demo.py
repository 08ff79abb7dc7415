"""Two clusters, a mirror, producers, consumers, a kill: everything but the reconciliation."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.config.client import ClientConfig
from mirrortest.config.run import TopicMapping, run_id
from mirrortest.config.threshold import thresholds
from mirrortest.consume import consumer
from mirrortest.consume.options import ConsumeOptions
from mirrortest.lab.lab import Lab
from mirrortest.lab.mirror import MirrorSettings
from mirrortest.produce import producer
from mirrortest.produce.options import PRODUCER_DEFAULTS, NewTopics, ProduceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mirrortest.consume.outcome import ConsumeReport
    from mirrortest.produce.report import ProduceReport

TOPICS = ("orders", "clicks.eu")
PARTITIONS = 4
PRODUCERS = ("ann", "bob")
CONSUMERS = ("carl", "dora")
RATE = 2_000.0
"""Messages/s of each producer to each topic."""
SECONDS = 40
KILL_AFTER, AWAY = 12.0, 3.0
"""When the mirror is killed, and how long it is away; seconds."""


@dataclass
class Board:
    """What everybody is doing right now, a line each; `tell` is called when one changes."""

    tell: Callable[[Mapping[str, str]], None]
    lines: dict[str, str] = field(default_factory=dict)

    def put(self, who: str, line: object) -> None:
        """Renew a line."""
        self.lines[who] = str(line)
        self.tell(self.lines)


@dataclass(frozen=True)
class Played:
    """What came of it."""

    run: str
    producers: list[ProduceReport]
    consumers: list[ConsumeReport]


def play(folder: Path, board: Board, start: Callable[..., Played]) -> Played:
    """Bring the lab up, and run `start(lab)` with it. The lab is gone when this returns."""
    mirror = MirrorSettings(offset_flush_ms=10_000)
    with Lab(mirror=mirror, tell=lambda line: board.put("lab", line)) as lab:
        return start(lab, folder, board)


async def perform(lab: Lab, folder: Path, board: Board, stop: asyncio.Event) -> Played:
    """Produce, consume, kill the mirror in between, and wait for the online verdicts."""
    run = run_id(secrets.token_bytes(8))
    board.put("lab", f"source {lab.source.bootstrap_servers}, destination "
              f"{lab.destination.bootstrap_servers}, run {run}")  # fmt: skip
    async with asyncio.TaskGroup() as group:
        consuming = [
            group.create_task(
                consumer.run(
                    _consume_options(lab, folder, run, name),
                    stop=stop,
                    on_progress=lambda line, name=name: board.put(name, line),  # type: ignore[misc]
                )
            )
            for name in CONSUMERS
        ]
        producing = [
            group.create_task(
                producer.run(
                    _produce_options(lab, folder, run, name),
                    stop=stop,
                    on_progress=lambda line, name=name: board.put(name, line),  # type: ignore[misc]
                )
            )
            for name in PRODUCERS
        ]
        await _fault(lab, board, stop)
    return Played(run, [t.result() for t in producing], [t.result() for t in consuming])


async def _fault(lab: Lab, board: Board, stop: asyncio.Event) -> None:
    board.put("mirror", f"running; SIGKILL in {KILL_AFTER:.0f} s")
    if await _stopped_within(stop, KILL_AFTER):
        return
    await asyncio.to_thread(lab.mirror.kill)
    board.put("mirror", "killed by SIGKILL")
    await _stopped_within(stop, AWAY)
    await asyncio.to_thread(lab.mirror.start)
    board.put("mirror", "killed by SIGKILL, starting again")
    await asyncio.to_thread(lab.mirror.wait_ready)
    board.put("mirror", "killed by SIGKILL, running again")


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _produce_options(lab: Lab, folder: Path, run: str, name: str) -> ProduceOptions:
    return ProduceOptions(
        run=run,
        name=name,
        client=ClientConfig.load(
            bootstrap_server=lab.source.bootstrap_servers, defaults=PRODUCER_DEFAULTS
        ),
        topics=TOPICS,
        throughput=RATE,
        duration_ns=SECONDS * 1_000_000_000,
        message_size=200,
        create=NewTopics(partitions=PARTITIONS, replication_factor=1),
        log_dir=str(folder),
    )


def _consume_options(lab: Lab, folder: Path, run: str, name: str) -> ConsumeOptions:
    alias = lab.source.alias
    return ConsumeOptions(
        run=run,
        name=name,
        client=ClientConfig.load(bootstrap_server=lab.destination.bootstrap_servers),
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
