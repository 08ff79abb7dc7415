"""The process that Spark forks its Python workers from: it knows already what they need.

A worker of Spark's own daemon imports all that for itself, which costs more than a small run's
rows do. By then numpy has no threads, and pyarrow but its allocator's, which outlives a fork. What
a worker computes with is a megabyte at a time: it keeps these pages.
"""

from __future__ import annotations

import gc
import os

# Its threads would not live on in a worker.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pyspark.worker  # noqa: F401  # for the workers
from pyspark.daemon import manager

import mirrortest.reconcile.result_files
import mirrortest.reconcile.source  # noqa: F401  # for the workers
from mirrortest.host.allocator import keep_large_buffers

if __name__ == "__main__":
    # A worker would search all of it for garbage, again and again.
    gc.freeze()
    keep_large_buffers()
    manager()
