"""Wall clocks that are set by an hour in mid-run, forwards and back, on either side."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.lab.harness import judged_alike, until, vouched, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Command, Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HOUR = 3600
PROGRAM = """
import pathlib, sys, time
step, real_ns = pathlib.Path(sys.argv.pop(1)), time.time_ns
def time_ns():
    return real_ns() + (int(step.read_text()) if step.exists() else 0) * 10**9
time.time_ns, time.time = time_ns, lambda: time_ns() / 1e9
from mirrortest.cli.start import run
run()
"""
"""mirrortest with a wall clock that a file sets by seconds; the monotonic clock is unchanged.

To a program, an administrator's `date -s` looks the same.
"""


def test_clocks_that_are_set_change_no_verdict(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """In mid-run the clocks of two producers and two consumers are set; one of each is not.

    All messages are delivered in order, without a finding. Each process reports that its own clock
    was set, and consumers report it of producers as far as latencies show it.
    """
    scene = make_scene("orders.eu")
    topic = scene.topics[0]
    scene.create(3)
    steps = {"calm": 0, "ahead": HOUR, "behind": -HOUR}
    consumers: dict[str, Command] = {}
    producers: dict[str, Command] = {}
    for name in steps:
        scene.program = ("-c", PROGRAM, str(scene.folder / f"clock-{name}"))
        consumers[name] = scene.consume(
            name,
            *("--expect-producers", ",".join(steps), "--state-topic", f"{scene.state}.{name}"),
            *("--exactly-once", "--deadline", "30s"),
            *(() if name == "calm" else ("--log-dir", str(scene.folder / name))),
        )
        producers[name] = scene.produce(name, "--throughput", "200", "--message-size", "200")
    until(lambda: scene.copied(topic) > 600, what="records come")
    until(lambda: scene.senders() == steps.keys(), what="all producers send")
    for name in steps:
        until(
            lambda topic=f"{scene.state}.{name}": sum(lab.destination.end_offsets(topic).values()),
            what=f"{name} began",
        )
    for name, seconds in steps.items():
        # Atomically: programs look at the clock all the time, and must not read half of a file.
        setting = scene.folder / f"setting-{name}"
        setting.write_text(str(seconds))
        setting.rename(scene.folder / f"clock-{name}")
    stood = scene.copied(topic)
    until(lambda: scene.copied(topic) > stood + 1200, what="records come by the new clocks")
    for producer in producers.values():
        producer.signal(signal.SIGTERM)
    produced = {name: producer.answer() for name, producer in producers.items()}
    sent = set().union(*map(vouched, produced.values()))
    answers = {name: consumer.answer() for name, consumer in consumers.items()}
    for name, seconds in steps.items():
        assert wrong(answers[name]) == {}
        assert answers[name]["counts"]["delivered"] == len(sent)
        # (If the machine's own clock is set meanwhile, then by far less.)
        for notes in (produced[name]["notes"], answers[name]["notes"]):
            own = re.findall("clock (?:here )?was set by (.*?) s ", " ".join(notes))
            hours = [round(float(by) / HOUR) for by in own]
            assert [by for by in hours if by] == [seconds / HOUR] * bool(seconds)
        # The messages of the producer that was set back show that; those of the other one arrive
        # before they were sent, unless the consumer is ahead as well.
        notes = " ".join(answers[name]["notes"])
        assert "producer behind (incarnation 1) was set back by 3" in notes
        assert "producer calm" not in notes
        assert ("before they were sent" in notes) is (name != "ahead")
    offline = scene.reconcile("--exactly-once", *(str(scene.folder / n) for n in steps if steps[n]))
    judged_alike(offline.answer(), answers["calm"])
