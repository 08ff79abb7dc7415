"""The truth of a synthetic run: each message with a finding, as Parquet beside the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.selftest.synthetic_columns import producer_name
from mirrortest.selftest.synthetic_mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import Event

    from mirrortest.selftest.synthetic_mirror import Anomalies
    from mirrortest.selftest.synthetic_run import Timeline

TRUTH = "truth.parquet"
"""The file's name in the run's directory."""

SCHEMA = pa.schema(
    [
        pa.field("producer", pa.string(), nullable=False),
        pa.field("incarnation", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("lane", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("finding", pa.string(), nullable=False),
    ]
)
"""A row is one message with one finding."""


def write_truth(timeline: Timeline, path: Path, stop: Event) -> dict[str, int]:
    """Write the file, unless told to stop; gives the number of messages by finding."""
    counts: dict[str, int] = {}
    with pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        use_dictionary=["producer", "topic", "finding"],
        column_encoding={"lane": "DELTA_BINARY_PACKED", "seq": "DELTA_BINARY_PACKED"},
    ) as writer:
        for batch, label in _batches(timeline):
            if stop.is_set():
                break
            writer.write_batch(batch)
            counts[label] = counts.get(label, 0) + batch.num_rows
    return dict(sorted(counts.items()))


def _batches(timeline: Timeline) -> Iterator[tuple[pa.RecordBatch, str]]:
    mirror = Mirror(timeline)
    for chunk in timeline.chunks():
        for each in mirror.anomalies(chunk):
            if len(each.stream):
                yield _batch(timeline, chunk.phase, each), each.finding.label


def _batch(timeline: Timeline, phase: int, found: Anomalies) -> pa.RecordBatch:
    options = timeline.options
    sizes = found.seq_hi - found.seq_lo
    stream = np.repeat(found.stream, sizes)
    step = np.arange(len(stream)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    names = pa.array([producer_name(number) for number in range(options.producers)])
    topic = timeline.topic[timeline.first_slot[stream]]
    return pa.record_batch(
        [
            names.take(pa.array(stream % options.producers)),
            pa.repeat(pa.scalar(phase + 1, pa.int32()), len(stream)),
            pa.array(options.topics).take(pa.array(topic)),
            pa.array(timeline.lane[timeline.first_slot[stream]]),
            pa.array(np.repeat(found.seq_lo, sizes) + step),
            pa.repeat(found.finding.label, len(stream)),
        ],
        schema=SCHEMA,
    )
