"""Finding and reading logs: whatever is missing is reported."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.files import (
    LogFile,
    distinct,
    find_sessions,
    last_incarnation,
    read_file,
    read_session,
)
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.schema import ROWS
from mirrortest.seqlog.session import FileNote, Session, new_session_id
from mirrortest.seqlog.session_directory import seal
from tests.log_rows import read_all


def make_session(root: Path, *, name: str = "p", **more: Any) -> Path:
    """A session's directory with its session.json."""
    given = {"run": "r1", "role": "consumer", "name": name, "session": "s", "started_ns": 1}
    session = Session.model_validate(given | more)
    directory = root.joinpath(*session.folders)
    directory.mkdir(parents=True)
    (directory / "session.json").write_bytes(session.encode())
    return directory


def make_journal(directory: Path, number: int, lo: int, hi: int) -> Path:
    """A journal whose rows' offsets go from lo to hi."""
    path = directory / f"{number:06d}.journal"
    writer = JournalWriter(path)
    writer.append([batch_of([rows.read("t", 0, at, at + 1) for at in range(lo, hi)])])
    writer.close()
    return path


def make_parquet(directory: Path, number: int, lo: int, hi: int, *, listed: bool = True) -> Path:
    """A finished file with these rows; `listed`: session.json lists it."""
    journal = make_journal(directory, number, lo, hi)
    path, sealed = seal(journal, [])
    journal.unlink()
    if not listed:
        return path
    session = read_session(Location.parse(directory))
    others = [note for note in session.files if note.name != path.name]
    note = FileNote(name=path.name, rows=sealed.rows, digest=sealed.digest)
    files = tuple(sorted([*others, note], key=lambda each: each.name))
    replaced = session.model_copy(update={"files": files})
    (directory / "session.json").write_bytes(replaced.encode())
    return path


def without_digest(directory: Path) -> None:
    """Write session.json as a version without digests did."""
    session = read_session(Location.parse(directory))
    (directory / "session.json").write_text(session.model_dump_json(indent=1) + "\n")


def offsets(where: Path) -> tuple[list[int], list[Damage]]:
    """The offsets of the only session there, and the damage."""
    (found,) = find_sessions(where)
    damage: list[Damage] = []
    return read_all(found, damage)["offset_lo"].to_pylist(), damage


def test_sessions_of_one_run(tmp_path: Path) -> None:
    """Only the run's sessions are found, and all of them; other files are ignored."""
    make_session(tmp_path, name="a")
    make_session(tmp_path, name="b", role="producer")
    make_session(tmp_path, name="c", run="r2")
    (tmp_path / "notes.txt").write_text("mine")
    assert [each.session.name for each in find_sessions(tmp_path, "r1")] == ["a", "b"]
    assert len(find_sessions(str(tmp_path))) == 3
    assert len(find_sessions(f"file://{tmp_path}", "r2")) == 1
    assert find_sessions(tmp_path, "r3") == []
    assert find_sessions(tmp_path / "nowhere") == []


def test_journals_and_parquet_together(tmp_path: Path) -> None:
    """A crashed session is read from its Parquet files and its last journal, in order."""
    directory = make_session(tmp_path)
    make_parquet(directory, 1, 0, 4)
    make_journal(directory, 2, 4, 6)
    (directory / "000002.draft").write_bytes(b"PAR1 half")
    assert offsets(tmp_path) == ([0, 1, 2, 3, 4, 5], [])


def test_both_forms_of_a_file_are_read_once(tmp_path: Path) -> None:
    """Killed between the rename and the removal: the rows are read once."""
    directory = make_session(tmp_path)
    seal(make_journal(directory, 1, 0, 4), [])
    assert offsets(tmp_path) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("order", [1, -1])
def test_a_session_in_several_places_is_read_with_all_that_each_has(
    order: int, tmp_path: Path
) -> None:
    """A copy that was made while it was written has as many files, but fewer rows in them."""
    copied, complete, spool = (tmp_path / name for name in ("copied", "whole", "spool"))
    directory = make_session(copied)
    make_parquet(directory, 1, 0, 3)
    make_journal(directory, 2, 3, 4)
    notes = [{"name": "000001.parquet", "rows": 3}, {"name": "000003.parquet", "rows": 1}]
    directory = make_session(complete, files=notes, ended_ns=9)
    make_parquet(directory, 1, 0, 3)
    make_journal(directory, 2, 3, 6)
    make_journal(make_session(spool, files=notes[:1]), 4, 7, 9)
    copies = [each for place in (copied, complete, spool) for each in find_sessions(place)]
    (found,) = distinct(copies[::order])
    assert (found.session.ended_ns, found.location) == (9, copies[1].location)
    damage: list[Damage] = []
    rows_there = read_all(found, damage)["offset_lo"].to_pylist()
    assert rows_there == [0, 1, 2, 3, 4, 5, 7, 8]
    assert [(each.kind, each.rows) for each in damage] == [(DamageKind.MISSING, 1)]
    assert [file.rows for file in found.files] == [3, None, None]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("salvaged", [False, True])
def test_what_any_copy_of_a_session_records_counts(
    order: int, tmp_path: Path, *, salvaged: bool
) -> None:
    """A killed session's log and an earlier copy of it, in any order; the copy may be salvaged.

    Of session.json files with as many files, the first place's counted, though it was older.
    """
    first = {"number": 0, "topic_id": "x", "since_ns": 5, "partitions": [0]}
    before = {"destination_partitions": 2, "incarnations": [first], "below_zero_ns": 3}
    after = {
        "destination": "a.t", "destination_partitions": 3, "uncommitted": True, "stamped": True,
        "incarnations": [{**first, "partitions": [0, 1]}],
    }  # fmt: skip
    copied, log = tmp_path / "copied", tmp_path / "log"
    directory = make_session(copied, topics={"t": before}, judged_before=["any"])
    if salvaged:
        make_parquet(directory, 1, 0, 1)
    directory = make_session(log, topics={"t": after, "u": {}}, clocks_set_ns=7, incarnation=2)
    make_journal(directory, 1, 0, 3)
    copies = [each for place in (copied, log) for each in find_sessions(place)]
    (found,) = distinct(copies[::order])
    session, topic = found.session, found.session.topics["t"]
    assert (topic.destination, topic.uncommitted, topic.stamped) == ("a.t", True, True)
    assert (topic.destination_partitions, topic.earlier_counts) == (3, (2,))
    assert topic.below_zero_ns == 3
    assert {each.partitions for each in topic.incarnations} == {(0,), (0, 1)}
    assert "u" in session.topics
    assert (session.judged_before, session.clocks_set_ns) == (("any",), 7)
    assert session.incarnation == 2
    assert read_all(found, [])["offset_lo"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_with_fewer_rows_than_another_copy_of_it_is_not_read(
    order: int, tmp_path: Path
) -> None:
    """A copy that was salvaged early, the journal of the killed process, and its whole file."""
    salvaged, log, sealed, stale = (tmp_path / name for name in ("early", "log", "sealed", "stale"))
    make_parquet(make_session(salvaged), 1, 0, 1)
    make_journal(make_session(log), 1, 0, 3)
    make_parquet(make_session(sealed), 1, 0, 3)
    for places in ((salvaged, log), (salvaged, sealed), (salvaged, log, sealed)):
        copies = [each for place in places for each in find_sessions(place)]
        (found,) = distinct(copies[::order])
        damage: list[Damage] = []
        assert read_all(found, damage)["offset_lo"].to_pylist() == [0, 1, 2]
        assert damage == []
    make_journal(make_session(stale), 1, 0, 2)
    next(sealed.rglob("*.parquet")).unlink()
    copies = [each for place in (sealed, stale) for each in find_sessions(place)]
    (found,) = distinct(copies[::order])
    assert read_all(found, [])["offset_lo"].to_pylist() == [0, 1]
    assert [(each.kind, each.rows) for each in found.damage] == [(DamageKind.SHORT, 1)]


def test_a_file_with_a_stray_number_is_told_in_two_lines(tmp_path: Path) -> None:
    """The gap before it is one piece of damage: it was one for each number, without memory left."""
    directory = make_session(tmp_path)
    make_parquet(directory, 1, 0, 2)
    (directory / "20260101.parquet").write_bytes(b"x")
    marks, damage = offsets(tmp_path)
    assert marks == [0, 1]
    assert [each.kind for each in damage] == [DamageKind.MISSING, DamageKind.UNLISTED]
    assert "from 2 to 20,260,100" in damage[0].detail


def test_missing_files_are_told(tmp_path: Path) -> None:
    """A gap in the numbers, and a listed file that does not exist, are damage."""
    notes = [{"name": "000002.parquet", "rows": 7}, {"name": "000004.parquet", "rows": 1}]
    directory = make_session(tmp_path, files=notes)
    make_parquet(directory, 3, 0, 2)
    marks, damage = offsets(tmp_path)
    assert marks == [0, 1]
    assert [each.kind for each in damage] == [DamageKind.MISSING] * 3
    assert [each.rows for each in damage] == [None, 7, 1]


def test_a_short_file_is_told(tmp_path: Path) -> None:
    """A file with fewer rows than its session noted is damage, and its rows are read."""
    directory = make_session(tmp_path, files=[{"name": "000001.parquet", "rows": 9}])
    make_parquet(directory, 1, 0, 2, listed=False)
    marks, (damage,) = offsets(tmp_path)
    assert marks == [0, 1]
    assert (damage.kind, damage.rows) == (DamageKind.SHORT, 7)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_an_unreadable_parquet_file_is_told(tmp_path: Path, content: bytes) -> None:
    """A file that is not Parquet is damage with the listed number of rows, not an error."""
    directory = make_session(tmp_path, files=[{"name": "000001.parquet", "rows": 9}])
    (directory / "000001.parquet").write_bytes(content)
    make_journal(directory, 2, 0, 1)
    marks, (damage,) = offsets(tmp_path)
    assert marks == [0]
    assert (damage.kind, damage.rows) == (DamageKind.UNREADABLE, 9)


def test_garbled_pages_are_told_without_a_digest(tmp_path: Path) -> None:
    """A Parquet file with an intact footer and garbled pages is damage."""
    directory = make_session(tmp_path, files=[{"name": "000001.parquet", "rows": 5000}])
    path = make_parquet(directory, 1, 0, 5000, listed=False)
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    _, (damage,) = offsets(tmp_path)
    assert (damage.kind, damage.rows) == (DamageKind.UNREADABLE, 5000)


def test_salvaged_damage_is_told_again(tmp_path: Path) -> None:
    """What a salvage could not read stays recorded in the session."""
    known = Damage(DamageKind.HOLE, "000001.journal", "bytes", 3)
    make_session(
        tmp_path, damage=[{"kind": "hole", "where": known.where, "detail": "bytes", "rows": 3}]
    )
    assert offsets(tmp_path) == ([], [known])


def test_a_file_by_its_uri_and_columns(tmp_path: Path) -> None:
    """An executor reads named columns of a file by its URI alone, journal or Parquet alike."""
    directory = make_session(tmp_path)
    make_parquet(directory, 1, 0, 3)
    make_journal(directory, 2, 3, 5)
    (found,) = find_sessions(f"file://{tmp_path}")
    damage: list[Damage] = []
    read = [
        batch.to_pylist()
        for file in found.files
        for batch in read_file(file, damage, columns=["offset_lo", "lane"])
    ]
    assert read == [
        [{"offset_lo": at, "lane": None} for at in (0, 1, 2)],
        [{"offset_lo": at, "lane": None} for at in (3, 4)],
    ]
    assert damage == []
    assert all(file.size > 0 for file in found.files)


def test_a_journal_finished_meanwhile(tmp_path: Path) -> None:
    """A journal that became Parquet between listing and reading is read as Parquet."""
    directory = make_session(tmp_path)
    journal = make_journal(directory, 1, 0, 4)
    (found,) = find_sessions(tmp_path)
    seal(journal, [])
    journal.unlink()
    damage: list[Damage] = []
    assert read_all(found, damage).num_rows == 4
    assert damage == []


def test_a_file_that_vanished(tmp_path: Path) -> None:
    """A file that no longer exists when it is read is damage."""
    damage: list[Damage] = []
    assert list(read_file(LogFile(Location.parse(tmp_path / "000001.journal"), 4), damage)) == []
    assert list(read_file(LogFile(Location.parse(tmp_path / "000002.parquet")), damage)) == []
    assert [(each.kind, each.rows) for each in damage] == [
        (DamageKind.MISSING, 4),
        (DamageKind.MISSING, None),
    ]


def test_a_parquet_file_of_an_older_version(tmp_path: Path) -> None:
    """Columns that a file does not have yet are null."""
    directory = make_session(tmp_path)
    without_digest(directory)
    table = pa.Table.from_batches([batch_of([rows.read("t", 0, 1, 2)])])
    pq.write_table(table.drop_columns(["negative", "lane"]), directory / "000001.parquet")
    (found,) = find_sessions(tmp_path)
    assert read_all(found, []).equals(table.cast(ROWS))


def test_incarnations_are_told_by_local_logs_alone(tmp_path: Path) -> None:
    """A start does not wait for an object store; a missing directory has no incarnation."""
    session = Session.decode((make_session(tmp_path) / "session.json").read_bytes(), "here")
    make_session(tmp_path, role="producer", incarnation=7)
    elsewhere = Location(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "", "far")
    for where, last in ((tmp_path, 7), (tmp_path / "none", 0), (elsewhere, 0)):
        assert last_incarnation(where, session.run, session.name) == last


def test_logs_that_cannot_be_listed_are_an_error_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, a producer that may not read its directory ended with a traceback."""

    def refused(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    make_session(tmp_path, role="producer", incarnation=7)
    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(SequenceLogError, match=r"run=r1/role=producer: cannot be read"):
        last_incarnation(tmp_path, "r1", "p")


def test_log_files_without_a_session(tmp_path: Path) -> None:
    """Log files without session.json are an error; an empty directory is not."""
    directory = make_session(tmp_path)
    make_journal(directory, 1, 0, 1)
    (directory / "session.json").unlink()
    with pytest.raises(SequenceLogError, match=r"log files without session\.json"):
        find_sessions(tmp_path)
    (directory / "000001.journal").unlink()
    assert find_sessions(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "Invalid JSON"),
        (b"{}", "run: Field required"),
        (b'{"version": 2}', "version"),
    ],
)
def test_sessions_that_cannot_be_read(tmp_path: Path, content: bytes, what: str) -> None:
    """A session.json that is invalid, or of a later version, is an error that names it."""
    directory = make_session(tmp_path)
    (directory / "session.json").write_bytes(content)
    with pytest.raises(SequenceLogError, match=rf"session\.json: not a session.*{what}"):
        find_sessions(tmp_path)


def test_a_session_with_later_columns(tmp_path: Path) -> None:
    """A session whose rows have columns of a later version is refused."""
    directory = make_session(tmp_path)
    without_digest(directory)
    path = directory / "session.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 9'))
    with pytest.raises(SequenceLogError, match="columns of version 9"):
        find_sessions(tmp_path)


def test_a_session_survives_its_file() -> None:
    """A session reads back unchanged; ids begin with the start time and differ."""
    session = Session.model_validate(
        {
            "run": "r1",
            "role": "source",
            "name": "p",
            "session": new_session_id(1_767_262_500_000_000_000),
            "started_ns": 5,
            "topics": {"t": {"destination": "a.t"}},
            "clusters": {"source": "x"},
            "files": [FileNote(name="000001.parquet", rows=3)],
            "damage": [{"kind": "hole", "where": "x", "detail": "y", "rows": None}],
        }
    )
    assert Session.decode(session.encode(), "x") == session
    assert session.session.startswith("20260101T101500Z-")
    assert new_session_id(0) != new_session_id(0)


def test_places() -> None:
    """Children and parents keep a URI's query, and nothing shown carries credentials."""
    place = Location(None, "bucket/logs", "s3://key:secret@bucket/logs?region=x&token=t")
    child = place.child("run=r", "a.journal")
    assert child.uri == "s3://key:secret@bucket/logs/run=r/a.journal?region=x&token=t"
    assert child.path == "bucket/logs/run=r/a.journal"
    assert child.parent.parent == place
    assert child.shown == "s3://bucket/logs/run=r/a.journal"
    assert "secret" not in repr(child)
    assert Location(None, "a/b").child("c").shown == "a/b/c"
    assert Location(None, "b/c", "s3://key:sec/ret@b/c").shown == "s3://b/c"
    assert Location(None, "b/x@y", "s3://b/x@y").shown == "s3://b/x@y"
    assert Location(None, "/a?b", "/a?b").shown == "/a?b"
    with pytest.raises(UsageError, match=r"^nope://host/x: no file system") as caught:
        Location.parse("nope://key:secret@host/x?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "raised", "text"),
    [
        ("When resolving region for bucket 'b': AWS Error", SequenceLogError, "reached: When re"),
        ("Bucket 'b' not found", UsageError, "there is no such bucket"),
    ],
)
def test_an_object_store_out_of_reach_is_not_a_wrong_option(
    monkeypatch: pytest.MonkeyPatch, reason: str, raised: type[Exception], text: str
) -> None:
    """An address without a region is looked up: in an outage, another attempt may succeed."""

    def from_uri(_: str) -> None:
        raise OSError(reason)

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(raised, match=f"^s3://b/x: .*{text}"):
        Location.parse("s3://key:secret@b/x")
