"""Saves of a consumer's partitions: the log durable, then the states.

They run concurrently with the reading, and never overlap. Before anything of a log's next
incarnation is read, a state that names it is durable, so that its number is the same for whoever
takes over.
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
    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.consumer_metrics import ConsumerMetrics
    from mirrortest.consume.next_incarnation import NextIncarnation
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.consume.outage import Outage
    from mirrortest.consume.shared_state import SharedState
    from mirrortest.consume.state_store import StateStore
    from mirrortest.kafka.reader import Reader

_log = structlog.get_logger()

_PARTING_SECONDS = 30.0
"""The most that the last save may take, and how long it is tried again."""
_RETRY_SECONDS = 1.0


class Saves:
    """When states are saved, and in which order things become durable."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        store: StateStore,
        reader: Reader,
        log: ConsumerLog,
        measures: ConsumerMetrics,
        outage: Outage,
        common: SharedState,
    ) -> None:
        self._options = options
        self._store = store
        self._reader = reader
        self._log_rows = log
        self._measures = measures
        self._outage = outage
        self._shared_state = common
        self._one_save = asyncio.Lock()
        self._slice = TimeSlice()
        self._saving: asyncio.Task[None] | None = None
        self._saved_last = time.monotonic()
        self._save_fails = False

    def soon(self) -> None:
        """Do not wait for the interval: what is known now should not be forgotten."""
        self._saved_last = -math.inf

    def beside(self, partitions: list[AssignedPartition]) -> None:
        """Start a save if the last one is done and the interval is over.

        Raises:
            SequenceLogError: the last one could not write the log.
            ClusterError: the cluster refuses the state. That it does not answer is told, and the
                next save may do better.
        """
        if self._saving is not None:
            if not self._saving.done():
                return
            saving, self._saving = self._saving, None
            try:
                saving.result()
                self._save_fails = False
            except TRANSIENT_ERRORS as error:
                if not self._save_fails:
                    _log.warning("the state cannot be saved, trying again", why=str(error))
                self._save_fails = True
        if time.monotonic() - self._saved_last < self._options.state_interval:
            return
        self._saved_last = time.monotonic()
        self._saving = asyncio.create_task(self._save(partitions))

    async def last(self, partitions: list[AssignedPartition]) -> str | None:
        """Save these partitions as the consumer ends; the reason for the user if that fails.

        Raises:
            SequenceLogError: the log cannot be written.
        """
        why, away = self._outage.why, bool(self._outage.why)
        self._log_found(partitions)
        try:
            async with asyncio.timeout(_PARTING_SECONDS):
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
            why = why or f"no answer within {_PARTING_SECONDS:g} s"
        else:
            why = why if away else ""
        if not why:
            return None
        return (
            f"the last state could not be saved ({why}): other consumers cannot see what was read "
            "since the one before, and the next one reads it again"
        )

    def _log_found(self, partitions: list[AssignedPartition]) -> None:
        """Log what was read and found, at once: nothing more is judged of these partitions.

        A cancellation while a save waits for its turn must not lose it.
        """
        for held in partitions:
            if not self._store.fenced(held.at, held.generation):
                self._log_rows.read(held)
                self._log_rows.found(held)

    async def close(self) -> None:
        """End a save that still runs: what ends the work early is told, and nothing beside it."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait({self._saving})
            if not self._saving.cancelled():
                self._saving.exception()  # told already, or told instead

    async def part(self, partitions: list[AssignedPartition]) -> None:
        """Save partitions that are given away.

        Raises:
            SequenceLogError: the log cannot be written.
            ClusterError: the cluster does not take the state, or refuses it.
        """
        self._log_found(partitions)
        await self._save(partitions, parting=True)

    async def begin(
        self, held: AssignedPartition, found_ns: int, following: NextIncarnation
    ) -> None:
        """Leave a partition's incarnation, and go on with the next once a durable state names it.

        `found_ns` is the wall clock's time, as for `PartitionChecker.unread`. What is not read of
        the next is in that state, too: no successor reads it either.

        An outage is sat out. Raises SequenceLogError, and ClusterError where the cluster refuses.
        """
        _, topic_id, offset, unread = following
        async with self._one_save:
            self._log_rows.left(held, found_ns)
            held.start_over(found_ns, topic_id, offset)
            held.read_from = 0
            if offset < unread:
                self._log_rows.unread(held, offset, unread, found_ns)
                held.checker.unread(offset, unread, found_ns)
            await self._outage.until_answered(self._name, held)

    async def _name(self, held: AssignedPartition) -> None:
        await self._log_rows.sync()
        if not self._store.fenced(held.at, held.generation):
            await self._store.save(held.at, held.generation, held.to_state())
            await self._store.caught_up()

    async def _save(
        self, partitions: list[AssignedPartition], *, parting: bool = False, away: bool = False
    ) -> None:
        """Make the log durable, then the states; the latter not where the cluster is `away`."""
        partitions = [at for at in partitions if not self._store.fenced(at.at, at.generation)]
        if away:
            # A save that hangs there is not waited for.
            for held in partitions:
                self._log_rows.read(held)
            await self._log_rows.sync()
            return
        # From the first state that is told: no older one may be written after a newer one.
        async with self._one_save:
            states = await self._told(partitions)
            await self._log_rows.sync()
            for held, state, _ in states:
                await self._store.save(held.at, held.generation, state, parting=parting)
            await self._shared_state.keep()
        self._measures.saved()
        if self._options.group is not None and states and not parting:
            # For lag tools alone: we resume from our own state.
            await self._reader.commit({held.at: offset for held, _, offset in states})

    async def _told(
        self, partitions: list[AssignedPartition]
    ) -> list[tuple[AssignedPartition, dict[str, Any], int]]:
        """Each partition with its state and the next offset in it, all below which is logged."""
        states = []
        for held in partitions:
            if self._store.fenced(held.at, held.generation):
                continue
            self._log_rows.read(held)
            states.append((held, held.to_state(), held.checker.next_offset))
            await self._slice.over()
        return states
