"""A latency's distribution on a terminal, as bars."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from mirrortest.config.units import format_duration
from mirrortest.results.summary import as_percentage
from mirrortest.results.tables import Signs
from mirrortest.results.view import compact_table
from mirrortest.timing.histogram import PROMETHEUS_NS

if TYPE_CHECKING:
    from rich.table import Table

    from mirrortest.timing.histogram import Histogram

_WIDTH = 24


def latency_table(histogram: Histogram) -> Table:
    """Numbers of messages by latency, from the fastest to the slowest step without gaps."""
    result = compact_table(("latency up to", "messages", "share", ""), numbers=(0, 1, 2))
    below = [0, *histogram.cumulative((*PROMETHEUS_NS, 1 << 64))]
    counts = [upper - lower for lower, upper in pairwise(below)]
    labels = [*map(format_duration, PROMETHEUS_NS), "longer"]
    if histogram.negative:
        counts, labels = [histogram.negative, *counts], ["below zero", *labels]
    filled = [at for at, count in enumerate(counts) if count]
    for at in range(filled[0], filled[-1] + 1) if filled else ():
        count = counts[at]
        length = -(-_WIDTH * count // max(counts))
        bar = Signs("█" * length, "#" * length)
        result.add_row(labels[at], f"{count:,}", as_percentage(count, histogram.count), bar)
    return result
