"""What changes of a machine while it is observed: its settings, disks, limits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.observe.machine_profile import changes
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.observation import Drift

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.observe.machine_profile import Profile
    from mirrortest.observe.options import ObserveOptions

_log = structlog.get_logger()

_SECONDS = 60.0


class DriftWatch:
    """Compares the machine's profile with the one before, each minute and at the end.

    A change is logged, kept in `found`, and with --log-dir an event of the run.

    Attributes:
        first: the profile at the start.
    """

    def __init__(
        self,
        options: ObserveOptions,
        read: Callable[[], Profile],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.first = self._before = read()
        self.found: list[Drift] = []
        self._name = options.name
        self._events = (
            EventLog(options.log_dir, options.run) if options.log_dir and options.run else None
        )
        self._read = read
        self._monotonic = monotonic
        self._looked = monotonic()

    def look_if_due(self) -> None:
        """Look, a minute after the last time. Raises SequenceLogError for the event."""
        if self._monotonic() - self._looked >= _SECONDS:
            self.look()

    def look(self) -> None:
        """Look now. Raises SequenceLogError for the event."""
        self._looked = self._monotonic()
        before, self._before = self._before, self._read()
        # That processes come and go is the course of a test.
        lasting = before["processes"].keys() & self._before["processes"].keys()
        for change in changes(_only(before, lasting), _only(self._before, lasting)):
            drift = Drift.of(time.time_ns(), *change)
            self.found.append(drift)
            _log.warning("the machine has changed", what=drift.what, now=drift.after)
            if self._events is not None:
                self._events.note(f"changed: {drift.what}", self._name, time_ns=drift.time_ns)


def _only(profile: Profile, pids: set[str]) -> Profile:
    return profile | {"processes": {pid: profile["processes"][pid] for pid in pids}}
