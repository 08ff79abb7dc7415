"""Temporary directories that name their owner, so that those of killed owners can be removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def temporary_directory(parent: Path, prefix: str) -> Path:
    """Make a directory of this process, after removing those that killed ones left behind."""
    sweep(parent, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this user's processes that are no more."""
    for left in parent.glob(f"{prefix}*-*"):
        owner = left.name.removeprefix(prefix).split("-", 1)[0]
        if not owner.isdigit() or is_there(int(owner)):
            continue
        try:
            mine = left.stat().st_uid == os.getuid()
        except FileNotFoundError:  # another process sweeps, too
            continue
        if mine:
            shutil.rmtree(left, ignore_errors=True)


def is_there(pid: int) -> bool:
    """Whether a process of this id runs on this machine, whoever's it is.

    One that has ended and waits for its parent to hear of it runs no more.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # no Linux, or it has just gone: then the next time
        return True
    return told.rpartition(")")[2].split()[0] != "Z"
