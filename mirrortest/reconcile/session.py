"""A Spark session that is gone, with its JVM, when its context ends."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from mirrortest.reconcile.jvm import spark_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_MASTER = "local[*]"
DEFAULT_MEMORY = "2g"

# Compiling statements, and then the compiled code, costs seconds that only much data gives back.
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_SMALL_JAVA = ("-XX:TieredStopAtLevel=1",)


@contextlib.contextmanager
def spark_session(
    master: str | None = None, driver_memory: str = DEFAULT_MEMORY, *, small: bool = False
) -> Iterator[Any]:
    """A `SparkSession`: under `spark-submit` the one it gives, else one of our own.

    `master` is Spark's (`local[*]` by default); `driver_memory` is the heap of the driver, which
    under a local master is all there is. `small`: there is little to read, so that a quick start
    is worth more than fast code. Raises MirrortestError where it cannot start.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
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
        if small:
            conf |= _SMALL
        options = _SMALL_JAVA if small else ()
        port, secret = stack.enter_context(spark_jvm(driver_memory, conf, options))
        with _told(port, secret):
            session = _connect()
        stack.callback(_disconnect, session)
        yield _tuned(session)


def _configuration(master: str, driver_memory: str, scratch: str) -> dict[str, str]:
    conf = {
        "spark.master": master,
        "spark.app.name": "mirrortest reconcile",
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
    }
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return conf


def _tuned(session: Any) -> Any:
    """Settings that the job's statements rely on, or run faster with."""
    for name, value in {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Intervals are few: 200 shuffle partitions would cost more than the work itself.
        "spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism),
    }.items():
        session.conf.set(name, value)
    return session


@contextlib.contextmanager
def _told(port: int, secret: str) -> Iterator[None]:
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
