"""The cost of a message at the usual rates of pods: mirrortest and Java's tools, in turn.

A producer and a consumer run at once. Their CPU time is read twice while they work, which excludes
start-up and shutdown.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import JAVA, OURS, Place, consumer, producer
from tests.bench.measure import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab import Lab

RATES = (1_000, 10_000, 50_000)
_IDLE_RATE = 0.1
"""Messages/s of a process that is almost idle."""
_BEGUN_SECONDS = 10.0
"""By then both have started, and Java has compiled its hot code."""
_END_SECONDS = 2.0
_SIZE = 1000
_PARTITIONS = 4


@dataclass(frozen=True)
class AtRate:
    """One turn of a contender at a rate (messages/s); Java's consumer checks nothing.

    `produce` and `consume` are us of CPU per message. `acked` and `arrived` are median seconds from
    a message's intended time to its acknowledgement and to its arrival; None if the contender
    does not measure them.
    """

    contender: str
    rate: float
    produce: float
    consume: float
    acked: float | None = None
    arrived: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As a flat dictionary."""
        return asdict(self)


def at_rates(lab: Lab, folder: Path, turns: int, seconds: int) -> Iterator[AtRate]:
    """Both at each rate, in `turns` turns of `seconds` each; mirrortest also almost idle."""
    place = Place.of(lab, folder)
    for turn in range(turns):
        for rate in (_IDLE_RATE, *RATES):
            for contender in (OURS, JAVA) if rate in RATES else (OURS,):
                topic = f"bench.held.{contender.strip('*-').replace('*', '')}.{rate:g}.{turn}"
                lab.source.create_topic(topic, _PARTITIONS)
                yield _measured(place, folder, topic, contender, rate, seconds)
                lab.source.delete_records(topic, -1)


def _measured(
    place: Place, folder: Path, topic: str, contender: str, rate: float, seconds: int
) -> AtRate:
    options = ("--json",) if contender == OURS else ()
    count = int(rate * (_BEGUN_SECONDS + seconds + _END_SECONDS)) + 2
    reading = Running(consumer(contender, place, topic, count, *options), folder, "consumer")
    writing = Running(
        producer(contender, place, topic, count, _SIZE, *options, rate=rate), folder, "producer"
    )
    time.sleep(_BEGUN_SECONDS)
    began, before = time.monotonic(), (writing.cpu, reading.cpu)
    time.sleep(seconds)
    messages = (time.monotonic() - began) * rate
    produce, consume = (
        (each.cpu - cpu) * 1e6 / messages
        for each, cpu in zip((writing, reading), before, strict=True)
    )
    writing.wait()
    reading.wait()
    if contender != OURS:
        return AtRate(contender, rate, produce, consume)
    sent, read = json.loads(writing.answer), json.loads(reading.answer)
    return AtRate(
        contender,
        rate,
        produce,
        consume,
        acked=sent["whole"]["latency_seconds"]["from_intended"]["p50"],
        arrived=read["latency_seconds"][topic]["from_intended"]["p50"],
    )
