"""If Spark fails during the work, one line says why; each test runs it in its own process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_WORK = """
import os, signal, sys
from mirrortest.errors import MirrortestError
from mirrortest.reconcile.spark_session import spark_session

try:
    with spark_session("local[1]", "512m") as spark:
        {work}
except MirrortestError as error:
    print("told:", error)
"""
_TOO_MUCH = "spark.sql('SELECT size(sequence(0, 400000000 + id)) FROM range(1)').collect()"
_KILLED = """pid = spark._jvm.java.lang.ProcessHandle.current().pid()
        os.kill(pid, signal.SIGKILL)
        spark.range(3).count()"""


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (_TOO_MUCH, "ran out of memory with a heap of 512m: raise --driver-memory"),
        (_KILLED, "Java process ended unexpectedly with code -9"),
    ],
)
def test_why_the_work_ended(work: str, message: str) -> None:
    """The error names the cause: too small a heap, or a killed Java process."""
    done = subprocess.run(
        [sys.executable, "-c", _WORK.format(work=work)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("told:")] or [""]
    assert message in line, done.stderr[-3000:]
