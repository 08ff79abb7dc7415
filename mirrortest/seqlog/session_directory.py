"""A session's directory: its journals become Parquet files under their final names.

On a local file system journals and finished files are in the same directory. Elsewhere the journals
are in a local spool, and only finished files are uploaded. At every instant the rows are in a
readable journal, in a complete Parquet file, or in both: then a reader takes the Parquet file once
session.json lists it. A local file gets its name by an atomic rename; an upload's size is checked
before the journal is removed. `salvage` finishes what a killed process left in a spool.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import pyarrow as pa
import structlog
from pyarrow import fs

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.host import user_files
from mirrortest.host.error_text import reason_of
from mirrortest.seqlog.files import find_sessions, journal_rows, read_session
from mirrortest.seqlog.interval_log import SCHEMA as INTERVALS
from mirrortest.seqlog.journal import read_frames, sync_directory
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.parquet import write_parquet
from mirrortest.seqlog.session import (
    INTERVALS_FILE,
    JOURNAL,
    PARQUET,
    SESSION_FILE,
    DigestingFile,
    FileNote,
    Note,
    Session,
)
from mirrortest.seqlog.table_files import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirrortest.seqlog.damage import Damage

_log = structlog.get_logger()


class BusyError(SequenceLogError):
    """A process on this machine is writing to the session's directory."""


class SessionDirectory:
    """One session's directory, locked (`flock`) until `release`; `salvage` skips locked ones.

    All methods block. Only one thread at a time may call them.

    Attributes:
        path: the local directory with the journals.
        target: where finished files go.
        separate_target: whether `target` is not `path`.
        session: the content of session.json.
    """

    def __init__(self, path: Path, target: Location, session: Session) -> None:
        self.path = path
        self.target = target
        self.session = session
        self.separate_target = not _is_same(path, target)
        self._lock = lock_directory(path)

    @classmethod
    def create(cls, where: Location | Path | str, session: Session, spool: Path | None) -> Self:
        """Create the directory and its session.json. Raises UsageError or SequenceLogError."""
        root = Location.parse(where)
        target = root.child(*session.folders)
        if root.local:
            base = Path(root.path)
        elif spool is None:
            raise UsageError(f"{root.shown}: a log there needs a local directory: use --log-spool")
        else:
            base = spool.absolute()
        try:
            created = cls(_create_durably(base, session.folders), target, session)
        except OSError as error:
            raise SequenceLogError(
                f"{base}: cannot write a sequence log here: {reason_of(error)}"
            ) from error
        try:
            created.revise(lambda new: new.model_copy(update={"spooled": created.separate_target}))
        except BaseException:
            created.release()
            raise
        return created

    def revise(self, change: Callable[[Session], Session]) -> None:
        """Write a changed session.json to `path` and to the target, then set `session`."""
        session = change(self.session)
        file = self.path / SESSION_FILE
        with Location.parse(file).checked("written"):
            replace(file, session.encode())
        if self.separate_target:
            upload(file, self.target.child(SESSION_FILE))
        self.session = session

    def finish(self, journal: Path, rows: int | None) -> None:
        """Write a journal as Parquet to the target, list that in session.json, remove the journal.

        The journal must contain `rows` rows. With None (a salvage), unreadable rows are skipped.
        They are recorded as the session's damage. Raises OSError, SequenceLogError or pyarrow's;
        then the journal is still there, and this can be repeated.
        """
        found: list[Damage] = []
        file, note = seal(journal, found, INTERVALS if journal.stem == INTERVALS_FILE else None)
        if rows is not None and note.rows != rows:
            file.unlink()
            raise SequenceLogError(
                f"{journal}: contains {note.rows} of the {rows} rows written: the disk lost data"
            )
        if self.separate_target:
            upload(file, self.target.child(file.name))
        self.note(file.name, note, found)
        if self.separate_target:
            file.unlink()
        # The last step, and not synced: a journal that comes back is finished again by a salvage.
        journal.unlink()

    def note(self, name: str, note: Note, damage: Sequence[Damage] = ()) -> None:
        """List a finished file in session.json, in place of an earlier entry of its name."""
        added = FileNote(name=name, rows=note.rows, digest=note.digest)
        if name == INTERVALS_FILE + PARQUET:
            # No verdict depends on intervals, so unreadable ones are not damage of the log.
            self.revise(lambda session: session.model_copy(update={"intervals": added}))
            return

        def change(session: Session) -> Session:
            others = [each for each in session.files if each.name != name]
            files = sorted([*others, added], key=lambda each: each.name)
            new = (*session.damage, *(each for each in damage if each not in session.damage))
            # Until the session ends or is salvaged, further rows are in a journal.
            update = {"files": tuple(files), "damage": new, "spooled": True}
            return session.model_copy(update=update)

        self.revise(change)

    def clear(self) -> None:
        """Remove the session's spool directory, once all its files are at the target."""
        if not self.separate_target:
            return
        for path in (self.path / SESSION_FILE, *self.path.glob("*.draft")):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it has other sessions
            for place in (self.path, *self.path.parents)[: len(self.session.folders)]:
                place.rmdir()

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def lock_directory(path: Path) -> int:
    """See `user_files.lock_directory`; raises BusyError if another process has the lock."""
    try:
        return user_files.lock_directory(path)
    except BlockingIOError:
        raise BusyError(f"{path}: another process is writing here") from None


def salvage(
    spool: Path,
    where: Location | Path | str,
    run: str | None = None,
    failed: list[SequenceLogError] | None = None,
) -> list[Session]:
    """Move the log files of dead sessions from a spool to LOGDIR `where`; return the sessions.

    Sessions whose process is alive on this machine are skipped. So are older copies of a spool,
    with a warning: LOGDIR has as many of their rows or more. The others crashed, so they get no
    `ended_ns`; their `damage` lists what could not be read. A salvage can be repeated, also after
    it was killed. Raises SequenceLogError. With `failed`, the errors of sessions that
    `find_sessions` cannot read are appended to it, and the others are salvaged.
    """
    root = Location.parse(where)
    saved = []
    for found in find_sessions(spool, run, failed):
        path = spool.absolute().joinpath(*found.session.folders)
        target = root.child(*found.session.folders)
        try:
            directory = SessionDirectory(path, target, found.session)
        except (BusyError, FileNotFoundError):
            continue  # its process runs, or has just ended and removed the directory
        except OSError as error:
            raise SequenceLogError(f"{path}: {reason_of(error)}") from error
        try:
            if not (path / SESSION_FILE).exists():
                continue  # its process has ended and is about to remove the directory
            # The process may have written more between the listing and the lock.
            directory.session = read_session(Location.parse(path))
            if directory.separate_target and _outdated(directory):
                _log.warning(
                    "session not salvaged: these files are an older copy of its spool, and its log "
                    "has as many rows or more",
                    files=str(path),
                    log=target.shown,
                )
                continue
            _finish_all(directory)
        except (OSError, pa.ArrowException) as error:
            raise SequenceLogError(f"{path}: {reason_of(error)}") from error
        finally:
            directory.release()
        saved.append(directory.session)
    return saved


def spools_below(directory: Path, run: str | None = None) -> list[str]:
    """The directories below this one that contain sessions, of one run or of all.

    Raises SequenceLogError if a directory cannot be listed.
    """
    found = {
        str(Path(each.location.path).parents[len(each.session.folders) - 1])
        for each in find_sessions(directory, failed=[])
        if run in (None, each.session.run)
    }
    return sorted(found - {str(directory.absolute())})


def _outdated(directory: SessionDirectory) -> bool:
    """Whether these files are an older copy of the spool: the target has as much or more.

    A process writes session.json to its spool before it uploads it.
    """
    try:
        uploaded = read_session(directory.target)
    except SequenceLogError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    here = directory.session
    if uploaded.ended_ns is not None and here.ended_ns is None:
        return True
    rows = {note.name: note.rows for note in here.files}
    for journal in directory.path.glob(f"*{JOURNAL}"):
        name = journal.with_suffix(PARQUET).name
        rows[name] = max(rows.get(name, 0), journal_rows(Location.parse(journal)) or 0)
    return any(
        note not in here.files and note.rows >= rows.get(note.name, 0) for note in uploaded.files
    )


def _finish_all(directory: SessionDirectory) -> None:
    for journal in sorted(directory.path.glob(f"*{JOURNAL}")):
        # A Parquet file from before the kill is written again, from the journal.
        directory.finish(journal, None)
    if directory.separate_target:
        for file in sorted(directory.path.glob(f"*{PARQUET}")):
            # The kill came after the journal was removed: another upload does no harm.
            upload(file, directory.target.child(file.name))
            file.unlink()
    if directory.separate_target or directory.session.spooled:
        directory.revise(lambda saved: saved.model_copy(update={"spooled": False}))
    directory.clear()


def write_synced(
    batches: Iterable[pa.RecordBatch], path: Path, schema: pa.Schema | None = None
) -> Note:
    """Write a new Parquet file and make it durable; `schema` is a log's unless it is given."""
    with path.open("wb") as file:
        sink = DigestingFile(file)
        if schema is None:
            rows = write_parquet(batches, sink)
        else:
            rows = write_table(batches, sink, schema)
        file.flush()
        os.fsync(file.fileno())
    return Note(rows=rows, digest=sink.digest)


def seal(journal: Path, damage: list[Damage], schema: pa.Schema | None = None) -> tuple[Path, Note]:
    """Create the Parquet file next to a finished journal; the journal stays.

    `schema` is a log's unless it is given. What could not be read is appended to `damage`.
    Raises OSError or pyarrow's errors.
    """
    final = journal.with_suffix(PARQUET)
    draft = journal.with_suffix(".draft")
    with pa.memory_map(str(journal)) if journal.stat().st_size else pa.BufferReader(b"") as source:
        note = write_synced(read_frames(source.read_buffer(), journal.name, damage), draft, schema)
    draft.rename(final)
    sync_directory(final.parent)
    return final, note


def upload(file: Path, target: Location) -> None:
    """Copy a local file to its final place and check its size there.

    Raises SequenceLogError that names the place; also if the target is the file itself, which the
    copy would empty.
    """
    size = file.stat().st_size
    if _is_same(file, target):
        raise SequenceLogError(f"{file}: cannot be uploaded: {target.shown} is the same file")
    with target.checked("written"):
        target.filesystem.create_dir(target.parent.path, recursive=True)
        if target.local:
            with file.open("rb") as source, _replacing(Path(target.path)) as copy:
                shutil.copyfileobj(source, copy)
        else:
            fs.copy_files(
                str(file),
                target.path,
                source_filesystem=fs.LocalFileSystem(),
                destination_filesystem=target.filesystem,
                use_threads=False,
            )
        arrived = target.filesystem.get_file_info(target.path).size
    if arrived != size:
        raise SequenceLogError(f"{target.shown}: {arrived} of {size} bytes arrived")


def _is_same(path: Path, target: Location) -> bool:
    """Whether a target is this local path, however either is written (links, `..`, mounts)."""
    return target.local and Path(target.path).exists() and path.samefile(target.path)


def replace(path: Path, content: bytes) -> None:
    """Write a small local file durably and atomically."""
    with _replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    draft = path.with_name(path.name + ".draft")
    with draft.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)


def _create_durably(base: Path, folders: Sequence[str]) -> Path:
    new = [each for each in (base, *base.parents) if not each.exists()]
    paths = [base]
    for name in folders:
        paths.append(paths[-1] / name)
    base.mkdir(parents=True, exist_ok=True)
    for directory in paths[1:-1]:
        directory.mkdir(exist_ok=True)
    paths[-1].mkdir()
    for directory in paths[:-1]:
        sync_directory(directory)
    for directory in new:
        # A parent that existed before may be unreadable for us.
        with contextlib.suppress(PermissionError):
            sync_directory(directory.parent)
    return paths[-1]
