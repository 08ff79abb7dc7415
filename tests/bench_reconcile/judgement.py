"""The task of every engine, and the comparison of its answer with the truth.

An answer is a Parquet file with a row for each message with a finding: producer, incarnation,
topic, lane, seq, finding. The peers need not handle what the synthetic logs do not contain: an
offset read twice by a restarted consumer within one session, damage, and missing logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrortest.model.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("producer", "incarnation", "topic", "lane", "seq", "finding")
ASKED = (
    Finding.LOST,
    Finding.DUPLICATED,
    Finding.REORDERED,
    Finding.CORRUPTED,
    Finding.MISROUTED,
    Finding.PHANTOM,
)
"""The compared findings; mirrortest also reports the others."""
THREADS = 2
"""Threads of every engine."""
CORRUPTED, MISROUTED = int(Finding.CORRUPTED), int(Finding.MISROUTED)


def our_answer(path: Path) -> pa.Table:
    """The ids in the ranges that `mirrortest reconcile` wrote."""
    ranges = pq.read_table(path)
    ranges = ranges.filter(pc.is_in(ranges["finding"], pa.array([f.label for f in ASKED])))
    sizes = pc.subtract(ranges["seq_hi"], ranges["seq_lo"]).to_numpy()
    row = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = ranges.take(pa.array(row))
    return table.append_column("seq", pc.add(table["seq_lo"], pa.array(step)))


def answer(table: pa.Table) -> pa.Table:
    """An answer, or the truth, with the same columns, types and order."""
    table = table.filter(pc.is_in(table["finding"], pa.array([f.label for f in ASKED])))
    types = [pa.string(), pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.string()]
    columns = [table[name].cast(kind) for name, kind in zip(COLUMNS, types, strict=True)]
    table = pa.table(columns, names=list(COLUMNS))
    return table.sort_by([(name, "ascending") for name in COLUMNS]).combine_chunks()


def difference(truth: pa.Table, found: pa.Table) -> str | None:
    """How an answer differs from the truth, in a line; None if it does not."""
    if truth.equals(found):
        return None
    there = {tuple(row.values()) for row in truth.to_pylist()}
    here = {tuple(row.values()) for row in found.to_pylist()}
    missing, false = there - here, here - there
    examples = [f"{row}" for row in [*sorted(missing)[:2], *sorted(false)[:2]]]
    return (
        f"{len(missing):,} of {len(there):,} findings missing, {len(false):,} false, "
        f"{found.num_rows - len(here):,} told twice; for example {', '.join(examples)}"
    )
