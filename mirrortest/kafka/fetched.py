"""What a fetch brings: complete record batches of format v2, cut out of a response.

Checked here are a batch's CRC-32C and the shape of its header; its records are not looked at.
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
_MOST_RECORDS = 1 << 13
"""More records are not put together, but for those of one batch: they are judged in portions."""


@dataclass(slots=True)  # not frozen: that would treble what it costs to make one
class FetchedBatches:
    """Record batches as they were fetched, one behind another: one, or several of a response.

    They are complete: records below the offset that was asked for may come first. `buffer`
    is the batches, where they were compressed with their records decompressed (the CRC is then
    wrong); or None where nothing is to be read: control and aborted batches, those that
    compaction has emptied, and what is `unread`. Either way the reader's position moves on to
    `next_offset`.

    Attributes:
        fetched_from: offset that reading had reached before; nothing was passed over since.
        next_offset: the offset after the last batch's last, gaps included.
        arrived_ns: wall time at which the first answer came that showed records up to
            `next_offset`, as far as the client reports it: a reader that is behind has them later.
        buffer: of each batch 61 bytes of header, then the records; never to be written to.
        count: number of records in `buffer`.
        leader_epoch: of the leader that wrote these batches; -1 where that is unknown.
        topic_id: of the topic that was read; None where the cluster reports none.
        transactional: whether they were written in transactions; never where the client
            does not report it.
        stamped: whether a broker stamped their records (`message.timestamp.type=LogAppendTime`).
        markers_from: from this offset on up to `next_offset` there are transactions' markers, or
            records of aborted ones, alone; None where that is not so, or the client does not
            report it.
        unread: why there are records at these offsets that cannot be read, however often they are
            fetched; None where it is not so.
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
    """The position `offset` is outside of the partition now: seek before reading on."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Recreated(OutOfRange):
    """The topic that was read does not exist any more; one of its name does, of another id."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class Diverged(OutOfRange):
    """The log was cut back, so that what was read below `offset` is not there any more.

    The log that is there now was written up to `leader_epoch` (at most the last that was read)
    below `end_offset`. What was read agrees with it as far as it was written up to that epoch,
    and at most to that offset.
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
    """How far a partition was read: of which topic, and by which leader's last batch.

    -1 and None mean unknown, which is not checked.
    """

    offset: int
    leader_epoch: int = -1
    topic_id: str | None = None


class End(NamedTuple):
    """Where a partition ends.

    Attributes:
        offset: after the last record that is replicated (the high watermark), whatever a reader
            may see of it.
        stable_offset: below it every transaction has ended; a reader of committed records comes
            no further. The same as `offset` for a reader of uncommitted ones.
        topic_id: of the topic that ends there; None where the cluster reports none.
        agrees: False where what was read is not there any more: the log was cut back.
    """

    offset: int
    stable_offset: int
    topic_id: str | None = None
    agrees: bool = True


def has_complete_batch(data: memoryview) -> bool:
    """Whether a response's bytes contain a complete batch."""
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
    """Yield a response's batches in order; the last one may be cut off and is then left out.

    Those that need no change come together, up to some thousand records, those of
    transactions, and those that a broker stamped, apart from the others; those that have to be
    decompressed or are left out come one by one, and so do those of transactions where some were
    aborted.

    Args:
        data: the records of one partition in a fetch response.
        topic: the partition's topic.
        partition: its number.
        fetch_offset: what was asked for; batches wholly below it are passed over.
        arrived_ns: wall time to stamp.
        aborted: (producer id, first offset) of aborted transactions to leave out; None to read
            uncommitted.
        topic_id: the topic's id, where it has one.
    """
    transactions = _Transactions(aborted) if aborted else None
    special = CODEC_MASK | CONTROL | (0 if transactions is None else TRANSACTIONAL)
    reached = upto = fetch_offset
    begin = end = count = kind = 0  # of those that come together
    sound = 0
    found = kernels.headers(data)
    # Epochs never fall within a log: where the first is the last, so are all between.

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

    epoch = _epoch(data, found[0][0]) if found else -1
    one_epoch = not found or epoch == _epoch(data, found[-1][0])
    for at, stop, base, last_delta, attributes, crc, producer, records in found:
        if crc32c.crc32c(data[at + CRC_FROM : stop]) != crc:
            break
        sound = stop
        following = base + last_delta + 1
        if following <= fetch_offset:
            continue
        unchanged = records and not attributes & special
        before = epoch
        if not one_epoch:
            epoch = _epoch(data, at)
        kind_before, kind = kind, attributes & (TRANSACTIONAL | LOG_APPEND_TIME)
        if count and not (
            unchanged
            and at == end
            and count + records <= _MOST_RECORDS
            and epoch == before
            and kind == kind_before
        ):
            yield joined(upto, data[begin:end], count, before, kind_before)
            reached, count = upto, 0
        if unchanged:
            begin, end = begin if count else at, stop
            upto, count = following, count + records
            continue
        raw = data[at:stop]
        marker = bool(attributes & CONTROL)
        if transactions is not None:
            marker = transactions.leave_out(raw, base, attributes, producer) or marker
        skipped = marker or not records
        buffer: memoryview | bytearray | None = None
        unread: str | None = None
        if not skipped:
            try:
                buffer = _decompressed(raw, attributes & CODEC_MASK)
            except ValueError as error:
                # Its CRC is right: it was written like that, and reading goes on behind it.
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
    rest = data[sound:]
    if has_complete_batch(rest):
        offset, length = _PREFIX.unpack_from(rest)
        reason, torn = _damage(rest[: max(_PREFIX.size + length, 0)])
        yield Unreadable(topic, partition, max(offset, fetch_offset), reason, torn)


def _kinds(attributes: int) -> tuple[bool, bool]:
    """Whether batches are of transactions, and whether a broker stamped their records."""
    return bool(attributes & TRANSACTIONAL), bool(attributes & LOG_APPEND_TIME)


def _epoch(data: memoryview, at: int) -> int:
    """The leader epoch of the batch that begins there."""
    return int(_EPOCH.unpack_from(data, at + EPOCH_AT)[0])


class _Transactions:
    """Those that were aborted, of one partition, as its batches pass in their order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda transaction: transaction[1])
        self._shut_out: set[int] = set()

    def leave_out(self, raw: memoryview, base_offset: int, attributes: int, producer: int) -> bool:
        """Whether the batch is of an aborted transaction."""
        while self._pending and self._pending[0][1] <= base_offset:
            self._shut_out.add(self._pending.pop(0)[0])
        if attributes & CONTROL and _is_abort(raw):
            self._shut_out.discard(producer)
        return bool(attributes & TRANSACTIONAL) and producer in self._shut_out


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
    """Whether a control batch ends a transaction by aborting it: its key is version, kind."""
    try:
        key = decode_records(raw).key(0)
    except (MalformedBatchError, IndexError):
        return False
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT
