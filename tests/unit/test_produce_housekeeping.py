"""A producer's housekeeping, which turns its counts into a status at each tick."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import structlog

from mirrortest.config.client_config import ClientConfig
from mirrortest.model.findings import Outcome
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.clock import Clock
from mirrortest.produce.context import ProducerContext
from mirrortest.produce.housekeeping import BEHIND_NS, Housekeeping, ProducerMetrics
from mirrortest.produce.incarnation import Backlog
from mirrortest.produce.load import ProducerLoad
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.pace import pace_of
from mirrortest.produce.recording import TopicNumbers

if TYPE_CHECKING:
    import pyarrow as pa

    from mirrortest.produce.incarnation import Incarnation
    from mirrortest.produce.produce_status import ProduceStatus
    from mirrortest.seqlog.writer import SequenceLog

SECOND = 1_000_000_000


class World:
    """A producer of 10 messages/s to each of two topics, and its clock, which begins late."""

    def __init__(self) -> None:
        self.now = 17_408 * SECOND
        options = ProduceOptions(
            run="r1",
            name="p",
            client=ClientConfig.load(bootstrap_server="localhost:1"),
            topics=("t", "u"),
            throughput=10.0,
            num_records=100,
            duration_ns=60 * SECOND,
        )
        context = ProducerContext(options, Clock(lambda: self.now, lambda: self.now))
        self.numbers = {topic: TopicNumbers(100) for topic in options.topics}
        context.numbers.update(self.numbers)
        context.rates.update(dict.fromkeys(options.topics, 10.0))
        context.began_ns = self.now
        self.reasons = context.reasons
        self.statuses: list[ProduceStatus] = []
        self.housekeeping = Housekeeping(context, ProducerMetrics(context), self.statuses.append)
        self.backlogs: dict[TopicPartition, Backlog] = {}
        self.incarnation = SimpleNamespace(
            ledger_writer=SimpleNamespace(
                durable_rows=0, written_ns=0, registration=SimpleNamespace(incarnation=1)
            ),
            steps=1,
            idle=lambda _: True,
            stopped=False,
            grown=dict,
            backlogs=lambda _: self.backlogs,
        )
        self.housekeeping.incarnation = cast("Incarnation", self.incarnation)

    def acknowledge(self, topic: str, count: int, latency_ns: int) -> None:
        tally = self.numbers[topic].steady
        tally.outcomes[Outcome.ACKED] += count
        tally.value_bytes += 100 * count
        tally.from_sent.add(latency_ns, count)

    def tick(self, seconds: float = 0.5) -> ProduceStatus:
        self.now += int(seconds * SECOND)
        self.housekeeping.tick()
        return self.statuses[-1]


@pytest.fixture
def world() -> World:
    return World()


def test_figures_are_of_all_topics(world: World) -> None:
    """Rates and percentiles are of the last seconds, and of the entire run."""
    world.tick()
    for _ in range(40):
        world.acknowledge("t", 5, 1_000_000)
        world.acknowledge("u", 5, 2_000_000)
        status = world.tick()
    assert (status.run, status.name, status.total) == ("r1", "p", 200)
    assert (status.elapsed_seconds, status.duration_seconds) == (20.5, 60.0)
    assert (status.asked_per_second, status.acked_per_second) == (20.0, 20.0)
    assert status.bytes_per_second == 2000.0
    assert status.outcomes[Outcome.ACKED] == 400
    assert sum(status.latency.all.counts) == 400
    assert sum(status.latency.recent.counts) == 200


async def test_a_status_that_cannot_be_published_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes and metrics go on; a failure is logged once, when it begins."""
    monkeypatch.setattr("mirrortest.produce.housekeeping._TICK_SECONDS", 0.0)
    published, grown = asyncio.Event(), iter([None, None])

    def failing() -> dict[str, tuple[int, int]]:
        for each in grown:
            return each  # type: ignore[return-value]  # the caller cannot read it
        published.set()
        return {}

    world.incarnation.grown = failing
    with structlog.testing.capture_logs() as logged:
        running = asyncio.create_task(world.housekeeping.run())
        await asyncio.wait_for(published.wait(), 60)
        await asyncio.sleep(0)
        running.cancel()
    assert [each["event"] for each in logged] == ["progress cannot be published, trying again"]


async def test_the_last_status_is_the_runs_end(world: World) -> None:
    """Once, it was as of the last tick: up to half a second of messages were not in it."""
    running = asyncio.create_task(world.housekeeping.run())
    await asyncio.sleep(0)
    world.acknowledge("t", 100, 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [status.outcomes[Outcome.ACKED] for status in world.statuses] == [100]


def test_time_counts_from_the_start_of_sending(world: World) -> None:
    """With --start-at, a producer waits: nothing has elapsed, and its full duration remains."""
    world.housekeeping._context.began_ns = world.now + 30 * SECOND
    waiting = world.tick(10)
    assert (waiting.elapsed_seconds, waiting.remaining_seconds) == (0.0, 60.0)
    assert waiting.asked_per_second == 0.0
    sending = world.tick(25)
    assert (sending.elapsed_seconds, sending.asked_per_second) == (5.0, 20.0)


def test_a_producer_that_was_ready_late_shows_since_when(world: World) -> None:
    """Its first figures are of the time since then."""
    world.housekeeping._context.began_ns = world.now - 120 * SECOND
    world.housekeeping._context.late_ns = 120 * SECOND
    status = world.tick(2)
    assert (status.elapsed_seconds, status.totals.seconds) == (122.0, 2.0)


def test_what_was_due_before_the_start_is_neither_planned_nor_asked_nor_sent(world: World) -> None:
    """With --start-at in the past: 50 of each topic's 100 messages are left out, and not missed.

    Once, progress never reached its total, and the first interval counted them as sent.
    """
    context = world.housekeeping._context
    for topic in ("t", "u"):
        context.paces[topic, 0] = pace = pace_of(10.0, index=0, lanes=1, total=100)
        pace.start(world.now - 5 * SECOND)
        pace.skip(world.now)
    recorded: list[pa.RecordBatch] = []
    load = ProducerLoad(context)
    load.begin(cast("SequenceLog", SimpleNamespace(record=recorded.append)))
    context.paces["t", 0].take(1, world.now)
    world.incarnation.ledger_writer.close_rows = lambda: None
    world.backlogs = {TopicPartition("u", 0): Backlog(due=context.paces["u", 0].owed(world.now))}
    load.end(cast("Incarnation", world.incarnation))
    assert [(row["asked"], row["sent"]) for row in recorded[0].to_pylist()] == [(1, 1), (1, 0)]
    assert world.tick().total == 100


def test_a_wait_for_acknowledgements_begins_with_the_first_message_in_flight(world: World) -> None:
    """It does not begin at the machine's start, nor while no message is in flight."""
    assert world.tick(60).quiet_seconds == 0.0
    world.backlogs = {TopicPartition("t", 0): Backlog(8)}
    assert world.tick().quiet_seconds == 0.5
    assert world.tick(7).quiet_seconds == 7.5
    world.acknowledge("t", 8, 1)
    assert world.tick().quiet_seconds == 0.0


def test_a_schedule_that_is_not_held_shows_by_partition(world: World) -> None:
    """It shows by how much; a short wait is not a lag, and after a stop, nothing is due."""
    late, short = BEHIND_NS * 4, BEHIND_NS // 2
    world.backlogs = {
        TopicPartition("t", 0): Backlog(1, 2, short),
        TopicPartition("u", 1): Backlog(3, 40, late),
    }
    status = world.tick()
    assert (status.in_flight, status.due, status.behind_ns) == (4, 42, late)
    assert {one.name: one.behind_ns for one in status.backlogs} == {"u-1": late, "t-0": 0}
    assert world.housekeeping.behind_ns == {"u": SECOND // 2}
    world.incarnation.stopped = True
    world.backlogs = {TopicPartition("u", 1): Backlog(3)}
    assert world.tick().behind_ns == 0
    assert world.housekeeping.behind_ns == {"u": SECOND // 2}


def test_what_the_producer_knows_of_a_fault_is_in_the_status(world: World) -> None:
    """So are the reasons why messages failed."""
    world.housekeeping.fault = "the source does not answer: gone"
    world.reasons["NotEnoughReplicas"] += 3
    status = world.tick()
    assert status.fault == "the source does not answer: gone"
    assert status.reasons == {"NotEnoughReplicas": 3}
