"""`make bench`: CPU of the client process per message, compared with common Kafka tools.

mirrortest numbers messages, checks every byte, logs, and records acknowledgements in the ledger;
the peers check nothing. Each command runs at two sizes, and the difference excludes start-up. All
take turns in one lab. Figures are comparable only within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mirrortest.lab import Lab
from mirrortest.lab.mirrors import FaultyMirrorSettings, MirrorSettings
from tests.bench import curves, report
from tests.bench.cases import LEDGER, Bench, Result
from tests.bench.contenders import PEERS, PORTABLE
from tests.bench.held import AtRate, at_rates
from tests.bench.highest import RATES, Tried, highest
from tests.bench.memory import MESSAGES, Resident, memory
from tests.bench.scrapes import Scrapes, scrapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARTS = ("direct", "mirror", "held", "highest", "curves", "memory", "scrapes")
_DEFAULT_PARTS = ("direct", "mirror", "held", "highest")
_DIRECT = ((100, "body"), (1000, "body"), (100, "headers"))
_WIDTH = 160
# Brokers run as in production, with both of Java's compilers.
_JVM = ("-XX:TieredStopAtLevel=4",)
err = Console(stderr=True)


@dataclass
class _Measured:
    """The results so far."""

    results: list[Result] = field(default_factory=list)
    at_rates: list[AtRate] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    points: list[curves.Point] = field(default_factory=list)
    samples: list[Resident] = field(default_factory=list)
    scrapes: list[Scrapes] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and save the figures in a file with a dated name."""
    options = _options(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    load, now = os.getloadavg(), datetime.now(UTC)
    measured = _Measured()
    try:
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-") as place:
            _measure(Path(place), options, measured)
    finally:
        # Report what was measured even if a later part failed: parts may take half an hour.
        _show_all(measured, options, now, load)


def _measure(folder: Path, options: argparse.Namespace, into: _Measured) -> None:
    if set(options.parts) - {"mirror"}:
        with Lab(start_mirror=False, jvm_options=_JVM) as lab:
            if "direct" in options.parts:
                for result in _direct(lab, folder, options):
                    into.results.append(result)
            if "held" in options.parts:
                for each in at_rates(lab, folder, options.repeat, options.seconds):
                    into.at_rates.append(each)
                    err.print(f"  {each.contender} at {each.rate:,g}/s")
            if "highest" in options.parts:
                into.tried += highest(lab, folder, options.seconds, options.rates)
            if "memory" in options.parts:
                into.samples += memory(lab, folder, options.memory_messages)
            if "scrapes" in options.parts:
                into.scrapes.append(scrapes(lab, folder))
            if "curves" in options.parts:
                for point in curves.Curves(lab, folder, options.share).all():
                    into.points.append(point)
                    err.print(f"  {point.curve} {point.x:,g}")
    if "curves" in options.parts:
        with Lab(mirror=FaultyMirrorSettings(), start_mirror=False, jvm_options=_JVM) as lab:
            into.points += curves.anomalies(lab, folder, options.share)
    if "mirror" in options.parts:
        for via, codec in (("after MirrorMaker 2", "none"), ("the same with zstd", "zstd")):
            for result in _mirrored(via, codec, folder, options):
                into.results.append(result)


def _show_all(
    found: _Measured, options: argparse.Namespace, now: datetime, load: tuple[float, float, float]
) -> None:
    # A file or a pipe has no width of its own.
    out = Console(width=None if sys.stdout.isatty() else _WIDTH)
    if found.results:
        out.print(report.costs(found.results))
    if found.at_rates:
        out.print(report.at_rates(found.at_rates))
    if found.tried:
        out.print(report.loads(found.tried))
    if found.points:
        out.print(report.curves(found.points))
    if found.samples:
        out.print(report.residents(found.samples))
    if found.scrapes:
        out.print(report.scraped(found.scrapes))
    path = options.output / f"bench-{now:%Y%m%dT%H%M%SZ}.json"
    figures = report.figures(
        now,
        options.messages,
        load,
        found.results,
        found.tried,
        found.points,
        found.samples,
        found.scrapes,
        found.at_rates,
    )
    path.write_text(json.dumps(figures, indent=1) + "\n")
    out.print(f"{now:%Y-%m-%d}, {report.machine()}; figures: {path}", soft_wrap=True)


def _direct(lab: Lab, folder: Path, options: argparse.Namespace) -> Iterator[Result]:
    bench = Bench(lab, folder, options.messages, options.peers)
    for turn in range(options.repeat):
        for size, form in _DIRECT:
            for result in bench.direct(turn, size, form):
                _show(result)
                yield result


def _mirrored(via: str, codec: str, folder: Path, options: argparse.Namespace) -> Iterator[Result]:
    settings = MirrorSettings(
        topics=rf"bench[.].*,{LEDGER}",
        tasks=2,
        properties={"B.producer.compression.type": codec},
    )
    with Lab(mirror=settings, jvm_options=_JVM) as lab:
        bench = Bench(lab, folder, options.messages)
        for turn in range(options.repeat):
            for result in bench.mirrored(turn, 1000, via):
                _show(result)
                yield result


def _show(result: Result) -> None:
    err.print(
        f"  {result.turn + 1}: {result.case}, {result.contender}: {result.figure.cpu_us:.2f} us"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(_DEFAULT_PARTS))
    parser.add_argument("--peers", nargs="*", choices=(*PEERS, PORTABLE), default=list(PEERS))
    parser.add_argument("--repeat", type=int, default=5, help="turns of each case")
    parser.add_argument("--messages", type=int, default=1_000_000, help="of 1 kB, of a larger run")
    parser.add_argument("--seconds", type=int, default=20, help="at each rate")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="of `highest`")
    parser.add_argument("--share", type=float, default=1.0, help="of the curves' usual messages")
    parser.add_argument("--memory-messages", type=int, default=MESSAGES, help="in all, of 100 B")
    parser.add_argument("--output", type=Path, default=Path("bench-results"))
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
