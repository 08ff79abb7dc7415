"""Finds changes of the machine's profile and the clusters' during an observation."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.observe.machine_profile import changes
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.observation import Drift

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from mirrortest.observe.machine_profile import Profile
    from mirrortest.observe.options import ObserveOptions

_log = structlog.get_logger()

_SECONDS = 60.0


class DriftWatch:
    """Compares the machine's profile with the previous one.

    It logs each change, keeps it in `found`, and with --log-dir notes it as an event of the run.

    Attributes:
        first: the profile at the start.
    """

    def __init__(self, options: ObserveOptions, read: Callable[[], Profile]) -> None:
        self.first = self._before = read()
        self.found: list[Drift] = []
        self._name = options.name
        self._events = (
            EventLog(options.log_dir, options.run) if options.log_dir and options.run else None
        )
        self._read = read

    async def run(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask the clusters and compare, at once and each minute. Raises SequenceLogError."""
        while True:
            await ask()
            self.compare()
            await asyncio.sleep(_SECONDS)

    def compare(self) -> None:
        """Compare now. Raises SequenceLogError if an event cannot be written."""
        before, self._before = self._before, self._read()
        for change in changes(*_restrict_to_shared(before, self._before)):
            drift = Drift.of(time.time_ns(), *change)
            self.found.append(drift)
            _log.warning("the machine has changed", what=drift.what, now=drift.after)
            if self._events is not None:
                self._events.note(f"changed: {drift.what}", self._name, time_ns=drift.time_ns)


def _restrict_to_shared(before: Profile, now: Profile) -> tuple[Profile, Profile]:
    """Both without what only one has: processes, file systems, clusters, brokers and topics.

    A test starts and ends these, as do logins and containers, which mount file systems.
    """
    pids = before["processes"].keys() & now["processes"].keys()
    mounts = _mounts(before) & _mounts(now)
    both = [
        each
        | {
            "processes": _only(each["processes"], pids),
            "file_systems": [its for its in each["file_systems"] if its["mount"] in mounts],
            "clusters": {},
        }
        for each in (before, now)
    ]
    shared = before.get("clusters", {}).keys() & now.get("clusters", {}).keys()
    for address in shared:
        old, new = before["clusters"][address], now["clusters"][address]
        for kind in ("brokers", "topics"):
            keys = old[kind].keys() & new[kind].keys()
            old, new = (each | {kind: _only(each[kind], keys)} for each in (old, new))
        for each, cluster in zip(both, (old, new), strict=True):
            each["clusters"][address] = cluster
    return both[0], both[1]


def _mounts(profile: Profile) -> set[str]:
    return {each["mount"] for each in profile["file_systems"]}


def _only(found: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: found[key] for key in keys}
