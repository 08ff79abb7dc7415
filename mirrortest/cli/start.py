"""The entry point: an interrupt ends it without a traceback, also during imports."""

from __future__ import annotations

import gc
import os
import signal

from mirrortest.cli.interrupt import end_at_once
from mirrortest.cli.streams import outlive_readers

_INIT = 1
"""Process id of a container's first process, which gets only signals that it has a handler for."""
_GLIBC = "CS_GNU_LIBC_VERSION"


def run() -> None:
    """Run the command line; an application installs its own signal handlers, and drains first."""
    signal.signal(signal.SIGINT, end_at_once)
    if os.getpid() == _INIT:
        signal.signal(signal.SIGTERM, end_at_once)
    outlive_readers()
    # numpy's linear algebra is not used, and would start a thread for each CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # jemalloc returns the memory of a log's file to the system, and leaves no holes between the C
    # library's buffers. Arrow contains it only if that library is glibc.
    if _GLIBC in os.confstr_names and os.confstr(_GLIBC):
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    # Imports create no garbage, and searching for it takes a tenth of their time.
    gc.disable()
    from mirrortest.cli.main import run as run_main

    try:
        run_main()
    finally:
        gc.enable()
        # The command is done: a signal that comes now must not change the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
