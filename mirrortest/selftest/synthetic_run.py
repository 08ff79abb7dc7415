"""A synthetic run: which messages are sent when and where, as arrays.

Any part of the run is computed without the parts before it. The run consists of rounds. In each
round, every slot writes one row: a run of messages of one stream. The slots of a partition follow
one another, which interleaves its producers' rows. Partitions follow one another, as in a fetch.
The lengths of rows are random in even rounds and mirrored in odd ones: after two rounds every slot
has written as much as with rows of equal length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.selftest.synthetic_options import HOT_ROWS
from mirrortest.wire.lanes import lane_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirrortest.selftest.synthetic_options import SynthOptions

    Longs = NDArray[np.int64]

CHUNK_ROWS = 1 << 17
"""Rows of a chunk of the destination, about."""
SECOND = 1_000_000_000
BEGAN = 1_767_225_601 * SECOND
"""The first intended time of every synthetic run: deterministic."""
RANDOM_LENGTHS, RANDOM_FINDINGS, RANDOM_ACKS, RANDOM_ARRIVALS, RANDOM_IDS = 1, 2, 3, 4, 5
"""Together with the run's seed, the seeds of independent draws."""


@dataclass(frozen=True)
class Chunk:
    """Some rounds of one incarnation: rows in the order in which they are sent.

    Attributes:
        phase: the incarnation, counted from 0; `last`: whether it ends with this chunk.
        slot: the slot of each row, as in `SyntheticRun`; `offset`: its first source offset.
        before: messages of the run before the chunk; `after`: up to its end.
    """

    number: int
    phase: int
    last: bool
    slot: Longs
    seq_lo: Longs
    seq_hi: Longs
    offset: Longs
    before: int
    after: int


class SyntheticRun:
    """The run's slots and the rounds in which they write.

    Attributes:
        stream, partition, producer: those of each slot; `partition` is numbered over all topics,
            `stream` over all streams of an incarnation.
        lane: the lane of each stream; `home`: its first slot.
        counts: messages of each stream, by phase (phase, stream).
    """

    def __init__(self, options: SynthOptions) -> None:
        self.options = options
        self.partitions = len(options.topics) * options.lanes
        partition = np.repeat(np.arange(self.partitions), options.producers)
        producer = np.tile(np.arange(options.producers), self.partitions)
        # The producer that comes first differs between partitions.
        producer = (producer + partition) % options.producers
        stream = partition * options.producers + producer
        if options.skew:
            hot = np.zeros(HOT_ROWS * max(len(stream) - 1, 1), dtype=np.int64)
            mine = stream[(partition == 0) & (stream > 0)]
            # The other rows of the hot partition are spread among the hot stream's.
            mixed = np.insert(hot, np.linspace(1, len(hot), len(mine)).astype(np.int64), mine)
            stream = np.concatenate([mixed, stream[partition > 0]])
        self.stream = stream
        self.partition = stream // options.producers
        self.producer = stream % options.producers
        self.slots = len(stream)
        self.home = np.unique(stream, return_index=True)[1]
        lanes = np.array(lane_numbers(options.lanes), dtype=np.int64)
        self.lane = lanes[np.arange(options.streams) // options.producers % options.lanes]
        # Rows of the hot stream would continue each other: a transaction marker separates them.
        self.gap = ((self.stream == 0) & options.skew).astype(np.int64)
        self._first = np.searchsorted(self.partition, np.arange(self.partitions + 1))
        self._hot = np.flatnonzero(self.gap)
        self._quotas = [self._quota(phase) for phase in range(options.incarnations)]
        self.counts = np.stack(
            [np.bincount(stream, quota, options.streams).astype(np.int64) for quota in self._quotas]
        )
        # Each loss cuts a row in two; a chunk must still fit into memory.
        cuts = options.count(Finding.LOST) // options.lost_run * options.run_length
        pieces = 1 + 2 * cuts // options.messages
        self.rounds = max(2, CHUNK_ROWS // (self.slots * pieces) // 2 * 2)
        self._phase_ns = max(1, options.messages * SECOND // options.rate // options.incarnations)
        self.step_ns = np.maximum(1, self._phase_ns // np.maximum(self.counts, 1))

    def began_ns(self, phase: int) -> int:
        """The first intended time of an incarnation."""
        return BEGAN + phase * self._phase_ns

    def ended_ns(self, phase: int) -> int:
        """When all messages of an incarnation are acknowledged."""
        last = self.step_ns[phase] * np.maximum(self.counts[phase], 1)
        return self.began_ns(phase) + int(last.max()) + SECOND

    def intended(self, phase: int, stream: Longs, seq: Longs) -> Longs:
        """The intended times of messages; messages of a batch share one."""
        batch = self.options.batch
        # Streams are about 1 us apart: no two producers' schedules are the same.
        start = self.began_ns(phase) + stream * 1_021
        times: Longs = start + (seq - seq % batch) * self.step_ns[phase][stream]
        return times

    def chunks(
        self, *, phase: int | None = None, slots: NDArray[np.bool_] | None = None
    ) -> Iterator[Chunk]:
        """The run, or one incarnation of it; with `slots`, only the rows of these slots."""
        number = before = 0
        for now in range(self.options.incarnations):
            rounds = -(-int(self._quotas[now].max()) // self.options.run_length)
            for start in range(0, max(rounds, 1), self.rounds):
                stop = start + self.rounds
                after = before + self._written(now, stop) - self._written(now, start)
                if phase in {None, now}:
                    lo, hi, offset = self._rows(number, now, start)
                    written = hi > lo if slots is None else (hi > lo) & slots
                    at = np.flatnonzero(written)
                    lo, hi, offset = (each.ravel()[at] for each in (lo, hi, offset))
                    slot, last = at % self.slots, stop >= rounds
                    yield Chunk(number, now, last, slot, lo, hi, offset, before, after)
                number, before = number + 1, after

    def _quota(self, phase: int) -> Longs:
        options = self.options
        mine = options.messages * (phase + 1) // options.incarnations
        mine -= options.messages * phase // options.incarnations
        each, rest = divmod(mine, self.slots)
        return each + (np.arange(self.slots) < rest)

    def _written(self, phase: int, rounds: int) -> int:
        return int(np.minimum(self._quotas[phase], rounds * self.options.run_length).sum())

    def _rows(self, number: int, phase: int, start: int) -> tuple[Longs, Longs, Longs]:
        """The seqs and first offsets of a chunk's rows, by round and slot; rows may be empty."""
        length, quota = self.options.run_length, self._quotas[phase]
        rng = np.random.default_rng([self.options.seed, RANDOM_LENGTHS, number])
        lengths = np.empty((self.rounds, self.slots), dtype=np.int64)
        draw = rng.integers(
            length - length // 2, length + length // 2 + 1, size=(self.rounds // 2, self.slots)
        )
        lengths[::2], lengths[1::2] = draw, 2 * length - draw
        # How much each slot has written after each round, at most its quota.
        written = np.empty((self.rounds + 1, self.slots), dtype=np.int64)
        written[0] = start * length
        np.cumsum(lengths, axis=0, out=written[1:])
        written[1:] += start * length
        np.minimum(written, quota, out=written)
        lengths = np.diff(written, axis=0)
        seq_lo = written[:-1]
        if len(self._hot):
            hot = lengths[:, self._hot]
            within = np.cumsum(hot, axis=1) - hot
            seq_lo = seq_lo.copy()
            seq_lo[:, self._hot] = written[:-1, self._hot].sum(axis=1)[:, None] + within
        return seq_lo, seq_lo + lengths, self._offsets(phase, start, lengths)

    def _offsets(self, phase: int, start: int, lengths: Longs) -> Longs:
        """The source offset of each row."""
        taken = lengths + self.gap * (lengths > 0)
        earlier = self._taken(phase, start)
        for done in range(phase):
            earlier = earlier + self._taken(done, 1 << 40)
        within = np.cumsum(taken, axis=1) - taken
        within -= within[:, self._first[self.partition]]
        totals = np.add.reduceat(taken, self._first[:-1], axis=1)
        base = np.cumsum(totals, axis=0) - totals
        base += np.add.reduceat(earlier, self._first[:-1])
        offsets: Longs = within + base[:, self.partition]
        return offsets

    def _taken(self, phase: int, rounds: int) -> Longs:
        """Offsets that each slot has taken after so many rounds (even) of a phase, at most."""
        length, quota = self.options.run_length, self._quotas[phase]
        written = np.minimum(quota, rounds * length)
        taken: Longs = written + self.gap * np.minimum(rounds, -(-quota // (2 * length)) * 2)
        return taken
