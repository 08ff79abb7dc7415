"""Temporary directories whose names have a pid: those of killed processes can be removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def temporary_directory(parent: Path, prefix: str) -> Path:
    """Create a directory of this process, after removing those that killed processes left."""
    sweep(parent, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def sweep(parent: Path, prefix: str) -> None:
    """Remove the directories of this user's processes that have ended."""
    for directory in parent.glob(f"{prefix}*-*"):
        owner = directory.name.removeprefix(prefix).split("-", 1)[0]
        if not owner.isdigit() or is_running(int(owner)):
            continue
        try:
            mine = directory.stat().st_uid == os.getuid()
        except FileNotFoundError:  # another process removed it
            continue
        if mine:
            shutil.rmtree(directory, ignore_errors=True)


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
