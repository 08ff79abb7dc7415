"""Salvage moves all log files that a killed process left in its spool, exactly once."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyarrow import fs

from mirrortest.cli.salvage import salvage as salvage_command
from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.host import user_files
from mirrortest.reconcile.facts import unsalvaged
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import files, rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.files import distinct, find_sessions, read_session
from mirrortest.seqlog.interval_log import Intervals, TopicLoad, read_intervals
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.session_directory import SessionDirectory, salvage, seal, upload
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import Histogram
from mirrortest.wire.stream import StreamId
from tests.log_rows import read_all

SESSION = Session(run="r1", role=Role.CONSUMER, name="c", session="s", started_ns=1)


@pytest.fixture
def target() -> Location:
    """An object store."""
    return Location(fs._MockFileSystem(), "bucket")


def killed(target: Location, spool: Path) -> SessionDirectory:
    """A session whose process died after three journals: one is uploaded, one is torn."""
    directory = SessionDirectory.create(target, SESSION, spool)
    for number in (1, 2, 3):
        writer = JournalWriter(directory.path / f"{number:06d}.journal")
        writer.append([batch_of([rows.read("t", 0, number, number + 1)])])
        writer.close()
    directory.finish(directory.path / "000001.journal", 1)
    with (directory.path / "000003.journal").open("ab") as file:
        file.write(b"MtJ\x01 and then the kill")
    return directory


def offsets(where: Location) -> tuple[list[int], list[Damage]]:
    """The offsets of the only session there, and the damage."""
    (found,) = find_sessions(where)
    damage: list[Damage] = []
    return read_all(found, damage)["offset_lo"].to_pylist(), damage


def played(where: Location) -> str:
    """A store as an option's value: the mock has no URI, and `Location.parse` accepts both."""
    return cast("str", where)


def test_a_dead_session_comes_home(target: Location, tmp_path: Path) -> None:
    """Salvage moves all rows, records the torn tail, sets no end time, and empties the spool."""
    killed(target, tmp_path).release()
    assert offsets(target)[0] == [1]
    (saved,) = salvage(tmp_path, target)
    marks, damage = offsets(target)
    assert marks == [1, 2, 3]
    assert [(each.kind, each.rows) for each in damage] == [(DamageKind.TORN_TAIL, 0)]
    assert (saved.ended_ns, saved.clean) == (None, False)
    assert [each.rows for each in saved.files] == [1, 1, 1]
    assert list(tmp_path.iterdir()) == []
    assert salvage(tmp_path, target) == []


def test_until_it_is_home_a_producers_log_is_not_taken_for_whole(
    target: Location, tmp_path: Path
) -> None:
    """A killed producer's log is incomplete until it is salvaged.

    Its spool may have more reservations. Without these, messages would count as phantoms.
    """
    producer = SESSION.model_copy(update={"role": Role.PRODUCER})
    directory = SessionDirectory.create(target, producer, tmp_path / "spool")
    _killed_in_its_second_file(directory)
    SessionDirectory.create(target, SESSION, tmp_path / "spool").release()
    shutil.copytree(tmp_path / "spool", tmp_path / "before")
    (older,) = (tmp_path / "before").rglob("000002.journal")
    older.rename(older.with_name("000001.journal"))
    assert len(unsalvaged(plan([target, Location.parse(tmp_path / "before")], "r1"))) == 1
    (incomplete,) = unsalvaged(plan([target], "r1"))
    assert "role=producer" in incomplete[1]
    both = plan([target, Location.parse(tmp_path / "spool")], "r1")
    assert unsalvaged(both) == []
    assert max(len(found.files) for found in both.sessions) == 2
    salvage(tmp_path / "spool", target)
    assert unsalvaged(plan([target], "r1")) == []
    here = SessionDirectory.create(tmp_path / "here", producer, None)
    assert not here.session.spooled
    here.release()


def _killed_in_its_second_file(directory: SessionDirectory) -> None:
    """Write two journals of a row each, and finish the first."""
    for number in (1, 2):
        writer = JournalWriter(directory.path / f"{number:06d}.journal")
        writer.append([batch_of([rows.reserved(StreamId("t", "r1", "p", 1, 0), 0, number)])])
        writer.close()
    directory.finish(directory.path / "000001.journal", 1)
    directory.release()


def test_a_killed_producers_log_without_its_last_journal_is_incomplete(tmp_path: Path) -> None:
    """Only *.parquet and session.json were copied; such a run passed.

    A log is complete with its last journal, once it is salvaged, and if it has no rows at all.
    """
    log, copied = tmp_path / "log", tmp_path / "copied"
    producer = SESSION.model_copy(update={"role": Role.PRODUCER})
    directory = SessionDirectory.create(log, producer, None)
    assert unsalvaged(plan([str(log)], "r1")) == []
    _killed_in_its_second_file(directory)
    shutil.copytree(log, copied, ignore=shutil.ignore_patterns("*.journal"))
    assert unsalvaged(plan([str(log)], "r1")) == []
    assert len(unsalvaged(plan([str(copied)], "r1"))) == 1
    assert unsalvaged(plan([str(copied), str(log)], "r1")) == []
    salvage(log, log)
    assert unsalvaged(plan([str(log)], "r1")) == []


@pytest.mark.parametrize("spool_first", [False, True])
def test_intervals_are_read_from_the_copy_that_has_them(
    target: Location, tmp_path: Path, *, spool_first: bool
) -> None:
    """A killed process's intervals are read from its spool, whichever directory is named first.

    The report lacked its load, and did not say so.
    """
    directory = killed(target, tmp_path)
    writer = JournalWriter(directory.path / "intervals.journal")
    Intervals(lambda batch: writer.append([batch]), 1.0, 0, int).end(
        9, {"t": TopicLoad({"arrived": 7}, Histogram())}
    )
    writer.close()
    directory.release()
    copies = [*find_sessions(target), *find_sessions(tmp_path)]
    (found,) = distinct(copies[::-1] if spool_first else copies)
    damage: list[Damage] = []
    assert read_intervals(found, damage)["arrived"].to_pylist() == [7]
    salvage(tmp_path, target)
    (found,) = distinct(find_sessions(target))
    assert read_intervals(found, damage)["arrived"].to_pylist() == [7]
    assert damage == []


def test_the_command_tells_what_it_saved(
    target: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints each session's rows, files and damage; a second call finds nothing to salvage."""
    killed(target, tmp_path).release()
    salvage_command(spool=tmp_path, log_dir=played(target), json=True)
    (saved,) = json.loads(capsys.readouterr().out)["salvaged"]
    assert {key: saved[key] for key in ("run", "role", "name", "rows", "files")} == {
        "run": "r1", "role": "consumer", "name": "c", "rows": 3, "files": 3,
    }  # fmt: skip
    assert len(saved["damage"]) == 1
    assert offsets(target)[0] == [1, 2, 3]
    salvage_command(spool=tmp_path, log_dir=played(target))
    assert "nothing to salvage" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--log-spool"):
        salvage_command(spool=tmp_path / "elsewhere", log_dir=played(target))


def test_a_living_session_is_left_alone(target: Location, tmp_path: Path) -> None:
    """While a process locks a session, salvage skips it, and no other writer can open it."""
    directory = killed(target, tmp_path)
    assert salvage(tmp_path, target) == []
    assert (directory.path / "000002.journal").exists()
    with pytest.raises(SequenceLogError, match="another process is writing"):
        SessionDirectory(directory.path, target, SESSION)
    directory.release()
    assert len(salvage(tmp_path, target, "r1")) == 1


def test_a_file_system_without_locks_is_named(
    target: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks, as on some NFS, the error says so, and no descriptor stays open.

    It was an internal error, and a descriptor stayed open.
    """

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    killed(target, tmp_path / "spool").release()
    with monkeypatch.context() as nfs:
        nfs.setattr(fcntl, "flock", refuse)
        descriptors = set(Path("/proc/self/fd").iterdir())
        with pytest.raises(SequenceLogError, match="No locks available"):
            salvage(tmp_path / "spool", target)
        with pytest.raises(SequenceLogError, match="cannot write a sequence log here: No locks"):
            SessionDirectory.create(tmp_path / "logs", SESSION, None)
        assert set(Path("/proc/self/fd").iterdir()) == descriptors
    assert len(salvage(tmp_path / "spool", target)) == 1


def test_a_salvage_is_repeatable(
    target: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A salvage that fails midway raises an error; the next one completes with the same rows."""
    directory = killed(target, tmp_path)
    seal(directory.path / "000002.journal", [])
    directory.release()
    real, calls = fs.copy_files, []

    def second_fails(*args: object, **more: object) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError("the network is gone")
        real(*args, **more)

    with monkeypatch.context() as broken:
        broken.setattr(fs, "copy_files", second_fails)
        with pytest.raises(SequenceLogError, match="the network is gone"):
            salvage(tmp_path, target)
    salvage(tmp_path, target)
    assert offsets(target)[0] == [1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def uploaded(target: Location) -> dict[str, bytes]:
    """The files of the session in the target."""
    (found,) = find_sessions(target)
    places = [found.location.child("session.json"), *(file.location for file in found.files)]
    return {place.path: place.read() for place in places}


@pytest.mark.parametrize("then", ["it ended", "it was salvaged", "it goes on"])
async def test_an_older_copy_of_a_spool_replaces_nothing(
    target: Location, tmp_path: Path, then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot of a spool from before the session ended, was salvaged, or had more files.

    Its few rows replaced the log's.
    """
    spool, snapshot = tmp_path / "spool", tmp_path / "snapshot"
    log = await SequenceLog.open(target, SESSION, spool=spool, rotate_rows=3)
    log.append([rows.read("t", 0, 0, 1)])
    await log.sync()
    shutil.copytree(spool, snapshot)
    log.append([rows.read("t", 0, at, at + 1) for at in range(1, 5)])
    await log.sync()
    if then == "it goes on":
        await log.revise(lambda session: session)  # once the first journal is sealed
        assert log.session.files
    else:
        await log.close()
    if then == "it was salvaged":
        (found,) = find_sessions(target)
        killed_session = found.session.model_copy(update={"ended_ns": None, "clean": False})
        session_file = found.location.child("session.json")
        with session_file.filesystem.open_output_stream(session_file.path) as sink:
            sink.write(killed_session.encode())
    before = uploaded(target)
    salvage_command(spool=snapshot, log_dir=played(target))
    assert uploaded(target) == before
    printed = capsys.readouterr()
    assert "nothing to salvage" in printed.out
    assert "older copy of its spool" in printed.out + printed.err
    assert list(snapshot.rglob("*.journal"))
    await log.close()


def test_a_spool_comes_home_although_an_older_copy_of_it_came_before(
    target: Location, tmp_path: Path
) -> None:
    """It has more rows than the file that the copy left there."""
    spool, snapshot = tmp_path / "spool", tmp_path / "snapshot"
    directory = SessionDirectory.create(target, SESSION, spool)
    writer = JournalWriter(directory.path / "000001.journal")
    writer.append([batch_of([rows.read("t", 0, 0, 1)])])
    writer.sync()
    shutil.copytree(spool, snapshot)
    writer.append([batch_of([rows.read("t", 0, 1, 2)])])
    writer.close()
    directory.release()
    salvage(snapshot, target)
    assert offsets(target) == ([0], [])
    salvage(spool, target)
    assert offsets(target) == ([0, 1], [])


def test_a_local_log_is_finished_in_place(tmp_path: Path) -> None:
    """In a local log directory, a salvage converts the journals to Parquet in place."""
    where = Location.parse(tmp_path)
    directory = killed(where, tmp_path)
    directory.release()
    salvage(tmp_path, tmp_path)
    assert offsets(where)[0] == [1, 2, 3]
    assert {path.name for path in Path(directory.path).iterdir()} == {
        "session.json",
        "000001.parquet",
        "000002.parquet",
        "000003.parquet",
    }


@pytest.mark.parametrize("run", [None, "r1"])
def test_a_directory_above_the_spools_is_refused_by_their_names(
    target: Location, tmp_path: Path, run: str | None
) -> None:
    """Given a directory above spools, the command names them: it found nothing to salvage there."""
    for name in ("host1", "host2"):
        killed(target, tmp_path / name).release()
    with pytest.raises(UsageError, match=f"{tmp_path}/host1, {tmp_path}/host2"):
        salvage_command(spool=tmp_path, log_dir=played(target), run=run)
    salvage_command(spool=tmp_path, log_dir=played(target), run="r2")
    salvage_command(spool=tmp_path / "host2", log_dir=played(target), run=run)
    assert offsets(target)[0] == [1, 2, 3]


@pytest.mark.parametrize("json", [False, True])
def test_a_session_that_cannot_be_read_hinders_no_other(
    target: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, json: bool
) -> None:
    """The command salvages the others, names the unreadable one and ends with an error."""
    killed(target, tmp_path).release()
    damaged = tmp_path / "run=r0" / "role=consumer" / "c-s"
    damaged.mkdir(parents=True)
    (damaged / "session.json").touch()
    with pytest.raises(SequenceLogError, match=f"1 session not salvaged: {damaged}"):
        salvage_command(spool=tmp_path, log_dir=played(target), json=json)
    assert "r1" in capsys.readouterr().out
    assert offsets(target)[0] == [1, 2, 3]
    assert damaged.exists()


@pytest.mark.parametrize("target", ["link", "sub/../logs", "file://{}/sub/../logs"])
def test_a_directory_under_another_name_is_the_same_directory(tmp_path: Path, target: str) -> None:
    """Salvage finishes logs in place, also if --log-dir names the spool by a link or with `..`.

    Their files were copied onto themselves, which emptied them.
    """
    logs = tmp_path / "logs"
    (tmp_path / "sub").mkdir()
    killed(Location.parse(logs), logs).release()
    (tmp_path / "link").symlink_to(logs)
    where = target.format(tmp_path) if "://" in target else str(tmp_path / target)
    for _ in range(2):
        salvage(logs, where)
        assert offsets(Location.parse(logs))[0] == [1, 2, 3]


def test_a_file_is_never_uploaded_onto_itself(tmp_path: Path) -> None:
    """An upload whose target is another name of the file is refused, and the file stays."""
    file, other = tmp_path / "000001.parquet", tmp_path / "other"
    file.write_bytes(b"rows")
    other.hardlink_to(file)
    with pytest.raises(SequenceLogError, match="other is the same file"):
        upload(file, Location.parse(other))
    assert file.read_bytes() == b"rows"


def test_a_copy_in_a_local_directory_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the spool is removed after it: a power cut could have lost both."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "the disk fails")

    file, copy = tmp_path / "000001.parquet", tmp_path / "logs" / "000001.parquet"
    file.write_bytes(b"rows")
    monkeypatch.setattr("mirrortest.seqlog.session_directory.os.fsync", fail)
    with pytest.raises(SequenceLogError, match="cannot be written"):
        upload(file, Location.parse(copy))
    assert not copy.exists()
    monkeypatch.undo()
    upload(file, Location.parse(copy))
    assert [each.read_bytes() for each in copy.parent.glob("*.parquet")] == [b"rows"]


def test_a_spool_comes_home_to_a_local_directory(tmp_path: Path) -> None:
    """The target may be a local directory other than the spool."""
    spool, home = tmp_path / "spool", tmp_path / "home"
    killed(Location.parse(spool), spool).release()
    salvage(spool, home)
    assert offsets(Location.parse(home))[0] == [1, 2, 3]
    assert not any(path.is_file() for path in spool.rglob("*"))


@pytest.mark.parametrize("when", ["before it is read", "before it is locked"])
async def test_a_session_that_ends_meanwhile_hinders_nobody(
    when: str, target: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Salvage skips a session that ends and removes its directory after salvage found it."""
    loop = asyncio.get_running_loop()
    ending = await SequenceLog.open(target, SESSION, spool=tmp_path)
    ending.append([rows.read("t", 0, 0, 5)])
    await ending.sync()

    def end() -> None:
        monkeypatch.undo()
        asyncio.run_coroutine_threadsafe(ending.close(), loop).result()

    def read(directory: Location) -> Session:
        end()
        return read_session(directory)

    def lock(directory: int, operation: int) -> None:
        end()
        fcntl.flock(directory, operation)

    if when == "before it is read":
        monkeypatch.setattr(files, "read_session", read)
    else:
        monkeypatch.setattr(user_files, "fcntl", SimpleNamespace(**vars(fcntl) | {"flock": lock}))
    assert await asyncio.to_thread(salvage, tmp_path, target) == []
    assert offsets(target) == ([0], [])


async def test_the_next_of_a_run_brings_its_predecessors_home(
    target: Location, tmp_path: Path
) -> None:
    """Opening a log salvages dead sessions: a pod that restarts on its spool needs no command."""
    killed(target, tmp_path).release()
    again = SESSION.model_copy(update={"session": "s2"})
    async with await SequenceLog.open(target, again, spool=tmp_path) as log:
        first = next(found for found in find_sessions(target) if found.session.session == "s")
        assert read_all(first, [])["offset_lo"].to_pylist() == [1, 2, 3]
        assert log.session.session == "s2"
    assert not list(tmp_path.rglob("*.journal"))
