"""The process from which Spark forks its Python workers, with their modules already imported.

A worker of Spark's own daemon imports all of them itself, which costs more than a small run's rows.
At the fork numpy has no threads, and pyarrow only its allocator's, which survives a fork. A worker
computes on a megabyte at a time, and keeps these pages.
"""

from __future__ import annotations

import gc
import os

# OpenBLAS threads would not survive the fork of a worker.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pyspark.worker  # noqa: F401  # for the workers
from pyspark.daemon import manager

import mirrortest.reconcile.result_files
import mirrortest.reconcile.source  # noqa: F401  # for the workers
from mirrortest.host.allocator import keep_large_buffers

if __name__ == "__main__":
    # Otherwise a worker searches all imported modules for garbage, again and again.
    gc.freeze()
    keep_large_buffers()
    manager()
