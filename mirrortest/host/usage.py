"""The CPU time and memory that this process uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")


def cpu_seconds() -> float:
    """CPU time of this process so far, user and system, in seconds."""
    return time.process_time()


def resident_bytes() -> int | None:
    """Resident memory of this process; None where the system has no /proc."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
