"""A producer's log: what `mirrortest produce` would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrortest.model.findings import Outcome
from mirrortest.selftest.synthetic_columns import (
    MILLISECOND,
    by_minute,
    exploded,
    latencies,
    producer_name,
    topics,
)
from mirrortest.selftest.synthetic_run import SECOND
from mirrortest.seqlog.batches import Columns, Detail
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_run import Chunk, Timeline

    Longs = NDArray[np.int64]

_ACKNOWLEDGED = 3
"""The random stream of acknowledgements; each part of a run has one of its own."""
_RESERVED_NS = 2 * SECOND
"""What a block of reserved numbers lasts."""


class Producing:
    """The log of one incarnation of one producer."""

    def __init__(self, timeline: Timeline, producer: int, phase: int) -> None:
        self._timeline = timeline
        self._options = timeline.options
        self._producer = producer
        self._phase = phase
        streams = np.arange(self._options.streams)
        self._streams = streams[streams % self._options.producers == producer]
        self._counts = timeline.counts[phase]
        self._block = np.maximum(8, _RESERVED_NS // timeline.step_ns[phase] + 1)
        self._reserved = np.zeros(self._options.streams, dtype=np.int64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        mine = self._timeline.producer == self._producer
        for chunk in self._timeline.chunks(phase=self._phase, slots=mine):
            yield from self._reservations(chunk)
            yield from self._sent(chunk)
        yield self._rows(Kind.END, self._streams, {"seq_hi": self._counts[self._streams]})

    def _rows(self, kind: Kind, stream: Longs, values: dict[str, Any]) -> pa.RecordBatch:
        partition = stream // self._options.producers
        return Columns(
            kind,
            len(stream),
            {
                "topic": topics(self._timeline, partition),
                "run": self._options.run,
                "producer": producer_name(self._producer),
                "incarnation": self._phase + 1,
                "lane": self._timeline.lane[self._timeline.first_slot[stream]],
                "partition": partition % self._options.lanes,
                **values,
            },
        ).batch()

    def _reservations(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        needed = self._reserved.copy()
        np.maximum.at(needed, self._timeline.stream[chunk.slot], chunk.seq_hi)
        # Half a block is left when the next is asked for.
        needed = np.where(needed > self._reserved, needed + self._block // 2, needed)
        needed = np.minimum(needed, self._counts)
        stream = np.flatnonzero(needed > self._reserved)
        if not len(stream):
            return
        block, before = self._block[stream], self._reserved[stream]
        blocks = -(-(needed[stream] - before) // block)
        at = np.repeat(stream, blocks)
        step = np.arange(len(at)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        lo = self._reserved[at] + step * self._block[at]
        hi = np.minimum(lo + self._block[at], self._counts[at])
        self._reserved[stream] = np.minimum(before + blocks * block, self._counts[stream])
        yield self._rows(Kind.RESERVED, at, {"seq_lo": lo, "seq_hi": hi})

    def _sent(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        if not len(chunk.slot):
            return
        options = self._options
        rng = np.random.default_rng([options.seed, _ACKNOWLEDGED, chunk.number, self._producer])
        delay = rng.integers(3 * MILLISECOND, 20 * MILLISECOND, len(chunk.slot))
        stream = self._timeline.stream[chunk.slot]
        within = by_minute(self._timeline, chunk.phase, stream, chunk.seq_lo, chunk.seq_hi)
        row, lo, hi = within
        stream, delay = stream[row], delay[row]
        first = self._timeline.intended(chunk.phase, stream, lo)
        last = self._timeline.intended(chunk.phase, stream, hi - 1)
        steps = (hi - 1) // options.batch - lo // options.batch
        # Each batch is answered a little later than the one before it.
        told = latencies(
            options.batch, lo, hi, lambda at, step: delay[at] + step * (delay[at] >> 5)
        )
        offset = chunk.offset[row] + lo - chunk.seq_lo[row]
        batch = self._rows(
            Kind.SENT,
            stream,
            {
                "seq_lo": lo,
                "seq_hi": hi,
                "offset_lo": offset,
                "offset_hi": offset + hi - lo,
                "outcome": int(Outcome.ACKED),
                "intended_first": first,
                "intended_last": last,
                "sent_first": first,
                "sent_last": last,
                "arrived_first": first + delay,
                "arrived_last": last + delay + steps * (delay >> 5),
                **told,
            },
        )
        if options.detail is Detail.INTERVALS:
            yield batch
            return
        for piece, at in exploded(batch, hi - lo):
            own = self._timeline.intended(
                chunk.phase, stream[at], piece["seq_lo"].to_numpy(zero_copy_only=False)
            )
            columns = {name: piece[name] for name in piece.schema.names}
            columns |= {"intended_first": pa.array(own), "intended_last": pa.array(own)}
            yield pa.record_batch(list(columns.values()), schema=piece.schema)
