"""What a fetch brings: record batches of format v2, cut out of a response whole.

Checked here are a batch's CRC-32C and the shape of its header; its records are not looked at.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import crc32c

from mirrortest.kafka.codec import decompress
from mirrortest.wire.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MalformedBatchError,
    decode_records,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirrortest.wire.record_batch import BatchHeader

_PREFIX = struct.Struct(">qi")
_LENGTH_AT = 8
_MAGIC_AT = 16
_MAGIC = 2
_CRC_AT = 17
_CRC_FROM = 21
_ATTRIBUTES_AT = 21
_ABORT = 0


@dataclass(slots=True)  # not frozen: that would treble what it costs to make one
class FetchedBatch:
    """A record batch as it was fetched.

    It is whole: records below the offset that was asked for may stand at its head. `buffer` is
    the batch with its records section decompressed (its CRC then holds no more), or None where
    nothing is to be read: control and aborted batches, and those that compaction has emptied.
    Either way the reader's position moves on to `next_offset`.

    Attributes:
        fetched_from: offset that reading had reached before; nothing was passed over since.
        base_offset: offset that the batch's offset deltas count from.
        next_offset: the offset after the batch's last, gaps included.
        arrived_ns: wall time at which the response was taken apart.
        buffer: 61 bytes of header, then the records; never to be written to.
        count: number of records in `buffer`.
        codec: how the broker stored it, 0 for uncompressed.
        log_append_ms: the broker's own timestamp where the topic uses LogAppendTime, or -1.
    """

    topic: str
    partition: int
    fetched_from: int
    base_offset: int
    next_offset: int
    arrived_ns: int
    buffer: memoryview | bytearray | None
    count: int
    codec: int
    log_append_ms: int


class OutOfRange(NamedTuple):
    """The position `offset` lies outside what the partition holds now: seek before reading on."""

    topic: str
    partition: int
    offset: int


class Unreadable(NamedTuple):
    """A batch at `offset` that cannot be read, and why."""

    topic: str
    partition: int
    offset: int
    reason: str
    torn: bool
    """Whether fetching it again may help."""


Fetched: TypeAlias = FetchedBatch | Unreadable


def has_whole_batch(data: memoryview) -> bool:
    """Whether a response's bytes hold at least one batch to its end."""
    if len(data) < _PREFIX.size:
        return False
    _, length = _PREFIX.unpack_from(data)
    return _PREFIX.size + int(length) <= len(data)


def batches(
    data: memoryview,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    arrived_ns: int,
    aborted: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Fetched]:
    """Yield a response's batches in order; the last one may be cut off and is then left out.

    Args:
        data: the records of one partition in a fetch response.
        topic: the partition's topic.
        partition: its number.
        fetch_offset: what was asked for; batches wholly below it are passed over.
        arrived_ns: wall time to stamp.
        aborted: (producer id, first offset) of aborted transactions to leave out; None to read
            uncommitted.
    """
    view = data
    reached = fetch_offset
    pending = sorted(aborted or (), key=lambda transaction: transaction[1])
    shut_out: set[int] = set()
    at = 0
    while len(view) - at >= _PREFIX.size:
        offset, length = _PREFIX.unpack_from(view, at)
        end = at + _PREFIX.size + length
        if end > len(view):
            return
        raw = view[at:end]
        at = end
        header = _opened(raw)
        if isinstance(header, _Damage):
            yield Unreadable(topic, partition, max(offset, fetch_offset), *header)
            return
        if header.next_offset <= fetch_offset:
            continue
        skipped = header.control or header.records == 0
        if aborted is not None:
            while pending and pending[0][1] <= header.base_offset:
                shut_out.add(pending.pop(0)[0])
            if header.control and _is_abort(raw):
                shut_out.discard(header.producer_id)
            skipped = skipped or (header.transactional and header.producer_id in shut_out)
        buffer: memoryview | bytearray | None = None
        if not skipped:
            try:
                buffer = _decompressed(raw, header) if header.codec else raw
            except ValueError as error:
                yield Unreadable(topic, partition, header.base_offset, str(error), torn=False)
                return
        yield FetchedBatch(
            topic=topic,
            partition=partition,
            fetched_from=reached,
            base_offset=header.base_offset,
            next_offset=header.next_offset,
            arrived_ns=arrived_ns,
            buffer=buffer,
            count=0 if skipped else header.records,
            codec=header.codec,
            log_append_ms=header.max_timestamp if header.log_append_time else -1,
        )
        reached = header.next_offset


class _Damage(NamedTuple):
    reason: str
    torn: bool


def _opened(raw: memoryview) -> BatchHeader | _Damage:
    """A batch's header; or why it cannot be read, and whether fetching it again may help."""
    if len(raw) > _MAGIC_AT and raw[_MAGIC_AT] < _MAGIC:
        why = (
            f"message format v{raw[_MAGIC_AT]} is not supported: mirrortest reads v2, "
            "written since Kafka 0.11"
        )
        return _Damage(why, torn=False)
    if len(raw) < HEADER_SIZE:
        return _Damage("the batch is shorter than its header", torn=True)
    if crc32c.crc32c(raw[_CRC_FROM:]) != int.from_bytes(raw[_CRC_AT:_CRC_FROM], "big"):
        return _Damage("the batch fails its CRC", torn=True)
    try:
        return read_header(raw)
    except MalformedBatchError as error:
        return _Damage(str(error), torn=False)


def _decompressed(raw: memoryview, header: BatchHeader) -> bytearray:
    """The same batch, uncompressed: attributes and length say so, the CRC does not follow."""
    records = decompress(header.codec, raw[HEADER_SIZE:].tobytes())
    buffer = bytearray(raw[:HEADER_SIZE])
    buffer += records
    struct.pack_into(">i", buffer, _LENGTH_AT, len(buffer) - _PREFIX.size)
    struct.pack_into(">h", buffer, _ATTRIBUTES_AT, header.attributes & ~CODEC_MASK)
    return buffer


def _is_abort(raw: memoryview) -> bool:
    """Whether a control batch ends a transaction by aborting it: its key is version, kind."""
    try:
        key = decode_records(raw).key(0)
    except (MalformedBatchError, IndexError):
        return False
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT
