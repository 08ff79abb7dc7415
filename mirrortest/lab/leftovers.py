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
        if not owner.isdigit() or _is_there(int(owner)):
            continue
        try:
            mine = left.stat().st_uid == os.getuid()
        except FileNotFoundError:  # another process sweeps, too
            continue
        if mine:
            shutil.rmtree(left, ignore_errors=True)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True
