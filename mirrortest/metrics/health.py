"""The answers to Kubernetes' probes, and an application's status."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from pydantic import BaseModel


class Status(Protocol):
    """An application's status."""

    def document(self) -> BaseModel:
        """The status as a JSON document's model."""


class Probed(Protocol):
    """Answers the probes, and has the status; see `Health`."""

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
        """The application's status; None before it has begun its work."""


class Probes(NamedTuple):
    """The answers at one moment, for another process; by default all probes fail.

    The status stays pickled until it is requested, as unpickling imports its modules.
    """

    started: bool = False
    ready: bool = False
    alive: bool = False
    pickled_status: bytes = pickle.dumps(None)

    @classmethod
    def of(cls, health: Probed) -> Self:
        """The current answers of `health`."""
        return cls(health.started, health.ready, health.alive, pickle.dumps(health.status))

    @property
    def status(self) -> Status | None:
        """The application's status."""
        status: Status | None = pickle.loads(self.pickled_status)  # noqa: S301  # a parent's or a child's
        return status


class Health:
    """The answers to the probes; the application's loop sets them, the server's threads read them.

    `started`: the application is connected and has its position in the run. `ready`: it does its
    work. `alive`: its loop has made progress (`beat`) within `patience` seconds. Waiting for an
    outage to end is progress, as a restart would not end it.
    """

    def __init__(self, patience: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._monotonic = monotonic
        self._last_beat = monotonic()
        self.started = False
        self.ready = False
        self.status: Status | None = None

    def beat(self) -> None:
        """Record that the loop has made progress."""
        self._last_beat = self._monotonic()

    @property
    def alive(self) -> bool:
        """Whether the loop made progress within `patience`."""
        return self._monotonic() - self._last_beat <= self._patience
