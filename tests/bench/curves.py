"""Cost curves: CPU per message over one parameter, with defaults for all others."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirrortest.lab import FaultyMirror, FaultyMirrorSettings
from tests.bench.contenders import FINDINGS, OURS, Place, consumer, producer, verifier
from tests.bench.measure import Figure, Running, costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mirrortest.lab import Lab
    from tests.bench.measure import Costs

_BYTES = 1_200_000_000
"""The most bytes that the larger run of a point writes.

Start-up takes more than a second of CPU and varies by some hundredths of a second. With a third of
these bytes, that noise was as large as the cost of a small message.
"""
_FEWEST, _MOST = 2_000, 6_000_000
_PARTITIONS = 4
_TURNS = 2
"""How often each run of a point is repeated: the lowest cost counts."""

SIZES = (80, 300, 1_000, 3_000, 10_000, 100_000, 900_000)
IN_HEADERS = (16, 100, 1_000)
PARTITIONS = (1, 10, 50, 200)
STREAMS = (4, 100, 1_000, 10_000)
BATCHES = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
ANOMALIES = (0.0, 0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Point:
    """One point of a curve: what producing and verifying cost at `x`."""

    curve: str
    x: float
    produce: Figure | None
    verify: Figure | None

    def to_json(self) -> dict[str, Any]:
        """As JSON's types."""
        return asdict(self)


class Curves:
    """Measures the points in one lab without a mirror."""

    def __init__(self, lab: Lab, folder: Path, share: float = 1.0) -> None:
        self._lab = lab
        self._folder = folder
        self._place = Place.of(lab, folder)
        self._share = share
        self._turns = 0

    def all(self) -> Iterator[Point]:
        """Every curve that needs no mirror."""
        for size in SIZES:
            yield self._point("message size, bytes", size, size)
        for size in IN_HEADERS:
            yield self._point("message size in header form, bytes", size, size, "--form", "headers")
        for partitions in PARTITIONS:
            yield self._point("partitions", partitions, 1000, partitions=partitions)
        for streams in STREAMS:
            lanes = ("--destination-partitions", str(streams))
            # Each lane is one stream in one partition; a mirror that keeps partitions keeps that.
            yield self._point("streams", streams, 100, *lanes, "--throughput", "-1")
        for size in BATCHES:
            yield self._point(
                "batch size, bytes", size, 1000, "--command-property", f"batch.size={size}"
            )
        for workers in range(1, (os.cpu_count() or 1) + 1):
            yield self._point(
                "workers", workers, 1000, "--workers", str(workers),
                reading=("--workers", str(workers)),
            )  # fmt: skip

    def _point(
        self,
        curve: str,
        x: float,
        size: int,
        *options: str,
        partitions: int = _PARTITIONS,
        reading: Sequence[str] = (),
    ) -> Point:
        counts = counts_of(size, self._share)
        turns = [self._turn(counts, size, partitions, options, reading) for _ in range(_TURNS)]
        return Point(curve, x, *(Figure.of(each, counts) for each in zip(*turns, strict=True)))

    def _turn(
        self,
        counts: tuple[int, int],
        size: int,
        partitions: int,
        options: Sequence[str],
        reading: Sequence[str],
    ) -> tuple[Costs, Costs]:
        """Write a topic for each count, and read both."""
        self._turns += 1
        name = f"curve.{self._turns}"
        topics = {f"{name}.{count}": count for count in counts}
        for topic in topics:
            self._lab.source.create_topic(topic, partitions)
        # Own ledger and state topics: a command reads all that earlier ones left there.
        own = ("--ledger-topic", f"{name}.ledger")
        state = ("--state-topic", f"{name}.state")
        written = costs(
            [
                producer(OURS, self._place, topic, count, size, *own, *options)
                for topic, count in topics.items()
            ],
            self._folder,
        )
        read = costs(
            [
                consumer(OURS, self._place, topic, count, *own, *state, *reading)
                for topic, count in topics.items()
            ],
            self._folder,
        )
        for topic in topics:
            self._lab.source.delete_records(topic, -1)
        return written, read


def counts_of(size: int, share: float = 1.0) -> tuple[int, int]:
    """How many messages the smaller and the larger run of a point have."""
    more = int(min(max(_BYTES // (size + 100), _FEWEST), _MOST) * share)
    return max(more // 5, 1), max(more, 2)


def anomalies(lab: Lab, folder: Path, share: float = 1.0) -> Iterator[Point]:
    """Verify behind the lab's faulty mirror, which duplicates a share of the messages."""
    place = Place.of(lab, folder)
    counts = counts_of(1000, share)
    for at, rate in enumerate(ANOMALIES):
        spec = folder / f"spec{at}.toml"
        act = f'[[acts]]\nkind = "duplicate"\nrate = {rate}\n' if rate else ""
        spec.write_text(f"seed = 7\nlane_messages = {counts[1]}\n{act}")
        mirror = lab.mirror
        assert isinstance(mirror, FaultyMirror)
        mirror.settings = FaultyMirrorSettings(spec=spec, truth=folder / f"truth{at}")
        mirror.restart()
        lab.mirror.wait_ready()
        topics = {count: f"wrong.{at}.{count}" for count in counts}
        for count, topic in topics.items():
            lab.source.create_topic(topic, _PARTITIONS)
            Running(producer(OURS, place, topic, count, 1000), folder).wait()
        alias = lab.source.alias
        # The first run of a topic waits for the copy: it is not measured.
        for topic in topics.values():
            options = ("--deadline", "300s")
            Running(verifier(place, topic, alias, *options), folder).wait((0, FINDINGS))
        turns = [
            costs(
                [
                    # Own state topics: later runs would read states with thousands of findings.
                    verifier(place, topic, alias, "--state-topic", f"again.{turn}.{topic}")
                    for topic in topics.values()
                ],
                folder,
                (0, FINDINGS),
            )
            for turn in range(_TURNS)
        ]
        yield Point("share of duplicates", rate, None, Figure.of(turns, counts))
