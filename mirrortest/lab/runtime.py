"""The interface to where programs run; `process`, `docker` and `kubernetes` implement it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from signal import Signals


DEFAULT_HEAP = "512m"
"""The largest heap of each Java process of a lab, as -Xmx takes it."""


def broker_names(alias: str, brokers: int) -> list[str]:
    """The names of a cluster's brokers: A1, A2 and so on."""
    return [f"{alias}{number}" for number in range(1, brokers + 1)]


class PartState(StrEnum):
    """The state of a part of the lab."""

    DOWN = "down"  # not started, or ended on request
    RUNNING = "running"
    STOPPED = "stopped"  # frozen: it keeps its sockets and answers nothing
    DEAD = "dead"  # it ended by itself


class Program(ABC):
    """The program of one part, over all its restarts.

    Attributes:
        exit_code: its exit code, if it ended by itself.
    """

    @abstractmethod
    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it and return at once; its output is appended to `log`.

        Raises:
            LabError: it cannot be started.
        """

    @property
    @abstractmethod
    def state(self) -> PartState:
        """RUNNING, STOPPED, or DOWN if it does not run."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process id on this machine; None while it does not run."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """Its exit code, if it ended by itself."""

    @property
    def awaited(self) -> str:
        """Why it does not run yet, if its start takes long; empty otherwise."""
        return ""

    @abstractmethod
    def send(self, number: Signals) -> None:
        """Send it a signal.

        Raises:
            LabError: it does not run.
        """

    @abstractmethod
    def stop(self) -> None:
        """Freeze it and the processes that it started by SIGSTOP, until `send(SIGCONT)`.

        Raises:
            LabError: it does not run, or ended meanwhile.
        """

    @abstractmethod
    def end(self, number: Signals, timeout: float) -> None:
        """End it by a signal, and by SIGKILL after `timeout` seconds; return once it has ended."""


class Launch(NamedTuple):
    """The command and environment of a part, and the program that runs it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    program: Program


class Runtime(ABC):
    """Runs Kafka's own programs, as processes on this machine or in containers."""

    @abstractmethod
    def broker(
        self, name: str, properties_file: Path, *, data: Path, port: int, cluster_id: str
    ) -> Launch:
        """The launch of a broker; clients on this machine connect to `port`."""

    @abstractmethod
    def mirror_maker(self, name: str, properties_file: Path, *arguments: str) -> Launch:
        """The launch of MirrorMaker 2."""

    @abstractmethod
    def format(self, properties_file: Path, data: Path, cluster_id: str) -> None:
        """Prepare a broker's data directory before its start, unless it is prepared already."""

    @abstractmethod
    def log_dirs(self, data: Path) -> str:
        """The value of the property `log.dirs` of a broker."""

    @abstractmethod
    def listeners(
        self, brokers: Sequence[str], number: int, ports: Sequence[int]
    ) -> dict[str, str]:
        """The properties of the listeners of broker `number`, and of the controllers' quorum.

        `brokers` are the names of all; `ports` has two for each: for clients and for controllers.
        """

    @abstractmethod
    def bootstrap_servers(self, brokers: Mapping[str, str]) -> str:
        """The bootstrap servers for other parts; `brokers` maps names to addresses for clients."""
