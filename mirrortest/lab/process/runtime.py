"""Kafka's own programs as processes on this machine: Java, its class path, and its flags."""

from __future__ import annotations

import importlib.resources
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from mirrortest.errors import LabError
from mirrortest.host import class_archive
from mirrortest.host.java import find_java
from mirrortest.lab import jars
from mirrortest.lab.free_ports import ADDRESS
from mirrortest.lab.process.program import GuardedProcess
from mirrortest.lab.runtime import DEFAULT_HEAP, Launch, Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.host.java import Java

# On two cores two brokers and the mirror are ready soonest with the C1 compiler only, and without
# bytecode verification: all classes come from jars with known checksums.
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)


def lab_java() -> Java:
    """The Java runtime for the lab's parts.

    Raises:
        JavaMissingError: there is no Java 17 or newer.
    """
    return find_java("the lab", "'mirrortest[lab]'")


@dataclass(frozen=True)
class Jvm(Runtime):
    """A Java runtime with all of Kafka on its class path.

    Attributes:
        java: the runtime.
        class_path: of all jars in the lock.
        heap: the largest heap of each process, as -Xmx takes it.
        options: further options of the user; they come last, so they win.
        agent: the jar of the JMX exporter; None: parts serve no metrics.
        metrics_ports: part -> the port of its metrics.
        gc_logs: the directory where parts log their garbage collections; None: they do not.
    """

    java: Java
    class_path: str
    heap: str = DEFAULT_HEAP
    options: tuple[str, ...] = ()
    agent: Path | None = None
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    gc_logs: Path | None = None

    @classmethod
    def find(cls) -> Self:
        """This machine's Java with the lab's jars; missing jars are downloaded.

        Raises:
            JavaMissingError: there is no Java 17 or newer.
            LabError: a jar cannot be downloaded.
        """
        return cls(lab_java(), jars.class_path())

    @property
    def archive(self) -> Path:
        """The path of the CDS archive that `mirrortest.lab.archive` writes."""
        return class_archive.archive_path(self.java, "lab", self.class_path.split(os.pathsep))

    @property
    def environment(self) -> dict[str, str]:
        """The class path, which would make the command line too long for `ps`."""
        return {"CLASSPATH": self.class_path}

    def command(self, main: str, *arguments: str, part: str | None = None) -> list[str]:
        """The command line of a program that logs to stdout; `part` may serve metrics."""
        log = importlib.resources.files("mirrortest.lab").joinpath("log4j2.properties")
        return [
            str(self.java.executable),
            f"-Xmx{self.heap}",
            *_FLAGS,
            *class_archive.java_options(self.archive),
            *(["--enable-native-access=ALL-UNNAMED"] if self.java.major >= 22 else []),
            f"-Dlog4j2.configurationFile={log}",
            *self._agent(part),
            *self._gc_log(part),
            *self.options,
            main,
            *arguments,
        ]

    def broker(
        self, name: str, properties_file: Path, *, data: Path, port: int, cluster_id: str
    ) -> Launch:
        """The launch of a broker."""
        del data, port, cluster_id
        return self._launch(name, "kafka.Kafka", str(properties_file))

    def mirror_maker(self, name: str, properties_file: Path, *arguments: str) -> Launch:
        """The launch of MirrorMaker 2."""
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return self._launch(name, main, str(properties_file), *arguments)

    def format(self, properties_file: Path, data: Path, cluster_id: str) -> None:
        """Format a broker's data directory, unless it is formatted. Raises LabError."""
        if not (data / "meta.properties").exists():
            self.run(
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", cluster_id, "--config", str(properties_file)),
            )

    def run(self, main: str, *arguments: str) -> str:
        """Run one of Kafka's tools to its end; returns its output.

        Raises:
            LabError: it failed; the text ends with its output.
        """
        done = subprocess.run(
            self.command(main, *arguments),
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"{main} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
        return done.stdout

    def log_dirs(self, data: Path) -> str:
        """The data directory itself."""
        return str(data)

    def listeners(
        self, brokers: Sequence[str], number: int, ports: Sequence[int]
    ) -> dict[str, str]:
        """Listeners on the loopback interface only."""
        port, controller = ports[2 * number - 2 : 2 * number]
        voters = (f"{n}@{ADDRESS}:{ports[2 * n - 1]}" for n in range(1, len(brokers) + 1))
        return {
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{ADDRESS}:{port},CONTROLLER://{ADDRESS}:{controller}",
        }

    def bootstrap_servers(self, brokers: Mapping[str, str]) -> str:
        """The addresses that clients use."""
        return ",".join(brokers.values())

    def _launch(self, part: str, main: str, *arguments: str) -> Launch:
        command = self.command(main, *arguments, part=part)
        return Launch(command, self.environment, GuardedProcess(part))

    def _agent(self, part: str | None) -> list[str]:
        """The Java option with which a part serves its JMX metrics, if it does."""
        if self.agent is None or part is None or part not in self.metrics_ports:
            return []
        config = importlib.resources.files("mirrortest.lab").joinpath("jmx_exporter.yaml")
        return [f"-javaagent:{self.agent}={ADDRESS}:{self.metrics_ports[part]}:{config}"]

    def _gc_log(self, part: str | None) -> list[str]:
        """The Java option with which a part logs its garbage collections, if it does."""
        if self.gc_logs is None or part is None:
            return []
        self.gc_logs.mkdir(parents=True, exist_ok=True)
        return [f"-Xlog:gc*:file={gc_log(self.gc_logs, part)}:time,uptime,level,tags:filecount=0"]


def gc_log(directory: Path, part: str) -> Path:
    """The path of a part's garbage collection log."""
    return directory / f"{part}-gc.log"
