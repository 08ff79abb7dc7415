"""`SequenceLog`: rows go in cheaply on the event loop, and are durable when `sync` returns.

Two threads of its own work behind it. One writes and syncs the journal, in order: syncs that are
asked for while one runs share the next (a group commit). The other turns finished journals into
Parquet files, so that no sync ever waits for that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from mirrortest.errors import SequenceLogError
from mirrortest.host.allocator import give_back
from mirrortest.seqlog.batches import Columns, Detail, batch_of, explode
from mirrortest.seqlog.journal import FRAME_ROWS, JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.salvage import salvage
from mirrortest.seqlog.seal import JOURNAL, file_name, first_line
from mirrortest.seqlog.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.session import Session

ROTATE_BYTES = 16 << 20
"""A journal is turned into Parquet as it lies in memory: this, too, bounds it."""
ROTATE_ROWS = 4_000_000
HELD_ROWS = 1 << 11
"""Pending rows at which a write starts without being asked, and rows that are put into columns at
once: with their latencies each may be kilobytes. Both bound the memory."""


class SequenceLog:
    """The open log of one session; made by `open`, ended by `close` (or `async with`).

    `append` and `append_arrays` must be called from one thread, the event loop's. After a failed
    write the log is broken for good, as a file system may forget what it could not sync: every
    later call raises the same SequenceLogError, and nothing more is told durable.
    """

    def __init__(self, shelf: Shelf, *, rotate_bytes: int, rotate_rows: int) -> None:
        self._shelf = shelf
        self._messages = shelf.session.detail is Detail.MESSAGES
        self._rotate_bytes = rotate_bytes
        self._rotate_rows = rotate_rows
        self._lock = threading.Lock()
        self._pending: list[Row | Columns] = []
        self._pending_rows = 0
        self._durable_rows = 0
        self._queued: Future[None] | None = None
        self._journal: JournalWriter | None = None
        self._number = 0
        self._broken: SequenceLogError | None = None
        self._unsealed: list[tuple[Path, int]] = []
        self._closed = False
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="seqlog-journal")
        self._sealing = ThreadPoolExecutor(1, thread_name_prefix="seqlog-seal")

    @classmethod
    async def open(
        cls,
        where: Location | Path | str,
        session: Session,
        *,
        spool: Path | None = None,
        rotate_bytes: int = ROTATE_BYTES,
        rotate_rows: int = ROTATE_ROWS,
    ) -> Self:
        """Make the session's directory below `where`, with its session.json, durably.

        A place that is no local directory needs a local `spool` directory for the journals; the
        Parquet files and session.json go to their final names there. What dead sessions of this run
        left in that spool is brought home first. Raises UsageError or SequenceLogError.
        """
        if spool is not None and not Location.parse(where).local:
            await asyncio.to_thread(salvage, spool, where, session.run)
        shelf = await asyncio.to_thread(Shelf.make, where, session, spool)
        return cls(shelf, rotate_bytes=rotate_bytes, rotate_rows=rotate_rows)

    @property
    def session(self) -> Session:
        """The session as it stands in session.json."""
        return self._shelf.session

    @property
    def where(self) -> str:
        """The session's directory, for humans."""
        return self._shelf.target.shown

    @property
    def durable_rows(self) -> int:
        """Rows made durable so far, messages each where `detail` says so."""
        return self._durable_rows

    @property
    def pending_rows(self) -> int:
        """Rows appended and not yet handed to the file (intervals count as one)."""
        return self._pending_rows

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; in detail `messages`, `sent` and `seen` intervals become rows of messages."""
        self._check()
        added = list(rows)
        self._add(added, len(added))

    def append_arrays(self, columns: Columns) -> None:
        """Add rows given by columns, as they are: see `batches.exact` for messages' own times."""
        self._check()
        self._add([columns], columns.count)

    def _add(self, items: list[Row] | list[Columns], rows: int) -> None:
        with self._lock:
            self._pending.extend(items)
            self._pending_rows += rows
            full = self._pending_rows >= HELD_ROWS
        if full:
            self._flush()

    async def sync(self) -> None:
        """Make all rows appended so far durable. Raises SequenceLogError; then none of them is.

        Cancelling it leaves the write going on.
        """
        self._check()
        await asyncio.shield(asyncio.wrap_future(self._flush()))

    async def revise(self, change: Callable[[Session], Session]) -> None:
        """Change what session.json says (topics' partitions, an incarnation), durably."""
        self._check()
        await asyncio.shield(asyncio.wrap_future(self._sealing.submit(self._revise, change)))

    async def close(self, *, clean: bool = True, looked_ns: int | None = None) -> None:
        """Sync, make the last Parquet file, and end session.json. Again: nothing happens.

        `clean=False` says that the caller did not finish its work; `looked_ns` is the session's.
        Raises SequenceLogError where rows could not be written, or not be brought to their final
        place: then it says where they are.
        """
        if self._closed:
            return
        self._closed = True
        flushed = self._flush()
        try:
            await asyncio.shield(asyncio.wrap_future(flushed))
        finally:
            # In the journal's thread, after its last write; it waits for the sealer, not the loop.
            ended = self._writing.submit(self._finish, clean, looked_ns)
            await asyncio.shield(asyncio.wrap_future(ended))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(clean=error is None)

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise SequenceLogError(f"{self.where}: the log is closed")

    # What follows runs in the journal's thread.

    def _flush(self) -> Future[None]:
        with self._lock:
            if self._queued is None:
                self._queued = self._writing.submit(self._write)
            return self._queued

    def _write(self) -> None:
        with self._lock:
            # From here on a sync needs a flush of its own: its rows may not be in `items`.
            items, self._pending = self._pending, []
            self._pending_rows = 0
            self._queued = None
        if self._broken is not None:
            raise self._broken
        try:
            written = 0
            for batch in self._batches(items):
                journal = self._journal or self._next_journal()
                journal.append([batch])
                written += batch.num_rows
            if not written:
                return
            journal.sync()
            self._durable_rows += written
        except BaseException as error:  # whatever it is, these rows are not durable
            self._broken = SequenceLogError(
                f"{self._shelf.directory}: the sequence log cannot be written: {first_line(error)}"
            )
            raise self._broken from error
        if journal.size >= self._rotate_bytes or journal.rows >= self._rotate_rows:
            self._rotate()

    def _batches(self, items: list[Row | Columns]) -> Iterator[pa.RecordBatch]:
        """The rows in their order, as batches that hold so much at most; none is empty."""
        rows: list[Row] = []
        messages = 0
        for item in items:
            if isinstance(item, Columns):
                yield from self._of_rows(rows)
                if item.count:
                    yield item.batch()
                continue
            rows.append(item)
            messages += _messages(item) if self._messages else 0
            if len(rows) >= HELD_ROWS or messages >= FRAME_ROWS:
                yield from self._of_rows(rows)
                messages = 0
        yield from self._of_rows(rows)

    def _of_rows(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        if rows:
            batch = batch_of(rows)
            rows.clear()
            yield explode(batch) if self._messages else batch

    def _next_journal(self) -> JournalWriter:
        self._number += 1
        self._journal = JournalWriter(self._shelf.directory / file_name(self._number, JOURNAL))
        return self._journal

    def _rotate(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            # What was told durable is synced, and counted before the journal is removed.
            with suppress(OSError):
                journal.close()
            self._sealing.submit(self._seal, journal.path, journal.rows)

    def _finish(self, clean: bool, looked_ns: int | None) -> None:
        try:
            self._rotate()
            self._sealing.submit(self._end, clean, looked_ns).result()
        finally:
            self._sealing.shutdown(wait=False)
            self._writing.shutdown(wait=False)

    # What follows runs in the sealer's thread.

    def _seal(self, journal: Path, rows: int) -> None:
        try:
            self._shelf.put(journal, rows)
        except Exception:  # noqa: BLE001  # whatever it is, `close` tries again and tells
            # No row is lost meanwhile: the journal stays, and readers know journals.
            self._unsealed.append((journal, rows))
        # The next file is far: what this one took beside the hot path's buffers need not be kept.
        give_back()

    def _revise(self, change: Callable[[Session], Session]) -> None:
        with self._telling():
            self._shelf.revise(change)

    def _end(self, clean: bool, looked_ns: int | None) -> None:
        ended = max(time.time_ns(), self.session.started_ns)
        whole = clean and self._broken is None
        told = {"ended_ns": ended, "looked_ns": looked_ns, "clean": whole, "spooled": False}
        try:
            with self._telling():
                for journal, rows in self._unsealed:
                    self._shelf.put(journal, rows)
                self._shelf.revise(lambda now: now.model_copy(update=told))
                self._shelf.clear()
        finally:
            self._shelf.release()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, SequenceLogError) as error:
            raise SequenceLogError(
                f"{first_line(error)}; what was written so far is in {self._shelf.directory}"
            ) from error


def _messages(row: Row) -> int:
    """How many messages a row stands for, if it is one of messages."""
    lo, hi = (row.seq_lo, row.seq_hi) if row.seq_lo is not None else (row.offset_lo, row.offset_hi)
    return (hi or 0) - (lo or 0)
