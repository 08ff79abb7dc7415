"""A Spark session that ends, with its JVM, when its context ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from mirrortest.reconcile.jvm import spark_java, spark_jvm
from mirrortest.reconcile.kept_classes import reading, writing
from mirrortest.reconcile.options import DEFAULT_MASTER, DEFAULT_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Statements only move bundles: the work is done in Python's workers, and compiling statements would
# cost more than it saves.
_STATEMENTS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A bundle may be megabytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}

# Java's second compiler takes half of all the time of a usual run, and saves little: the work is
# done in Python's workers. The default spaces for code and metadata are small, and are collected
# again and again while they fill. Spark's own classes need no verification.
_JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=256m",
    "-XX:MetaspaceSize=256m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
_YOUNG = 640 << 20


@contextlib.contextmanager
def spark_session(
    master: str | None = None,
    driver_memory: str = DEFAULT_MEMORY,
    *,
    archive: Path | None = None,
    untuned: bool = False,
) -> Iterator[Any]:
    """A `SparkSession`: that of `spark-submit` if it runs this, else one of our own.

    `master` is Spark's (`local[*]` by default); `driver_memory` is the heap of the driver, which
    under a local master is the only one. `archive` is where Java writes the archive of classes that
    `kept_classes.reading` uses at later starts. `untuned`: with Spark's and Java's own defaults.
    Raises MirrortestError if it cannot start.
    """
    if given_by_spark_submit():
        from pyspark.sql import SparkSession  # noqa: PLC0415  # optional, and slow to import

        builder = SparkSession.builder.appName("mirrortest reconcile")
        session = (builder.master(master) if master else builder).getOrCreate()
        try:
            yield _tuned(session)
        finally:
            session.stop()
        return
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="mirrortest-spark-"))
        conf = _configuration(master or DEFAULT_MASTER, driver_memory, scratch)
        java = spark_java()
        kept = reading(java) if archive is None else writing(java, archive)
        jvm = spark_jvm(
            java.executable,
            driver_memory,
            conf,
            () if untuned else [*_JAVA, *_young(driver_memory), *kept],
            meanwhile=_import,
            archiving=archive is not None,
        )
        port, secret = stack.enter_context(jvm)
        with _gateway(port, secret):
            session = _connect()
        stack.callback(_disconnect, session)
        yield session if untuned else _tuned(session)


def given_by_spark_submit() -> bool:
    """Whether `spark-submit` runs this, with a JVM of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _young(memory: str) -> list[str]:
    """Java's option for the young generation: the objects of a short run seldom fill it."""
    parsed = re.fullmatch(r"([0-9]+)([kmg]?)", memory.lower())
    if parsed is None:
        return []  # Java reports what is wrong with it
    size = int(parsed[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[parsed[2]]
    return [f"-Xmn{min(size // 4, _YOUNG)}"]


def _configuration(master: str, driver_memory: str, scratch: str) -> dict[str, str]:
    conf = {
        "spark.master": master,
        "spark.app.name": "mirrortest reconcile",
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        # Each sort and each sum allocates a page and clears it: by default, one of 64 MiB.
        "spark.buffer.pageSize": "1m",
        # Spark describes each statement's plan for its web page, which is off.
        "spark.sql.maxPlanStringLength": "100",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.lightweightPlanChangeValidation": "false",
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "mirrortest.reconcile.daemon",
        }
    return conf


def _tuned(session: Any) -> Any:
    """Settings that the job's statements rely on, or run faster with."""
    partitions = {"spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism)}
    for name, value in (_STATEMENTS | partitions).items():
        session.conf.set(name, value)
    return session


@contextlib.contextmanager
def _gateway(port: int, secret: str) -> Iterator[None]:
    """Set the environment variables by which PySpark finds the JVM."""
    ours = {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": secret,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _import() -> None:
    """Import, during Java's start, which takes as long, what is needed as soon as Java answers."""
    importlib.import_module("pyspark.sql")
    importlib.import_module("mirrortest.reconcile.job")


def _connect() -> Any:
    from pyspark import SparkContext  # noqa: PLC0415  # optional
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  # optional
    from pyspark.sql import SparkSession  # noqa: PLC0415  # optional, and slow to import

    return SparkSession(SparkContext(gateway=launch_gateway()))


def _disconnect(session: Any) -> None:
    from pyspark import SparkContext  # noqa: PLC0415  # optional

    session.stop()
    gateway = SparkContext._gateway  # noqa: SLF001  # PySpark has no public way to let go of it
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
