"""The highest rate that one producer and one consumer process sustain for some seconds."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import OURS, Place, consumer, producer
from tests.bench.measure import Running

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirrortest.lab import Lab

RATES = (200_000, 150_000, 100_000, 75_000, 50_000)
_SIZE = 1000
_PARTITIONS = 8
_LAG_BOUND = 0.020
_REACHED = 0.99


@dataclass(frozen=True)
class Tried:
    """The figures at a rate, in seconds; `ours` is both processes' share of the machine's CPU.

    `acked` and `added` are medians from a message's actual send to its acknowledgement, and to its
    arrival at a consumer of the same broker: the broker's latency, and what mirrortest adds
    without a mirror in between.
    """

    rate: int
    seconds: int
    sent_per_second: float
    lag_p99: float
    acked: float
    added: float
    producer_cpu: float
    consumer_cpu: float
    producer_resident: int
    consumer_resident: int
    ours: float

    @property
    def kept_up(self) -> bool:
        """Whether the producer kept up with the rate."""
        return self.sent_per_second >= _REACHED * self.rate and self.lag_p99 < _LAG_BOUND

    def to_json(self) -> dict[str, Any]:
        """As a flat dictionary."""
        return {**asdict(self), "held": self.kept_up}


def highest(lab: Lab, folder: Path, seconds: int, rates: Iterable[int] = RATES) -> list[Tried]:
    """Try each of the rates."""
    place = Place.of(lab, folder)
    tried: list[Tried] = []
    for rate in rates:
        topic = f"bench.highest.{rate}"
        lab.source.create_topic(topic, _PARTITIONS)
        tried.append(_try(place, folder, topic, rate, seconds))
        lab.source.delete_records(topic, -1)
    return tried


def _try(place: Place, folder: Path, topic: str, rate: int, seconds: int) -> Tried:
    reading = Running(consumer(OURS, place, topic, 0, "--json"), folder, "consumer")
    options = ("--warmup-records", str(2 * rate), "--json")
    writing = Running(
        producer(OURS, place, topic, rate * seconds, _SIZE, *options, rate=rate), folder, "producer"
    )
    sent, seen = writing.wait(), reading.wait()
    written, heard = json.loads(writing.answer), json.loads(reading.answer)
    steady = written["steady_state"]
    return Tried(
        rate=rate,
        seconds=seconds,
        sent_per_second=steady["records_per_second"],
        lag_p99=steady["schedule_lag_seconds"]["p99"],
        acked=steady["latency_seconds"]["from_sent"]["p50"],
        added=heard["latency_seconds"][topic]["from_sent"]["p50"],
        producer_cpu=sent.cpu,
        consumer_cpu=seen.cpu,
        producer_resident=sent.resident,
        consumer_resident=seen.resident,
        ours=(sent.cpu + seen.cpu) / (seen.wall * (os.cpu_count() or 1)),
    )
