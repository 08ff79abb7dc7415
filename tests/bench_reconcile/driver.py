"""The Spark driver's memory by number of missing ids, on a cluster.

A master and one worker of two cores run here, so nothing else runs in the driver's process. The
output shows the most heap in use after a garbage collection, and the peak of resident memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console

from tests.spark_cluster import QUICK, VECTOR, java_home, spark_cluster, submitted

_HEAP = "1g"
_EXECUTOR = "2g"
_AFTER = re.compile(r"Pause .*->(\d+)M\(")


def main() -> None:
    """Print a line for each number of missing ids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=float, default=1e9)
    parser.add_argument("--missing", type=float, nargs="+", default=[1, 1e6, 1e8])
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    home = java_home()
    if home is None:
        sys.exit(f"no Java with the module {VECTOR}, which Spark's own launchers ask for")
    show = Console(highlight=False, soft_wrap=True).print
    show(f"{int(given.messages):,} messages; driver's heap {_HEAP}, executor's {_EXECUTOR}")
    show(f"{'missing':>12} {'wall, s':>8} {'heap in use, MB':>16} {'resident, MB':>13}")
    for missing in map(int, given.missing):
        with tempfile.TemporaryDirectory(dir=given.directory, prefix="driver-") as folder:
            wall, used, resident = _measured(home, Path(folder), int(given.messages), missing)
        show(f"{missing:>12,} {wall:>8.1f} {used:>16,} {resident:>13,}")


def _measured(home: str, folder: Path, messages: int, missing: int) -> tuple[float, int, int]:
    logs = folder / "logs"
    made = ("--log-dir", str(logs), "--run", "b", "--messages", str(messages))
    synth = (sys.executable, "-m", "mirrortest", "synth", *made, "--lost", str(missing))
    subprocess.run([*synth, "--anomalies", "0"], check=True, stdout=subprocess.DEVNULL)
    gc_log = folder / "gc"
    with spark_cluster(home, folder, workers=1, cores=2, memory=_EXECUTOR) as address:
        command, environment = submitted(
            home, address, folder, str(logs), "--run", "b", "--json",
            options=(
                *("--driver-memory", _HEAP, "--conf", f"spark.executor.memory={_EXECUTOR}"),
                *("--driver-java-options", f"{QUICK} -Xlog:gc:file={gc_log}"),
            ),
        )  # fmt: skip
        began, resident = time.monotonic(), 0
        with (folder / "out").open("wb") as sink:
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=sink, stderr=sink
            )
            while process.poll() is None:
                resident = max(resident, _resident(process.pid))
                time.sleep(0.2)
        wall = time.monotonic() - began
    if process.returncode != 99 or f'"lost": {missing},' not in (folder / "out").read_text():
        shutil.copy(folder / "out", "driver-failed.log")
        sys.exit(f"exit code {process.returncode}, or another count: see driver-failed.log")
    used = max((int(size) for size in _AFTER.findall(gc_log.read_text())), default=0)
    return wall, used, resident >> 20


def _resident(pid: int) -> int:
    """Resident bytes of the largest process of a tree: the driver's JVM."""
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        return max(each.memory_info().rss for each in (top, *top.children(recursive=True)))
    return 0


if __name__ == "__main__":
    main()
