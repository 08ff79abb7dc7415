"""What goes over the pipe between a command and each of its workers, pickled.

And from a worker, once a second where metrics are served, `metrics.snapshot.Snapshot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrortest.errors import MirrortestError


@dataclass(frozen=True)
class Stop:
    """To a worker: it is enough; drain, report, end."""


@dataclass(frozen=True)
class Progress:
    """From a worker: how it stands."""

    progress: Any


@dataclass(frozen=True)
class Ended:
    """From a worker, as its last word: its report, or what ended it without one."""

    report: Any = None
    error: MirrortestError | None = None
