"""What changes while it is observed: a machine's settings, disks, limits; what clusters say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.observe.machine_profile import changes
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.observation import Drift

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

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
        for change in changes(*_lasting(before, self._before)):
            drift = Drift.of(time.time_ns(), *change)
            self.found.append(drift)
            _log.warning("the machine has changed", what=drift.what, now=drift.after)
            if self._events is not None:
                self._events.note(f"changed: {drift.what}", self._name, time_ns=drift.time_ns)


def _lasting(before: Profile, now: Profile) -> tuple[Profile, Profile]:
    """Both without what one of them has not: that processes and topics come and go is the test."""
    pids = before["processes"].keys() & now["processes"].keys()
    both = [each | {"processes": _only(each["processes"], pids)} for each in (before, now)]
    shared = before.get("clusters", {}).keys() & now.get("clusters", {}).keys()
    for each in both:
        each["clusters"] = {}
    for address in shared:
        old, new = before["clusters"][address], now["clusters"][address]
        topics = old["topics"].keys() & new["topics"].keys()
        for each, cluster in zip(both, (old, new), strict=True):
            each["clusters"][address] = cluster | {"topics": _only(cluster["topics"], topics)}
    return both[0], both[1]


def _only(found: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: found[key] for key in keys}
