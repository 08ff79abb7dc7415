"""The audit by minute of intended time and topic: counts and the latency's percentiles; pure.

A `late` message counts as delivered, and no longer as lost.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.interval_rows import ACKED, LATENCY
from mirrortest.reconcile.latency import LatencySums
from mirrortest.reconcile.result_tables import BY_MINUTE, CLEAN, COUNTED, sums_of
from mirrortest.results.summary import MINUTE_COUNTS, MINUTE_LATENCIES, PERCENTILES, Minute
from mirrortest.seqlog.totals import NO_MINUTE, Total
from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Place = tuple[str, int | None]
    """A topic and a minute since the epoch; None: unknown."""

SHOWN_MINUTES = 60

_MINUTE = pa.timestamp("us", tz="UTC")


def latencies(driver_rows: pa.Table) -> dict[Place, Histogram]:
    """The histogram of each topic and minute, in order, from the rows for the driver."""
    mine = driver_rows.filter(pc.equal(driver_rows["kind"], LATENCY))
    names = ("topic", "minute", "negative", "latency_bucket", "latency_count")
    sums = LatencySums()
    sums.add(Total(None, *row.values()) for row in mine.select(names).to_pylist())
    return {
        (topic, None if minute == NO_MINUTE else minute): Histogram.of(
            Sparse(negative, buckets.tolist(), counts.tolist())
        )
        for topic, minute, negative, buckets, counts in sums.sums()
    }


def latency_table(found: Mapping[Place, Histogram]) -> pa.Table:
    """The table `latency`: a histogram by topic and minute of intended time, as in logs' rows."""
    sparse = [histogram.sparse() for histogram in found.values()]
    return pa.table(
        {
            **_places(found),
            "negative": pa.array([each.negative for each in sparse], pa.int64()),
            "latency_bucket": pa.array([each.buckets for each in sparse], pa.list_(pa.int32())),
            "latency_count": pa.array([each.counts for each in sparse], pa.list_(pa.int64())),
        }
    )


def by_minute(
    driver_rows: pa.Table, rest: Sequence[pa.Table], found: Mapping[Place, Histogram]
) -> pa.Table:
    """The table `by_minute`.

    Args:
        driver_rows: the rows for the driver, some of which count what was acknowledged by minute.
        rest: from the judgement's parts, what is not clean (`result_tables.by_minute`).
        found: the result of `latencies`.
    """
    acked = driver_rows.filter(pc.equal(driver_rows["kind"], ACKED))
    minute = pc.if_else(pc.less(acked["minute"], 0), pa.scalar(None, pa.int64()), acked["minute"])
    zeros = pa.array(np.zeros(acked.num_rows, dtype=np.int64))
    counted = {name: acked["messages"] if name in CLEAN else zeros for name in COUNTED}
    clean = pa.table({"topic": acked["topic"], "minute": minute, **counted})
    sums = sums_of(BY_MINUTE, [clean, *rest]).to_pylist()
    rows = {(row["topic"], row["minute"]): row for row in sums}
    places = sorted({*rows, *found}, key=_order)
    columns: dict[str, Any] = _places(places)
    for name in COUNTED:
        values = [rows[place][name] if place in rows else 0 for place in places]
        columns[name] = pa.array(values, pa.int64())
    timed = [found.get(place) for place in places]
    columns["latencies"] = pa.array([each.count if each else 0 for each in timed], pa.int64())
    for name, column in MINUTE_LATENCIES.items():
        share = PERCENTILES[name]
        values = [each.quantile(share) if each and each.count else None for each in timed]
        columns[column] = pa.array(values, pa.int64())
    return pa.table(columns)


def worst(table: pa.Table) -> list[Minute]:
    """The minutes with the most missing or wrong messages, the worst first."""
    keys = [(name, "descending") for name in (*MINUTE_COUNTS[3:], "p99_ns", "sent")]
    order = pc.sort_indices(table, keys)[:SHOWN_MINUTES]
    return [_minute(row) for row in table.take(order).to_pylist()]


def _order(place: Place) -> tuple[str, int]:
    topic, minute = place
    return topic, -1 if minute is None else minute


def _places(places: Iterable[Place]) -> dict[str, pa.Array]:
    topics, minutes = [], []
    for topic, minute in places:
        topics.append(topic)
        minutes.append(None if minute is None else datetime.fromtimestamp(minute * 60, UTC))
    return {"topic": pa.array(topics, pa.string()), "minute": pa.array(minutes, _MINUTE)}


def _minute(row: Mapping[str, Any]) -> Minute:
    return Minute(
        topic=row["topic"],
        minute=row["minute"],
        counts={name: row[name] for name in MINUTE_COUNTS},
        latency_seconds={
            name: row[column] / 1e9
            for name, column in MINUTE_LATENCIES.items()
            if row[column] is not None
        },
    )
