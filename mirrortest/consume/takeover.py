"""When to take over a partition that its owner no longer reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.context import ConsumerContext
    from mirrortest.model.topic_partition import TopicPartition

_log = structlog.get_logger()

PARTED_SECONDS = 10.0
"""How long a partition is left to its owner after the owner has ended and saved its last state."""
SILENT_SECONDS = 60.0
"""The same after the last sign of life of an owner that saved no last state, but at least
`SILENT_SAVES` state intervals."""
SILENT_SAVES = 12
"""See `SILENT_SECONDS`."""
_MOST_SECONDS = 15.0
"""The most that one round adds to an owner's silence: this process may have been paused itself."""


class Takeover:
    """Watches other consumers' partitions that still have to be read.

    In a group these are the partitions that are assigned to us, and that another member has claimed
    from us: one that the group had removed, and that may have ended since.
    """

    def __init__(
        self,
        context: ConsumerContext,
        assignment: Assignment,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._assignment = assignment
        self._monotonic = monotonic
        self._last = monotonic()
        self._silent: dict[TopicPartition, tuple[tuple[int, int], float]] = {}
        """Partition -> its owner's last claim or save, and the seconds since."""

    async def take_abandoned(self, unread: Collection[TopicPartition]) -> None:
        """Take over those of these partitions that no consumer reads; called after each round.

        Raises ClusterError; the next call tries again.
        """
        now, store = self._monotonic(), self._context.store
        elapsed, self._last = min(now - self._last, _MOST_SECONDS), now
        if self._context.options.group is not None:
            unread = self._context.reader.assignment().intersection(unread)
        before, self._silent = self._silent, {}
        for at in unread:
            activity = store.owner_activity(at)
            last, seconds = before.get(at, (None, 0.0))
            self._silent[at] = (activity, seconds + elapsed if activity == last else 0.0)
        due = [at for at, (_, seconds) in self._silent.items() if seconds >= self._patience(at)]
        if not due:
            return
        # Afterwards all earlier records are applied, including a live owner's last save.
        await store.caught_up()
        for at in due:
            activity, seconds = self._silent[at]
            if store.owner_activity(at) == activity and await self._assignment.take_over(at):
                _log.warning(
                    "partition taken over: its owner has ended, or has not saved a state for long",
                    partition=str(at),
                    seconds=round(seconds),
                )

    def _patience(self, at: TopicPartition) -> float:
        if self._context.store.parted(at):
            return PARTED_SECONDS
        return max(SILENT_SECONDS, SILENT_SAVES * self._context.options.state_interval)
