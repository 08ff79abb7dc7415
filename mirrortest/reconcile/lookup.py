"""The look-up: read the destination itself, at the offsets that no consumer has read.

It attributes and does not judge: a message found here was mirrored, and no consumer has seen it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.client_config import IsolationLevel
from mirrortest.errors import ClusterError, UsageError
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.fetched import FetchedBatches, OutOfRange
from mirrortest.kafka.reader import Reader
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.reconcile.options import MOST_OFFSETS
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.verify.row import Messages, SeenRow, rows_of, streams_of
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.record_batch import decode_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.reconcile.coverage import ReadOffsets
    from mirrortest.reconcile.incarnations import Place
    from mirrortest.reconcile.plan import Plan
    from mirrortest.wire.stream import StreamId

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0
"""If no partition delivers anything for so long, the remaining ones are given up."""


class OffsetRange(NamedTuple):
    """Offsets [lo, hi) of a partition of a source topic's copy."""

    topic: str
    partition: int
    lo: int
    hi: int


@dataclass
class LookedUp:
    """What was found at offsets that no consumer had read.

    `found` are the seqs by stream; `incomplete` the source topics of which not every such offset
    could be read; `offsets` how many were read; `notes` describe which were not.
    """

    found: dict[StreamId, IntervalSet] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)
    offsets: int = 0
    notes: list[str] = field(default_factory=list)

    def miss(self, topic: str, note: str) -> None:
        """Note that not all of a topic could be read."""
        self.incomplete.add(topic)
        self.notes.append(f"look-up: {topic}: {note}")


def never_read(
    observed: ReadOffsets, counts: Mapping[str, int], others: Collection[Place] = ()
) -> list[OffsetRange]:
    """The offsets that no consumer's log covers, from 0 without an end, of every partition.

    `counts` are the copies' partition counts by source topic. Of a recreated topic it is the last
    incarnation. `others` are partitions whose present log no consumer has read: all is uncovered.
    """
    ranges = []
    for topic, count in sorted(counts.items()):
        for partition in range(count):
            spans = [
                span
                for span in (*observed.read, *observed.unread, *observed.tails)
                if (span.topic, span.partition) == (topic, partition)
            ]
            identity = max((span.newest for span in spans), default=0)
            read = IntervalSet(
                (span.lo, span.hi)
                for span in observed.read
                if (*span[:3],) == (topic, partition, identity) and (topic, partition) not in others
            )
            missing = read.missing(0, ENDLESS)
            ranges += [OffsetRange(topic, partition, lo, hi) for lo, hi in missing.intervals()]
    return ranges


class LookUp:
    """Reads a run's copies where the consumers did not."""

    def __init__(self, client: ClientConfig, plan: Plan, most: int = MOST_OFFSETS) -> None:
        self._client = replace(client, isolation_level=_isolation(client, plan))
        self._plan = plan
        self._most = most

    def check(self) -> None:
        """Check that the cluster answers and is the one that the consumers read.

        Raises:
            ClusterError: it does not answer, or refuses.
            UsageError: it is another cluster.
        """
        asyncio.run(self._check())

    def read(self, observed: ReadOffsets) -> LookedUp:
        """Read what `observed` lacks, up to the copies' present ends.

        A cluster that refuses or no longer answers ends only the look-up: `notes` say why.
        """
        return asyncio.run(self._read(observed))

    async def _check(self) -> None:
        async with Admin(self._client) as admin:
            cluster = await admin.cluster_id()
        known = {
            session.clusters["destination"]
            for _, session in self._plan.of(Role.CONSUMER)
            if "destination" in session.clusters
        }
        if known and cluster not in known:
            raise UsageError(
                f"--bootstrap-server {','.join(self._client.bootstrap_servers)} is cluster "
                f"{cluster}; the consumers read {', '.join(sorted(known))}: name the destination"
            )

    async def _read(self, observed: ReadOffsets) -> LookedUp:
        result = LookedUp()
        try:
            await self._search(observed, result)
        except ClusterError as error:
            result.incomplete |= set(observed.partitions)
            result.notes.append(f"look-up: not finished: {error}")
        return result

    async def _search(self, observed: ReadOffsets, result: LookedUp) -> None:
        """Add what is found to `result`. Raises ClusterError."""
        destinations = self._plan.destinations
        async with Admin(self._client) as admin:
            here = self._read_here(await admin.cluster_id())
            there = await admin.partition_counts(destinations.values())
            counts = {}
            for topic in sorted(observed.partitions):
                copy = destinations.get(topic)
                if copy is not None and topic not in here:
                    result.miss(topic, "its consumers read another cluster")
                elif copy in there:
                    counts[topic] = there[copy]
                elif copy is None:
                    result.miss(topic, "no consumer's log has the name of its copy")
                elif any(span.topic == topic and span.hi for span in observed.read):
                    result.miss(topic, f"{copy} does not exist any more")
            copies = {
                TopicPartition(destinations[topic], number): topic
                for topic, count in counts.items()
                for number in range(count)
            }
            begins = await admin.beginning_offsets(copies)
            ends = await admin.end_offsets(copies)
        if not copies:
            return
        async with Reader(self._client) as reader:
            ids = {copy: await reader.topic_id(copy) for copy in {at.topic for at in copies}}
            others = self._others(
                observed,
                {(topic, at.partition): (ids[at.topic], ends[at]) for at, topic in copies.items()},
                result,
            )
            todo = self._clipped(
                never_read(observed, counts, others),
                {(topic, at.partition): begins[at] for at, topic in copies.items()},
                {(topic, at.partition): ends[at] for at, topic in copies.items()},
                result,
            )
            if todo:
                await _Reading(reader, self._plan.run, destinations, ids, todo, result).all()

    def _read_here(self, cluster: str) -> set[str]:
        """The source topics whose copies consumers read in this cluster, or in an unknown one."""
        return {
            topic
            for _, session in self._plan.of(Role.CONSUMER)
            if session.clusters.get("destination", cluster) == cluster
            for topic in session.topics
        }

    def _others(
        self,
        observed: ReadOffsets,
        now: Mapping[Place, tuple[str | None, int]],
        result: LookedUp,
    ) -> set[Place]:
        """The partitions whose present log, of this topic id and end, no consumer has read.

        Unread offsets of a log that was replaced, then or since, cannot be read any more: these
        topics are noted in `result`.
        """
        read_to: dict[Place, tuple[int, int]] = {}
        for span in (*observed.read, *observed.unread, *observed.tails):
            at = (span.topic, span.partition)
            # After a span without an end, nothing was read of the next incarnation.
            reached = span.newest, 0 if span.newest > span.identity else span.hi
            read_to[at] = max(read_to.get(at, (0, 0)), reached)
        last_ids, others = self._plan.last_ids, set()
        replaced = {topic for (topic, _), (newest, _) in read_to.items() if newest > 0}
        for at, (topic_id, end) in now.items():
            if topic_id != last_ids.get(at, topic_id) or end < read_to.get(at, (0, 0))[1]:
                others.add(at)
                replaced.add(at[0])
        for topic in sorted(replaced):
            result.miss(topic, "recreated or truncated; its earlier messages cannot be read")
        return others

    def _clipped(
        self,
        ranges: Iterable[OffsetRange],
        begins: Mapping[tuple[str, int], int],
        ends: Mapping[tuple[str, int], int],
        result: LookedUp,
    ) -> list[OffsetRange]:
        """The parts of the ranges to read: those that still exist, up to the limit of offsets."""
        kept, left = [], self._most
        for each in ranges:
            at = (each.topic, each.partition)
            lo, hi = max(each.lo, begins[at]), min(each.hi, ends[at])
            if each.lo < min(begins[at], each.hi):
                result.miss(
                    each.topic,
                    f"partition {each.partition}: offsets {each.lo} to "
                    f"{min(begins[at], each.hi) - 1} no longer exist",
                )
            if lo >= hi:
                continue
            if hi - lo > left:
                result.miss(
                    each.topic,
                    f"partition {each.partition}: offsets {lo + left} to {hi - 1} are beyond the "
                    f"limit of {self._most:,} offsets",
                )
                hi = lo + left
            left -= hi - lo
            if lo < hi:
                kept.append(each._replace(lo=lo, hi=hi))
        return kept


def _isolation(client: ClientConfig, plan: Plan) -> IsolationLevel:
    """The consumers' isolation level; read_committed if they differ: aborted is not delivered."""
    levels = {
        level
        for _, session in plan.of(Role.CONSUMER)
        if (level := session.client.get("isolation.level")) is not None
    }
    if not levels:
        return client.isolation_level
    return IsolationLevel(levels.pop()) if len(levels) == 1 else IsolationLevel.READ_COMMITTED


class _Reading:
    """One pass over ranges: all partitions at once, each partition's ranges in their order."""

    def __init__(
        self,
        reader: Reader,
        run: str,
        destinations: Mapping[str, str],
        ids: Mapping[str, str | None],
        ranges: Sequence[OffsetRange],
        result: LookedUp,
    ) -> None:
        self._reader = reader
        self._run = run
        self._result = result
        self._ids = ids
        self._todo: dict[TopicPartition, list[OffsetRange]] = {}
        for each in ranges:
            at = TopicPartition(destinations[each.topic], each.partition)
            self._todo.setdefault(at, []).append(each)
        self._decoders = {each.topic: BatchDecoder(each.topic) for each in ranges}

    async def all(self) -> None:
        """Read until nothing is left. Raises ClusterError."""
        await self._reader.assign(self._todo)
        for at in list(self._todo):
            self._go_on(at)
        quiet = 0.0
        while self._todo:
            found = await self._reader.next(_POLL_SECONDS)
            quiet = 0.0 if found else quiet + _POLL_SECONDS
            if quiet > _PATIENCE_SECONDS:
                note = f"the destination returned nothing for {_PATIENCE_SECONDS:g} s"
                for ranges in self._todo.values():
                    self._result.miss(ranges[0].topic, note)
                return
            for item in found:
                at = TopicPartition(item.topic, item.partition)
                if at not in self._todo:
                    continue
                if isinstance(item, OutOfRange):
                    await self._pass_over(at)
                else:
                    self._take(at, item)

    def _go_on(self, at: TopicPartition) -> None:
        """Seek to the partition's next range; without one, pause the partition."""
        if self._todo[at]:
            self._reader.seek(at, self._todo[at][0].lo, topic_id=self._ids[at.topic])
        else:
            del self._todo[at]
            self._reader.pause([at])

    async def _pass_over(self, at: TopicPartition) -> None:
        """Go on with what still exists, after a position that does not."""
        begin = (await self._reader.beginning_offsets([at]))[at]
        ranges, self._todo[at] = self._todo[at], []
        lost = begin <= ranges[0].lo  # not deleted from the beginning: all of it is another log
        for each in ranges:
            if lost or each.lo < begin:
                last = (each.hi if lost else min(begin, each.hi)) - 1
                note = f"partition {at.partition}: offsets {each.lo} to {last} no longer exist"
                self._result.miss(each.topic, note)
            if not lost and each.hi > begin:
                self._todo[at].append(each._replace(lo=max(each.lo, begin)))
        self._go_on(at)

    def _take(self, at: TopicPartition, batch: FetchedBatches) -> None:
        current = self._todo[at][0]
        if batch.fetched_from != current.lo:
            return  # it was fetched before the last seek
        for row in self._rows(current.topic, batch):
            lo, hi = max(row.offset_lo, current.lo), min(row.offset_hi, current.hi)
            if row.stream is not None and lo < hi:
                first = row.seq_lo + lo - row.offset_lo
                seqs = self._result.found.setdefault(row.stream, IntervalSet())
                seqs.add(first, first + hi - lo)
        reached = min(batch.next_offset, current.hi)
        if batch.unread is not None:
            offsets = f"offsets {current.lo} to {reached - 1}"
            self._result.miss(current.topic, f"partition {at.partition}: {offsets}: {batch.unread}")
        self._result.offsets += reached - current.lo
        self._todo[at][0] = current._replace(lo=reached)
        if reached >= current.hi:
            self._todo[at].pop(0)
            self._go_on(at)

    def _rows(self, topic: str, batch: FetchedBatches) -> Iterator[SeenRow]:
        if batch.buffer is None:
            return
        found = self._decoders[topic].decode(decode_records(batch.buffer))
        streams, index, findings = streams_of(
            topic, self._run, found.ids, found.id_index, found.lane, found.findings
        )
        yield from rows_of(
            Messages(
                streams,
                index,
                found.seq,
                found.offset,
                found.intended_ns,
                found.sent_ns,
                findings,
                batch.arrived_ns,
            )
        )
