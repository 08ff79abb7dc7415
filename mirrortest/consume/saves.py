"""Saves of a consumer's partitions: the log durable, then the states.

They run concurrently with the reading, and never overlap. Before anything of a log's next
incarnation is read, a state that names it is durable, so that its number is the same for the
consumer that takes over.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.error_table import TRANSIENT_ERRORS

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.batch_judge import NextIncarnation
    from mirrortest.consume.context import ConsumerContext

_log = structlog.get_logger()

_LAST_SAVE_SECONDS = 30.0
"""The most that the last save may take, and how long it is tried again."""
_RETRY_SECONDS = 1.0
_AT_ONCE = 8
"""States written at once, in shared requests; each is packed while nothing else runs."""


class Saves:
    """When states are saved, and in which order things become durable."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._one_save = asyncio.Lock()
        self._slice = TimeSlice()
        self._saving: asyncio.Task[None] | None = None
        self._saved_last = time.monotonic()
        self._failing = False

    def request(self) -> None:
        """Save in this round, and not only when the interval is over."""
        self._saved_last = -math.inf

    def save_if_due(self) -> None:
        """Start a save of all partitions if the last one is done and the interval is over.

        Raises:
            SequenceLogError: the last one could not write the log.
            ClusterError: the cluster refuses the state. A cluster that does not answer is logged,
                and the next save may do better.
        """
        if self._saving is not None:
            if not self._saving.done():
                return
            saving, self._saving = self._saving, None
            try:
                saving.result()
                self._failing = False
            except TRANSIENT_ERRORS as error:
                if not self._failing:
                    _log.warning("the state cannot be saved, trying again", why=str(error))
                self._failing = True
        if time.monotonic() - self._saved_last < self._context.options.state_interval:
            return
        self._saved_last = time.monotonic()
        self._saving = asyncio.create_task(self._save(list(self._context.partitions.values())))

    async def save_last(self) -> str | None:
        """Save all partitions as the consumer ends; the reason for the user if that fails.

        Raises:
            SequenceLogError: the log cannot be written.
        """
        outage, partitions = self._context.outage, list(self._context.partitions.values())
        why, away = outage.why, bool(outage.why)
        self._log_found(partitions)
        try:
            async with asyncio.timeout(_LAST_SAVE_SECONDS):
                if self._saving is not None and not away:
                    await asyncio.wait({self._saving})
                while True:
                    try:
                        await self._save(partitions, parting=True, away=away)
                    except TRANSIENT_ERRORS as error:
                        why = str(error)
                        await asyncio.sleep(_RETRY_SECONDS)
                    else:
                        break
        except TimeoutError:
            why = why or f"no answer within {_LAST_SAVE_SECONDS:g} s"
        else:
            why = why if away else ""
        if not why:
            return None
        return (
            f"the last state could not be saved ({why}): other consumers cannot see what was read "
            "since the one before, and the next one reads it again"
        )

    async def hand_over(self, partitions: Collection[AssignedPartition]) -> None:
        """Save partitions that are given away.

        Raises:
            SequenceLogError: the log cannot be written.
            ClusterError: the cluster does not take the state, or refuses it.
        """
        self._log_found(partitions)
        await self._save(partitions, parting=True)

    async def begin_incarnation(
        self, assigned: AssignedPartition, found_ns: int, following: NextIncarnation
    ) -> None:
        """Leave a partition's incarnation, and go on with the next once a durable state names it.

        `found_ns` is the wall clock's time, as for `PartitionChecker.unread`. Offsets of the next
        one that are not read are in that state, too: no successor reads them either.

        An outage is waited out. Raises SequenceLogError, and ClusterError where the cluster
        refuses.
        """
        _, topic_id, offset, unread = following
        log = self._context.log
        async with self._one_save:
            log.left(assigned, found_ns)
            assigned.start_over(found_ns, topic_id, offset)
            assigned.read_from = 0
            if offset < unread:
                log.unread(assigned, offset, unread, found_ns)
                assigned.checker.unread(offset, unread, found_ns)
            await self._context.outage.until_answered(self._save_incarnation, assigned)

    async def close(self) -> None:
        """End a save that still runs; what it raises is lost, as another error ends the work."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait({self._saving})
            if not self._saving.cancelled():
                self._saving.exception()

    def _log_found(self, partitions: Collection[AssignedPartition]) -> None:
        """Log what was read and found, at once: nothing more is judged of these partitions.

        A cancellation while a save waits for its turn must not lose it.
        """
        for assigned in partitions:
            if not self._is_fenced(assigned):
                self._context.log.read(assigned)
                self._context.log.found(assigned)

    def _is_fenced(self, assigned: AssignedPartition) -> bool:
        return self._context.store.fenced(assigned.at, assigned.generation)

    async def _save_incarnation(self, assigned: AssignedPartition) -> None:
        store = self._context.store
        await self._context.log.sync()
        if not self._is_fenced(assigned):
            await store.save(assigned.at, assigned.generation, assigned.to_state())
            await store.caught_up()

    async def _save(
        self,
        partitions: Collection[AssignedPartition],
        *,
        parting: bool = False,
        away: bool = False,
    ) -> None:
        """Make the log durable, then the states; the latter not where the cluster is `away`."""
        context = self._context
        partitions = [each for each in partitions if not self._is_fenced(each)]
        if away:
            # A save that hangs there is not waited for.
            for assigned in partitions:
                context.log.read(assigned)
            await context.log.sync()
            return
        # From the first state that is taken: no older one may be written after a newer one.
        async with self._one_save:
            states = await self._states(partitions)
            await context.log.sync()
            for at in range(0, len(states), _AT_ONCE):
                await _all_done(
                    context.store.save(assigned.at, assigned.generation, state, parting=parting)
                    for assigned, state, _ in states[at : at + _AT_ONCE]
                )
            await context.shared.write()
        context.metrics.saved()
        if context.options.group is not None and states and not parting:
            # For lag tools alone: we resume from our own state.
            await context.reader.commit({each.at: offset for each, _, offset in states})

    async def _states(
        self, partitions: Collection[AssignedPartition]
    ) -> list[tuple[AssignedPartition, dict[str, Any], int]]:
        """Each partition with its state and the next offset in it, all below which is logged."""
        states = []
        for assigned in partitions:
            if self._is_fenced(assigned):
                continue
            self._context.log.read(assigned)
            states.append((assigned, assigned.to_state(), assigned.checker.next_offset))
            await self._slice.over()
        return states


async def _all_done(saves: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all of them, and raise what the first that failed has raised."""
    for failure in await asyncio.gather(*saves, return_exceptions=True):
        if failure is not None:
            raise failure
