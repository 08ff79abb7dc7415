"""Random histories of a fetcher in virtual time, with the checks of each.

The real `Fetcher` and `Identity`, and aiokafka's subscriptions and cluster metadata, run against
simulated brokers (`fetch_brokers`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from aiokafka.consumer.subscription_state import SubscriptionState

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast import fetcher as fetcher_module
from mirrortest.kafka.fast import identity as identity_module
from mirrortest.kafka.fast.fetcher import Fetcher
from mirrortest.kafka.fast.identity import Identity
from mirrortest.kafka.fast.requests import EpochEnd, FetchLimits
from mirrortest.kafka.fetched import (
    Diverged,
    FetchedBatches,
    OutOfRange,
    ReadPosition,
    Recreated,
    Unreadable,
)
from mirrortest.model.topic_partition import TopicPartition
from tests.oracle.tape import Tape
from tests.simulation.loop import SimulationLoop
from tests.unit.fetch_brokers import (
    BACKOFF,
    LONG_POLL,
    MAX_BYTES,
    NODES,
    PARTITION_BYTES,
    PARTITIONS,
    REQUEST_SECONDS,
    Batch,
    Brokers,
    Client,
)

FAULT_SECONDS, CALM_SECONDS = 8.0, 12.0
"""How long faults occur, and within which time after them everything must be read."""
REBALANCED = 7.5
"""The last rebalance of a group ends at least this long before the end of that time."""
TORN_READS, MOST_REPEATED = 3, 20
EARLY = 1e-3

FAULTS = {
    *("broken", "not sent", "lost", "late", "refused whole", "partition missing", "torn"),
    *("not connected", "redirected", "cut off", "offline", "out of range at a follower"),
    *("out of range", "recreated", "diverged", "not authorized", "unreadable"),
    *("elected", "cut back", "records deleted", "topic deleted", "rebalanced", "reassigned"),
    *("paused", "resumed", "sought", "leaderless", "metadata failed", "closed early", "by name"),
    "throttled",
    *(f"code {code}" for code in (1, 6, 29, 56, 74, 75, 100)),
}
"""Each of these occurs somewhere in the test's histories."""


@dataclass(eq=False)
class Run:
    """What is read from a partition after one seek."""

    place: ReadPosition
    next: int
    epoch: int
    batches: list[bytes] = field(default_factory=list)
    answers: int = 0
    """Answers with records since the fetcher last returned any."""
    request: int = 0
    """The number of the last request for it."""


@dataclass
class History:
    """One consumer's reads, with checks of its requests and of what it gets."""

    tape: Tape
    loop: SimulationLoop = field(default_factory=SimulationLoop)

    def __post_init__(self) -> None:
        self.failures: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self.runs: dict[TopicPartition, Run] = {}
        self.paused: set[TopicPartition] = set()
        self.asked: dict[int, dict[TopicPartition, tuple[Run, int]]] = {}
        self.requests = 0
        self.progress = 0.0
        self.answers = self.early = 0
        self.refused: dict[TopicPartition, float] = {}
        """When the last answer for a partition was an error; a seek clears it."""
        self.sources: dict[TopicPartition, dict[int, float]] = defaultdict(dict)
        """Brokers that redirected the consumer, and when."""
        self.broken: dict[int, float] = {}

    # -- requests ---------------------------------------------------------------------------------

    def expect(self, condition: bool, otherwise: str) -> None:
        """Assert in a callback, where a raised exception would be caught."""
        if not condition:
            self.failures.append(f"{self.loop.time():.3f} {otherwise}")

    def contacted(self, node: int) -> None:
        waited = self.loop.time() - self.broken.pop(node, -1)
        self.expect(waited > BACKOFF - EARLY, f"broker {node} is asked again after {waited} s")

    def failed(self, node: int) -> None:
        self.broken[node] = self.loop.time()
        self.asked.pop(node, None)
        self.sources.clear()

    def requested(self, node: int, positions: list[Any]) -> None:
        self.contacted(node)
        numbers = {each[1] for each in positions}
        self.expect(not self.closed, "asked after the end")
        self.expect(node not in self.asked, "two requests at once")
        _, kept = self.fetcher._places.wanted()
        self.expect(node not in kept, "asked before its last answer was taken")
        self.requests += 1
        runs = {at: run for at, run in self.runs.items() if at.partition in numbers}
        self.asked[node] = {at: (run, self.requests) for at, run in runs.items()}
        for run in runs.values():
            run.request = self.requests
        now = self.loop.time()
        for _, number, _, offset, _ in positions:
            at = TopicPartition("t", number)
            self.expect(at in self.runs and at not in self.paused, "asked in vain")
            self.expect(self.runs[at].next == offset, "asked elsewhere")
            for since in (self.refused.pop(at, -1), self.sources[at].pop(node, -1)):
                waited = now - since
                self.expect(waited > BACKOFF - EARLY, f"{at} is asked for again after {waited} s")

    def ended(self, node: int, answer: asyncio.Future[Any]) -> None:
        asked = self.asked.pop(node)
        self.answers += 1
        if answer.exception() is not None:
            self.failed(node)
            return
        response, now = answer.result(), self.loop.time()
        if response.throttle_time_ms:
            self.broken[node] = now + response.throttle_time_ms / 1000 - BACKOFF
            return
        parts = {part[0]: part for _, some in response.topics for part in some}
        for at, (run, number) in asked.items():
            if self.runs.get(at) is not run or run.request != number:
                continue
            part = parts.get(at.partition)
            diverged = any(each == at.partition for _, each in response.diverging)
            if part is None or part[1] or diverged:
                self.refused[at] = now
                self.denied |= part is not None and part[1] == Code.TOPIC_AUTHORIZATION_FAILED
            elif part[6] >= 0:
                self.sources[at][node] = now
            elif part[7]:
                self.sources[at].clear()
                run.answers += 1
                self.expect(run.answers < MOST_REPEATED, "the same is fetched again and again")

    # -- reads ------------------------------------------------------------------------------------

    async def play(self) -> None:
        loop, tape = self.loop, self.tape
        self.closed = False
        self.brokers = brokers = Brokers(tape, loop)
        if not brokers.by_id:
            brokers.seen["by name"] += 1
        self.client = Client(brokers, self)
        self.subscriptions = SubscriptionState(loop=loop)
        self.identity = Identity(self.client)
        self.client.cluster.update_metadata(brokers.metadata(1))
        limits = FetchLimits(
            500, 1, MAX_BYTES, PARTITION_BYTES, tape.one_in(2), "r" * brokers.followers
        )
        self.fetcher = Fetcher(self.client, self.subscriptions, self.identity, limits)  # type: ignore[arg-type]  # it plays one
        self.fetcher.start()
        self.group = tape.one_in(2)
        if self.group:
            self.subscriptions.subscribe(topics={"t"})
        self._reassign()
        begun = loop.time()
        for at in PARTITIONS:
            for _ in range(3 + tape.below(8)):
                loop.call_later(0.03 * tape.below(250), brokers.append, at)
        for _ in range(tape.below(9)):
            loop.call_later(0.03 * tape.below(250), self._disturb)
        loop.call_later(FAULT_SECONDS, brokers.settle)
        if self.group:  # during a long fetch; records arrive meanwhile
            loop.call_later(FAULT_SECONDS + 3.2, self._rebalance)
            for at in PARTITIONS:
                loop.call_later(FAULT_SECONDS + 3.3, brokers.append, at)
        if tape.one_in(10):
            loop.call_later(0.03 * tape.below(250), self._close)
        while loop.time() < begun + FAULT_SECONDS and not self.closed:
            await self._step()
        if self.paused:
            self.fetcher.resume(self.paused)
            self.paused.clear()
        until = begun + FAULT_SECONDS + CALM_SECONDS
        while loop.time() < until and not self.closed:
            if self._all_read() and (not self.group or loop.time() > until - REBALANCED):
                break
            await self._take(30.0, 1 << 20)
        if not self.closed:
            assert self._all_read(), f"not read to the end: {self.runs} of {self.brokers.terms}"
            assert self.progress < until
            assert self.fetcher.failure is None
            before = self.requests
            await self._take(5.0, 1 << 20)
            assert self.requests - before <= len(NODES) * 5 / LONG_POLL + 6
            self._close()
        await asyncio.sleep(REQUEST_SECONDS + 1)

    def _close(self) -> None:
        if not self.closed:
            if self.loop.time() < 1000 + FAULT_SECONDS:
                self.brokers.seen["closed early"] += 1
            self.closed = True
            self.fetcher.close()

    def _disturb(self) -> None:
        brokers, tape = self.brokers, self.tape
        at = tape.pick(PARTITIONS)
        what = tape.below(10)
        if what < 3:
            brokers.elect(at)
        elif what < 5:
            brokers.elect(at, cut=1 + tape.below(3))
        elif what == 5:
            brokers.delete_records(at)
        elif what == 6:
            brokers.recreate()
        elif what == 7:
            brokers.preferred[at], brokers.lag = tape.pick(NODES), tape.below(3)
        elif not self.group:
            brokers.seen["reassigned"] += 1
            self._reassign()
        else:
            self._rebalance()

    def _rebalance(self) -> None:
        if not self.subscriptions.reassignment_in_progress:
            self.brokers.seen["rebalanced"] += 1
            self.subscriptions.begin_reassignment()
            self.loop.call_later(self.tape.pick([0.3, 0.05, 1.0]), self._reassign)

    def _reassign(self) -> None:
        """Assign other partitions or the same; each continues where its reading ended."""
        wanted = [at for at in PARTITIONS if not self.tape.one_in(4)] or PARTITIONS
        before, self.runs, self.denied = self.runs, {}, False
        for at, run in before.items():
            self._check(at, run)
        if self.group:
            self.subscriptions.assign_from_subscribed(set(wanted))
        else:
            self.subscriptions.assign_from_user(wanted)
        self.paused.clear()
        for at in wanted:
            read = before.get(at)
            if read is None:
                self._seek(
                    at, ReadPosition(0, -1, self.brokers.ids[-1] if self.brokers.by_id else None)
                )
            else:
                self._seek(at, ReadPosition(read.next, read.epoch, read.place.topic_id))

    async def _step(self) -> None:
        tape = self.tape
        what = tape.below(12)
        at = tape.pick(PARTITIONS)
        if what == 1 and at in self.runs:
            self.brokers.seen["sought"] += 1
            self._seek_anywhere(at)
        elif what in {2, 3} and at in self.runs:
            self.brokers.seen["paused"] += 1
            self.paused.add(at)
            self.fetcher.pause([at])
        elif what in {4, 5, 6} and self.paused:
            self.brokers.seen["resumed"] += 1
            self.fetcher.resume(self.paused)
            self.paused.clear()
        elif what == 7:
            await asyncio.sleep(0.05 * tape.below(20))
        await self._take(tape.pick([0.2, 0.0, 1.0, 5.0]), tape.pick([1 << 20, 1, 300]))
        await asyncio.sleep(0.001)

    async def _take(self, seconds: float, portion: int) -> None:
        assert not self.failures, self.failures
        begun = self.loop.time()
        try:
            found = await self.fetcher.fetched(seconds, portion)
        except RequestError as error:
            self.expect(error.code == Code.TOPIC_AUTHORIZATION_FAILED, "another error")
            self.expect(self.denied, "refused where it does not read any more")
            self.brokers.seen["not authorized"] += 1
            return
        assert not (found and self.subscriptions.reassignment_in_progress)
        self.early += not found and self.loop.time() < begun + seconds - EARLY and not self.closed
        returned = [
            len(item.buffer or b"")
            for items in found
            for item in items
            if isinstance(item, FetchedBatches)
        ]
        assert sum(returned[:-1]) < portion
        for items in found:
            self.progress = self.loop.time()
            self._record(items)

    def _record(self, items: list[Any]) -> None:
        at = TopicPartition(items[0].topic, items[0].partition)
        assert at not in self.paused
        run = self.runs[at]
        run.answers = 0
        for item in items:
            assert tuple(at) == (item.topic, item.partition)
            if isinstance(item, OutOfRange):
                assert len(items) == 1
                assert item.offset == run.next
                self._lost(at, run, item)
            elif isinstance(item, Unreadable):
                self.brokers.seen["unreadable"] += 1
                assert item.torn
                torn = self.brokers.torn.items()  # each leader's batch is counted separately
                reads = [n for data, n in torn if int.from_bytes(data[:8], "big") <= item.offset]
                assert sum(reads) >= TORN_READS
            else:
                assert item.fetched_from == run.next
                topic_id = run.place.topic_id
                if topic_id is None and item.topic_id is not None:
                    run.place = run.place._replace(topic_id=item.topic_id)
                assert item.topic_id == run.place.topic_id
                run.next, run.epoch = item.next_offset, item.leader_epoch
                run.batches += _split(item.buffer)

    def _lost(self, at: TopicPartition, run: Run, item: OutOfRange) -> None:
        """Check that the report is true, and mostly seek at once."""
        brokers, ids = self.brokers, self.brokers.ids
        topic_ids = ids if run.place.topic_id is None else [run.place.topic_id]
        kind = type(item)
        brokers.seen[
            {OutOfRange: "out of range", Recreated: "recreated"}.get(kind, "diverged")
        ] += 1
        if isinstance(item, Recreated):
            assert any(ids.index(each) < ids.index(item.topic_id) for each in topic_ids)
            place = ReadPosition(0, -1, item.topic_id)
        elif isinstance(item, Diverged):
            end = EpochEnd(item.leader_epoch, item.end_offset)
            assert any((kind, at, each, item.offset, end) in brokers.reported for each in topic_ids)
            place = ReadPosition(item.end_offset, item.leader_epoch, run.place.topic_id)
        else:
            named = topic_ids if brokers.by_id else ids
            assert any((kind, at, each, item.offset) in brokers.reported for each in named)
            term = brokers.terms[at]
            start = 0 if term is None else term.start
            place = ReadPosition(start, -1, run.place.topic_id)
        if brokers.calm or not self.tape.one_in(4):
            self._seek(at, place)

    def _seek_anywhere(self, at: TopicPartition) -> None:
        term = self.brokers.terms[at]
        if term is None:
            return
        before = [batch for batch in term.batches if batch.next > term.start]
        batch = self.tape.pick([Batch(0, term.start, -1, b""), *before])
        topic_id = None if self.tape.one_in(3) or not self.brokers.by_id else term.topic_id
        epoch = batch.epoch if self.tape.one_in(2) else -1
        self._seek(
            at,
            ReadPosition(
                batch.next - self.tape.one_in(3) * (epoch < 0 < batch.next), epoch, topic_id
            ),
        )

    def _seek(self, at: TopicPartition, place: ReadPosition) -> None:
        if at in self.runs:
            self._check(at, self.runs[at])
        self.runs[at] = Run(place, place.offset, place.leader_epoch)
        self.refused.pop(at, None)
        self.sources.pop(at, None)
        self.fetcher.seek(at, place)

    # -- checks -----------------------------------------------------------------------------------

    def _check(self, at: TopicPartition, run: Run) -> None:
        """All batches since a seek are contiguous in one log, from the sought offset on."""
        if not run.batches:
            assert run.next == run.place.offset
            return
        for term in self.brokers.all_terms[at]:
            if self.brokers.by_id and term.topic_id != run.place.topic_id:
                continue
            log = [batch.data for batch in term.batches if batch.next > run.place.offset]
            if log[: len(run.batches)] == run.batches:
                break
        else:
            raise AssertionError(f"{at}: no log has this from {run.place.offset} on")

    def _all_read(self) -> bool:
        return all(
            (term := self.brokers.terms[at]) is not None
            and run.place.topic_id in {None, term.topic_id}
            and run.next == term.end
            for at, run in self.runs.items()
        )

    def check(self) -> None:
        for at, run in self.runs.items():
            self._check(at, run)
        assert self.early <= self.answers, "it returned early with nothing"


def _split(buffer: Any) -> list[bytes]:
    """A buffer's batches."""
    found, at = [], 0
    while at < len(buffer):
        stop = at + 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")
        found.append(bytes(buffer[at:stop]))
        at = stop
    return found


def played(tape: bytes) -> History:
    """Play a tape's history, and check it."""
    history = History(Tape(tape))
    clock = SimpleNamespace(monotonic=history.loop.time, time_ns=time.time_ns)
    with ExitStack() as patches:
        for module in (fetcher_module, identity_module):
            patches.enter_context(patch.object(module, "time", clock))
        try:
            history.loop.run_until_complete(history.play())
            history.check()
        finally:
            history.loop.put_away()
    assert not history.failures
    return history
