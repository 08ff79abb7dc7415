"""Fixed shares whose consumer has ended: another consumer reads them.

A group rebalances; fixed shares do not. Without the partitions of a consumer that has ended, or
was killed, the others could neither claim a loss nor end. So one of them takes over what is unread.
Generations (`state_store`) keep that safe: the owner may restart at any time and claim its share
again, and an owner that was only paused finds itself fenced.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.state_store import Partition, StateStore

_log = structlog.get_logger()

PARTED_SECONDS = 10.0
"""How long a share stays free for its consumer after that one's parting save."""
SILENT_SECONDS = 60.0
"""The same after the last sign of life of a consumer that saved no parting state; at least:"""
SILENT_SAVES = 12
"""So many state intervals."""
_MOST_SECONDS = 15.0
"""The most that one round adds to a silence: this process may have been paused itself."""


class Takeover:
    """Watches the partitions of other fixed shares that are still to be read."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        assignment: Assignment,
        store: StateStore,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._assignment = assignment
        self._store = store
        self._monotonic = monotonic
        self._last = monotonic()
        self._silent: dict[Partition, tuple[tuple[int, int], float]] = {}
        """Partition -> its owner's last sign of life, and the seconds since."""

    async def look(self, unread: Collection[Partition]) -> None:
        """Take those of these partitions that nobody reads any more; called in each round.

        Raises ClusterError, after which the next round tries again.
        """
        now = self._monotonic()
        passed, self._last = min(now - self._last, _MOST_SECONDS), now
        if self._options.group is not None:
            return
        before, self._silent = self._silent, {}
        for at in unread:
            sign = self._store.owner_activity(at)
            last, seconds = before.get(at, (None, 0.0))
            self._silent[at] = (sign, seconds + passed if sign == last else 0.0)
        due = [at for at, (_, seconds) in self._silent.items() if seconds >= self._patience(at)]
        if not due:
            return
        # Afterwards all that was written by now is applied: a live owner has given a sign.
        await self._store.caught_up()
        for at in due:
            sign, seconds = self._silent[at]
            if self._store.owner_activity(at) == sign and await self._assignment.take_over(at):
                _log.warning(
                    "partition of another --shard taken over: its consumer has ended, or has saved "
                    "no state for long",
                    partition=f"{at.topic}-{at.partition}",
                    seconds=round(seconds),
                )

    def _patience(self, at: Partition) -> float:
        if self._store.parted(at):
            return PARTED_SECONDS
        return max(SILENT_SECONDS, SILENT_SAVES * self._options.state_interval)
