"""`mirrortest reconcile` under `spark-submit`, on a real cluster: a master and two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_history import RUN, History, seen, stream
from tests.spark_cluster import QUICK, VECTOR, java_home, spark_cluster, submitted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The master's address and Java's home, once two workers are registered."""
    home = java_home()
    if home is None:
        pytest.skip(f"no Java with the module {VECTOR}, which Spark's own launchers ask for")
    with spark_cluster(home, tmp_path, workers=2) as address:
        yield address, home


def test_spark_submit_on_a_cluster(cluster: tuple[str, str], tmp_path: Path) -> None:
    """Executors on both workers read the logs by path, with no code but `--py-files`."""
    address, home = cluster
    history = History()
    history.consumers = [[], []]
    for number in range(8):
        history.sends(stream(number), 100)
        at = 95 * number
        history.consumers[number // 4] += [seen(stream(number), 0, 95, at)]
    history.reads(95 * 8)
    history.write(tmp_path / "logs")
    small = ("--driver-memory", "1g", "--driver-java-options", QUICK)
    command, environment = submitted(
        home, address, tmp_path, str(tmp_path / "logs"), "--json",
        options=(*small, "--conf", "spark.executor.memory=512m"),
    )  # fmt: skip
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 99, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert (summary["run"], summary["counts"]["lost"]) == (RUN, 40)
    assert len(list((tmp_path / "work").glob("app-*/*"))) == 2, "an executor of each worker"


def test_a_zip_that_is_to_read_a_cluster_says_what_it_takes(tmp_path: Path) -> None:
    """Reading Kafka needs compiled modules; with `--py-files` alone, only logs can be read."""
    history = History()
    history.sends(stream(0), 100)
    history.write(tmp_path / "logs")
    _, environment = submitted("", "", tmp_path)
    command = [sys.executable, "-c", "from mirrortest.cli.start import run; run()", "reconcile"]
    command += [str(tmp_path / "logs"), "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(
        command,
        env={**os.environ, **environment, "PYTHONPATH": str(tmp_path / "mirrortest.zip")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "install mirrortest where Spark's driver runs" in done.stderr
    assert "Traceback" not in done.stderr
