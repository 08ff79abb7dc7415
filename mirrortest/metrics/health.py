"""What an application says of itself to Kubernetes's probes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Probed(Protocol):
    """Who answers the probes; see `Health`."""

    @property
    def started(self) -> bool:
        """Whether it is connected, and has found its place in the run."""

    @property
    def ready(self) -> bool:
        """Whether it does its work."""

    @property
    def alive(self) -> bool:
        """Whether it makes progress."""


class Probes(NamedTuple):
    """The answers as of now, to be told to another process; none of them passes unless told."""

    started: bool = False
    ready: bool = False
    alive: bool = False

    @classmethod
    def of(cls, health: Probed) -> Self:
        """What it answers now."""
        return cls(health.started, health.ready, health.alive)


class Health:
    """Three answers; the probes' thread reads them, the application's loop gives them.

    `started`: it is connected, and has found its place in the run. `ready`: it does its work.
    `alive`: its loop has told of progress (`beat`) within `patience` seconds. An outage that is
    sat out is progress, as restarting would not end it.
    """

    def __init__(self, patience: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._monotonic = monotonic
        self._beaten = monotonic()
        self.started = False
        self.ready = False

    def beat(self) -> None:
        """The loop has come round."""
        self._beaten = self._monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop came round lately."""
        return self._monotonic() - self._beaten <= self._patience
