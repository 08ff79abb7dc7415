"""A cgroup of one name in every hierarchy of this machine, of version 1 or 2."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

REMOVED_WITHIN = 30
"""Seconds: a group is busy until the kernel has removed its last process."""


def make_cgroup(name: str) -> None:
    """Create it. Raises OSError if this machine does not allow it."""
    for place in _places(name):
        place.mkdir()


def remove_cgroup(name: str) -> None:
    """Remove it and its subgroups, if it exists.

    Raises:
        OSError: a process is still in it.
    """
    deadline = time.monotonic() + REMOVED_WITHIN
    for place in _places(name):
        for folder, _, _ in os.walk(place, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)


def _places(name: str) -> list[Path]:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(at) / name for _, at, kind, *_ in mounts if kind in {"cgroup", "cgroup2"}]
