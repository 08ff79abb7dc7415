"""Complete record batches (format v2), cut out of a fetch response.

This module checks a batch's CRC-32C and header, but not its records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import crc32c

from mirrortest.kafka.codec import decompress
from mirrortest.wire import kernels
from mirrortest.wire.batch_header import (
    CODEC_MASK,
    CONTROL,
    COUNT_AT,
    CRC_AT,
    CRC_FROM,
    EPOCH_AT,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
)
from mirrortest.wire.record_batch import decode_records, decompressed
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PREFIX = struct.Struct(">qi")
_EPOCH = struct.Struct(">i")
_ABORT = 0
_MAX_RECORDS = 1 << 13
"""Batches are joined up to this many records, to be judged in portions; one batch can have more."""


@dataclass(slots=True)  # not frozen: creating one would cost three times as much
class FetchedBatches:
    """One or several consecutive record batches of a fetch response.

    The batches are complete, so the first can begin with records below the fetch offset. `buffer`
    contains them; compressed records are decompressed there (the CRC is then wrong). It is None
    if there is nothing to read: control and aborted batches, batches that compaction emptied, and
    `unread` ones. In every case the reader's position moves on to `next_offset`.

    Attributes:
        fetched_from: the offset that reading had reached; nothing was skipped since.
        next_offset: the offset after the last batch's last offset, gaps included.
        arrived_ns: wall time of the first response that showed records up to `next_offset`. If
            the client does not report it: the time at which the reader received them.
        buffer: for each batch 61 bytes of header, then its records; read-only.
        count: number of records in `buffer`.
        leader_epoch: of the leader that wrote these batches; -1 if unknown.
        topic_id: of the topic that was read; None if the cluster reports none.
        transactional: whether they were written in transactions; always False if the client
            does not report it.
        stamped: whether a broker set the timestamps (`message.timestamp.type=LogAppendTime`).
        markers_from: from this offset up to `next_offset` there are only transaction markers and
            aborted records; None if there are others, or if the client does not report it.
        unread: why the records at these offsets cannot be read, however often they are fetched;
            None if they can.
    """

    topic: str
    partition: int
    fetched_from: int
    next_offset: int
    arrived_ns: int
    buffer: memoryview | bytearray | None
    count: int
    leader_epoch: int = -1
    topic_id: str | None = None
    transactional: bool = False
    stamped: bool = False
    unread: str | None = None
    markers_from: int | None = None


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The position `offset` is outside the partition's log: the caller must seek."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Recreated(OutOfRange):
    """The topic was deleted and recreated: its name now has another topic id."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class Diverged(OutOfRange):
    """The log was truncated: some records that were read below `offset` are no longer in it.

    In the current log, `leader_epoch` (at most the last epoch that was read) ends at `end_offset`.
    A record that was read is still in the log only if its epoch is at most `leader_epoch` and its
    offset is below `end_offset`.
    """

    leader_epoch: int
    end_offset: int


class Unreadable(NamedTuple):
    """A batch at `offset` that cannot be read, and why."""

    topic: str
    partition: int
    offset: int
    reason: str
    torn: bool
    """Whether fetching it again may help."""


Fetched: TypeAlias = FetchedBatches | Unreadable | OutOfRange


class ReadPosition(NamedTuple):
    """A read position: the next offset, the last batch's leader epoch, and the topic id.

    -1 and None mean unknown; brokers do not check an unknown value.
    """

    offset: int
    leader_epoch: int = -1
    topic_id: str | None = None


class End(NamedTuple):
    """A partition's end.

    Attributes:
        offset: the high watermark, whatever the reader's isolation level.
        stable_offset: the last stable offset: below it every transaction has ended, and a
            read_committed reader gets no further. Equal to `offset` for a read_uncommitted reader.
        topic_id: of the topic that ends there; None if the cluster reports none.
        agrees: False if records that were read are no longer in the log: it was truncated.
    """

    offset: int
    stable_offset: int
    topic_id: str | None = None
    agrees: bool = True


def has_complete_batch(data: memoryview) -> bool:
    """Whether a response's bytes begin with a complete batch."""
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
    topic_id: str | None = None,
) -> Iterator[FetchedBatches | Unreadable]:
    """Yield a response's batches in order; leave out a last batch that is cut off.

    Consecutive batches that need no change are joined, up to some thousand records, if they agree
    in leader epoch, in LogAppendTime and in being transactional. Other batches are yielded one by
    one: compressed ones, those without readable records, and, if some transactions were aborted,
    transactional ones.

    Args:
        data: the records of one partition in a fetch response.
        topic: the partition's topic.
        partition: its number.
        fetch_offset: the requested offset; batches entirely below it are skipped.
        arrived_ns: wall time at which the response arrived.
        aborted: (producer id, first offset) of aborted transactions to leave out; None for
            read_uncommitted.
        topic_id: the topic's id, if it has one.
    """
    transactions = _AbortedTransactions(aborted) if aborted else None
    special = CODEC_MASK | CONTROL | (0 if transactions is None else TRANSACTIONAL)
    reached = upto = fetch_offset
    begin = end = count = kind = 0  # of the batches that are joined
    intact_end = 0
    batch_headers = kernels.headers(data)
    # Leader epochs never decrease in a log: if the first and last are equal, all between are.

    def joined(
        upto: int,
        buffer: memoryview | bytearray | None,
        count: int,
        epoch: int,
        kind: int,
        unread: str | None = None,
        markers_from: int | None = None,
    ) -> FetchedBatches:
        return FetchedBatches(
            topic, partition, reached, upto, arrived_ns, buffer, count, epoch, topic_id,
            *_kinds(kind), unread, markers_from,
        )  # fmt: skip

    epoch = _epoch(data, batch_headers[0][0]) if batch_headers else -1
    one_epoch = not batch_headers or epoch == _epoch(data, batch_headers[-1][0])
    for at, stop, base, last_delta, attributes, crc, producer, records in batch_headers:
        if crc32c.crc32c(data[at + CRC_FROM : stop]) != crc:
            break
        intact_end = stop
        following = base + last_delta + 1
        if following <= fetch_offset:
            continue
        unchanged = records and not attributes & special
        epoch_before = epoch
        if not one_epoch:
            epoch = _epoch(data, at)
        kind_before, kind = kind, attributes & (TRANSACTIONAL | LOG_APPEND_TIME)
        if count and not (
            unchanged
            and at == end
            and count + records <= _MAX_RECORDS
            and epoch == epoch_before
            and kind == kind_before
        ):
            yield joined(upto, data[begin:end], count, epoch_before, kind_before)
            reached, count = upto, 0
        if unchanged:
            begin, end = begin if count else at, stop
            upto, count = following, count + records
            continue
        raw = data[at:stop]
        marker = bool(attributes & CONTROL)
        if transactions is not None:
            marker = transactions.exclude(raw, base, attributes, producer) or marker
        skipped = marker or not records
        buffer: memoryview | bytearray | None = None
        unread: str | None = None
        if not skipped:
            try:
                buffer = _decompressed(raw, attributes & CODEC_MASK)
            except ValueError as error:
                # Its CRC is right, so it was written like that: continue after it.
                skipped, unread = True, str(error)
        yield joined(
            following,
            buffer,
            0 if skipped else records,
            epoch,
            kind,
            unread,
            base if marker else None,
        )
        reached = upto = following
    if count:
        yield joined(upto, data[begin:end], count, epoch, kind)
    rest = data[intact_end:]
    if has_complete_batch(rest):
        offset, length = _PREFIX.unpack_from(rest)
        reason, torn = _damage(rest[: max(_PREFIX.size + length, 0)])
        yield Unreadable(topic, partition, max(offset, fetch_offset), reason, torn)


def _kinds(attributes: int) -> tuple[bool, bool]:
    """Whether batches are transactional, and whether a broker set their timestamps."""
    return bool(attributes & TRANSACTIONAL), bool(attributes & LOG_APPEND_TIME)


def _epoch(data: memoryview, at: int) -> int:
    """The leader epoch of the batch that begins at `at`."""
    return int(_EPOCH.unpack_from(data, at + EPOCH_AT)[0])


class _AbortedTransactions:
    """The aborted transactions of one partition; its batches must come in offset order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda transaction: transaction[1])
        self._aborting: set[int] = set()

    def exclude(self, raw: memoryview, base_offset: int, attributes: int, producer: int) -> bool:
        """Process the next batch; return whether it belongs to an aborted transaction."""
        while self._pending and self._pending[0][1] <= base_offset:
            self._aborting.add(self._pending.pop(0)[0])
        if attributes & CONTROL and _is_abort(raw):
            self._aborting.discard(producer)
        return bool(attributes & TRANSACTIONAL) and producer in self._aborting


def _damage(raw: memoryview) -> tuple[str, bool]:
    """Why a batch cannot be read, and whether fetching it again may help."""
    if len(raw) > MAGIC_AT and raw[MAGIC_AT] < MAGIC:
        why = (
            f"message format v{raw[MAGIC_AT]} is not supported: mirrortest reads v2, "
            "written since Kafka 0.11"
        )
        return why, False
    if len(raw) < HEADER_SIZE:
        return "the batch is shorter than its header", True
    if crc32c.crc32c(raw[CRC_FROM:]) != int.from_bytes(raw[CRC_AT:CRC_FROM], "big"):
        return "the batch fails its CRC", True
    if raw[MAGIC_AT] != MAGIC:
        return f"batch format {raw[MAGIC_AT]} is not {MAGIC}", False
    return (
        f"a batch of {int.from_bytes(raw[COUNT_AT:HEADER_SIZE], 'big', signed=True)} records",
        False,
    )


def _decompressed(raw: memoryview, codec: int) -> memoryview | bytearray:
    if not codec:
        return raw
    return decompressed(raw, decompress(codec, raw[HEADER_SIZE:]))


def _is_abort(raw: memoryview) -> bool:
    """Whether a control batch is an abort marker; its key is (version, type)."""
    try:
        key = decode_records(raw).key(0)
    except (MalformedBatchError, IndexError):
        return False
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT
