"""A real Spark cluster of processes on this machine: a master and its workers."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import mirrortest
from mirrortest.host.java import OLDEST, java_version
from mirrortest.reconcile.jvm import spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEADLINE = 90.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
VECTOR = "jdk.incubator.vector"


def java_home() -> str | None:
    """A Java home with the module that Spark's own launchers need; None if there is none."""
    homes = [os.environ.get("JAVA_HOME")]
    found = shutil.which("java")
    homes.append(str(Path(found).resolve().parents[1]) if found else None)
    for home in filter(None, homes):
        program = str(Path(home) / "bin" / "java")
        if java_version(program) < OLDEST:
            continue
        modules = subprocess.run([program, "--list-modules"], capture_output=True, check=True)
        if VECTOR in modules.stdout.decode():
            return home
    return None


@contextlib.contextmanager
def _daemon(home: str, folder: Path, *command: str) -> Iterator[Path]:
    """Run a Spark process until the context ends; yield the path of its log."""
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
    java = [str(Path(home) / "bin" / "java"), "-Xmx256m", *QUICK.split()]
    java += [f"-Dlog4j2.configurationFile={settings}", "-cp", str(spark_home() / "jars" / "*")]
    with words.open("wb") as sink:
        process = subprocess.Popen([*java, *command], stdout=sink, stderr=sink, env=environment)
        try:
            yield words
        finally:
            process.kill()
            process.wait()


def _awaited(words: Path, pattern: str) -> re.Match[str]:
    """Wait for the first match of a pattern in a process's log."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        found = re.search(pattern, words.read_text(errors="replace"))
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not said:\n{words.read_text(errors='replace')[-3000:]}")


@contextlib.contextmanager
def spark_cluster(
    home: str, folder: Path, *, workers: int, cores: int = 1, memory: str = "1g"
) -> Iterator[str]:
    """The master's address, once its workers are registered; `cores` and `memory` are per worker.

    `home` is the Java home; executors write below `folder`/work.
    """
    with contextlib.ExitStack() as stack:
        local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = stack.enter_context(_daemon(home, folder, _MASTER, *local))
        address = _awaited(master, r"Starting Spark master at (spark://[\d.:]+)")[1]
        for _ in range(workers):
            worker = (_WORKER, *local, "--cores", str(cores), "--memory", memory, address)
            words = stack.enter_context(_daemon(home, folder, *worker))
            _awaited(words, "Successfully registered")
        yield address


def submitted(
    home: str, address: str, folder: Path, *reconcile: str, options: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The command and environment that reconcile on a cluster, with only `--py-files`.

    The archive of our package is created in `folder`; `options` are more options of spark-submit.
    """
    package = Path(mirrortest.__file__).parent
    files = shutil.make_archive(str(folder / "mirrortest"), "zip", package.parent, package.name)
    command = [
        *(str(spark_home() / "bin" / "spark-submit"), "--master", address, "--py-files", files),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.executor.extraJavaOptions={QUICK}"),
        *options,
        *(str(package / "__main__.py"), "reconcile", *reconcile),
    ]
    environment = {"JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return command, environment
