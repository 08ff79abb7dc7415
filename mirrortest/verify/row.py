"""Rows: intervals of messages, built from arrays of single messages before judging and logging.

In a row, seq and offset both step by one, the findings stay the same, and the intended times are
within one minute. Clean traffic costs a few array operations per batch.
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

    Intervals are half-open. Times are ns since the epoch, the least and greatest within the row;
    `sent_*` is 0 if the messages do not contain it. Rows without a stream are foreign, of another
    run, or corrupted with the id unknown: their seqs and producer's times are 0, and `key_lane` is
    the lane whose key they have (-1: not a lane's key), because they may supersede our messages
    with that key.
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
    """The streams that occur."""
    stream: NDArray[np.int32]
    """Index into `streams`; -1: the message is in no stream."""
    seq: NDArray[np.int64]
    offset: NDArray[np.int64]
    """Strictly ascending."""
    intended_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    """0: not in the message."""
    findings: NDArray[np.uint32]
    """Bits of `Finding` that single messages show."""
    arrived_ns: NDArray[np.int64] | int
    """When they arrived: one time for all, or one each."""
    key_lane: NDArray[np.int64] | None = None
    """The lane whose key a message without a stream has, else -1; None: -1 for all."""


def streams_of(
    topic: str,
    run: str,
    ids: Sequence[ProducerId | None],
    id_index: NDArray[np.int32],
    lane: NDArray[np.int64],
    findings: NDArray[np.uint32],
) -> tuple[list[StreamId], NDArray[np.int32], NDArray[np.uint32]]:
    """Assign messages to the streams of one run.

    Args:
        topic: the source topic's name.
        run: the run that is judged.
        ids: the producers that occur.
        id_index: each message's index into `ids`; -1: no producer.
        lane: each message's lane; -1: no lane.
        findings: each message's findings.

    Returns:
        The streams, each message's index into them (-1: no stream), and the findings, with
        `OTHER_RUN` added to messages of another run, and `FOREIGN` to readable messages without a
        lane.
    """
    streams: list[StreamId] = []
    if not len(id_index):
        return streams, np.full(0, -1, np.int32), findings.astype(np.uint32)
    # Most batches have one producer and one lane, which must not cost a sort.
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
    stream_and_finding = np.array([of_pair[pair] for pair in pairs], np.int64)
    index = np.repeat(stream_and_finding[:, 0].astype(np.int32), counts)
    findings = findings | np.repeat(stream_and_finding[:, 1].astype(np.uint32), counts)
    index[(findings & np.uint32(NO_STREAM)) != 0] = -1
    return streams, index, findings


def _changes(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each element differs from the one before it, from the second on."""
    return np.asarray(column[1:] != column[:-1])


def rows_of(messages: Messages, cut: int = 0) -> list[SeenRow]:
    """Split messages into rows, in offset order; a row ends before the message at index `cut`."""
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
