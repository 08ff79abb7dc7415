"""Runs of messages: what arrays of single messages become before anything is judged or logged.

A row is an interval within which seq *and* offset both step by one, the findings stay the same and
the intended time stays within one minute. Clean traffic costs a few array operations a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.model.findings import NO_STREAM, PER_MESSAGE, Finding
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirrortest.wire.stream import ProducerId

MINUTE_NS = 60_000_000_000


class SeenRow(NamedTuple):
    """Messages seen at consecutive offsets of one partition with consecutive seqs of one stream.

    Intervals are half-open, times are ns since the epoch and the least and greatest within the
    row; `sent_*` is 0 where the messages do not have it. Without a stream (foreign, other run, or
    corrupted with the id unknown) seqs and the producer's times are 0, and `key_lane` is the lane
    whose key the messages have, -1 where it is no lane's: they may supersede ours of that key.
    """

    stream: StreamId | None
    seq_lo: int
    seq_hi: int
    offset_lo: int
    offset_hi: int
    findings: int
    intended_first: int
    intended_last: int
    sent_first: int
    sent_last: int
    arrived_first: int
    arrived_last: int
    key_lane: int = -1


@dataclass(frozen=True, slots=True)
class Messages:
    """Decoded messages of one partition in offset order, as arrays of equal length."""

    streams: Sequence[StreamId]
    """Which streams occur."""
    stream: NDArray[np.int32]
    """Index into `streams`; -1: the message enters none."""
    seq: NDArray[np.int64]
    offset: NDArray[np.int64]
    """Strictly ascending."""
    intended_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    """0: not in the message."""
    findings: NDArray[np.uint32]
    """Bits of `Finding`, of those that a message shows by itself."""
    arrived_ns: NDArray[np.int64] | int
    """When they arrived: one time for all, or one each."""
    key_lane: NDArray[np.int64] | None = None
    """Of those in no stream the lane whose key they have, -1 elsewhere; None: of none."""


def streams_of(
    topic: str,
    run: str,
    ids: Sequence[ProducerId | None],
    id_index: NDArray[np.int32],
    lane: NDArray[np.int64],
    findings: NDArray[np.uint32],
) -> tuple[list[StreamId], NDArray[np.int32], NDArray[np.uint32]]:
    """Put messages into the streams of one run.

    Args:
        topic: the source topic's name.
        run: the run that is judged.
        ids: the producers that occur; `id_index` points into it, -1 is none.
        id_index: of each message.
        lane: of each message, -1 is none.
        findings: of each message.

    Returns:
        The streams, each message's index into them (-1 is none), and the findings with
        `OTHER_RUN` set where a message is another run's and `FOREIGN` where a readable message
        names no stream.
    """
    streams: list[StreamId] = []
    if not len(id_index):
        return streams, np.full(0, -1, np.int32), findings.astype(np.uint32)
    # A batch mostly has one producer and one lane: that must not cost a sort.
    changes = np.flatnonzero(_changes(id_index) | _changes(lane)) + 1
    starts = np.concatenate(([0], changes))
    pairs = list(zip(id_index[starts].tolist(), lane[starts].tolist(), strict=True))
    of_pair: dict[tuple[int, int], tuple[int, int]] = {}
    for pair in dict.fromkeys(pairs):
        at, number = pair
        producer = ids[at] if at >= 0 else None
        of_pair[pair] = -1, 0
        if producer is None:
            continue
        if producer.run != run:
            of_pair[pair] = -1, Finding.OTHER_RUN.value
        elif number < 0:
            of_pair[pair] = -1, Finding.FOREIGN.value
        else:
            of_pair[pair] = len(streams), 0
            streams.append(StreamId(topic, run, producer.name, producer.incarnation, number))
    counts = np.diff(starts, append=len(id_index))
    places = np.array([of_pair[pair] for pair in pairs], np.int64)
    index = np.repeat(places[:, 0].astype(np.int32), counts)
    findings = findings | np.repeat(places[:, 1].astype(np.uint32), counts)
    index[(findings & np.uint32(NO_STREAM)) != 0] = -1
    return streams, index, findings


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an element is not the one before it, from the second on."""
    return np.asarray(column[1:] != column[:-1])


def rows_of(messages: Messages, cut: int = 0) -> list[SeenRow]:
    """Split messages into rows, in offset order; one ends before message number `cut`."""
    total = len(messages.offset)
    if not total:
        return []
    stream, offset = messages.stream, messages.offset
    findings = messages.findings & np.uint32(PER_MESSAGE)
    named = stream >= 0
    seq = np.where(named, messages.seq, 0)
    intended = np.where(named, messages.intended_ns, 0)
    sent = np.where(named, messages.sent_ns, 0)
    breaks = _changes(stream)
    breaks |= offset[1:] - offset[:-1] != 1
    breaks |= _changes(findings)
    breaks |= (seq[1:] - seq[:-1] != 1) & named[1:]
    breaks |= _changes(intended // MINUTE_NS)
    breaks |= _changes(sent == 0)
    key_lane = messages.key_lane
    if key_lane is not None:
        breaks |= _changes(key_lane)
    if 0 < cut < total:
        breaks[cut - 1] = True
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    counts = np.diff(starts, append=total)
    keys = [-1] * len(starts) if key_lane is None else key_lane[starts].tolist()
    arrived = np.broadcast_to(np.asarray(messages.arrived_ns, np.int64), (total,))
    columns = zip(
        stream[starts].tolist(),
        seq[starts].tolist(),
        offset[starts].tolist(),
        counts.tolist(),
        findings[starts].tolist(),
        np.minimum.reduceat(intended, starts).tolist(),
        np.maximum.reduceat(intended, starts).tolist(),
        np.minimum.reduceat(sent, starts).tolist(),
        np.maximum.reduceat(sent, starts).tolist(),
        np.minimum.reduceat(arrived, starts).tolist(),
        np.maximum.reduceat(arrived, starts).tolist(),
        keys,
        strict=True,
    )
    return [
        SeenRow(
            messages.streams[at] if at >= 0 else None,
            seq_lo,
            seq_lo + count if at >= 0 else 0,
            offset_lo,
            offset_lo + count,
            *rest,
        )
        for at, seq_lo, offset_lo, count, *rest in columns
    ]
