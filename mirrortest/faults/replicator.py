"""One life of the faulty mirror, from the truth on disk to its end or to a cluster's."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from mirrortest.faults.alteration import Target
from mirrortest.faults.ground_truth import Waiting
from mirrortest.faults.injector import PartitionInjector, Pending
from mirrortest.faults.mirrored_topics import MirroredTopics
from mirrortest.faults.source_records import SourceRecords
from mirrortest.faults.truth_writer import TruthWriter
from mirrortest.faults.unrecorded_writes import UnrecordedWrites, find_unrecorded_writes
from mirrortest.faults.writers import Writers
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.reader import OutOfRange, Reader
from mirrortest.kafka.sender import Sender
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.record_batch import decode_batches

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from mirrortest.faults.injector import Step
    from mirrortest.faults.options import FaultyMirrorOptions
    from mirrortest.kafka.fetched import FetchedBatches

    At = tuple[str, int]

_log = structlog.get_logger()

_POLL_SECONDS = 0.1
_STRETCH_BYTES = 4 << 20
_PROGRESS_SECONDS = 0.5
READY = "the mirror is ready"
"""What the log says once it reads: the lab waits for it."""


class Replicator:
    """Connections, courses and writers from one start to the next end.

    Attributes:
        worked: whether it got as far as mirroring.
    """

    def __init__(self, options: FaultyMirrorOptions, on_progress: Callable[[object], None]) -> None:
        self.worked = False
        self._options = options
        self._on_progress = on_progress
        self._account = TruthWriter(options.truth, options.spec)
        self._courses: dict[At, PartitionInjector] = {}
        self._decoders: dict[str, BatchDecoder] = {}
        self._found = UnrecordedWrites()
        self._sought: dict[At, int] = {}
        """Where each source partition ended when `_found` was made."""
        self._changed = False
        self._source: Admin
        self._destination: Admin
        self._reader: Reader
        self._writers: Writers
        self._topics: MirroredTopics

    async def run(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set or the idle timeout is over, then end in order.

        Raises:
            ClusterError: a cluster is away or refuses; what was done since the last save will be
                found and told by the next life.
        """
        options = self._options
        told = {
            (topic, number): end
            for topic, ends in self._account.truth.ends.items()
            for number, end in ends.items()
        }
        async with contextlib.AsyncExitStack() as stack:
            self._source = await stack.enter_async_context(Admin(options.source))
            self._destination = await stack.enter_async_context(Admin(options.destination))
            self._reader = await stack.enter_async_context(Reader(options.source))
            sender = await stack.enter_async_context(Sender(options.destination))
            self._writers = Writers(sender, options.destination, self._account)
            stack.push_async_callback(self._writers.stop)
            self._topics = MirroredTopics(options, self._source, self._destination)
            await self._look()
            if self._account.resumed_unclean:
                await self._look_back(told)
            _log.info(READY, topics=len(self._topics.partitions), truth=str(options.truth))
            self.worked = True
            await self._work(stop)
            await self._end()

    # -- the loop -------------------------------------------------------------------------------

    async def _work(self, stop: asyncio.Event) -> None:
        options = self._options
        looked = saved = shown = busy = time.monotonic()
        while not stop.is_set():
            items = await self._reader.next(_POLL_SECONDS)
            await self._take(items)
            await self._tick()
            self._writers.check()
            now = time.monotonic()
            busy = now if items else busy
            if now - looked >= options.refresh_interval:
                await self._look()
                looked = time.monotonic()
            if self._changed and now - saved >= options.save_interval:
                await self._save()
                saved = time.monotonic()
            if now - shown >= _PROGRESS_SECONDS:
                self._show()
                shown = now
            if options.idle_timeout is not None and now - busy >= options.idle_timeout:
                if await self._at_end():
                    break
                busy = now  # a machine that stood still: what has come was not fetched yet

    async def _at_end(self) -> bool:
        """Whether all that the source holds has been read."""
        ends = await self._reader.end_offsets(list(self._courses))
        return all(self._account.read(*at).next >= end for at, end in ends.items())

    async def _end(self) -> None:
        """Let go of what is kept back, write everything, and close the truth."""
        for course in self._courses.values():
            await self._put(course.finish(time.monotonic_ns()))
        await self._save(clean=True)
        self._show()

    async def _save(self, *, clean: bool = False) -> None:
        """Wait until what was fed is written, and make the truth of it durable."""
        await self._writers.drained()
        now_ns = time.monotonic_ns()
        for at, course in self._courses.items():
            self._account.read(*at).waiting = [_waiting(each) for each in course.pending(now_ns)]
        self._changed = False
        self._account.save(clean=clean)

    def _show(self) -> None:
        truth, acts = self._account.truth, sum(self._account.done.values())
        read = sum(each.read for found in truth.read.values() for each in found.values())
        written = sum(count for found in truth.written.values() for count in found.values())
        kept = sum(course.kept for course in self._courses.values())
        self._on_progress(
            f"read {read:,}, written {written:,}, acts told {acts:,}, kept back {kept:,}"
        )

    # -- from the source to the destination -----------------------------------------------------

    async def _take(self, items: Iterable[FetchedBatches | OutOfRange]) -> None:
        fetched: dict[At, list[FetchedBatches]] = {}
        for item in items:
            if isinstance(item, OutOfRange):
                await self._out_of_range((item.topic, item.partition), item.offset)
                continue
            if item.unread is not None:
                self._skipped((item.topic, item.partition), item.fetched_from, item.next_offset)
            fetched.setdefault((item.topic, item.partition), []).append(item)
        for at, batches in fetched.items():
            position = self._account.read(*at)
            for part in _in_stretches(batches):
                stretch = self._stretch(at, part, position.next)
                if stretch is not None:
                    await self._put(self._courses[at].feed(stretch, time.monotonic_ns()))
                    position.read += len(stretch)
                position.next = part[-1].next_offset
                self._changed = True
                await self._writers.room()

    async def _tick(self) -> None:
        now_ns = time.monotonic_ns()
        silent = [at for at, course in self._courses.items() if course.is_silent(now_ns)]
        # Silence alone may be a backlog elsewhere: what is held back waits for what is there.
        ends = await self._reader.end_offsets(silent)
        for at, course in self._courses.items():
            if course.kept:
                ended = at in ends and self._account.read(*at).next >= ends[at]
                await self._put(course.tick(now_ns, ended=ended))
        if self._found and not any(course.kept for course in self._courses.values()):
            positions = self._account.truth.read
            if all(positions[t][p].next >= end for (t, p), end in self._sought.items()):
                left = self._found.forget()
                if left:
                    _log.warning("others write to the copies, too", records=left)

    def _stretch(self, at: At, batches: list[FetchedBatches], offset: int) -> SourceRecords | None:
        """The batches' records from an offset on; None where there is none."""
        buffers = [batch.buffer for batch in batches if batch.buffer is not None]
        if not buffers:
            return None
        records = decode_batches(buffers).from_offset(offset)
        if not len(records):
            return None
        decoder = self._decoders.setdefault(at[0], BatchDecoder(at[0]))
        return SourceRecords(*at, records, decoder.decode(records))

    async def _put(self, step: Step) -> None:
        """Queue what comes out, but for what the destination holds already."""
        self._changed = self._changed or bool(step.sendings)
        for note in step.notes:
            self._account.note(note, None, None, None)
        for target, content, notes in step.sendings:
            copy = self._options.mapping.destination_of(target.topic)
            at = (copy, target.partition)
            for piece, offset in self._found.match(at, content):
                if offset is None:
                    self._writers.put(*at, piece, notes)
                    continue
                for note in notes:
                    self._account.note(note, *at, offset)
                self._account.wrote(*at, 1, offset + 1)

    # -- where to read --------------------------------------------------------------------------

    async def _look(self) -> None:
        """Take up new topics and partitions, from where the truth ends."""
        added = await self._topics.refresh()
        if not added:
            return
        await self._remember_ends({topic for topic, _ in added})
        begins = await self._reader.beginning_offsets(added)
        known = self._account.truth.read
        for at in added:
            topic, number = at
            selection = self._topics.selection(topic, number)
            self._courses[at] = PartitionInjector(
                self._options.spec, selection, Target(*at), self._topics.partitions
            )
            if number not in known.get(topic, {}):
                self._account.read(*at).next = begins[at]
        await self._recall(added, begins)
        await self._reader.assign(self._courses)
        for at in added:
            self._reader.seek(at, self._account.read(*at).next)
        await self._save()

    async def _remember_ends(self, topics: Iterable[str]) -> None:
        """Write down where the copies end before anything is written to them."""
        copies = [self._options.mapping.destination_of(topic) for topic in topics]
        counts = await self._destination.partition_counts(copies)
        every = [(copy, number) for copy, count in counts.items() for number in range(count)]
        for (copy, number), end in (await self._destination.end_offsets(every)).items():
            self._account.truth.ends.setdefault(copy, {}).setdefault(number, end)

    async def _recall(self, added: Iterable[At], begins: dict[At, int]) -> None:
        """See again what is kept back, and what a replay may ask for."""
        left: dict[At, int] = {}
        for at in added:
            position = self._account.read(*at)
            floor = position.next - self._courses[at].memory
            floor = min([floor, *(each.offset for each in position.waiting)])
            floor = max(floor, begins[at])
            if floor < position.next:
                left[at] = floor
        if not left:
            return
        ends = await self._reader.end_offsets(left)
        left = {at: floor for at, floor in left.items() if self._account.read(*at).next <= ends[at]}
        await self._reader.assign([*self._courses.keys() - set(added), *left])
        for at, floor in left.items():
            self._reader.seek(at, floor)
        reached = dict(left)
        while reached:
            for item in await self._reader.next(_POLL_SECONDS):
                at = (item.topic, item.partition)
                if at not in left:
                    await self._take([item])
                if at not in reached:
                    continue
                position = self._account.read(*at)
                if isinstance(item, OutOfRange):
                    del reached[at]
                    continue
                stretch = self._stretch(at, [item], reached[at])
                if stretch is not None:
                    upto = stretch.row_from(position.next)
                    if upto:
                        waiting = [_pending(each) for each in position.waiting]
                        now_ns = time.monotonic_ns()
                        self._courses[at].recall(stretch.first(upto), waiting, now_ns)
                reached[at] = item.next_offset
                if item.next_offset >= position.next:
                    del reached[at]

    async def _look_back(self, told: dict[At, int]) -> None:
        """Find what the former life wrote and did not tell."""
        counts = await self._destination.partition_counts(topic for topic, _ in told)
        there = {at: end for at, end in told.items() if at[1] < counts.get(at[0], 0)}
        self._found = await find_unrecorded_writes(
            self._options.destination, self._destination, there
        )
        self._sought = dict(await self._reader.end_offsets(self._courses))

    async def _out_of_range(self, at: At, offset: int) -> None:
        """Go on where there is something: retention overtook, or the topic was made anew."""
        begin = (await self._reader.beginning_offsets([at]))[at]
        position = self._account.read(*at)
        _log.warning(
            "these source offsets are gone",
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
        self._account.truth.skipped.append(entry)


def _in_stretches(batches: list[FetchedBatches]) -> Iterator[list[FetchedBatches]]:
    """Batches of one partition in groups of a size that is worth reading at once."""
    group: list[FetchedBatches] = []
    size = 0
    for batch in batches:
        length = len(batch.buffer) if batch.buffer is not None else 0
        if group and size + length > _STRETCH_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += length
    if group:
        yield group


def _waiting(each: Pending) -> Waiting:
    return Waiting(
        offset=each.offset,
        act=each.act,
        due=each.due,
        left_ns=each.left_ns,
        overtaken=each.overtaken,
        copy_of=each.copy,
    )


def _pending(each: Waiting) -> Pending:
    return Pending(each.offset, each.act, each.due, each.left_ns, each.overtaken, copy=each.copy_of)
