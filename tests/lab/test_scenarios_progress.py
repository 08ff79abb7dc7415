"""The progress lines of producer and consumer during a real run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import until, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

RECORDS = 6000


def last_line(command: Command) -> str:
    """The last progress line; empty before the first."""
    lines = [line for line in command.stderr.splitlines() if " elapsed" in line]
    return lines[-1] if lines else ""


def test_progress_is_that_of_the_run(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Rates and latencies are measured, a silent mirror is named, the last figures are complete.

    The mirror is frozen in between: its copy of the ledger shows nothing wrong meanwhile.
    """
    scene = make_scene("orders.progress")
    (topic,) = scene.topics
    scene.create(2)
    consumer = scene.consume("carl", "--expect-producers", "ann", "--duration", "10m")
    producer = scene.produce("ann", "--num-records", str(RECORDS), "--throughput", "300")
    until(
        lambda: re.search(r"latency: p50 [\d.]+ m?s, p99", last_line(consumer)),
        what="latencies of what has arrived",
    )
    until(
        lambda: re.search(r"rate: [\d,.]+/s acknowledged, [1-9][\d,.]*/s", last_line(consumer)),
        what="the rate at which messages arrive",
    )
    until(
        lambda: "no condition has failed so far" in last_line(consumer),
        what="the ledger's first record",
    )
    assert re.search(r" elapsed, .* remaining; ", last_line(consumer))
    assert f"slowest of 2: {scene.copy_of(topic)}-" in last_line(consumer)
    written = last_line(producer)
    assert re.search(rf"messages: [\d,]+ of {RECORDS:,} acknowledged", written)
    assert "/s asked" in written
    assert re.search(r"latency: of acknowledgements: p50 [\d.]+ m?s", written)
    lab.mirror.stop()
    try:
        until(
            lambda: (
                "nothing has arrived for" in last_line(consumer)
                and "no ledger record since" in last_line(consumer)
            ),
            what="the silence",
        )
    finally:
        lab.mirror.cont()
    sent, judged = producer.answer(), consumer.answer()
    assert sent["whole"]["acked"] == judged["counts"]["delivered"] == RECORDS
    assert wrong(judged).keys() <= {"duplicated"}
    assert f"messages: {RECORDS:,} delivered of {RECORDS:,} acknowledged" in last_line(consumer)
