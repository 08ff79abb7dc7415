"""How the lab starts a Java program: the runtime, the class path, the flags, the log."""

from __future__ import annotations

import importlib.resources
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.errors import LabError
from mirrortest.host import class_archive
from mirrortest.host.java import find_java
from mirrortest.lab import jmx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.host.java import Java


def lab_java() -> Java:
    """The runtime for the lab's parts.

    Raises:
        JavaMissingError: there is none of Java 17 or newer.
    """
    return find_java("the lab", "'mirrortest[lab]'")


@dataclass(frozen=True)
class Jvm:
    """A Java runtime with everything of Kafka on its class path.

    Attributes:
        java: the runtime.
        class_path: of all jars in the lock.
        heap: the most that a part's heap may take, as -Xmx has it.
        options: further options of the user; they stand last, so they win.
        agent: the JMX exporter's jar, where parts are to serve their metrics.
        exported: part -> the port where it serves them.
    """

    java: Java
    class_path: str
    heap: str = "512m"
    options: tuple[str, ...] = ()
    agent: Path | None = None
    exported: Mapping[str, int] = field(default_factory=dict)

    def exporting(self, part: str) -> list[str]:
        """The options that have a part serve its metrics, if it is to."""
        if self.agent is None or part not in self.exported:
            return []
        return [jmx.option(self.agent, self.exported[part])]

    @property
    def archive(self) -> Path:
        """Where Java finds what it kept of these classes, if `mirrortest.lab.archive` made it."""
        return class_archive.place(self.java, "lab", self.class_path.split(os.pathsep))

    @property
    def environment(self) -> dict[str, str]:
        """The class path goes by the environment: it would drown everything else in `ps`."""
        return {"CLASSPATH": self.class_path}

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """The command line of a long-running program whose log goes to stdout."""
        log = importlib.resources.files("mirrortest.lab").joinpath("log4j2.properties")
        return [
            str(self.java.executable),
            f"-Xmx{self.heap}",
            *_FLAGS,
            *class_archive.reading(self.archive),
            *(["--enable-native-access=ALL-UNNAMED"] if self.java.major >= 22 else []),
            f"-Dlog4j2.configurationFile={log}",
            *options,
            *self.options,
            main,
            *arguments,
        ]

    def run(self, main: str, *arguments: str) -> None:
        """Run a short program to its end.

        Raises:
            LabError: it failed; the text has what it said.
        """
        done = subprocess.run(
            self.command(main, *arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"{main} failed: {(done.stdout + done.stderr).strip()[-2000:]}")


# On two cores two brokers and the mirror are ready the soonest with the quick compiler alone, and
# without proof that classes are well-formed, which come from jars of known checksums.
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
