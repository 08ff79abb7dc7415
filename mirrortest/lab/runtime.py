"""Where programs run: one interface, with `process`, `docker` and `kubernetes` behind it."""

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


class PartState(StrEnum):
    """What a part of the lab is doing."""

    DOWN = "down"  # not started, or ended on request
    RUNNING = "running"
    STOPPED = "stopped"  # frozen: it keeps its sockets and answers nothing
    DEAD = "dead"  # it ended by itself


class Program(ABC):
    """The program of one part, over all its restarts.

    Attributes:
        exit_code: of its last end, where it ended by itself.
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
        """RUNNING, STOPPED, or DOWN where it does not run."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process id on this machine; None while it does not run."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """How it ended."""

    @property
    def awaited(self) -> str:
        """Why it does not run yet, where its start takes long; empty otherwise."""
        return ""

    @abstractmethod
    def send(self, number: Signals) -> None:
        """Send it a signal.

        Raises:
            LabError: it does not run.
        """

    @abstractmethod
    def stop(self) -> None:
        """Freeze it by SIGSTOP, until `send(SIGCONT)`.

        Raises:
            LabError: it does not run, or ended meanwhile.
        """

    @abstractmethod
    def end(self, number: Signals, timeout: float) -> None:
        """End it by a signal, and by SIGKILL after `timeout` seconds; return once it has ended."""


class Launch(NamedTuple):
    """How a part is started, and what runs it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    program: Program


class Runtime(ABC):
    """Runs Kafka's own programs, as processes of this machine or in containers."""

    @abstractmethod
    def broker(
        self, name: str, properties_file: Path, *, data: Path, port: int, cluster_id: str
    ) -> Launch:
        """How a broker is started; clients on this machine reach it at `port`."""

    @abstractmethod
    def mirror_maker(self, name: str, properties_file: Path, *arguments: str) -> Launch:
        """How MirrorMaker 2 is started."""

    @abstractmethod
    def format(self, properties_file: Path, data: Path, cluster_id: str) -> None:
        """Prepare a broker's data directory before its start, unless that was done before."""

    @abstractmethod
    def log_dirs(self, data: Path) -> str:
        """What a broker's property `log.dirs` must be."""

    @abstractmethod
    def listeners(
        self, brokers: Sequence[str], number: int, ports: Sequence[int]
    ) -> dict[str, str]:
        """The properties by which broker `number` listens, and finds the others.

        `brokers` are the names of all, `ports` two for each: for clients and for controllers.
        """

    @abstractmethod
    def bootstrap_servers(self, brokers: Mapping[str, str]) -> str:
        """Where other parts reach the brokers; `brokers` maps names to addresses for clients."""
