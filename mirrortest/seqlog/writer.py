"""`SequenceLog`: appending is cheap on the event loop; rows are durable when `sync` returns.

It has two threads. One writes and syncs the journal, in order: syncs that are requested while one
runs share the next (a group commit). The other turns finished journals into Parquet files, so that
no sync waits for that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import structlog

from mirrortest.errors import SequenceLogError
from mirrortest.host.allocator import release_free_memory
from mirrortest.host.error_text import reason_of
from mirrortest.seqlog.batches import Columns, batch_of, explode, length
from mirrortest.seqlog.interval_log import csv_lines
from mirrortest.seqlog.journal import FRAME_ROWS, JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.session import INTERVALS_FILE, JOURNAL, file_name
from mirrortest.seqlog.session_directory import SessionDirectory, salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from mirrortest.seqlog.rows import Row
    from mirrortest.seqlog.session import Session

_log = structlog.get_logger()

ROTATE_BYTES = 16 << 20
"""The size at which a journal ends. It also bounds the memory of its conversion to Parquet."""
ROTATE_ROWS = 4_000_000
PENDING_ROWS = 1 << 11
"""Pending rows at which a write starts without a call of `sync`, and the most rows converted to
columns at once. Both bound memory: a row with latencies can take kilobytes."""


class SequenceLog:
    """The open log of one session, from `open` to `close` (or `async with`).

    `append` and `append_arrays` must be called from one thread, the event loop's. A failed write
    breaks the log for good, as a file system may drop what it could not sync: every later call
    raises the same SequenceLogError, and no further row becomes durable.
    """

    def __init__(
        self,
        directory: SessionDirectory,
        *,
        csv: Path | None = None,
        rotate_rows: int,
    ) -> None:
        self._directory = directory
        self._messages = directory.session.detail is Detail.MESSAGES
        self._rotate_rows = rotate_rows
        self._lock = threading.Lock()
        self._pending: list[Row | Columns] = []
        self._pending_rows = 0
        self._durable_rows = 0
        self._queued: Future[None] | None = None
        self._journal: JournalWriter | None = None
        self._intervals: JournalWriter | None = None
        self._csv = csv
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
        csv: Path | None = None,
        rotate_rows: int = ROTATE_ROWS,
    ) -> Self:
        """Create the session's directory below `where`, with its session.json, durably.

        If `where` is not a local directory, journals need a local `spool`; Parquet files and
        session.json are uploaded. Dead sessions of this run in that spool are salvaged first.
        Intervals are also appended to the file `csv`, which other processes may share.
        Raises UsageError or SequenceLogError.
        """
        if spool is not None and not Location.parse(where).local:
            await asyncio.to_thread(salvage, spool, where, session.run)
        directory = await asyncio.to_thread(SessionDirectory.create, where, session, spool)
        return cls(directory, csv=csv, rotate_rows=rotate_rows)

    @property
    def session(self) -> Session:
        """The content of session.json."""
        return self._directory.session

    @property
    def where(self) -> str:
        """The session's directory as text for users."""
        return self._directory.target.shown

    @property
    def durable_rows(self) -> int:
        """Rows made durable so far."""
        return self._durable_rows

    @property
    def pending_rows(self) -> int:
        """Rows appended and not yet written (an interval counts as one)."""
        return self._pending_rows

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; in detail `messages`, split `sent` and `seen` intervals into messages."""
        self._check()
        added = list(rows)
        self._add(added, len(added))

    def append_arrays(self, columns: Columns) -> None:
        """Add rows as columns, unchanged: see `batches.exact` for messages' own times."""
        self._check()
        self._add([columns], columns.count)

    def _add(self, items: list[Row] | list[Columns], rows: int) -> None:
        with self._lock:
            self._pending.extend(items)
            self._pending_rows += rows
            full = self._pending_rows >= PENDING_ROWS
        if full:
            self._flush()

    def record(self, interval: pa.RecordBatch) -> None:
        """Write rows to the intervals file, after all rows appended so far.

        This order ensures that no interval counts what a killed process's log lacks.
        """
        self._check()
        self._flush()
        self._writing.submit(self._write_interval, interval)

    async def sync(self) -> None:
        """Make all rows appended so far durable. Raises SequenceLogError; then no pending row is.

        Cancelling it does not stop the write.
        """
        self._check()
        await asyncio.shield(asyncio.wrap_future(self._flush()))

    async def revise(self, change: Callable[[Session], Session]) -> None:
        """Change session.json (topics' partitions, an incarnation), durably."""
        self._check()
        await asyncio.shield(asyncio.wrap_future(self._sealing.submit(self._revise, change)))

    async def close(self, *, clean: bool = True, looked_ns: int | None = None) -> None:
        """Sync, write the last Parquet file, complete session.json. A second call does nothing.

        `clean=False`: the caller did not finish its work; `looked_ns` is the session's. Raises
        SequenceLogError if rows could not be written or moved to their final place: its text names
        the directory that has them.
        """
        if self._closed:
            return
        self._closed = True
        flushed = self._flush()
        try:
            await asyncio.shield(asyncio.wrap_future(flushed))
        finally:
            # In the journal's thread, after its last write: it waits for the sealer, not the loop.
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

    def _flush(self) -> Future[None]:
        with self._lock:
            if self._queued is None:
                self._queued = self._writing.submit(self._write)
            return self._queued

    # The methods below run in the journal's thread.

    def _write(self) -> None:
        with self._lock:
            # From here on, a sync needs another write: its rows may not be in `items`.
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
            self._broken = self._unwritable(error)
            raise self._broken from error
        if journal.size >= ROTATE_BYTES or journal.rows >= self._rotate_rows:
            self._rotate()

    def _write_interval(self, interval: pa.RecordBatch) -> None:
        if self._broken is not None:
            return
        try:
            if self._intervals is None:
                self._intervals = JournalWriter(self._directory.path / (INTERVALS_FILE + JOURNAL))
            self._intervals.append([interval])
            self._intervals.sync()
        except BaseException as error:  # noqa: BLE001  # as in `_write`: raised by the next call
            self._broken = self._unwritable(error)
        else:
            self._append_csv(interval)

    def _append_csv(self, interval: pa.RecordBatch) -> None:
        if self._csv is None:
            return
        lines = "".join(csv_lines(self.session.name, interval))
        try:
            # In one write, since several processes may append.
            with self._csv.open("ab", buffering=0) as file:
                file.write(lines.encode())
        except OSError as error:
            _log.warning(
                "the CSV file cannot be written any more; the figures are in the log",
                file=str(self._csv),
                reason=reason_of(error),
            )
            self._csv = None

    def _unwritable(self, error: BaseException) -> SequenceLogError:
        return SequenceLogError(
            f"{self._directory.path}: the log cannot be written: {reason_of(error)}"
        )

    def _batches(self, items: list[Row | Columns]) -> Iterator[pa.RecordBatch]:
        """The rows in order, as non-empty batches; those of `Row`s have a limited size."""
        rows: list[Row] = []
        messages = 0
        for item in items:
            if isinstance(item, Columns):
                yield from self._of_rows(rows)
                if item.count:
                    yield item.batch()
                continue
            rows.append(item)
            messages += (length(item) or 0) if self._messages else 0
            if len(rows) >= PENDING_ROWS or messages >= FRAME_ROWS:
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
        self._journal = JournalWriter(self._directory.path / file_name(self._number, JOURNAL))
        return self._journal

    def _rotate(self) -> None:
        journal, self._journal = self._journal, None
        self._close(journal)

    def _close(self, journal: JournalWriter | None) -> None:
        if journal is not None:
            # All its rows are synced. `finish` counts them before it removes the journal.
            with suppress(OSError):
                journal.close()
            self._sealing.submit(self._seal, journal.path, journal.rows)

    def _finish(self, clean: bool, looked_ns: int | None) -> None:
        try:
            self._rotate()
            self._close(self._intervals)
            self._sealing.submit(self._end, clean, looked_ns).result()
        finally:
            self._sealing.shutdown(wait=False)
            self._writing.shutdown(wait=False)

    # The methods below run in the sealer's thread.

    def _seal(self, journal: Path, rows: int) -> None:
        try:
            self._directory.finish(journal, rows)
        except Exception:  # noqa: BLE001  # whatever it is, `close` tries again and raises
            # No row is lost meanwhile: the journal stays, and readers read journals.
            self._unsealed.append((journal, rows))
        # The next file is sealed much later: until then this memory is not needed.
        release_free_memory()

    def _revise(self, change: Callable[[Session], Session]) -> None:
        with self._naming_place():
            self._directory.revise(change)

    def _end(self, clean: bool, looked_ns: int | None) -> None:
        ended = max(time.time_ns(), self.session.started_ns)
        clean &= self._broken is None
        update = {"ended_ns": ended, "looked_ns": looked_ns, "clean": clean, "spooled": False}
        try:
            with self._naming_place():
                for journal, rows in self._unsealed:
                    self._directory.finish(journal, rows)
                self._directory.revise(lambda now: now.model_copy(update=update))
                self._directory.clear()
        finally:
            self._directory.release()

    @contextmanager
    def _naming_place(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, SequenceLogError) as error:
            raise SequenceLogError(
                f"{reason_of(error)}; what was written so far is in {self._directory.path}"
            ) from error
