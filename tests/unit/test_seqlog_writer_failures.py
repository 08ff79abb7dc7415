"""Failures while a log is written: no affected row counts as durable or is lost silently."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog import journal, rows, session_directory, writer
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.writer import SequenceLog
from tests.unit.numbered_log import logged, names, numbers, session


async def test_a_failed_sync_breaks_the_log_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync, every later call fails, and the session does not end clean."""

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 2))
    await log.sync()
    with monkeypatch.context() as broken:
        broken.setattr(journal, "_datasync", fail)
        log.append(numbers(2, 3))
        with pytest.raises(SequenceLogError, match="No space left on device"):
            await log.sync()
    with pytest.raises(SequenceLogError, match="cannot be written"):
        log.append(numbers(3, 4))
    with pytest.raises(SequenceLogError, match="cannot be written"):
        await log.sync()
    with pytest.raises(SequenceLogError, match="cannot be written"):
        await log.close()
    assert logged(tmp_path)[:2] == [0, 1]
    (found,) = find_sessions(tmp_path)
    assert not found.session.clean


async def test_any_failure_breaks_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a write failed for an unforeseen reason, the next sync fails, too."""

    def fail(*_: object) -> None:
        raise MemoryError

    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 2))
    with monkeypatch.context() as broken:
        broken.setattr(writer, "batch_of", fail)
        with pytest.raises(SequenceLogError, match="MemoryError"):
            await log.sync()
    with pytest.raises(SequenceLogError, match="MemoryError"):
        await log.sync()
    with pytest.raises(SequenceLogError, match="MemoryError"):
        await log.close()


async def test_a_row_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """A value that fits no column breaks the log with a clear error; no row is lost silently."""
    log = await SequenceLog.open(tmp_path, session())
    log.append([rows.Row("reserved", "t", lane=1 << 70)])
    with pytest.raises(SequenceLogError, match="cannot be written"):
        await log.sync()
    with pytest.raises(SequenceLogError):
        await log.close()


async def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    """After `close`, `append` raises an error; it does not drop rows."""
    log = await SequenceLog.open(tmp_path, session())
    await log.close()
    with pytest.raises(SequenceLogError, match="closed"):
        log.append(numbers(0, 1))


async def test_sealing_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a Parquet file cannot be written, its journal stays readable until `close` retries."""
    real = session_directory.write_synced

    def fail(*_: object) -> int:
        raise pa.ArrowInvalid("not now")

    log = await SequenceLog.open(tmp_path, session(), rotate_rows=2)
    with monkeypatch.context() as broken:
        broken.setattr(session_directory, "write_synced", fail)
        log.append(numbers(0, 2))
        await log.sync()
        await asyncio.to_thread(log._sealing.submit(lambda: None).result)
    assert names(tmp_path) == ["000001.journal", "session.json"]
    assert logged(tmp_path) == [0, 1]
    assert session_directory.write_synced is real
    await log.close()
    assert names(tmp_path) == ["000001.parquet", "session.json"]
    assert logged(tmp_path) == [0, 1]


async def test_a_step_that_fails_when_all_rows_are_at_their_place_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If removing an uploaded file from the spool fails, `close` retries, and the end is clean.

    `close` looked for a journal that had been removed, and the session counted as crashed.
    """
    where = Location(fs._MockFileSystem(), "bucket/logs")
    log = await SequenceLog.open(where, session(), spool=tmp_path, rotate_rows=2)
    unlink = Path.unlink

    def fail(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".parquet":
            raise OSError(errno.EIO, "Input/output error")
        unlink(self, missing_ok)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", fail)
        log.append(numbers(0, 2))
        await log.sync()
        await asyncio.to_thread(log._sealing.submit(lambda: None).result)
    await log.close()
    (found,) = find_sessions(where)
    assert (found.session.clean, found.damage) == (True, ())
    assert list(tmp_path.iterdir()) == []


async def test_close_tells_where_the_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last files cannot be uploaded, the error names the directory that has the rows."""
    spool = tmp_path / "spool"
    where = Location(fs._MockFileSystem(), "bucket/logs")
    log = await SequenceLog.open(where, session(), spool=spool)
    log.append(numbers(0, 2))
    await log.sync()

    def refuse(*_: object, **__: object) -> None:
        raise OSError("the bucket is gone")

    monkeypatch.setattr(fs, "copy_files", refuse)
    with pytest.raises(SequenceLogError, match=r"the bucket is gone.*spool/run=r1"):
        await log.close()
    assert "000001.journal" in names(spool)


async def test_a_journal_that_lost_rows_is_not_removed(tmp_path: Path) -> None:
    """A journal with fewer rows than were written is not converted to Parquet and removed."""
    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 2))
    await log.sync()
    (path,) = tmp_path.rglob("*.journal")
    path.write_bytes(b"")
    with pytest.raises(SequenceLogError, match="contains 0 of the 2 rows"):
        await log.close()
    assert names(tmp_path) == ["000001.journal", "session.json"]
