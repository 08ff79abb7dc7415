"""Bringing home what a killed process left behind: its journals become Parquet where they belong.

Readers of a local log directory need none of this, as they read journals. It is for a spool: the
rows of a process killed before its upload lie there until somebody with that disk salvages them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.files import find_sessions, read_session
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.seal import JOURNAL, PARQUET, first_line, upload
from mirrortest.seqlog.session import SESSION_FILE
from mirrortest.seqlog.shelf import BusyError, Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.seqlog.session import Session


def salvage(spool: Path, where: Location | Path | str, run: str | None = None) -> list[Session]:
    """Finish the log files of dead sessions in a spool, below LOGDIR `where`; returns the sessions.

    Sessions whose process is alive on this machine are left alone. They stay without an end, as
    they crashed; what could not be read of them is in their `damage`. Safe to be repeated, and
    to be killed. Raises SequenceLogError.
    """
    root = Location.parse(where)
    saved = []
    for found in find_sessions(spool, run):
        directory = spool.absolute().joinpath(*found.session.folders)
        target = root.child(*found.session.folders)
        try:
            shelf = Shelf(directory, target, found.session)
        except (BusyError, FileNotFoundError):
            continue  # it lives, or it has just ended and taken its directory along
        try:
            if not (directory / SESSION_FILE).exists():
                continue  # it took along what was in its directory, and is about to remove that
            # It may have written on between the listing and the lock.
            shelf.session = read_session(Location.parse(directory))
            _save(shelf)
        except (OSError, pa.ArrowException) as error:
            raise SequenceLogError(f"{directory}: {first_line(error)}") from error
        finally:
            shelf.release()
        saved.append(shelf.session)
    return saved


def _save(shelf: Shelf) -> None:
    for journal in sorted(shelf.directory.glob(f"*{JOURNAL}")):
        # Its Parquet file may be there from before the kill; it is made anew, from the journal.
        shelf.put(journal, None)
    if not shelf.away:
        return
    for file in sorted(shelf.directory.glob(f"*{PARQUET}")):
        # Uploaded and its journal gone, when the kill came; again does no harm.
        upload(file, shelf.target.child(file.name))
        file.unlink()
    shelf.revise(lambda saved: saved.model_copy(update={"spooled": False}))
    shelf.clear()
