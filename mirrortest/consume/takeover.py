"""Fixed shares whose consumer has ended: another one reads them.

A group re-balances; fixed shares have nobody who does. Without the partitions of a consumer that
has ended, or was killed, the others could neither claim a loss nor end. So one of them takes what
is left unread. Generations (`consume.state`) make that safe: the owner may come back at any time
and claim its share again, and one that only stood still finds itself fenced.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirrortest.consume.holdings import Holdings
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.state import Partition, StateStore

_log = structlog.get_logger()

PARTED_SECONDS = 10.0
"""How long a consumer that said goodbye may take to come back before its share is taken."""
SILENT_SECONDS = 60.0
"""The same for one that has written nothing, at least; and so many saves of its state:"""
SILENT_SAVES = 12
_MOST_SECONDS = 15.0
"""The most that one round adds to a silence: while we stood still, others may have been heard."""


class Takeover:
    """Watches the partitions of other fixed shares that are still to be read."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        holdings: Holdings,
        store: StateStore,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._holdings = holdings
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
            sign = self._store.sign_of_life(at)
            known, seconds = before.get(at, (None, 0.0))
            self._silent[at] = (sign, seconds + passed if sign == known else 0.0)
        due = [at for at, (_, seconds) in self._silent.items() if seconds >= self._patience(at)]
        if not due:
            return
        # What was written by now is known then: whoever lives has given a sign.
        await self._store.caught_up()
        for at in due:
            sign, seconds = self._silent[at]
            if self._store.sign_of_life(at) == sign and await self._holdings.take_over(at):
                _log.warning(
                    "partition of another --shard taken over: its consumer has ended, or wrote "
                    "nothing for long",
                    partition=f"{at.topic}-{at.partition}",
                    seconds=round(seconds),
                )

    def _patience(self, at: Partition) -> float:
        if self._store.parted(at):
            return PARTED_SECONDS
        return max(SILENT_SECONDS, SILENT_SAVES * self._options.state_interval)
