"""The lifetime of processes that tests and benchmarks start."""

from __future__ import annotations

import ctypes
import signal

# Looked up before a fork: nothing may be loaded between fork and exec.
_PRCTL = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """For `preexec_fn`: a command ends with its parent, however that ends. Linux only."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
