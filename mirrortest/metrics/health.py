"""What an application answers besides its metrics: Kubernetes' probes, and its status."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from pydantic import BaseModel


class Status(Protocol):
    """How an application stands."""

    def document(self) -> BaseModel:
        """For programs."""


class Probed(Protocol):
    """What answers the probes, and for the status; see `Health`."""

    @property
    def started(self) -> bool:
        """Whether it is connected and has its position in the run."""

    @property
    def ready(self) -> bool:
        """Whether it does its work."""

    @property
    def alive(self) -> bool:
        """Whether it makes progress."""

    @property
    def status(self) -> Status | None:
        """How it stands; None before it is at work."""


class Probes(NamedTuple):
    """The answers at one moment, for another process; by default none of them passes.

    A process that is never asked for the status does not load what it is made of.
    """

    started: bool = False
    ready: bool = False
    alive: bool = False
    pickled_status: bytes = pickle.dumps(None)

    @classmethod
    def of(cls, health: Probed) -> Self:
        """Its answers now."""
        return cls(health.started, health.ready, health.alive, pickle.dumps(health.status))

    @property
    def status(self) -> Status | None:
        """How it stands."""
        status: Status | None = pickle.loads(self.pickled_status)  # noqa: S301  # a parent's or a child's
        return status


class Health:
    """The answers; the application's loop sets them, the probes' thread reads them.

    `started`: it is connected and has its position in the run. `ready`: it does its work. `alive`:
    its loop has made progress (`beat`) within `patience` seconds. Waiting for an outage to end is
    progress, as a restart would not end it.
    """

    def __init__(self, patience: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._monotonic = monotonic
        self._beaten = monotonic()
        self.started = False
        self.ready = False
        self.status: Status | None = None

    def beat(self) -> None:
        """The loop has made progress."""
        self._beaten = self._monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop made progress within `patience`."""
        return self._monotonic() - self._beaten <= self._patience
