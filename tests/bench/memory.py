"""Memory of one producer and one consumer process, from the first message to the last."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import OURS, Place, consumer, producer
from tests.bench.measure import Running

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab import Lab

MESSAGES = 100_000_000
RATE = 600_000
_SIZE = 100
_PARTITIONS = 8
_SAMPLES = 10
_INTERVAL_SECONDS = 1.0
_CONFIGS = {
    # Brokers delete old segments: no disk needs room for all these messages.
    "retention.bytes": str(1 << 30),
    "segment.bytes": str(128 << 20),
}


@dataclass(frozen=True)
class Resident:
    """Resident bytes after `seconds`; None for a process that has ended."""

    seconds: float
    producer: int | None
    consumer: int | None

    def to_json(self) -> dict[str, Any]:
        """As a flat dictionary."""
        return asdict(self)


def memory(lab: Lab, folder: Path, messages: int = MESSAGES, rate: int = RATE) -> list[Resident]:
    """Write and read `messages` at once; evenly spaced samples of resident memory."""
    place = Place.of(lab, folder)
    lab.source.create_topic("bench.memory", _PARTITIONS, configs=_CONFIGS)
    lanes = ("--destination-partitions", str(2 * _PARTITIONS), "--throughput", str(rate))
    reading = Running(consumer(OURS, place, "bench.memory", messages), folder, "consumer")
    writing = Running(
        producer(OURS, place, "bench.memory", messages, _SIZE, *lanes), folder, "producer"
    )
    began, found = time.monotonic(), []
    while any(now := (writing.resident, reading.resident)):
        found.append(Resident(time.monotonic() - began, *now))
        time.sleep(_INTERVAL_SECONDS)
    writing.wait()
    reading.wait()
    step = max(1, len(found) // _SAMPLES)
    return found[step - 1 :: step]
