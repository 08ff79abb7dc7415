"""The open log: what `sync` guarantees, rotation, and logs that are uploaded."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.model.findings import Outcome
from mirrortest.seqlog import journal, rows, session_directory, writer
from mirrortest.seqlog.batches import exact
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.session import Topic
from mirrortest.seqlog.writer import SequenceLog
from tests.unit.numbered_log import STREAM, logged, names, numbers, sent, session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["local", "file", "mock"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path | None]:
    """A log's target (a path, a file:// URI, or a remote file system), and its spool."""
    if request.param == "local":
        return tmp_path / "logs", None
    if request.param == "file":
        return f"file://{tmp_path}/logs", None
    return Location(fs._MockFileSystem(), "bucket/logs", "mock://bucket/logs"), tmp_path / "spool"


async def test_a_log_from_open_to_close(place: tuple[Any, Path | None], tmp_path: Path) -> None:
    """Rows of several rotations come back in order from Parquet alone, counted in session.json."""
    where, spool = place
    async with await SequenceLog.open(where, session(), spool=spool, rotate_rows=10) as log:
        for at in range(0, 45, 5):
            log.append(numbers(at, at + 5))
            await log.sync()
    assert logged(where) == list(range(45))
    (found,) = find_sessions(where, "r1")
    assert [(each.name, each.rows) for each in found.session.files] == [
        ("000001.parquet", 10),
        ("000002.parquet", 10),
        ("000003.parquet", 10),
        ("000004.parquet", 10),
        ("000005.parquet", 5),
    ]
    assert found.session.clean
    assert found.session.ended_ns is not None
    assert [file.location.path.rpartition("/")[2] for file in found.files] == [
        each.name for each in found.session.files
    ]
    if spool is not None:
        assert names(spool) == []
    assert not [name for name in names(tmp_path) if name.endswith((".journal", ".draft"))]


async def test_synced_rows_are_in_the_file_at_once(tmp_path: Path) -> None:
    """After `sync`, another reader sees the rows while the log is open."""
    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 3))
    log.append_arrays(
        exact(
            rows.sent(
                STREAM,
                3,
                5,
                partition=0,
                outcome=Outcome.ACKED,
                offset_lo=0,
                intended=(1, 2),
            ),
            intended=np.array([1, 2]),
        )
    )
    log.append(numbers(5, 7))
    assert log.pending_rows == 7
    await log.sync()
    assert log.pending_rows == 0
    assert logged(tmp_path) == list(range(7))
    assert names(tmp_path) == ["000001.journal", "session.json"]
    (found,) = find_sessions(tmp_path)
    assert (found.session.ended_ns, found.session.clean) == (None, False)
    await log.close()


async def test_detail_messages_explodes(tmp_path: Path) -> None:
    """In detail `messages`, `sent` intervals become a row per message; `reserved` ones stay."""
    log = await SequenceLog.open(tmp_path, session(detail=Detail.MESSAGES))
    log.append([rows.reserved(STREAM, 0, 4)])
    log.append([sent(0, 4)])
    await log.close()
    assert logged(tmp_path) == [0, 0, 1, 2, 3]


async def test_a_log_without_rows(tmp_path: Path) -> None:
    """A session that wrote nothing is clean and has no files."""
    log = await SequenceLog.open(tmp_path, session())
    await log.sync()
    await log.close()
    await log.close()
    (found,) = find_sessions(tmp_path)
    assert (found.files, found.damage, found.session.clean) == ((), (), True)


async def test_what_is_due_hangs_on_when_the_ends_were_looked_at(tmp_path: Path) -> None:
    """The horizon counts from the last end-offset snapshot, at most from the session's end.

    So it does not depend on how long the upload of the log took.
    """
    hour = 3600 * 10**9
    for name, looked, due in (
        ("a", 9, 9 - hour),
        ("b", None, -hour),
        ("c", 1 << 62, -hour),
    ):
        log = await SequenceLog.open(tmp_path / name, session(deadline_ns=hour))
        assert log.session.horizon_ns is None
        await log.close(looked_ns=looked)
        (found,) = find_sessions(tmp_path / name)
        ended = found.session.ended_ns
        assert ended is not None
        assert found.session.looked_ns == looked
        assert found.session.horizon_ns == (due if looked == 9 else ended + due)


async def test_an_unclean_end(tmp_path: Path) -> None:
    """After an error, the session has an end but is not clean; its rows are in the log."""

    async def work() -> None:
        async with await SequenceLog.open(tmp_path, session()) as log:
            log.append(numbers(0, 2))
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError, match="the work failed"):
        await work()
    assert logged(tmp_path) == [0, 1]
    (found,) = find_sessions(tmp_path)
    assert not found.session.clean
    assert found.session.ended_ns is not None


async def test_syncs_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs that are requested while a write runs share one more write, in order."""
    gate, entered, synced = threading.Event(), threading.Event(), []

    def slow(descriptor: int) -> None:
        entered.set()
        gate.wait(60)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(journal, "_datasync", slow)
    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 1))
    first = asyncio.create_task(log.sync())
    await asyncio.to_thread(entered.wait, 60)
    waiting = []
    for at in range(1, 6):
        log.append(numbers(at, at + 1))
        waiting.append(asyncio.create_task(log.sync()))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *waiting)
    assert len(synced) == 2
    assert logged(tmp_path) == list(range(6))
    await log.close()


async def test_a_cancelled_sync_takes_nobody_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling one waiter leaves the shared write and the other waiters alone."""
    gate = threading.Event()
    monkeypatch.setattr(journal, "_datasync", lambda _: gate.wait(60))
    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 1))
    one, other = asyncio.create_task(log.sync()), asyncio.create_task(log.sync())
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    gate.set()
    await other
    assert logged(tmp_path) == [0]
    await log.close()


async def test_many_pending_rows_are_written_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At `PENDING_ROWS`, a write starts without a `sync`, so memory stays bounded."""
    monkeypatch.setattr(writer, "PENDING_ROWS", 10)
    log = await SequenceLog.open(tmp_path, session())
    log.append(numbers(0, 10))
    await asyncio.to_thread(log._writing.submit(lambda: None).result)
    assert log.pending_rows == 0
    assert logged(tmp_path) == list(range(10))
    await log.close()


@pytest.mark.parametrize("detail", Detail)
async def test_many_rows_are_written_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detail: Detail
) -> None:
    """Rows are converted to columns in small pieces, also as counted in their messages."""
    monkeypatch.setattr(writer, "PENDING_ROWS", 10)
    monkeypatch.setattr(writer, "FRAME_ROWS", 25)
    sizes: list[int] = []
    append = journal.JournalWriter.append

    def noted(self: journal.JournalWriter, batches: Any) -> None:
        batches = list(batches)
        sizes.extend(batch.num_rows for batch in batches)
        append(self, batches)

    monkeypatch.setattr(journal.JournalWriter, "append", noted)
    log = await SequenceLog.open(tmp_path, session(detail=detail))
    with log._lock:  # as if a write were under way
        log._pending.extend(sent(at, at + 10) for at in range(0, 400, 10))
    await log.close()
    assert sum(sizes) == (400 if detail is Detail.MESSAGES else 40)
    assert max(sizes) <= (30 if detail is Detail.MESSAGES else 10)
    assert logged(tmp_path) == list(range(0, 400, 1 if detail is Detail.MESSAGES else 10))


async def test_a_journal_that_cannot_be_closed_comes_home_all_the_same(
    place: tuple[Any, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error on closing a journal is harmless, as its rows are synced.

    Some network file systems report earlier errors then.
    """
    where, spool = place
    real = journal.JournalWriter.close

    def close(self: journal.JournalWriter) -> None:
        real(self)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(journal.JournalWriter, "close", close)
    log = await SequenceLog.open(where, session(), spool=spool, rotate_rows=5)
    for lo, hi in ((0, 5), (5, 9)):
        log.append(numbers(lo, hi))
        await log.sync()
    await log.close()
    assert logged(where) == list(range(9))
    (found,) = find_sessions(where)
    assert found.session.clean
    assert [file.rows for file in found.files] == [5, 4]


async def test_session_json_can_be_revised(tmp_path: Path) -> None:
    """`revise` changes session.json at once, and `close` keeps the changes."""
    log = await SequenceLog.open(tmp_path, session())
    topics = {"t": Topic(destination="a.t", source_partitions=3)}
    await log.revise(lambda now: now.model_copy(update={"topics": topics, "incarnation": 2}))
    (found,) = find_sessions(tmp_path)
    assert (found.session.topics, found.session.incarnation) == (topics, 2)
    await log.close()
    (found,) = find_sessions(tmp_path)
    assert (found.session.topics, found.session.clean) == (topics, True)


async def test_the_directories_of_a_log_are_durable_from_the_first_that_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every directory that gets a new entry is synced, the log's own included.

    Otherwise a crash can lose a directory's name, and with it all synced files below.
    """
    synced: list[Path] = []

    def sync(directory: Path) -> None:
        synced.append(directory)
        journal.sync_directory(directory)

    monkeypatch.setattr(session_directory, "sync_directory", sync)
    await (await SequenceLog.open(tmp_path / "a" / "logs", session())).close()
    below = [tmp_path, *(tmp_path / path for path in ("a", "a/logs", "a/logs/run=r1"))]
    role = below[-1] / "role=producer"
    assert set(synced) == {*below, role, role / "p-s"}
    synced.clear()
    again = session().model_copy(update={"session": "s2"})
    await (await SequenceLog.open(tmp_path / "a" / "logs", again)).close()
    assert not {tmp_path, tmp_path / "a"} & set(synced)


async def test_places_that_cannot_hold_a_log(tmp_path: Path) -> None:
    """`open` refuses a missing spool, an existing session directory, and a file in the way."""
    with pytest.raises(UsageError, match="needs a local directory"):
        await SequenceLog.open(Location(fs._MockFileSystem(), "b", "mock://b"), session())
    log = await SequenceLog.open(tmp_path, session())
    with pytest.raises(SequenceLogError, match="cannot write a sequence log here"):
        await SequenceLog.open(tmp_path, session())
    await log.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(SequenceLogError, match="cannot write a sequence log here"):
        await SequenceLog.open(tmp_path / "file", session())


async def test_how_columns_are_encoded(tmp_path: Path) -> None:
    """Ascending columns are delta-encoded; columns that repeat values use a dictionary."""
    async with await SequenceLog.open(tmp_path, session()) as log:
        log.append(numbers(0, 100))
    (path,) = tmp_path.rglob("*.parquet")
    with pa.parquet.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        columns = {group.column(n).path_in_schema: group.column(n) for n in range(23)}
    assert "DELTA_BINARY_PACKED" in columns["seq_lo"].encodings
    assert "RLE_DICTIONARY" in columns["producer"].encodings
    assert "RLE_DICTIONARY" in columns["latency_count.list.element"].encodings
    assert columns["latency_count.list.element"].compression == "LZ4"
