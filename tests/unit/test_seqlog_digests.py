"""No bit of a log can change unnoticed, and logs from before digests are still read."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from mirrortest.errors import SequenceLogError
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.files import LogFile, find_sessions, read_file, read_session
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.session_directory import SessionDirectory, seal
from tests.flips import REFUSED, SAME, flips, write_run
from tests.log_rows import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE = Path(__file__).parents[1] / "logs_of_0_1_0"
"""The logs of a run that version 0.1.0 wrote, before there were digests."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs whose bits are flipped."""
    logs = tmp_path_factory.mktemp("flips")
    for detail in Detail:
        write_run(logs, detail, messages=400)
    return logs


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SessionDirectory]:
    """A session's directory."""
    about = Session(run="r1", role="consumer", name="c", session="s", started_ns=1)  # type: ignore[arg-type]
    made = SessionDirectory.create(tmp_path, about, None)
    yield made
    made.release()


def journal(directory: SessionDirectory, number: int = 1, count: int = 5) -> Path:
    """A journal of some rows."""
    path = directory.path / f"{number:06d}.journal"
    writer = JournalWriter(path)
    writer.append([batch_of([rows.read("t", 0, at, at + 1) for at in range(count)])])
    writer.close()
    return path


def read(logs: Path) -> tuple[int, list[Damage]]:
    """The number of rows of the only session, and the damage."""
    (found,) = find_sessions(logs)
    damage: list[Damage] = []
    return read_all(found, damage).num_rows, damage


def change(path: Path, **more: Any) -> None:
    """Write other contents into a session's file, with the digest that fits them."""
    session = Session.decode(path.read_bytes(), path.name)
    path.write_bytes(session.model_copy(update=more).encode())


def test_no_flipped_bit_is_silent(written: Path) -> None:
    """500 flipped bits of sealed files, journals and session.json are noticed or harmless."""
    answers, wrong = flips(written, ["flipsintervals", "flipsmessages"], 500, "tests")
    assert wrong == []
    assert answers[SAME] < 10
    assert answers["damage: changed"] > 100
    assert min(answers[REFUSED], answers["damage: hole"], answers["damage: torn_tail"]) > 5


def test_no_flipped_bit_of_a_session_is_silent(written: Path) -> None:
    """A session.json with any one bit flipped is refused; the error names it."""
    path = next(written.glob("run=flipsintervals/role=consumer/c0-2*/session.json"))
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SequenceLogError, match=r"^c0: (the file changed after|not a session)"):
            Session.decode(bytes(flipped), "c0")
    path.write_bytes(content.replace(b'"clean": true', b'"clean": True'))
    with pytest.raises(SequenceLogError, match=r"session\.json: the file changed after it"):
        plan([str(written)], "flipsintervals")
    path.write_bytes(content)


def test_no_row_of_a_changed_file_is_believed(directory: SessionDirectory, tmp_path: Path) -> None:
    """Even if its bytes are valid rows, the damage names the file and counts all its rows."""
    directory.finish(journal(directory), 5)
    (file,) = directory.path.glob("*.parquet")
    assert read(tmp_path) == (5, [])
    other = tmp_path / "other.parquet"
    shutil.copy(seal(journal(directory, 9, 5), [])[0], other)
    assert other.read_bytes() == file.read_bytes()
    shutil.move(seal(journal(directory, 8, 4), [])[0], file)
    for path in [*directory.path.glob("00000[89]*")]:
        path.unlink()
    count, (damage,) = read(tmp_path)
    assert (count, damage.kind, damage.rows) == (0, DamageKind.CHANGED, 5)
    assert damage.where == str(file)


def test_a_digest_is_that_of_the_files_bytes(directory: SessionDirectory, written: Path) -> None:
    """Both of a sealed journal, and of files that `synth` writes."""
    directory.finish(journal(directory), 5)
    noted = [(directory.path, note) for note in directory.session.files]
    for found in find_sessions(written):
        noted += [(Path(found.location.path), note) for note in found.session.files]
    assert len(noted) > 6
    for folder, note in noted:
        computed = hashlib.sha256((folder / note.name).read_bytes()).hexdigest()
        assert note.digest == f"sha256:{computed}"


def test_a_finished_file_that_its_session_does_not_list_is_not_believed(
    directory: SessionDirectory, tmp_path: Path
) -> None:
    """Nothing says what it must contain. Its journal, if it still exists, has checksums."""
    path = journal(directory)
    seal(path, [])
    assert read(tmp_path) == (5, [])
    path.unlink()
    count, (damage,) = read(tmp_path)
    assert (count, damage.kind, damage.harmless) == (0, DamageKind.UNLISTED, False)
    assert "session.json does not list it" in str(damage)


@pytest.mark.parametrize("hurt", [False, True])
def test_a_journal_that_was_sealed_meanwhile_is_held_against_its_digest(
    directory: SessionDirectory, tmp_path: Path, hurt: bool
) -> None:
    """It was listed as a journal, and is read as the file that the writer has sealed since."""
    path = journal(directory)
    (found,) = find_sessions(tmp_path)
    directory.finish(path, 5)
    if hurt:
        (file,) = directory.path.glob("*.parquet")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    damage: list[Damage] = []
    assert read_all(found, damage).num_rows == (0 if hurt else 5)
    assert [(each.kind, each.rows) for each in damage] == [(DamageKind.CHANGED, 5)] * hurt


def test_pages_have_checksums(directory: SessionDirectory) -> None:
    """Other programs notice a changed page, too, and so does a reader without a digest."""
    directory.finish(journal(directory, count=5000), 5000)
    (file,) = directory.path.glob("*.parquet")
    data = bytearray(file.read_bytes())
    group = pq.read_metadata(file).row_group(0)
    for number in range(group.num_columns):
        chunk = group.column(number)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        last = begin + chunk.total_compressed_size - 1  # in a page, not in its header
        data[last] ^= 1
        file.write_bytes(data)
        damage: list[Damage] = []
        list(read_file(LogFile(Location.parse(file), 5000), damage))
        assert [each.kind for each in damage] == [DamageKind.UNREADABLE], chunk.path_in_schema
        data[last] ^= 1


def test_logs_without_digests_are_read(tmp_path: Path) -> None:
    """Real logs of version 0.1.0 are complete, and each file is marked as unproven."""
    for found in find_sessions(BEFORE):
        assert not found.session.digested
        damage: list[Damage] = []
        (file,) = found.files
        assert file.unproven
        assert sum(batch.num_rows for batch in read_file(file, damage)) == file.rows
        assert damage == []
    # A file that session.json does not list is read, too.
    logs = tmp_path / "logs"
    shutil.copytree(BEFORE, logs)
    (path,) = logs.rglob("role=producer/*/session.json")
    session = json.loads(path.read_text()) | {"files": []}
    path.write_text(json.dumps(session))
    (found,) = (each for each in find_sessions(logs) if each.session.role == "producer")
    assert [file.unproven for file in found.files] == [True]
    assert found.damage == ()


def test_no_flipped_bit_of_a_log_without_digests_ends_the_program(tmp_path: Path) -> None:
    """It is damage instead of a traceback, though much goes unnoticed there."""
    logs = tmp_path / "logs"
    shutil.copytree(BEFORE, logs)
    answers, wrong = flips(logs, ["before"], 150, "tests")
    assert [line for line in wrong if "RAISED" in line] == []
    assert answers["damage: unreadable"] > 30


def test_a_session_that_lost_its_digest_is_no_older_one(directory: SessionDirectory) -> None:
    """The digests of its files show that it had one."""
    path = directory.path / "session.json"
    cut = re.sub(rb',\n "digest": "sha256:[0-9a-f]+"\n\}\n\Z', b"\n}\n", path.read_bytes())
    path.write_bytes(cut)
    assert not read_session(Location.parse(directory.path)).digested
    directory.finish(journal(directory), 5)
    cut = re.sub(rb',\n "digest": "sha256:[0-9a-f]+"\n\}\n\Z', b"\n}\n", path.read_bytes())
    path.write_bytes(cut)
    with pytest.raises(SequenceLogError, match="the file changed after it was written"):
        read_session(Location.parse(directory.path))


def test_a_file_of_a_session_that_went_on_under_a_later_version(
    directory: SessionDirectory, tmp_path: Path
) -> None:
    """As a salvage leaves it: a file listed without a digest stays unproven, and is read."""
    directory.finish(journal(directory), 5)
    path = directory.path / "session.json"
    change(
        path, files=tuple(n.model_copy(update={"digest": None}) for n in directory.session.files)
    )
    (found,) = find_sessions(tmp_path)
    assert found.session.digested
    assert [file.unproven for file in found.files] == [True]
    assert read(tmp_path) == (5, [])
