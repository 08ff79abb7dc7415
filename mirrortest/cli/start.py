"""The entry point: from its first moment on, an interrupt ends it without a traceback."""

from __future__ import annotations

import gc
import os
import signal

from mirrortest.cli.interrupt import end_at_once

_INIT = 1
"""A container's first process: the kernel delivers only signals that it has a handler for."""
_GLIBC = "CS_GNU_LIBC_VERSION"


def run() -> None:
    """The entry point; a run of its own takes the signals over and drains first."""
    signal.signal(signal.SIGINT, end_at_once)
    if os.getpid() == _INIT:
        signal.signal(signal.SIGTERM, end_at_once)
    # numpy's linear algebra is not used, and would start a thread for each CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jemalloc returns the memory of a log's file to the system, and leaves no holes between the C
    # library's buffers. Arrow has it where that is glibc.
    if _GLIBC in os.confstr_names and os.confstr(_GLIBC):
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    # Imports create no garbage, and to search for it takes a tenth of their time.
    gc.disable()
    from mirrortest.cli.main import run as run_main

    try:
        run_main()
    finally:
        gc.enable()
        # The command is done: a signal that comes now must not change the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
