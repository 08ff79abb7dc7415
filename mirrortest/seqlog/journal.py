"""The journal: framed Arrow record batches in an append-only file, durable at each sync.

A Parquet file cannot be read before its footer is written, so a SIGKILL would lose an open one. A
journal can be read up to its last complete frame at any time. A frame, little-endian::

    magic 4 | length u32 | rows before u64 | CRC32C u32 | payload (an Arrow IPC stream, LZ4)

The CRC covers `length`, `rows before` and the payload. Each payload carries its own schema, so a
damaged frame makes no other unreadable. `rows before` shows how many rows a hole lost.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from crc32c import crc32c

from mirrortest.seqlog.damage import Damage, DamageKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAGIC = b"MtJ\x01"
_HEADER = struct.Struct("<4sIQI")
_GUARDED = struct.Struct("<IQ")
_SECTOR = 512
_ZEROS = bytes(_SECTOR)
FRAME_ROWS = 1 << 16
"""The most rows of a frame: it bounds a reader's memory."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_datasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def frame(batch: pa.RecordBatch, rows_before: int) -> bytes:
    """Encode one batch as a frame."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as stream:
        stream.write_batch(batch)
    payload = sink.getvalue()
    checksum = crc32c(payload, crc32c(_GUARDED.pack(payload.size, rows_before)))
    header = _HEADER.pack(MAGIC, payload.size, rows_before, checksum)
    return b"".join((header, payload))


class JournalWriter:
    """Appends batches to one new journal file. Not thread-safe; all methods block.

    The file must not exist yet. `rows` and `size` (bytes) count what has been appended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.size = 0
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        sync_directory(path.parent)

    def append(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write the batches, in frames; durable only after `sync`. Raises OSError."""
        for batch in batches:
            for start in range(0, batch.num_rows, FRAME_ROWS):
                piece = batch.slice(start, FRAME_ROWS)
                data = memoryview(frame(piece, self.rows))
                while data:
                    data = data[os.write(self._descriptor, data) :]
                    # A write may be partial: the next one reports a full disk.
                self.rows += piece.num_rows
                self.size = os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def sync(self) -> None:
        """Make everything appended durable. Raises OSError; then it must not be called again."""
        _datasync(self._descriptor)

    def close(self) -> None:
        """Close the file; what was not synced may be lost."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True)
class _Frame:
    rows_before: int
    payload: pa.Buffer
    end: int


def _frame_at(data: pa.Buffer, view: memoryview, at: int) -> _Frame | None:
    if len(view) - at < _HEADER.size:
        return None
    magic, length, rows_before, checksum = _HEADER.unpack_from(view, at)
    start = at + _HEADER.size
    if magic != MAGIC or length > len(view) - start:
        return None
    payload = view[start : start + length]
    if crc32c(payload, crc32c(_GUARDED.pack(length, rows_before))) != checksum:
        return None
    return _Frame(rows_before, data.slice(start, length), start + length)


def _next_frame(data: pa.Buffer, view: memoryview, at: int) -> tuple[int, _Frame | None]:
    """Where the first complete frame at or after `at` starts, and the frame; else the end."""
    window = 1 << 20
    while at < len(view):
        piece = bytes(view[at : at + window])
        found = piece.find(MAGIC)
        if found < 0:
            at += max(len(piece) - len(MAGIC) + 1, 1)
            continue
        complete = _frame_at(data, view, at + found)
        if complete is not None:
            return at + found, complete
        at += found + 1
    return len(view), None


def _torn(view: memoryview, at: int) -> bool:
    """Whether an unfinished write can explain the bytes from `at` to the end.

    A killed process leaves the beginning of a frame. A power failure may leave zeros where the disk
    wrote nothing. An invalid frame of full length may have been synced, and so may one whose length
    alone is wrong: its checksum fits the bytes that are present.
    """
    rest = view[at:]
    if len(rest) < _HEADER.size:
        return MAGIC.startswith(bytes(rest[: len(MAGIC)])) or not any(rest)
    magic, length, rows_before, checksum = _HEADER.unpack_from(rest)
    present = len(rest) - _HEADER.size
    if magic == MAGIC and length > present:
        guarded = crc32c(_GUARDED.pack(present, rows_before))
        return bool(crc32c(rest[_HEADER.size :], guarded) != checksum)
    first = -(-at // _SECTOR) * _SECTOR
    starts = range(first, len(view) - _SECTOR + 1, _SECTOR)
    return not any(rest) or any(view[start : start + _SECTOR] == _ZEROS for start in starts)


def read_frames(data: pa.Buffer, where: str, damage: list[Damage]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a journal's bytes in order.

    Bytes that are not a frame are skipped up to the next complete frame and reported in `damage`,
    with `where` as the journal's name. It does not raise, whatever the content.
    """
    view = memoryview(data)
    at = 0
    rows: int | None = 0  # None behind a frame whose rows cannot be counted
    while at < len(view):
        complete = _frame_at(data, view, at)
        if complete is None:
            start, complete = _next_frame(data, view, at + 1)
            detail = f"bytes {at} to {start} of {len(view)} are damaged"
            if complete is None:
                rows_lost = 0 if _torn(view, at) else None
                damage.append(Damage(DamageKind.TORN_TAIL, where, detail, rows_lost))
                return
            lost = None if rows is None else max(complete.rows_before - rows, 0)
            damage.append(Damage(DamageKind.HOLE, where, detail, lost))
        elif rows is not None and complete.rows_before > rows:
            lost = complete.rows_before - rows
            damage.append(Damage(DamageKind.HOLE, where, f"a frame is missing at byte {at}", lost))
        rows, at = complete.rows_before, complete.end
        try:
            with pa.ipc.open_stream(complete.payload) as stream:
                batches = list(stream)
        except (pa.ArrowException, OSError) as error:
            damage.append(Damage(DamageKind.UNREADABLE, where, f"frame before {at}: {error}"))
            rows = None
            continue
        for batch in batches:
            rows += batch.num_rows
            yield batch
