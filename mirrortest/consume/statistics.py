"""How much a consumer has read, and in what time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrortest.config.units import MIB, SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.consume.consume_summary import Reading
    from mirrortest.results.windows import Totals


@dataclass(frozen=True, kw_only=True)
class ReadFigures:
    """How much was read, and in what time, by one consumer or by several together.

    Attributes:
        started_ns: when the reading began, ns since the epoch.
        ended_ns: when the last message arrived; no rate includes the wait for more.
        messages: all messages, also those that are not the run's.
        value_bytes: bytes of their values, decompressed.
        rebalance_ns: how long of that time it had no partitions yet, or was in a rebalance; for
            several consumers, the longest.
        lag: messages between the next one to judge and the partitions' ends; None: unknown.
    """

    started_ns: int = 0
    ended_ns: int = 0
    messages: int = 0
    value_bytes: int = 0
    rebalance_ns: int = 0
    lag: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the last message."""
        return (self.ended_ns - self.started_ns) / SECOND_NS

    @property
    def mib(self) -> float:
        """MiB of values."""
        return self.value_bytes / MIB

    @property
    def rebalance_seconds(self) -> float:
        """Seconds without partitions, or in rebalances."""
        return self.rebalance_ns / SECOND_NS

    @property
    def fetch_seconds(self) -> float:
        """Seconds outside rebalances."""
        return max(self.seconds - self.rebalance_seconds, 0.0)

    @property
    def average_size(self) -> float:
        """Average bytes of a value; 0 without messages."""
        return self.value_bytes / self.messages if self.messages else 0.0

    def per_second(self, amount: float) -> float:
        """An amount per second."""
        return amount / self.seconds if self.seconds > 0 else 0.0

    def per_fetch_second(self, amount: float) -> float:
        """An amount per second outside rebalances."""
        return amount / self.fetch_seconds if self.fetch_seconds > 0 else 0.0

    def to_json(self) -> Reading:
        """The figures for the summary."""
        return {
            "start": _utc(self.started_ns).isoformat(timespec="milliseconds"),
            "end": _utc(self.ended_ns).isoformat(timespec="milliseconds"),
            "seconds": round(self.seconds, 6),
            "records": self.messages,
            "mib": round(self.mib, 6),
            "records_per_second": round(self.per_second(self.messages), 3),
            "mib_per_second": round(self.per_second(self.mib), 6),
            "average_size_bytes": round(self.average_size, 3),
            "rebalance_seconds": round(self.rebalance_seconds, 6),
            "fetch_seconds": round(self.fetch_seconds, 6),
            "fetch_records_per_second": round(self.per_fetch_second(self.messages), 3),
            "fetch_mib_per_second": round(self.per_fetch_second(self.mib), 6),
            "lag": self.lag,
        }

    def line(self) -> str:
        """The figures as one line for a terminal."""
        line = (
            f"{self.messages:,} messages read in {self.seconds:.2f} s: "
            f"{self.per_second(self.messages):,.1f} messages/s "
            f"({self.per_second(self.mib):.2f} MB/s), average size {self.average_size:,.0f} bytes"
        )
        if self.rebalance_ns:
            line += f"; {self.rebalance_seconds:.2f} s in rebalances"
        if self.lag is not None:
            line += f"; lag at the end {self.lag:,}"
        return line

    def perf_test_line(self) -> str:
        """The figures as a line in the format of kafka-consumer-perf-test."""
        values = (
            _local(self.started_ns),
            _local(self.ended_ns),
            f"{self.mib:.4f}",
            f"{self.per_second(self.mib):.4f}",
            str(self.messages),
            f"{self.per_second(self.messages):.4f}",
            str(self.rebalance_ns // 1_000_000),
            str(round(self.fetch_seconds * 1000)),
            f"{self.per_fetch_second(self.mib):.4f}",
            f"{self.per_fetch_second(self.messages):.4f}",
        )
        return ", ".join(values)


PERF_TEST_COLUMNS = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec",
    "rebalance.time.ms", "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip


DETAILED_COLUMNS = ("time", "threadId", *PERF_TEST_COLUMNS[2:])


def detailed_line(window: Totals, total: Totals, wall_ns: int) -> str:
    """A line in the format of kafka-consumer-perf-test --show-detailed-stats.

    `window` is an interval that ends now. As in Kafka's tool, data and messages are totals so far,
    and rates are the interval's. The thread id is 0.
    """
    mib, seconds = window.value_bytes / MIB, window.seconds
    fetching = max(seconds - window.rebalance_ns / SECOND_NS, 0.0)
    rates = [each / fetching if fetching else 0.0 for each in (mib, window.messages)]
    values = (
        _local(wall_ns),
        "0",
        f"{total.value_bytes / MIB:.4f}",
        f"{mib / seconds:.4f}",
        str(total.messages),
        f"{window.messages / seconds:.4f}",
        str(window.rebalance_ns // 1_000_000),
        str(round(fetching * 1000)),
        *(f"{rate:.4f}" for rate in rates),
    )
    return ", ".join(values)


def merged(parts: Sequence[ReadFigures]) -> ReadFigures:
    """The figures of several consumers together, from the first start to the last message."""
    lags = [part.lag for part in parts if part.lag is not None]
    return ReadFigures(
        started_ns=min(part.started_ns for part in parts),
        ended_ns=max(part.ended_ns for part in parts),
        messages=sum(part.messages for part in parts),
        value_bytes=sum(part.value_bytes for part in parts),
        rebalance_ns=max(part.rebalance_ns for part in parts),
        lag=sum(lags) if len(lags) == len(parts) else None,
    )


class ReadClock:
    """Measures how long a consumer reads; `monotonic_ns` and `wall_ns` are its clocks.

    The wall clock is read only once, so a step of it changes no duration.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now = monotonic_ns
        self._wall_offset_ns = wall_ns() - monotonic_ns()
        self._began = self._last = self._now()
        self._rebalancing_since: int | None = None
        self._rebalanced = self._rebalanced_by_last = 0

    def wall(self, monotonic_ns: int) -> int:
        """The wall time at a monotonic time, ns since the epoch."""
        return monotonic_ns + self._wall_offset_ns

    def begin(self) -> None:
        """Begin to measure."""
        self._began = self._last = self._now()

    def arrived(self) -> None:
        """Record that messages were read just now."""
        self._last = self._now()
        since = self._rebalancing_since
        self._rebalanced_by_last = self._rebalanced + (0 if since is None else self._last - since)

    def rebalance_begins(self) -> None:
        """Record that a rebalance begins; does nothing if one is in progress."""
        if self._rebalancing_since is None:
            self._rebalancing_since = self._now()

    def rebalance_ends(self) -> None:
        """Record that the partitions are assigned."""
        since, self._rebalancing_since = self._rebalancing_since, None
        if since is not None:
            self._rebalanced += self._now() - since

    @property
    def rebalanced_ns(self) -> int:
        """How long finished rebalances took, ns."""
        return self._rebalanced

    def figures(self, *, messages: int, value_bytes: int, lag: int | None) -> ReadFigures:
        """The figures so far."""
        return ReadFigures(
            started_ns=self.wall(self._began),
            ended_ns=self.wall(self._last),
            messages=messages,
            value_bytes=value_bytes,
            rebalance_ns=self._rebalanced_by_last,
            lag=lag,
        )


def _utc(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns / SECOND_NS, tz=UTC)


def _local(wall_ns: int) -> str:
    """A time as Kafka's tool prints it: in this host's zone, with milliseconds after a colon."""
    at = _utc(wall_ns).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}:{at.microsecond // 1000:03d}"
