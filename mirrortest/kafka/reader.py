"""Read partitions as complete batches, in a consumer group or with assigned partitions.

The reader never resets, commits or skips an offset by itself. `seek` sets the position. A position
that no longer exists is returned as an `OutOfRange`: `Recreated` if another topic now has the name,
`Diverged` if the log was truncated. Each batch that `next` returns begins where the one before it
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Self, cast

import structlog

from mirrortest.errors import ClusterError, TopicMissingError, UsageError
from mirrortest.host.allocator import keep_large_buffers, release_free_memory
from mirrortest.kafka.admin import topic_pattern
from mirrortest.kafka.connecting import start
from mirrortest.kafka.error_table import (
    GROUP_MOVED_ON,
    Code,
    RequestError,
    addresses,
    cluster_error,
    cluster_errors,
)
from mirrortest.kafka.fetched import (
    End,
    FetchedBatches,
    OutOfRange,
    ReadPosition,
    Unreadable,
)
from mirrortest.kafka.library import library
from mirrortest.kafka.rebalance import Rebalances
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import Fetched
    from mirrortest.kafka.ports import ConsumerPort
    from mirrortest.kafka.rebalance import OnChange


_log = structlog.get_logger()

_STOP_SECONDS = 5.0
_SLACK_SECONDS = 0.05
_BYTES_AT_ONCE = 16 << 20
"""About how many bytes are returned at once: a compressed response can expand to gigabytes."""


class Reader:
    """A reader of one cluster, an async context manager; only one task may use it.

    With a group, call `subscribe`; without one, call `assign`.
    """

    def __init__(self, config: ClientConfig, *, group: str | None = None) -> None:
        self._config = config
        self._group = group
        self._consumer: ConsumerPort | None = None
        self._fetching: asyncio.Task[list[list[Fetched]]] | None = None
        self._rebalances: Rebalances | None = None
        self._active: set[TopicPartition] = set()
        """Partitions that may be returned: assigned, and the caller's callback has run."""
        self._expected: dict[TopicPartition, int] = {}
        """Partition -> the offset at which its next batch must begin."""
        self._identities: dict[TopicPartition, tuple[str | None, int]] = {}
        """Partition -> its required topic id (None: any), and the last batch's leader epoch."""
        self._paused: set[TopicPartition] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect.

        Raises:
            UnreachableError: no bootstrap server answers.
        """
        keep_large_buffers()
        consumer = library(self._config).consumer(self._config, group=self._group)
        await start(self._config, consumer, "connecting")
        self._consumer = consumer

    async def close(self) -> None:
        """Leave the group and disconnect; no callback runs afterwards."""
        if self._rebalances is not None:
            self._rebalances.close()
        if self._fetching is not None:
            self._fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClusterError, RequestError, OSError):
                await self._fetching
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop(_STOP_SECONDS)
            del consumer
            release_free_memory()

    # -- what to read ---------------------------------------------------------------------------

    async def subscribe(
        self,
        *,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        on_assigned: OnChange,
        on_revoked: OnChange,
    ) -> None:
        """Join the group for topics by name, or for all whose complete name matches a pattern.

        The callbacks are awaited inside `next`, so they never run while the caller works on
        something else, and the rebalance waits for them. `on_assigned` must seek each partition;
        nothing is fetched for it before the callback returns.
        """
        if self._group is None:
            raise UsageError("a group's id is needed to subscribe")

        consumer = self._started()

        async def assigned(partitions: list[tuple[str, int]]) -> None:
            await on_assigned(partitions)
            named = {TopicPartition(*at) for at in partitions}
            self._active |= named
            consumer.resume(named - self._paused)

        async def revoked(partitions: list[tuple[str, int]]) -> None:
            await on_revoked(partitions)
            for at in map(TopicPartition._make, partitions):
                self._active.discard(at)
                self._expected.pop(at, None)
                self._identities.pop(at, None)
                self._paused.discard(at)

        self._rebalances = Rebalances(
            on_assigned=assigned, on_revoked=revoked, at_once=consumer.pause
        )
        if pattern is None and library(self._config).METADATA_CREATES_TOPICS:
            pattern = "|".join(map(re.escape, topics or ()))
        if pattern is not None:
            consumer.subscribe_pattern(topic_pattern(pattern).pattern, self._rebalances)
        else:
            consumer.subscribe(topics or (), self._rebalances)

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; those read before keep their position and pause state.

        The caller must seek each new one before it calls `next`.
        """
        wanted = [TopicPartition(*at) for at in partitions]
        self._started().assign(wanted)
        self._active = set(wanted)
        for at in set(self._expected) - self._active:
            del self._expected[at]  # in place: a running fetch reads this dict, too
            del self._identities[at]
        self._paused &= self._active
        for at in list(self._expected):
            self._seek_again(at)
        if self._paused:
            self.pause(self._paused)

    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions for which the caller's callbacks have run."""
        return set(self._active)

    def seek(
        self,
        partition: tuple[str, int],
        offset: int,
        *,
        topic_id: str | None = None,
        leader_epoch: int = -1,
    ) -> None:
        """Set the position of an assigned partition; callbacks may call this, too.

        With `topic_id`, only that topic is read, else the one that exists now. With `leader_epoch`,
        the epoch of the batch before the offset, a truncation below the offset is detected.
        """
        at = TopicPartition(*partition)
        self._started().seek(at, ReadPosition(offset, leader_epoch, topic_id))
        self._expected[at] = offset
        self._identities[at] = topic_id, leader_epoch

    def _seek_again(self, at: TopicPartition) -> None:
        topic_id, leader_epoch = self._identities[at]
        self.seek(at, self._expected[at], topic_id=topic_id, leader_epoch=leader_epoch)

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Stop fetching these partitions until they are resumed or revoked."""
        named = [TopicPartition(*at) for at in partitions]
        self._paused |= set(named)
        self._started().pause(named)

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Fetch these partitions again."""
        named = [TopicPartition(*at) for at in partitions]
        self._paused -= set(named)
        self._started().resume(named)

    # -- reading --------------------------------------------------------------------------------

    async def next(self, timeout: float) -> list[FetchedBatches | OutOfRange]:  # noqa: ASYNC109
        """Wait up to `timeout` seconds for data and return it; the list can be empty.

        If a position no longer exists, its partition yields only an OutOfRange (Recreated,
        Diverged), again and again until the caller seeks it. Returned batches count as read: the
        position has moved past them.

        Raises:
            ClusterError: the cluster refuses, a batch cannot be read, or fetching has ended.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            if self._rebalances is not None:
                await self._rebalances.run_callbacks()
            if unsought := self._active - self._expected.keys():
                raise RuntimeError(f"assigned and never sought: {sorted(unsought)}")
            consumer = self._started()
            failure = consumer.failure()
            if failure is not None:
                raise ClusterError(f"fetching from {addresses(self._config)} broke off: {failure}")
            left = max(deadline - loop.time(), 0)
            if self._fetching is None:
                self._fetching = loop.create_task(
                    consumer.fetch(
                        timeout_ms=int(left * 1000),
                        portion=_BYTES_AT_ONCE,
                        reached=self._expected,
                    )
                )
            if await self._wait(self._fetching, left):
                fetching, self._fetching = self._fetching, None
                found = self._process(fetching)
                if found or loop.time() >= deadline:
                    return found
            elif loop.time() >= deadline and not self._change_waits():
                return []

    async def arrived(self) -> list[FetchedBatches]:
        """Return what has arrived by now, so that more is fetched; runs no rebalance callback.

        For callers that are busy with other work. If a fetch failed or a position no longer
        exists, this returns nothing, and `next` reports it.

        Raises:
            ClusterError: a batch cannot be read.
        """
        if self._fetching is None:
            fetch = self._started().fetch(
                timeout_ms=0, portion=_BYTES_AT_ONCE, reached=self._expected
            )
            self._fetching = asyncio.get_running_loop().create_task(fetch)
            await asyncio.sleep(0)
        fetching = self._fetching
        if not fetching.done() or fetching.exception() is not None or _position_lost(fetching):
            return []
        self._fetching = None
        return self._process(fetching)

    async def _wait(self, fetching: asyncio.Task[Any], seconds: float) -> bool:
        """Wait for a fetch or a rebalance; return whether the fetch is done."""
        # The fetch ends in time by itself, unless a rebalance delays it. Then a later call takes
        # it, since a cancellation would break aiokafka's bookkeeping.
        seconds += _SLACK_SECONDS
        if self._rebalances is None:
            await asyncio.wait({fetching}, timeout=seconds)
            return fetching.done()
        changed = asyncio.ensure_future(self._rebalances.changed.wait())
        try:
            await asyncio.wait(
                {fetching, changed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
        return fetching.done()

    def _started(self) -> ConsumerPort:
        if self._consumer is None:
            raise RuntimeError("the reader was not started")
        return self._consumer

    def _change_waits(self) -> bool:
        return self._rebalances is not None and self._rebalances.changed.is_set()

    def _process(self, fetching: asyncio.Task[list[list[Fetched]]]) -> list[Any]:
        try:
            fetched = fetching.result()
        except RequestError as error:
            if error.code == Code.NO_OFFSET:
                return []  # fetched before the caller sought it
            if error.traits.retriable:
                _log.warning(
                    "fetch failed, retrying", cluster=addresses(self._config), why=str(error)
                )
                return []
            raise cluster_error(self._config, "reading", error) from error
        return [item for items in fetched for item in self._continuing(items)]

    def _continuing(self, items: list[Fetched]) -> list[FetchedBatches | OutOfRange]:
        """The batches that continue their partition's position; others are fetched again."""
        accepted: list[FetchedBatches | OutOfRange] = []
        at = TopicPartition(items[0].topic, items[0].partition) if items else None
        if at is None or at not in self._active:
            return accepted
        expected = self._expected.get(at)
        topic_id, epoch = self._identities.get(at, (None, -1))
        for item in items:
            if isinstance(item, OutOfRange):
                return [item] if expected in {None, item.offset} else accepted
            if isinstance(item, Unreadable):
                # Deliver what came before it; the next fetch returns it again.
                if accepted:
                    self._seek_again(at)
                    return accepted
                raise ClusterError(
                    f"{at} at offset {item.offset} cannot be read from "
                    f"{addresses(self._config)}: {item.reason}"
                )
            if expected is not None and (
                item.fetched_from != expected
                or (item.topic_id != topic_id and None not in {item.topic_id, topic_id})
            ):
                self._seek_again(at)
                return accepted
            if item.leader_epoch != epoch or topic_id is None:
                topic_id, epoch = self._identities[at] = item.topic_id, item.leader_epoch
            if item.unread is not None:
                _log.warning(
                    "skipping unreadable records",
                    partition=str(at),
                    offsets=f"{item.fetched_from} to {item.next_offset - 1}",
                    why=item.unread,
                )
            self._expected[at] = expected = item.next_offset
            accepted.append(item)
        return accepted

    # -- offsets --------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        """The beginning offset (log start offset) of each partition."""
        return await self._offsets(partitions, self._started().beginning_offsets)

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        """The end offset of each partition, as the reader's isolation level shows it."""
        return await self._offsets(partitions, self._started().end_offsets)

    @property
    def sees_markers(self) -> bool:
        """Whether batches distinguish markers and aborted records from compacted records."""
        return self._started().sees_markers

    @property
    def sees_topic_ids(self) -> bool:
        """Whether every fetch so far was by topic id: then no recreated topic was missed."""
        return self._started().sees_topic_ids

    async def topic_id(self, topic: str) -> str | None:
        """A topic's id; None if client or brokers report none.

        It can be the id of a topic that was just deleted: `next` detects that.
        Raises ClusterError (TopicMissingError).
        """
        with cluster_errors(self._config, "asking for a topic's id"):
            return await self._started().topic_id(topic)

    async def ends(
        self, read: Mapping[tuple[str, int], ReadPosition]
    ) -> dict[tuple[str, int], End]:
        """The partitions' ends, and whether the logs still contain what was read.

        The ends include records that a read_committed reader cannot see yet. No end comes from a
        leader that a broker reports as replaced. The result also contains other partitions of
        these topics that any broker reports. Raises ClusterError.
        """
        if not read:
            return {}
        with cluster_errors(self._config, "asking for offsets"):
            ends = await self._started().ends({TopicPartition(*at): read[at] for at in read})
        return cast("dict[tuple[str, int], End]", ends)

    async def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Commit each partition's next offset; return False if the group rebalanced meanwhile."""
        positions = {TopicPartition(*at): offset for at, offset in offsets.items()}
        try:
            await self._started().commit(positions)
        except RequestError as error:
            if error.code in GROUP_MOVED_ON:
                _log.info("offset commit skipped: the group has rebalanced", why=str(error))
                return False
            raise cluster_error(self._config, "committing offsets", error) from error
        return True

    async def _offsets(
        self,
        partitions: Iterable[tuple[str, int]],
        ask: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]],
    ) -> dict[tuple[str, int], int]:
        wanted = [TopicPartition(*at) for at in partitions]
        if not wanted:
            return {}
        try:
            return cast("dict[tuple[str, int], int]", await ask(wanted))
        except RequestError as error:
            missing: set[str] = set()
            if error.code == Code.GAVE_UP_WAITING:
                with contextlib.suppress(RequestError):
                    missing = {at.topic for at in wanted} - await self._started().topics()
            if missing:
                named = ", ".join(sorted(missing))
                raise TopicMissingError(
                    f"{named}: no such topic at {addresses(self._config)}"
                ) from error
            raise cluster_error(self._config, "asking for offsets", error) from error


def _position_lost(fetching: asyncio.Task[list[list[Fetched]]]) -> bool:
    """Whether a fetch found a position that no longer exists."""
    return any(isinstance(item, OutOfRange) for items in fetching.result() for item in items)
