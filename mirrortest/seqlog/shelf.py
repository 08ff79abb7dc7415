"""A session's directory: where its journals are written, and where its finished files go.

On a local file system both are the same directory. Elsewhere the journals stay in a directory of
the spool, and only finished files are uploaded, under their final names.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.seqlog.journal import sync_directory
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.seal import first_line, replace, seal, upload
from mirrortest.seqlog.session import SESSION_FILE, FileNote, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.seal import Sealed


class BusyError(SequenceLogError):
    """A process on this machine is writing to the session's directory."""


class Shelf:
    """One session's place. All methods block; one thread at a time.

    While it lives the session's local directory is locked (`flock`), so that a salvage on this
    machine leaves a running session alone.
    """

    def __init__(self, directory: Path, target: Location, session: Session) -> None:
        self.directory = directory
        self.target = target
        self.session = session
        self._away = not target.local or Path(target.path) != directory
        self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise BusyError(f"{directory}: another process is writing here") from None

    @property
    def away(self) -> bool:
        """Whether finished files go elsewhere than to the directory of the journals."""
        return self._away

    @classmethod
    def make(cls, where: Location | Path | str, session: Session, spool: Path | None) -> Self:
        """Make the directory and its session.json. Raises UsageError or SequenceLogError."""
        root = Location.parse(where)
        target = root.child(*session.folders)
        if root.local:
            base = Path(root.path)
        elif spool is None:
            raise UsageError(
                f"{root.shown}: a log there needs a local spool directory for what is not finished"
            )
        else:
            base = spool.absolute()
        try:
            directory = _make_durably(base, session.folders)
        except OSError as error:
            raise SequenceLogError(f"{base}: cannot keep a sequence log here: {error}") from error
        shelf = cls(directory, target, session)
        try:
            shelf.revise(lambda new: new.model_copy(update={"spooled": shelf.away}))
        except BaseException:
            shelf.release()
            raise
        return shelf

    def revise(self, change: Callable[[Session], Session]) -> None:
        """Write a changed session.json, here and at the target; remembered once it is there."""
        session = change(self.session)
        path = self.directory / SESSION_FILE
        try:
            replace(path, session.encode())
        except OSError as error:
            raise SequenceLogError(f"{path}: cannot be written: {first_line(error)}") from error
        if self._away:
            upload(path, self.target.child(SESSION_FILE))
        self.session = session

    def put(self, journal: Path, rows: int | None, damage: Sequence[Damage] = ()) -> None:
        """Finish a journal: Parquet at the target, noted in session.json, the journal removed.

        `rows` is how many the journal must hold; None (a salvage) takes what can be read, and
        keeps what cannot as the session's damage. Raises OSError, SequenceLogError or pyarrow's.
        """
        found: list[Damage] = list(damage)
        file, sealed = seal(journal, found)
        if rows is not None and sealed.rows != rows:
            file.unlink()
            raise SequenceLogError(
                f"{journal}: holds {sealed.rows} of the {rows} rows written: the disk does not "
                "keep what it was given"
            )
        if self._away:
            upload(file, self.target.child(file.name))
        self.note(file.name, sealed, found)
        journal.unlink()
        if self._away:
            file.unlink()
        sync_directory(self.directory)

    def note(self, name: str, sealed: Sealed, damage: Sequence[Damage] = ()) -> None:
        """Note a finished file in session.json; noted again, it replaces its earlier note."""
        added = FileNote(name=name, rows=sealed.rows, digest=sealed.digest)

        def change(session: Session) -> Session:
            others = [each for each in session.files if each.name != name]
            files = sorted([*others, added], key=lambda each: each.name)
            told = (*session.damage, *(each for each in damage if each not in session.damage))
            return session.model_copy(update={"files": tuple(files), "damage": told})

        self.revise(change)

    def clear(self) -> None:
        """Remove a spool's directory of a session whose files are all at the target."""
        if not self._away:
            return
        for path in (self.directory / SESSION_FILE, *self.directory.glob("*.draft")):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: other sessions live beside it
            for place in (self.directory, *self.directory.parents)[: len(self.session.folders)]:
                place.rmdir()

    def release(self) -> None:
        """Let go of the directory; a second time nothing happens."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _make_durably(base: Path, folders: Sequence[str]) -> Path:
    new = [each for each in (base, *base.parents) if not each.exists()]
    made = [base]
    for name in folders:
        made.append(made[-1] / name)
    base.mkdir(parents=True, exist_ok=True)
    for directory in made[1:-1]:
        directory.mkdir(exist_ok=True)
    made[-1].mkdir()
    for directory in made[:-1]:
        sync_directory(directory)
    for directory in new:
        # What was there before need not be ours to read.
        with contextlib.suppress(PermissionError):
            sync_directory(directory.parent)
    return made[-1]
