"""Copies records from the source through the injectors to the destination.

When a cluster becomes unreachable, the replicator ends. The next one continues from the truth that
was saved last.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.faults.alteration import Target
from mirrortest.faults.ground_truth import FaultyMirrorReport
from mirrortest.faults.injector import PartitionInjector
from mirrortest.faults.mirrored_topics import MirroredTopics
from mirrortest.faults.source_batch import SourceBatch
from mirrortest.faults.truth_writer import TruthWriter, locked
from mirrortest.faults.unrecorded_writes import UnrecordedWrites, find_unrecorded_writes
from mirrortest.faults.writers import Writers
from mirrortest.host.waiting import set_within
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.fetched import OutOfRange
from mirrortest.kafka.reader import Reader
from mirrortest.kafka.sender import Sender
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.record_batch import decode_batches

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from mirrortest.faults.injector import Output
    from mirrortest.faults.options import FaultyMirrorOptions
    from mirrortest.kafka.fetched import FetchedBatches

    At = tuple[str, int]

_log = structlog.get_logger()

_POLL_SECONDS = 0.1
_GROUP_BYTES = 4 << 20
_PROGRESS_SECONDS = 0.5
READY = "the mirror is ready"
"""Logged when mirroring begins; the lab waits for it."""
_RETRY_SECONDS = 1.0


async def run(
    options: FaultyMirrorOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[object], None] = lambda _: None,
) -> FaultyMirrorReport:
    """Mirror until `stop` is set, or until the source was silent for the idle timeout.

    Raises:
        ClusterError: a cluster cannot be reached at the start.
        UsageError: the truth is of another specification or other clusters, another mirror uses
            its directory, or it cannot be written.
        RefusedError: the destination refuses a record.
        MirrortestError: it was stopped while a cluster was unreachable.
    """
    with locked(options.truth):
        return await _run(options, stop, on_progress)


async def _run(
    options: FaultyMirrorOptions, stop: asyncio.Event, on_progress: Callable[[object], None]
) -> FaultyMirrorReport:
    started_ns = time.monotonic_ns()
    has_mirrored = False
    last_error = ""
    while True:
        replicator = Replicator(options, on_progress)
        try:
            await replicator.run(stop)
            break
        except ClusterError as error:
            has_mirrored = has_mirrored or replicator.has_mirrored
            if not has_mirrored:
                raise
            if str(error) != last_error:  # logged once, however long it lasts
                last_error = str(error)
                _log.warning("mirroring was interrupted", why=last_error)
        if await set_within(stop, _RETRY_SECONDS):
            raise MirrortestError(
                "stopped while a cluster was unreachable, so the truth is incomplete: start again "
                "with the same --truth to complete it"
            )
    return FaultyMirrorReport.of(options.truth, time.monotonic_ns() - started_ns)


class Replicator:
    """Connections, injectors and writers, until the end or until a cluster is unreachable.

    Attributes:
        has_mirrored: whether it began to mirror.
    """

    def __init__(self, options: FaultyMirrorOptions, on_progress: Callable[[object], None]) -> None:
        self.has_mirrored = False
        self._options = options
        self._on_progress = on_progress
        self._truth = TruthWriter(options.truth, options.spec)
        self._injectors: dict[At, PartitionInjector] = {}
        self._decoders: dict[str, BatchDecoder] = {}
        self._unrecorded = UnrecordedWrites()
        self._searched: dict[At, int] = {}
        """The end offset of each source partition when `_unrecorded` was read."""
        self._changed = False
        self._source: Admin
        self._destination: Admin
        self._reader: Reader
        self._writers: Writers
        self._topics: MirroredTopics

    async def run(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set or the idle timeout is over, then end in order.

        Raises:
            ClusterError: a cluster does not answer or refuses; the next replicator finds what was
                written since the last save.
            UsageError: the truth is of other clusters.
        """
        options = self._options
        recorded = {
            (topic, number): end
            for topic, ends in self._truth.summary.ends.items()
            for number, end in ends.items()
        }
        async with contextlib.AsyncExitStack() as stack:
            self._source = await stack.enter_async_context(Admin(options.source))
            self._destination = await stack.enter_async_context(Admin(options.destination))
            self._truth.check_clusters(
                await self._source.cluster_id(), await self._destination.cluster_id()
            )
            self._reader = await stack.enter_async_context(Reader(options.source))
            sender = await stack.enter_async_context(Sender(options.destination))
            self._writers = Writers(sender, options.destination, self._truth)
            stack.push_async_callback(self._writers.stop)
            self._topics = MirroredTopics(options, self._source, self._destination)
            await self._refresh_topics()
            if self._truth.was_killed:
                await self._find_unrecorded(recorded)
            _log.info(READY, topics=len(self._topics.partitions), truth=str(options.truth))
            self.has_mirrored = True
            await self._mirror(stop)
            await self._finish()

    # -- main loop ------------------------------------------------------------------------------

    async def _mirror(self, stop: asyncio.Event) -> None:
        options = self._options
        refreshed = saved = shown = busy = time.monotonic()
        while not stop.is_set():
            items = await self._reader.next(_POLL_SECONDS)
            await self._inject(items)
            await self._tick()
            self._writers.check()
            now = time.monotonic()
            busy = now if items else busy
            if now - refreshed >= options.refresh_interval:
                await self._refresh_topics()
                refreshed = time.monotonic()
            if self._changed and now - saved >= options.save_interval:
                await self._save()
                saved = time.monotonic()
            if now - shown >= _PROGRESS_SECONDS:
                self._show()
                shown = now
            if options.idle_timeout is not None and now - busy >= options.idle_timeout:
                if await self._at_end():
                    break
                busy = now  # this process was suspended: there are records to fetch

    async def _at_end(self) -> bool:
        """Whether the source has been read to its end."""
        ends = await self._reader.end_offsets(list(self._injectors))
        return all(self._truth.read(*at).next >= end for at, end in ends.items())

    async def _finish(self) -> None:
        """Write everything, deferred messages included, and save the complete truth."""
        for injector in self._injectors.values():
            await self._write(injector.finish(time.monotonic_ns()))
        await self._save(clean=True)
        self._show()

    async def _save(self, *, clean: bool = False) -> None:
        """Wait until all output is written, then save the truth."""
        await self._writers.drain()
        now_ns = time.monotonic_ns()
        for at, injector in self._injectors.items():
            self._truth.read(*at).waiting = injector.deferrals(now_ns)
        self._changed = False
        self._truth.save(clean=clean)

    def _show(self) -> None:
        summary, acts = self._truth.summary, sum(self._truth.counts.values())
        read = sum(each.read for found in summary.read.values() for each in found.values())
        written = sum(count for found in summary.written.values() for count in found.values())
        deferred = sum(injector.deferred for injector in self._injectors.values())
        self._on_progress(
            f"read {read:,}, written {written:,}, acts {acts:,}, deferred {deferred:,}"
        )

    # -- from the source to the destination -----------------------------------------------------

    async def _inject(self, items: Iterable[FetchedBatches | OutOfRange]) -> None:
        fetched: dict[At, list[FetchedBatches]] = {}
        for item in items:
            if isinstance(item, OutOfRange):
                await self._out_of_range((item.topic, item.partition), item.offset)
                continue
            if item.unread is not None:
                self._skipped((item.topic, item.partition), item.fetched_from, item.next_offset)
            fetched.setdefault((item.topic, item.partition), []).append(item)
        for at, batches in fetched.items():
            position = self._truth.read(*at)
            for part in _grouped(batches):
                batch = self._batch(at, part, position.next)
                if batch is not None:
                    await self._write(self._injectors[at].feed(batch, time.monotonic_ns()))
                    position.read += len(batch)
                position.next = part[-1].next_offset
                self._changed = True
                await self._writers.wait_for_room()

    async def _tick(self) -> None:
        now_ns = time.monotonic_ns()
        silent = [at for at, injector in self._injectors.items() if injector.is_silent(now_ns)]
        # A silent partition can have unread records: deferred messages wait until they are read.
        ends = await self._reader.end_offsets(silent)
        for at, injector in self._injectors.items():
            if injector.deferred:
                ended = at in ends and self._truth.read(*at).next >= ends[at]
                await self._write(injector.tick(now_ns, ended=ended))
        if self._unrecorded and not any(injector.deferred for injector in self._injectors.values()):
            positions = self._truth.summary.read
            if all(positions[t][p].next >= end for (t, p), end in self._searched.items()):
                remaining = self._unrecorded.clear()
                if remaining:
                    _log.warning("another producer writes to the copies", records=remaining)

    def _batch(self, at: At, batches: list[FetchedBatches], offset: int) -> SourceBatch | None:
        """The batches' records from an offset on; None if there are no records."""
        buffers = [batch.buffer for batch in batches if batch.buffer is not None]
        if not buffers:
            return None
        records = decode_batches(buffers).from_offset(offset)
        if not len(records):
            return None
        decoder = self._decoders.setdefault(at[0], BatchDecoder(at[0]))
        return SourceBatch(*at, records, decoder.decode(records))

    async def _write(self, output: Output) -> None:
        """Queue an injector's output, except records that are in the destination already."""
        self._changed = self._changed or bool(output.writes)
        for fault in output.faults:
            self._truth.record(fault, None, None, None)
        for target, content, faults in output.writes:
            copy = self._options.mapping.destination_of(target.topic)
            at = (copy, target.partition)
            for piece, offset in self._unrecorded.match(at, content):
                if offset is None:
                    self._writers.put(*at, piece, faults)
                    continue
                for fault in faults:
                    self._truth.record(fault, *at, offset)
                self._truth.wrote(*at, 1, offset + 1)

    # -- what to read ---------------------------------------------------------------------------

    async def _refresh_topics(self) -> None:
        """Begin to mirror new topics and partitions, from their positions in the truth."""
        added = await self._topics.refresh()
        if not added:
            return
        await self._remember_ends({topic for topic, _ in added})
        begins = await self._reader.beginning_offsets(added)
        positions = self._truth.summary.read
        for at in added:
            topic, number = at
            selection = self._topics.selection(topic, number)
            self._injectors[at] = PartitionInjector(
                self._options.spec, selection, Target(*at), self._topics.partitions
            )
            if number not in positions.get(topic, {}):
                self._truth.read(*at).next = begins[at]
        await self._recall(added, begins)
        self._skip_lost_deferrals(added)
        await self._reader.assign(self._injectors)
        for at in added:
            self._reader.seek(at, self._truth.read(*at).next)
        await self._save()

    async def _remember_ends(self, topics: Iterable[str]) -> None:
        """Record the end offsets of the copies, before anything is written to them."""
        copies = [self._options.mapping.destination_of(topic) for topic in topics]
        counts = await self._destination.partition_counts(copies)
        every = [(copy, number) for copy, count in counts.items() for number in range(count)]
        for (copy, number), end in (await self._destination.end_offsets(every)).items():
            self._truth.summary.ends.setdefault(copy, {}).setdefault(number, end)

    async def _recall(self, added: Iterable[At], begins: dict[At, int]) -> None:
        """Read again the deferred messages, and those that a replay can repeat."""
        remaining: dict[At, int] = {}
        for at in added:
            position = self._truth.read(*at)
            floor = position.next - self._injectors[at].replay_length
            floor = min([floor, *(each.offset for each in position.waiting)])
            floor = max(floor, begins[at])
            if floor < position.next:
                remaining[at] = floor
        if not remaining:
            return
        ends = await self._reader.end_offsets(remaining)
        remaining = {
            at: floor for at, floor in remaining.items() if self._truth.read(*at).next <= ends[at]
        }
        await self._reader.assign([*self._injectors.keys() - set(added), *remaining])
        for at, floor in remaining.items():
            self._reader.seek(at, floor)
        reached = dict(remaining)
        while reached:
            for item in await self._reader.next(_POLL_SECONDS):
                at = (item.topic, item.partition)
                if at not in remaining:
                    await self._inject([item])
                if at not in reached:
                    continue
                position = self._truth.read(*at)
                if isinstance(item, OutOfRange):
                    del reached[at]
                    continue
                batch = self._batch(at, [item], reached[at])
                if batch is not None:
                    rows = batch.row_from(position.next)
                    now_ns = time.monotonic_ns()
                    self._injectors[at].recall(batch, rows, position.waiting, now_ns)
                reached[at] = item.next_offset
                if item.next_offset >= position.next:
                    del reached[at]

    def _skip_lost_deferrals(self, added: Iterable[At]) -> None:
        """Record the deferred messages that the source no longer has: none of them is written."""
        for at in added:
            recalled = {each.offset for each in self._injectors[at].deferrals(0)}
            for each in self._truth.read(*at).waiting:
                if not each.copy_of and each.offset not in recalled:
                    self._skipped(at, each.offset, each.offset + 1)

    async def _find_unrecorded(self, recorded: dict[At, int]) -> None:
        """Find what a killed replicator wrote and did not record."""
        counts = await self._destination.partition_counts(topic for topic, _ in recorded)
        existing = {at: end for at, end in recorded.items() if at[1] < counts.get(at[0], 0)}
        self._unrecorded = await find_unrecorded_writes(
            self._options.destination, self._destination, existing
        )
        self._searched = dict(await self._reader.end_offsets(self._injectors))

    async def _out_of_range(self, at: At, offset: int) -> None:
        """Continue at the first offset: retention was faster, or the topic was recreated."""
        begin = (await self._reader.beginning_offsets([at]))[at]
        position = self._truth.read(*at)
        _log.warning(
            "source offsets were deleted before they were read",
            partition=f"{at[0]}-{at[1]}",
            offset=offset,
            begin=begin,
        )
        self._skipped(at, offset, begin)
        position.next = begin
        self._reader.seek(at, begin)
        self._changed = True

    def _skipped(self, at: At, lo: int, hi: int) -> None:
        entry = {"topic": at[0], "partition": at[1], "from": lo, "to": hi}
        self._truth.summary.skipped.append(entry)


def _grouped(batches: list[FetchedBatches]) -> Iterator[list[FetchedBatches]]:
    """Batches of one partition in groups that are decoded at once."""
    group: list[FetchedBatches] = []
    size = 0
    for batch in batches:
        length = len(batch.buffer) if batch.buffer is not None else 0
        if group and size + length > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += length
    if group:
        yield group
