"""Finds the sessions of a run and reads their files, also damaged ones.

Everything missing is reported as `Damage`: listed files that do not exist, gaps in file numbers,
torn journals, short and changed files. A Spark executor can read a file by its URI and digest.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from mirrortest.errors import SequenceLogError
from mirrortest.host.error_text import reason_of
from mirrortest.seqlog.batches import conform
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.journal import read_frames
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.parquet import open_parquet, read_groups
from mirrortest.seqlog.schema import ROWS
from mirrortest.seqlog.session import (
    CHANGED,
    INTERVALS_FILE,
    JOURNAL,
    PARQUET,
    SESSION_FILE,
    Session,
    file_name,
)
from mirrortest.seqlog.session import digest as digest_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mirrortest.seqlog.parquet import Marked

_BYTES_PER_ROW = 100
"""The approximate size of a journal's row. session.json has no row counts of journals."""
_FILE = re.compile(r"(?P<number>[0-9]{6,})\.(?P<form>journal|parquet)")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a session.

    `rows` is how many it must contain; None: unknown. `digest` is of its bytes; it is None for
    journals, whose frames have checksums, and for files of older versions.
    """

    location: Location
    rows: int | None = None
    size: int = 0
    digest: str | None = None

    @property
    def unproven(self) -> bool:
        """Whether neither digest nor checksums cover its bytes."""
        return self.digest is None and self.location.path.endswith(PARQUET)

    def rank(self) -> tuple[int, str, int]:
        """Of several files of this name, the one with the highest rank counts."""
        return self.rows or 0, self.digest or "", self.size

    @property
    def estimated_rows(self) -> int:
        """How many rows it has; for journals, an estimate."""
        return self.size // _BYTES_PER_ROW if self.rows is None else self.rows


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """A session, its files in order, and the damage found without reading them.

    `intervals` is the directory with its intervals, if they were found.
    """

    session: Session
    location: Location
    files: tuple[LogFile, ...]
    damage: tuple[Damage, ...]
    intervals: Location | None = None


def find_sessions(
    where: Location | Path | str,
    run: str | None = None,
    failed: list[SequenceLogError] | None = None,
) -> list[SessionFiles]:
    """The sessions below LOGDIR, of one run or of all, in the order of their paths.

    Raises SequenceLogError if LOGDIR cannot be listed, a session.json cannot be read, or a
    directory with log files has no session.json. With `failed`, the errors of single sessions are
    appended to it, and the other sessions are returned.
    """
    root = Location.parse(where)
    top = root if run is None else root.child(f"run={run}")
    with top.checked("listed"):
        infos = root.filesystem.get_file_info(
            fs.FileSelector(top.path, recursive=True, allow_not_found=True)
        )
    directories: dict[str, dict[str, int]] = {}
    for info in infos:
        if info.is_file:
            folder, _, name = info.path.rpartition("/")
            directories.setdefault(folder, {})[name] = info.size
    sessions = []
    for folder, names in sorted(directories.items()):
        numbered = {name: size for name, size in names.items() if _FILE.fullmatch(name)}
        if SESSION_FILE not in names and not numbered:
            continue
        location = root.below(folder)
        try:
            session = _listed_session(location, names)
        except SequenceLogError as error:
            if _vanished(location):
                continue
            if failed is None:
                raise
            failed.append(error)
            continue
        if run is None or session.run == run:
            present = {name: (location, size) for name, size in numbered.items()}
            kept = INTERVALS_FILE + (JOURNAL if session.intervals is None else PARQUET)
            intervals = location if kept in names else None
            sessions.append(_session_files(session, location, present, intervals))
    return sessions


def _listed_session(location: Location, names: Collection[str]) -> Session:
    if SESSION_FILE not in names:
        raise SequenceLogError(f"{location.shown}: log files without {SESSION_FILE}")
    return read_session(location)


def _vanished(directory: Location) -> bool:
    """Whether the session has ended and removed its directory, which was in a spool."""
    try:
        infos = directory.filesystem.get_file_info(
            fs.FileSelector(directory.path, allow_not_found=True)
        )
    except (pa.ArrowException, OSError):
        return False
    names = {info.path.rpartition("/")[2] for info in infos}
    return SESSION_FILE not in names and not any(map(_FILE.fullmatch, names))


def distinct(sessions: Sequence[SessionFiles]) -> list[SessionFiles]:
    """Merge copies of a session: each session once, with every file that any copy has."""
    copies: dict[tuple[Role, str, str], list[SessionFiles]] = {}
    for found in sessions:
        key = (found.session.role, found.session.name, found.session.session)
        copies.setdefault(key, []).append(found)
    return [each[0] if len(each) == 1 else _joined(each) for each in copies.values()]


def _joined(copies: Sequence[SessionFiles]) -> SessionFiles:
    """Merge a session's copies from several directories; of each file take that with most rows.

    Copies differ if a log is copied while it is written, if its last files are in a spool, or if a
    copy was salvaged.
    """
    newest = max(copies, key=lambda each: each.session.rank())
    session = newest.session.united([each.session for each in copies])
    most: dict[str, LogFile] = {}
    for file in chain.from_iterable(each.files for each in copies):
        name = file.location.path.rpartition("/")[2]
        most[name] = max(file, most.get(name, file), key=LogFile.rank)
    with_intervals = (each for each in (newest, *copies) if each.intervals is not None)
    own = next(with_intervals, newest)
    session = session.model_copy(update={"intervals": own.session.intervals})
    present = {name: (file.location.parent, file.size) for name, file in most.items()}
    return _session_files(session, newest.location, present, own.intervals)


def read_session(directory: Location) -> Session:
    """Read a session's session.json. Raises SequenceLogError."""
    place = directory.child(SESSION_FILE)
    with place.checked("read"):
        raw = place.read()
    return Session.decode(raw, place.shown)


def journal_rows(journal: Location) -> int | None:
    """How many rows of a journal can be read; None: it cannot be opened (any more)."""
    try:
        data = journal.buffer()
    except (pa.ArrowException, OSError):
        return None
    rows: int = sum(batch.num_rows for batch in read_frames(data, journal.shown, []))
    return rows


def last_incarnation(where: Location | Path | str, run: str, producer: str) -> int:
    """The highest incarnation in a producer's readable logs below a local LOGDIR, else 0.

    Raises SequenceLogError if the logs cannot be listed.
    """
    root = Location.parse(where)
    top = root.child(f"run={run}", f"role={Role.PRODUCER.value}")
    with top.checked("read"):
        local = Path(top.path)
        directories = list(local.iterdir()) if root.local and local.is_dir() else []
    last = 0
    for directory in directories:
        if directory.name.startswith(f"{producer}-"):
            with suppress(SequenceLogError):
                session = read_session(Location.parse(directory))
                if (session.run, session.name) == (run, producer):
                    last = max(last, session.incarnation or 0)
    return last


def _session_files(
    session: Session,
    at: Location,
    present: dict[str, tuple[Location, int]],
    intervals: Location | None,
) -> SessionFiles:
    """The session with its files; `present` has each file's directory and size."""
    noted = {note.name: note for note in session.files}
    if max(map(_number, present), default=0) > max(map(_number, noted), default=0):
        # The journal with the last rows is here.
        session = session.model_copy(update={"spooled": False})
    files, damage = [], list(session.damage)
    before = 0
    for number in sorted({_number(name) for name in (*present, *noted)}):
        finished, journal = file_name(number, PARQUET), file_name(number, JOURNAL)
        note = noted.get(finished)
        rows, digest = (None, None) if note is None else (note.rows, note.digest)
        if number > before + 1:
            first = at.child(file_name(before + 1, PARQUET)).shown
            what = f"no file has a number from {before + 1:,} to {number - 1:,}"
            damage.append(Damage(DamageKind.MISSING, first, what))
        before = number
        # Both forms exist after a crash between the rename and the journal's removal, or in several
        # copies. The journal has its own checksums. The Parquet file can be checked only once
        # session.json has its digest.
        name = finished if finished in present and (note or journal not in present) else journal
        if note is not None and journal in present:
            there = journal_rows(present[journal][0].child(journal))
            if there is not None and there > note.rows:
                name = journal
            elif there is not None and name == journal and there < note.rows:
                what = f"{there:,} rows of an older copy, {note.rows:,} were written"
                lost = note.rows - there
                damage.append(Damage(DamageKind.SHORT, at.child(finished).shown, what, lost))
        if name not in present:
            what = "the file is missing"
            damage.append(Damage(DamageKind.MISSING, at.child(finished).shown, what, rows))
        elif name == finished and note is None and session.digested:
            place = present[name][0].child(name).shown
            damage.append(Damage(DamageKind.UNLISTED, place, f"{SESSION_FILE} does not list it"))
        else:
            directory, size = present[name]
            rows, digest = (rows, digest) if name == finished else (None, None)
            files.append(LogFile(directory.child(name), rows, size, digest))
    return SessionFiles(session, at, tuple(files), tuple(damage), intervals)


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def read_file(
    file: LogFile,
    damage: list[Damage],
    *,
    columns: Sequence[str] | None = None,
    marked: Marked | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows as batches of the schema's columns, or of `columns` in this order.

    `marked` is passed to `parquet.read_groups` for files with a digest, which one thread then
    reads. What cannot be read is appended to `damage`. If a running writer has just replaced a
    journal by its Parquet file, that file is read.
    """
    wanted = ROWS.names if columns is None else columns
    place = file.location
    try:
        if place.path.endswith(PARQUET):
            yield from _read_parquet(file, damage, wanted, marked)
            return
        try:
            data = place.buffer()
        except FileNotFoundError:
            yield from _read_parquet(_finished(file), damage, wanted, marked)
            return
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = DamageKind.MISSING if isinstance(error, FileNotFoundError) else DamageKind.UNREADABLE
        damage.append(Damage(kind, place.shown, reason_of(error), file.rows))
        return
    for batch in read_frames(data, place.shown, damage):
        yield conform(batch, columns)


def _finished(journal: LogFile) -> LogFile:
    """The Parquet file that has replaced a listed journal, with its entry in session.json."""
    folder = journal.location.parent
    name = journal.location.path.rpartition("/")[2].removesuffix(JOURNAL) + PARQUET
    finished = replace(journal, location=folder.child(name))
    try:
        session = read_session(folder)
    except SequenceLogError:
        return finished
    notes = (note for note in session.files if note.name == name)
    return next((replace(finished, rows=n.rows, digest=n.digest) for n in notes), finished)


def _read_parquet(
    file: LogFile,
    damage: list[Damage],
    columns: Sequence[str],
    marked: Marked | None,
) -> Iterator[pa.RecordBatch]:
    place = file.location
    # Read in one piece, as the digest covers all of it: such a file has a few megabytes.
    data = place.buffer()
    if file.digest is not None and digest_of(memoryview(data)) != file.digest:
        damage.append(Damage(DamageKind.CHANGED, place.shown, CHANGED, file.rows))
        return
    # An older version's file has no digest: each column is decoded and validated, and the footer
    # is not trusted.
    unproven = file.digest is None
    if unproven:
        marked = None
    present = 0
    with open_parquet(data, marked, unproven=unproven) as parquet:
        total = parquet.metadata.num_rows
        written = total if file.rows is None else file.rows
        if written != total:
            what = f"{total} rows, {written} were written"
            damage.append(Damage(DamageKind.SHORT, place.shown, what, _lost(written - total)))
        try:
            for batch in read_groups(parquet, columns, marked):
                if unproven:
                    batch.validate(full=True)
                present += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            what = reason_of(error)
            damage.append(Damage(DamageKind.UNREADABLE, place.shown, what, _lost(total - present)))
        else:
            if present != total:
                what = f"{present} rows, its footer says {total}"
                damage.append(Damage(DamageKind.SHORT, place.shown, what, _lost(total - present)))


def _lost(rows: int) -> int | None:
    """How many rows are lost; None (unknown) if their number seems right."""
    return rows if rows > 0 else None
