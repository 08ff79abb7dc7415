"""A process's figures of each reporting interval: `intervals.parquet`, next to its sequence log.

A row covers one interval and one topic; the columns are `model.load`'s. While the session runs, the
rows are in a journal like the log's. Each is synced when it is written, so a killed process leaves
complete rows. The counts add up to the session's, as the last interval ends with the session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrortest.config.units import SECOND_NS
from mirrortest.host.usage import cpu_seconds, resident_bytes
from mirrortest.model.load import FIGURES
from mirrortest.seqlog.session import INTERVALS_FILE
from mirrortest.seqlog.table_files import (
    LISTS,
    csv_line,
    read_table,
    schema_of,
    utc,
)
from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.files import SessionFiles

SCHEMA = schema_of(FIGURES, never_null={"started_ns", "ended_ns", "topic"})


@dataclass
class TopicLoad:
    """A topic's figures: `counts` and `latency` only grow; `levels` are current values."""

    counts: Mapping[str, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    levels: Mapping[str, int | None] = field(default_factory=dict)


class Intervals:
    """Passes the rows of each interval of `seconds` to `record`.

    Times are monotonic ns; `wall` converts one to the wall clock's.
    """

    def __init__(
        self,
        record: Callable[[pa.RecordBatch], None],
        seconds: float,
        now_ns: int,
        wall: Callable[[int], int],
    ) -> None:
        self._record = record
        self._length_ns = int(seconds * SECOND_NS)
        self._began_ns, self._began_wall_ns = now_ns, wall(now_ns)
        self._wall = wall
        self._cpu = cpu_seconds()
        self._before: dict[str, TopicLoad] = {}

    def due(self, now_ns: int) -> bool:
        """Whether the interval is over."""
        return now_ns - self._began_ns >= self._length_ns

    def end(self, now_ns: int, topics: Mapping[str, TopicLoad]) -> None:
        """End the interval: record a row for each topic, and begin the next interval."""
        cpu, memory, wall_ns = cpu_seconds(), resident_bytes(), self._wall(now_ns)
        rows = []
        for topic, now in sorted(topics.items()):
            before = self._before.get(topic, TopicLoad())
            latency = now.latency.since(before.latency)
            rows.append(
                {
                    "started_ns": self._began_wall_ns,
                    "ended_ns": wall_ns,
                    "topic": topic,
                    **{
                        name: count - before.counts.get(name, 0)
                        for name, count in now.counts.items()
                    },
                    **now.levels,
                    "negative": latency.negative,
                    "latency_bucket": latency.buckets,
                    "latency_count": latency.counts,
                    "cpu_seconds": cpu - self._cpu,
                    "memory_bytes": memory,
                }
            )
            kept = Histogram()
            kept.merge(now.latency)
            self._before[topic] = TopicLoad(dict(now.counts), kept)
        self._began_ns, self._began_wall_ns, self._cpu = now_ns, wall_ns, cpu
        if rows:
            self._record(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def read_intervals(found: SessionFiles, damage: list[Damage]) -> pa.Table:
    """A session's intervals; those of a killed or running session are read from its journal.

    Without any the table is empty. What cannot be read is appended to `damage`.
    """
    place = found.intervals or found.location
    return read_table(place, INTERVALS_FILE, found.session.intervals, SCHEMA, damage)


# -- as CSV ---------------------------------------------------------------------------------------

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_SCALARS = [
    figure.name
    for figure in FIGURES
    if figure.type not in LISTS and figure.name not in {"started_ns", "ended_ns"}
]
CSV_COLUMNS = (
    "name", "start", "end", *_SCALARS, "latency_avg_ms", "latency_max_ms",
    *(f"latency_{name}_ms" for name in _QUANTILES),
)  # fmt: skip
"""Times are UTC; latencies come from histogram buckets, within 0.4 %."""


def begin_csv(path: Path) -> None:
    """Create or overwrite a CSV file with the header line. Raises OSError."""
    path.write_text(csv_line(CSV_COLUMNS))


def csv_lines(name: str, batch: pa.RecordBatch) -> Iterator[str]:
    """A CSV line for each row of the process called `name`."""
    for row in batch.to_pylist():
        buckets, counts = row["latency_bucket"] or (), row["latency_count"] or ()
        latency = Histogram.of(Sparse(row["negative"] or 0, buckets, counts))
        measured = (
            (latency.mean, latency.maximum, *(latency.quantile(q) for q in _QUANTILES.values()))
            if latency.count
            else ()
        )
        values = [f"{value / 1e6:.3f}" for value in measured] or [""] * (2 + len(_QUANTILES))
        yield csv_line(
            (
                name,
                *(utc(row[at]) for at in ("started_ns", "ended_ns")),
                *("" if row[each] is None else row[each] for each in _SCALARS),
                *values,
            )
        )
