"""Temporary directories that are locked while their owner lives: others can be removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from mirrortest.host.user_files import lock_directory


class TemporaryDirectory:
    """A context manager: a locked directory, removed at the end.

    First it removes those that killed processes left. Raises OSError.
    """

    # Not a generator: its end would also run when a fork of this process exits.

    def __init__(self, parent: Path, prefix: str) -> None:
        self._parent = parent
        self._prefix = prefix

    def __enter__(self) -> Path:
        sweep(self._parent, self._prefix)
        # It gets the prefix, by which others find it, once it is locked.
        draft = Path(tempfile.mkdtemp(prefix=f".new-{self._prefix}", dir=self._parent))
        self._lock = lock_directory(draft)
        self._path = draft.rename(self._parent / draft.name.removeprefix(".new-"))
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this user's processes that have ended.

    The lock shows that, not a process id: an owner in another container has ids of its own.
    """
    for directory in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # it is locked, removed meanwhile, or not a directory
            lock = lock_directory(directory)
            if os.fstat(lock).st_uid == os.getuid():
                shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)


def is_running(pid: int) -> bool:
    """Whether a process of any user with this id runs on this machine; a zombie does not."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # not Linux, or it has just ended: the next sweep removes it
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
