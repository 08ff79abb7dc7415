"""The answers to probes, from the endpoint and from the loops of producer and consumer."""

from __future__ import annotations

from http.client import HTTPConnection
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.consume import outage
from mirrortest.consume.assignment import Assignment
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.outage import Outage
from mirrortest.consume.saves import Saves
from mirrortest.consume.statistics import ReadClock
from mirrortest.errors import UnreachableError
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.endpoint import MetricsEndpoint
from mirrortest.metrics.health import Health
from mirrortest.produce.context import ProducerContext
from mirrortest.produce.housekeeping import Housekeeping, ProducerMetrics
from mirrortest.produce.options import ProduceOptions
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.produce.incarnation import Incarnation

PROBES = ("/startup", "/ready", "/live")


class Time:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _asked(endpoint: MetricsEndpoint) -> list[int]:
    connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    answers = []
    try:
        for probe in PROBES:
            connection.request("GET", probe)
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
    finally:
        connection.close()
    return answers


def test_each_probe_has_its_own_answer() -> None:
    """Started, ready and alive are three facts; a probe that fails is a 503."""
    time = Time()
    health = Health(10, time)
    with MetricsEndpoint(Metrics(), health=health) as endpoint:
        assert _asked(endpoint) == [503, 503, 200]
        health.started = True
        assert _asked(endpoint) == [200, 503, 200]
        health.ready = True
        time.now += 11
        assert _asked(endpoint) == [200, 200, 503]
        health.beat()
        assert _asked(endpoint) == [200, 200, 200]


async def test_an_outage_that_is_sat_out_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try counts, since a restart would not end the outage."""
    monkeypatch.setattr(outage, "_RETRY_SECONDS", 0)
    answers: Iterator[UnreachableError | str] = iter(
        [UnreachableError("away"), UnreachableError("away"), "here"]
    )
    attempts = []

    async def ask() -> str:
        answer = next(answers)
        if not isinstance(answer, str):
            raise answer
        return answer

    away = Outage("destination", on_attempt=lambda: attempts.append(True))
    assert await away.until_answered(ask) == "here"
    assert len(attempts) == 3


@pytest.fixture
def tended() -> tuple[Housekeeping, SimpleNamespace, SimpleNamespace, Time, Health]:
    """Housekeeping, its incarnation, whether that is idle, the clock, and the health."""
    options = ProduceOptions(
        run="r1",
        name="p",
        client=ClientConfig.load(bootstrap_server="localhost:1"),
        topics=("t",),
    )
    context = ProducerContext(options)
    metrics = ProducerMetrics(context)
    time = Time()
    metrics.health = Health(10, time)
    housekeeping = Housekeeping(context, metrics, lambda _: None)
    idle = SimpleNamespace(now=False)
    registration = SimpleNamespace(incarnation=1)
    ledger_writer = SimpleNamespace(durable_rows=0, written_ns=0, registration=registration)
    incarnation = SimpleNamespace(
        ledger_writer=ledger_writer,
        steps=1,
        idle=lambda _: idle.now,
        stopped=False,
        grown=dict,
        backlogs=lambda _: {},
    )
    return housekeeping, incarnation, idle, time, metrics.health


def test_a_producer_that_does_nothing_though_it_should_is_stalled(
    tended: tuple[Housekeeping, SimpleNamespace, SimpleNamespace, Time, Health],
) -> None:
    """Its event loop runs, but nothing is sent, answered or tried."""
    housekeeping, incarnation, _, time, health = tended
    housekeeping.tick()
    assert (health.started, health.ready, health.alive) == (False, False, True)
    housekeeping.incarnation = cast("Incarnation", incarnation)
    housekeeping.tick()
    assert (health.started, health.ready) == (True, True)
    for _ in range(3):
        time.now += 5
        housekeeping.tick()
    assert not health.alive
    incarnation.steps += 1
    housekeeping.tick()
    assert health.alive


def test_a_producer_without_anything_to_do_is_well(
    tended: tuple[Housekeeping, SimpleNamespace, SimpleNamespace, Time, Health],
) -> None:
    """A schedule may ask for one message per hour."""
    housekeeping, incarnation, idle, time, health = tended
    housekeeping.incarnation, idle.now = cast("Incarnation", incarnation), True
    for _ in range(3):
        time.now += 9
        housekeeping.tick()
        assert health.alive


async def test_a_consumer_is_ready_while_it_has_its_share() -> None:
    """Even if that is empty, as for a spare in a group; during a rebalance it is not ready."""

    async def done(*_: object) -> None:
        pass

    health = Health(10)
    answers: Any = SimpleNamespace(sync=done, write=done, judges={})
    measures: Any = SimpleNamespace(health=health, saved=lambda: None, read_clock=ReadClock())
    context = ConsumerContext(
        options=consume_options(group="g"),
        admin=answers,
        reader=answers,
        topics=answers,
        ledger=answers,
        store=answers,
        shared=answers,
        log=answers,
        metrics=measures,
        outage=Outage("destination"),
    )
    assignment = Assignment(context, Saves(context))
    for _ in range(2):
        await assignment._on_assigned([])
        assert health.ready
        await assignment._on_revoked([])
        assert not health.ready
