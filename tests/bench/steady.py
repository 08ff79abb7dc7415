"""What a message costs at the rates that pods run at: ours and Java's tools, in turn.

A producer and a consumer run at once, for a shorter and for a longer time at the same rate: the
difference is what the time between them costs, and start-up is in neither.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import JAVA, OURS, Place, consumer, producer
from tests.bench.measure import Cost, Costs, Figure, Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab import Lab

RATES = (1_000, 10_000, 50_000)
SECONDS = (10, 30)
_IDLE_RATE = 0.1
"""Messages/s of a process that has nothing to do."""
_SIZE = 1000
_PARTITIONS = 4


@dataclass(frozen=True)
class Steady:
    """A contender at a rate (messages/s); `consume` of Java's tool checks nothing."""

    who: str
    rate: float
    produce: Figure
    consume: Figure

    def shares(self) -> tuple[float, float]:
        """Of one core, of the producer and of the consumer."""
        return self.produce.cpu_us * self.rate / 1e6, self.consume.cpu_us * self.rate / 1e6

    def to_json(self) -> dict[str, Any]:
        """With the figures as they are."""
        return asdict(self)


def steady(lab: Lab, folder: Path, turns: int) -> Iterator[Steady]:
    """Both at each rate, the least of some turns; and ours with almost nothing to do."""
    place = Place.of(lab, folder)
    for rate in (_IDLE_RATE, *RATES):
        for who in (OURS, JAVA) if rate in RATES else (OURS,):
            yield _measured(lab, place, folder, who, rate, turns)


def _measured(lab: Lab, place: Place, folder: Path, who: str, rate: float, turns: int) -> Steady:
    counts = tuple(max(1, int(rate * seconds)) for seconds in SECONDS)
    produced: list[Costs] = []
    consumed: list[Costs] = []
    for turn in range(turns):
        ends: list[tuple[Cost, Cost]] = []
        for count in counts:
            topic = f"bench.steady.{who.strip('*-').replace('*', '')}.{rate:g}.{turn}.{count}"
            lab.source.create_topic(topic, _PARTITIONS)
            reading = Running(consumer(who, place, topic, count), folder, "consumer")
            writing = Running(
                producer(who, place, topic, count, _SIZE, rate=rate), folder, "producer"
            )
            ends.append((writing.wait(), reading.wait()))
            lab.source.delete_records(topic, -1)
        (write_short, read_short), (write_long, read_long) = ends
        produced.append((write_short, write_long))
        consumed.append((read_short, read_long))
    few, many = counts
    return Steady(who, rate, Figure.of(produced, (few, many)), Figure.of(consumed, (few, many)))
