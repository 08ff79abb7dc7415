"""Saves of a consumer's partitions: first the log becomes durable, then the states.

Saves run concurrently with reading, and one at a time. Before anything of a log's next incarnation
is read, a durable state names it: a consumer that takes over then gives it the same number.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import structlog

from mirrortest.consume.partition_views import REPORTED
from mirrortest.host.time_slice import TimeSlice
from mirrortest.kafka.error_table import TRANSIENT_ERRORS

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.batch_judge import NextIncarnation
    from mirrortest.consume.context import ConsumerContext

_log = structlog.get_logger()

_LAST_SAVE_SECONDS = 30.0
"""How long the last save may take, retries included."""
_RETRY_SECONDS = 1.0
_AT_ONCE = 8
"""How many states are written concurrently, in shared requests. Each is packed in one go, which
blocks the event loop."""


class Saves:
    """Decides when states are saved, and in which order log and states become durable."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._one_save = asyncio.Lock()
        self._slice = TimeSlice()
        self._saving: asyncio.Task[None] | None = None
        self._saved_last = time.monotonic()
        self._failing = False

    def request(self) -> None:
        """Make the next `save_if_due` save, even if the interval is not over."""
        self._saved_last = -math.inf

    def save_if_due(self) -> None:
        """Start a save of all partitions if the last one is done and the interval is over.

        Raises:
            SequenceLogError: the last save could not write the log.
            ClusterError: the cluster refuses the state. If it does not answer, that is logged and
                the next save tries again.
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

    async def save_last(self, *, reported: bool) -> str | None:
        """Save all partitions when the consumer ends; if that fails, the reason for the user.

        `reported`: it has judged everything, so that its report has all latencies.

        Raises:
            SequenceLogError: the log cannot be written.
        """
        outage, partitions = self._context.outage, list(self._context.partitions.values())
        why, unreachable = outage.why, bool(outage.why)
        self._log_found(partitions)
        try:
            async with asyncio.timeout(_LAST_SAVE_SECONDS):
                if self._saving is not None and not unreachable:
                    await asyncio.wait({self._saving})
                while True:
                    try:
                        await self._save(
                            partitions, parting=True, reported=reported, unreachable=unreachable
                        )
                    except TRANSIENT_ERRORS as error:
                        why = str(error)
                        await asyncio.sleep(_RETRY_SECONDS)
                    else:
                        break
        except TimeoutError:
            why = why or f"no answer within {_LAST_SAVE_SECONDS:g} s"
        else:
            why = why if unreachable else ""
        if not why:
            return None
        return (
            f"the last state could not be saved ({why}): other consumers do not see what was read "
            "since the previous save; the next owner reads it again"
        )

    async def hand_over(self, partitions: Collection[AssignedPartition]) -> None:
        """Save partitions that were revoked, for their next owners.

        Raises:
            SequenceLogError: the log cannot be written.
            ClusterError: the cluster cannot be reached, or refuses the state.
        """
        self._log_found(partitions)
        await self._save(partitions, parting=True, reported=True)

    async def begin_incarnation(
        self, assigned: AssignedPartition, found_ns: int, following: NextIncarnation
    ) -> None:
        """End a partition's incarnation, and begin the next once a durable state names it.

        `found_ns` is the wall clock's time, as for `PartitionChecker.unread`. The state also has
        the next incarnation's unread range, so that later owners do not read it either.

        Waits through outages. Raises SequenceLogError, and ClusterError if the cluster refuses.
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
        """Cancel a save that still runs, and ignore its error: another one ended the consumer."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait({self._saving})
            if not self._saving.cancelled():
                self._saving.exception()

    def _log_found(self, partitions: Collection[AssignedPartition]) -> None:
        """Log what was read and found in partitions of which nothing more is judged.

        Done before the save waits for its turn: a cancellation of the wait must not lose the rows.
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
        reported: bool = False,
        unreachable: bool = False,
    ) -> None:
        """Make the log durable, then the states, unless the cluster is `unreachable`.

        `reported`: see `SavedState.latencies_reported`.
        """
        context = self._context
        partitions = [each for each in partitions if not self._is_fenced(each)]
        if unreachable:
            # Does not take the lock: another save may have it, and wait for the cluster.
            for assigned in partitions:
                context.log.read(assigned)
            await context.log.sync()
            return
        # Locked before the first state is taken, so that no state is written after a newer one.
        async with self._one_save:
            states = await self._states(partitions)
            if reported:
                states = [(each, {**state, REPORTED: True}, to) for each, state, to in states]
            await context.log.sync()
            for at in range(0, len(states), _AT_ONCE):
                await _all_done(
                    context.store.save(assigned.at, assigned.generation, state, parting=parting)
                    for assigned, state, _ in states[at : at + _AT_ONCE]
                )
            await context.shared.write()
        context.metrics.saved()
        if context.options.group is not None and states and not parting:
            # Only for tools that show lag: consumers resume from their saved states.
            await context.reader.commit({each.at: offset for each, _, offset in states})

    async def _states(
        self, partitions: Collection[AssignedPartition]
    ) -> list[tuple[AssignedPartition, dict[str, Any], int]]:
        """Each partition's state and next offset; everything below that offset is logged."""
        states = []
        for assigned in partitions:
            if self._is_fenced(assigned):
                continue
            self._context.log.read(assigned)
            states.append((assigned, assigned.to_state(), assigned.checker.next_offset))
            await self._slice.over()
        return states


async def _all_done(saves: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all saves; raise the error of the first that failed."""
    for failure in await asyncio.gather(*saves, return_exceptions=True):
        if failure is not None:
            raise failure
