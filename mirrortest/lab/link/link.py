"""A link as a part of the lab: its relay, and its faults."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrortest.errors import LabError
from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.host.user_files import replace_text
from mirrortest.lab.link.condition import CHANGED, Condition, applied_prefix
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TIMEOUT = 60.0


class Link(Part):
    """The network between the mirror and one cluster; it is good until a fault.

    Faults are independent of each other. Each lasts until `heal`, also over a restart of the link.

    Args:
        routes: the link's port -> the broker's port for connections over the link.
    """

    def __init__(self, name: str, directory: Path, routes: Mapping[int, int]) -> None:
        self.condition = Condition()
        self._file = directory / "config" / f"{name}.condition"
        self._number = 0
        self._changing = threading.Lock()  # each fault of a scenario has its own thread
        pairs = (f"{port}={target}" for port, target in routes.items())
        command = (*RUN_MODULE, "mirrortest.lab.link.relay", str(self._file), *pairs)
        super().__init__(name, command, directory / "logs" / f"{name}.log")

    def spawn(self) -> None:
        """Start it with its current condition, and return at once."""
        with self._changing:
            self._write()
        super().spawn()

    def wait_ready(self, timeout: float = TIMEOUT) -> None:
        """Wait until its condition is applied.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        self.wait_until(
            lambda: applied_prefix(self._number) in self.log_since_start(),
            timeout,
            lambda: "did not answer",
        )

    def delay(self, delay: float, jitter: float = 0.0) -> None:
        """Delay all bytes by `delay` ± `jitter` seconds in each direction. Raises LabError."""
        self._change(delay=delay, jitter=jitter)

    def rate(self, rate: float) -> None:
        """Limit all connections together to `rate` bytes/s per direction. Raises LabError."""
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
        """Change the condition; returns once the new one is applied."""
        with self._changing:
            if self.state is not PartState.RUNNING:
                raise LabError(f"{self.name} is {self.state}: start or continue it first")
            self.condition = change(self.condition)
            self._write()
            self.program.send(CHANGED)
        self.wait_ready()  # another thread may restart it meanwhile

    def _write(self) -> None:
        self._number += 1
        self._file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self._file, f"{self._number} {self.condition.to_json()}")
