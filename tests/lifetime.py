"""How long what tests and benchmarks start may live."""

from __future__ import annotations

import ctypes
import signal

# Looked up before a fork: nothing may be loaded between it and the program's start.
_PRCTL = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """For `preexec_fn`: a command ends with who started it, killed or not. Linux alone."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
