"""The figures by which runs are compared: their names, units and which direction is worse.

Their names are those of a run's thresholds: ``p(99)``, ``ack_latency.max``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.threshold import Series
from mirrortest.config.units import MIB, format_seconds, readable_number

if TYPE_CHECKING:
    from collections.abc import Mapping


class Worse(StrEnum):
    """The direction in which a figure gets worse."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Unit(StrEnum):
    """The unit of a figure's values."""

    SECONDS = "s"
    MESSAGES = "messages"
    MESSAGES_PER_SECOND = "messages/s"
    MIB_PER_SECOND = "MiB/s"
    BYTES = "bytes"

    def show(self, value: float) -> str:
        """A value with its unit for a reader, in three or four digits."""
        match self:
            case Unit.SECONDS:
                return format_seconds(value)
            case Unit.BYTES:
                return f"{value / MIB:,.1f} MiB"
        if 0 < abs(value) < 1:
            return f"{readable_number(value, 3)}{self.suffix}"
        digits = 0 if value == round(value) or abs(value) >= 1000 else 3 if abs(value) < 10 else 1
        return f"{value:,.{digits}f}{self.suffix}"

    @property
    def suffix(self) -> str:
        """What follows a number."""
        return {Unit.MESSAGES: "", Unit.MESSAGES_PER_SECOND: "/s"}.get(self, f" {self.value}")


class Figure(NamedTuple):
    """A row of the table.

    `added` figures of several processes are summed; of others the highest counts, that of the
    slowest process. One that is `never_by_chance` is 0 without a cause: the sides differ if all
    repeats of one are above 0, and none of the other.
    """

    name: str
    unit: Unit
    worse: Worse
    meaning: str
    added: bool = False
    never_by_chance: bool = False


QUANTILES = ("p50", "p90", "p95", "p99", "p99.9")
STATISTICS: Mapping[str, str] = {
    "mean": "mean",
    "avg": "mean",
    **{name: f"p({name[1:]})" for name in QUANTILES},
    "max": "max",
}
"""The name of each statistic in summaries, and its name in thresholds."""

_SPANS = {
    Series.LATENCY: "from the intended time to the arrival at the consumer",
    Series.SENT_LATENCY: "from the actual send to the arrival at the consumer",
    Series.ACK_LATENCY: "from the actual send to the broker's acknowledgement",
    Series.SCHEDULE_LAG: "from the intended time to the actual send",
}


def statistic(series: Series, name: str) -> str:
    """The name of a latency's statistic in thresholds; `name` is its name in summaries."""
    text = STATISTICS[name]
    return text if series is Series.LATENCY else f"{series}.{text}"


def _latencies(series: Series) -> list[Figure]:
    return [
        Figure(
            statistic(series, name), Unit.SECONDS, Worse.HIGHER,
            f"{STATISTICS[name]} of the time {_SPANS[series]}",
        )
        for name in ("mean", *QUANTILES, "max")
    ]  # fmt: skip


FIGURES: tuple[Figure, ...] = (
    *_latencies(Series.LATENCY),
    *_latencies(Series.SENT_LATENCY),
    *_latencies(Series.ACK_LATENCY),
    *_latencies(Series.SCHEDULE_LAG),
    Figure(
        "produce_rate", Unit.MESSAGES_PER_SECOND, Worse.LOWER,
        "messages acknowledged per second", added=True,
    ),
    Figure(
        "produce_bytes_rate", Unit.MIB_PER_SECOND, Worse.LOWER,
        "MiB of acknowledged values per second", added=True,
    ),
    Figure(
        "produce_behind", Unit.SECONDS, Worse.HIGHER,
        "how long a topic's schedule was not kept",
    ),
    Figure(
        "batch_messages", Unit.MESSAGES, Worse.NEITHER, "messages in a record batch, on average"
    ),
    Figure(
        "produce_cpu", Unit.SECONDS, Worse.HIGHER,
        "CPU time of the producers for each acknowledged message",
    ),
    Figure(
        "produce_memory", Unit.BYTES, Worse.HIGHER,
        "greatest resident memory of the producers", added=True,
    ),
    Figure(
        "consume_rate", Unit.MESSAGES_PER_SECOND, Worse.LOWER,
        "messages read per second", added=True,
    ),
    Figure(
        "consume_bytes_rate", Unit.MIB_PER_SECOND, Worse.LOWER,
        "MiB of values read per second", added=True,
    ),
    Figure(
        "consume_seconds", Unit.SECONDS, Worse.HIGHER,
        "from the start of reading to the last message",
    ),
    Figure(
        "rebalance_seconds", Unit.SECONDS, Worse.HIGHER, "time without partitions in rebalances"
    ),
    Figure(
        "lag", Unit.MESSAGES, Worse.HIGHER,
        "offsets that were not judged yet, the greatest of all intervals", added=True,
    ),
    Figure(
        "consume_cpu", Unit.SECONDS, Worse.HIGHER,
        "CPU time of the consumers for each message read",
    ),
    Figure(
        "consume_memory", Unit.BYTES, Worse.HIGHER,
        "greatest resident memory of the consumers", added=True,
    ),
    Figure(
        "produce_throttle", Unit.SECONDS, Worse.HIGHER,
        "time for which a broker's quota held back a produce request, on average",
        never_by_chance=True,
    ),
    Figure(
        "fetch_throttle", Unit.SECONDS, Worse.HIGHER,
        "time for which a broker's quota held back a consumer's fetch request, on average",
        never_by_chance=True,
    ),
)  # fmt: skip
"""In the order of all tables."""

BY_NAME: Mapping[str, Figure] = {each.name: each for each in FIGURES}
