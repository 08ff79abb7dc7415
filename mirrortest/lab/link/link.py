"""A link as a part of the lab: its relay, and what can be wrong with it."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.host.interpreter import AS_PROGRAM
from mirrortest.host.user_files import replace_text
from mirrortest.lab.link.condition import Condition, holds
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TIMEOUT = 60.0


class Link(Part):
    """The network between the mirror and one cluster: a good one until a fault.

    Each fault lasts until `heal`, apart from the others; also over a restart of the link.

    Args:
        routes: port -> the broker's own port for what comes over the link.
    """

    def __init__(self, name: str, directory: Path, routes: Mapping[int, int]) -> None:
        self.condition = Condition()
        self._file = directory / "config" / f"{name}.condition"
        self._number = 0
        self._changing = threading.Lock()  # faults of a scenario come from a thread each
        pairs = (f"{port}={target}" for port, target in routes.items())
        command = (*AS_PROGRAM, "mirrortest.lab.link.relay", str(self._file), *pairs)
        super().__init__(name, command, directory / "logs" / f"{name}.log")

    def spawn(self) -> None:
        """Start it under the condition that it had, and return at once."""
        self._write()
        super().spawn()

    def wait_ready(self, timeout: float = TIMEOUT) -> None:
        """Wait until its condition holds.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        self.wait_until(
            lambda: holds(self._number) in self.log_since_start(), timeout, lambda: "did not answer"
        )

    def delay(self, delay: float, jitter: float = 0.0) -> None:
        """Delay all bytes by so many seconds in each direction. Raises LabError."""
        self._change(delay=delay, jitter=jitter)

    def rate(self, rate: float) -> None:
        """Let so many bytes/s pass in each direction, of all connections. Raises LabError."""
        self._change(rate=round(rate))

    def cut(self) -> None:
        """Let nothing pass: connections stay open, new ones get no answer. Raises LabError."""
        self._change(cut=True)

    def reset(self) -> None:
        """Reset all connections, and refuse new ones. Raises LabError."""
        self._change(reset=True)

    def heal(self, fault: str | None = None) -> None:
        """End a fault, or all of them. Raises LabError."""
        self._apply(lambda now: Condition() if fault is None else now.without(fault))

    def _change(self, **values: Any) -> None:
        self._apply(lambda now: replace(now, **values))

    def _apply(self, change: Callable[[Condition], Condition]) -> None:
        """Change the condition; returns once the new one holds."""
        with self._changing:
            if self.state is not PartState.RUNNING:
                raise LabError(f"{self.name} is {self.state}: start or continue it first")
            self.condition = change(self.condition)
            self._write()
            self.program.send(signal.SIGHUP)
            self.wait_ready()

    def _write(self) -> None:
        self._number += 1
        self._file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self._file, f"{self._number} {self.condition.to_json()}")
