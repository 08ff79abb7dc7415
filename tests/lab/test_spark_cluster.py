"""`mirrortest reconcile` under `spark-submit`, on a real cluster: a master and two workers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrortest
from mirrortest.host.java import OLDEST, java_version
from mirrortest.reconcile.jvm import spark_home
from tests.spark.spark_history import RUN, History, seen, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.lab, pytest.mark.slow]

DEADLINE = 90.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_VECTOR = "jdk.incubator.vector"


def whole_java() -> str | None:
    """A Java home with the module that Spark's own launchers ask for; None where there is none."""
    homes = [os.environ.get("JAVA_HOME")]
    found = shutil.which("java")
    homes.append(str(Path(found).resolve().parents[1]) if found else None)
    for home in filter(None, homes):
        program = str(Path(home) / "bin" / "java")
        if java_version(program) < OLDEST:
            continue
        told = subprocess.run([program, "--list-modules"], capture_output=True, check=True)
        if _VECTOR in told.stdout.decode():
            return home
    return None


@contextlib.contextmanager
def daemon(home: str, folder: Path, *command: str) -> Iterator[Path]:
    """A process of Spark's, ended with the context; gives where its words go."""
    words = folder / f"{len(list(folder.glob('*.log')))}.log"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home())}
    environment |= {"JAVA_HOME": home, "SPARK_WORKER_DIR": str(folder / "work")}
    core = next((spark_home() / "jars").glob("spark-core_*.jar")).name
    environment["SPARK_SCALA_VERSION"] = core.removeprefix("spark-core_").partition("-")[0]
    settings = folder / "log4j2.properties"
    settings.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.c.ref = c\nappender.c.type = Console\n"
        "appender.c.name = c\nappender.c.layout.type = PatternLayout\n"
    )
    java = [str(Path(home) / "bin" / "java"), "-Xmx256m", *_QUICK.split()]
    java += [f"-Dlog4j2.configurationFile={settings}", "-cp", str(spark_home() / "jars" / "*")]
    with words.open("wb") as sink:
        process = subprocess.Popen([*java, *command], stdout=sink, stderr=sink, env=environment)
        try:
            yield words
        finally:
            process.kill()
            process.wait()


def awaited(words: Path, pattern: str) -> re.Match[str]:
    """The first match of a pattern in what a process says."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        found = re.search(pattern, words.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not said:\n{words.read_text(errors='replace')[-3000:]}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The master's address and Java's home, once two workers are registered."""
    home = whole_java()
    if home is None:
        pytest.skip(f"no Java with the module {_VECTOR}, which Spark's own launchers ask for")
    with contextlib.ExitStack() as stack:
        local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = stack.enter_context(daemon(home, tmp_path, _MASTER, *local))
        address = awaited(master, r"Starting Spark master at (spark://[\d.:]+)")[1]
        for _ in range(2):
            worker = (_WORKER, *local, "--cores", "1", "--memory", "1g", address)
            awaited(stack.enter_context(daemon(home, tmp_path, *worker)), "Successfully registered")
        yield address, home


def test_spark_submit_on_a_cluster(cluster: tuple[str, str], tmp_path: Path) -> None:
    """Executors of both workers read the logs by path, from nothing but `--py-files`."""
    address, home = cluster
    history = History()
    history.consumers = [[], []]
    for number in range(8):
        history.sends(stream(number), 100)
        at = 95 * number
        history.consumers[number // 4] += [seen(stream(number), 0, 95, at)]
    history.reads(95 * 8)
    history.write(tmp_path / "logs")
    package = Path(mirrortest.__file__).parent
    files = shutil.make_archive(str(tmp_path / "mirrortest"), "zip", package.parent, package.name)
    submit = [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", address, "--py-files", files, "--driver-memory", "1g"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.executor.memory=512m", "--driver-java-options", _QUICK),
        *("--conf", f"spark.executor.extraJavaOptions={_QUICK}"),
        str(package / "__main__.py"),
        *("reconcile", str(tmp_path / "logs"), "--json"),
    ]
    environment = {**os.environ, "JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        submit, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 99, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert (summary["run"], summary["counts"]["lost"]) == (RUN, 40)
    assert len(list((tmp_path / "work").glob("app-*/*"))) == 2, "an executor of each worker"
