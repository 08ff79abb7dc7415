"""The parts of the judgement, in Spark's workers: bundles of rows in, bundles of tables out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile import attribution, result_tables
from mirrortest.reconcile.bundle import SCANNED, bundles, opened
from mirrortest.reconcile.chain import codes
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.judgement import judge
from mirrortest.reconcile.online import compared
from mirrortest.reconcile.slices import slices
from mirrortest.reconcile.stream_rows import StreamRows, coded
from mirrortest.reconcile.stretch import numbers
from mirrortest.seqlog.batches import conformed
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.attribution import Evidence
    from mirrortest.reconcile.bundle import Parts
    from mirrortest.reconcile.given import Given

OBSERVED, STRADDLING = "observed", "straddling"
SHOWN_RANGES = 20
_AT_ONCE = 1_000_000
"""Rows, holes included, that are judged at once: they take some 200 MB."""


class Part(NamedTuple):
    """What workers need to judge; `attributed_later`: more logs, or the destination, come first."""

    run: str
    given: Given
    attributed_later: bool

    def judge(self, part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Judge the bundles of all rows of a part's lanes; yields bundles of tables."""
        tables = [rows for batch in batches for rows in opened(batch["packed"])]
        if not tables:
            return
        every = pa.concat_tables(tables)
        del tables
        yield from bundles(result_tables.BY_PARTITION, part, 0, result_tables.streamless(every))
        for rows in _lanes(every, self.given):
            yield from self._tables(part, rows)

    def _tables(self, part: int, rows: StreamRows) -> Iterator[pa.RecordBatch]:
        if not len(rows.streams):
            return
        judgement = judge(rows, self.given)
        for name, table in (
            (result_tables.BY_STREAM, result_tables.by_stream(judgement)),
            (result_tables.BY_PARTITION, result_tables.by_partition(judgement)),
            (result_tables.BY_MINUTE, result_tables.by_minute(judgement)),
            (result_tables.COMPARED, compared(judgement, self.given)),
            (result_tables.FINDINGS_BY_ID, _of_run(result_tables.findings(judgement), self.run)),
        ):
            yield from bundles(name, part, 0, table)
        if self.attributed_later:
            yield from bundles(result_tables.ABSENT, part, 0, attribution.unattributed(judgement))
        else:
            yield from _attributed(part, _of_run(attribution.assumed(judgement), self.run))


class Attributing(NamedTuple):
    """What workers need to attribute what is missing."""

    run: str
    evidence: Evidence
    parts: Parts

    def attribute(self, part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Attribute a part's bundles, of what is missing and of all logs that may have seen it."""
        wanted = {
            result_tables.ABSENT: [Kind.FOUND],
            SCANNED: [Kind.SENT],
            OBSERVED: [Kind.SEEN, Kind.CLAIMED],
        }
        tables = [INTERVALS.empty_table()]
        for batch in batches:
            opening = zip(batch["name"].to_pylist(), opened(batch["packed"]), strict=True)
            for name, rows in opening:
                kinds = pa.array([kind.value for kind in wanted[name]])
                mine = rows.filter(pc.is_in(rows["kind"], kinds))
                tables.append(conformed(mine, INTERVALS))
        found = self.evidence.found
        if found is not None and found.num_rows:
            rows = conformed(found, INTERVALS)
            tables.append(rows.filter(pa.array(self.parts.of(rows) == part)))
        rows = StreamRows.of_table(pa.concat_tables(tables))
        if len(rows.streams):
            attributed = attribution.attribute(rows, self.evidence)
            yield from _attributed(part, _of_run(attributed.table, self.run))
            yield from bundles(STRADDLING, int(attributed.straddling), 0, pa.table({}))


def _attributed(part: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from bundles(result_tables.ABSENT, part, 0, table)
    yield from bundles(result_tables.TOTALS, part, 0, attribution.totals(table))
    yield from bundles(result_tables.FIRST, part, 0, attribution.first(table, SHOWN_RANGES))


def _of_run(table: pa.Table, run: str) -> pa.Table:
    return table.add_column(1, "run", pa.repeat(pa.scalar(run, pa.string()), table.num_rows))


def _lanes(every: pa.Table, given: Given) -> Iterator[StreamRows]:
    """All rows of some lanes, then of others, about as many each time; joined lanes together."""
    joined = pc.is_in(every["topic"], pa.array(sorted(given.joined), pa.string()))
    # Without a lane, only rows that show that an offset is no hole of compaction matter.
    mine = pc.or_(joined, pc.is_valid(every["lane"]))
    every, joined = every.filter(mine), joined.filter(mine)
    weight = 1 + np.maximum(numbers(every, "holes"), 0)
    if int(weight.sum()) <= _AT_ONCE:
        yield StreamRows.of_table(every.combine_chunks())
        return
    lane = pc.if_else(joined, 0, every["lane"])
    lane = codes(coded(every["topic"]), coded(lane)).astype(np.int64)
    of_lane = np.zeros(int(lane.max()) + 1, dtype=np.int64)
    np.add.at(of_lane, lane, weight)
    large = of_lane > _AT_ONCE
    batch = np.cumsum(np.where(large, 0, of_lane)) // _AT_ONCE
    batch = np.where(large, batch.max() + 1 + np.cumsum(large), batch)[lane]
    order = np.argsort(batch, kind="stable")
    bounds = np.flatnonzero(np.append(True, np.diff(batch[order]) != 0))
    for rows in np.split(order, bounds[1:]):
        some = every.take(pa.array(rows)).combine_chunks()
        if large[lane[rows[0]]] and given.can_be_cut(some["topic"][0].as_py()):
            yield from slices(some, _AT_ONCE)
        else:
            yield StreamRows.of_table(some)
