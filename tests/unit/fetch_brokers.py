"""Simulated brokers with logs and elections, and a client that fetches from them.

They check topic ids, leader epochs and offsets as Kafka's brokers do. A tape decides what fails.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaConnectionError

from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.frames import Section
from mirrortest.kafka.fast.requests import EpochEnd, FetchResponse
from mirrortest.kafka.fetched import Diverged, OutOfRange
from mirrortest.model.topic_partition import TopicPartition
from tests.unit.test_kafka_fast import batch_bytes

if TYPE_CHECKING:
    from tests.oracle.tape import Tape
    from tests.simulation.loop import SimulationLoop

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
NODES = (1, 2, 3)
REQUEST_SECONDS, BACKOFF, LONG_POLL = 2.0, 0.1, 0.5
METADATA_MS = 300_000
MAX_BYTES, PARTITION_BYTES = 900, 500
UNKNOWN_SERVER_ERROR = -1


class Batch(NamedTuple):
    """One batch of a log."""

    base: int
    next: int
    epoch: int
    data: bytes


@dataclass
class Term:
    """A partition's log under one leader, which copied the previous leader's log."""

    topic_id: str
    leader: int
    epoch: int = 0
    batches: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(leader epoch, its first offset)"""
    start: int = 0
    end: int = 0

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The newest epoch not above this one, and its end offset."""
        last = max((each for each, _ in self.epochs if each <= epoch), default=epoch)
        return EpochEnd(
            last, min((at for each, at in self.epochs if each > epoch), default=self.end)
        )

    def successor(self, leader: int, cut: int) -> Term:
        """The log of the next leader, without the last `cut` batches."""
        kept = self.batches[: max(len(self.batches) - cut, 0)]
        kept += [each for each in self.batches[len(kept) :] if each.next <= self.start]
        end = (
            self.end
            if len(kept) == len(self.batches)
            else max(self.start, *(each.next for each in kept), 0)
        )
        epochs = [each for each in self.epochs if each[1] < end]
        made = Term(self.topic_id, leader, self.epoch + 1, kept, epochs, self.start, end)
        made.epochs.append((made.epoch, end))
        return made


class Brokers:
    """All brokers and the network; the tape decides what fails."""

    def __init__(self, tape: Tape, loop: SimulationLoop) -> None:
        self.tape, self.loop = tape, loop
        self.seen: Counter[str] = Counter()
        self.calm = False
        self.by_id = not tape.one_in(8)
        self.followers = tape.one_in(3)
        """Whether leaders redirect the consumer to a follower."""
        self.ids = ["i"]
        first = [Term("i", NODES[at.partition % 2]) for at in PARTITIONS]
        self.terms: dict[TopicPartition, Term | None] = dict(zip(PARTITIONS, first, strict=True))
        self.all_terms: dict[TopicPartition, list[Term]] = {
            at: [term] for at, term in zip(PARTITIONS, first, strict=True)
        }
        self.views = {node: dict(self.terms) for node in NODES}
        """What each broker has learned of the partitions so far."""
        self.offline: set[tuple[int, TopicPartition]] = set()
        self.preferred: dict[TopicPartition, int] = {
            at: tape.pick(NODES[::-1]) for at in PARTITIONS
        }
        self.lag = 0
        self.reported: set[tuple[Any, ...]] = set()
        """Positions that a leader reported as not existing."""
        self.torn: Counter[bytes] = Counter()
        self.rotten: set[bytes] = set()
        """Batches that are torn in every answer until the faults end."""
        self.appended = 0

    # -- what happens to logs ---------------------------------------------------------------------

    def append(self, at: TopicPartition) -> None:
        term = self.terms[at]
        if term is None or term.leader < 0:
            return
        base = term.end + (self.tape.one_in(5) and bool(term.batches))
        values = [b"%d %d" % (self.appended, each) for each in range(1 + self.tape.below(3))]
        values[0] += b"." * self.tape.pick([20, 200, 700])
        self.appended += 1
        data = bytearray(batch_bytes(base, values))
        data[12:16] = term.epoch.to_bytes(4, "big")
        term.end = base + len(values)
        term.batches.append(Batch(base, term.end, term.epoch, bytes(data)))

    def elect(self, at: TopicPartition, cut: int = 0) -> None:
        """Elect a leader, perhaps after a while without one; it may lack the last batches."""
        term = self.terms[at]
        if term is None:
            return
        if self.tape.one_in(4) and not self.calm:
            self.seen["leaderless"] += 1
            self.loop.call_later(0.3, self.elect, at)
            leader = -1
        else:
            leader = self.tape.pick([each for each in NODES if each != term.leader])
            self.offline.discard((leader, at))
        if self.tape.one_in(3) and term.leader > 0:
            self.offline.add((term.leader, at))
            self.seen["offline"] += 1
        cut = min(cut, len(term.batches)) if self.by_id else 0
        self.seen["cut back" if cut else "elected"] += 1
        self.spread({at: term.successor(leader, cut)})

    def delete_records(self, at: TopicPartition) -> None:
        term = self.terms[at]
        if term is not None and term.end:
            term.start = max(term.start, term.end - self.tape.below(3))
            self.seen["records deleted"] += 1

    def recreate(self) -> None:
        if not self.by_id:
            return
        self.seen["topic deleted"] += 1
        if self.tape.one_in(2):
            self.spread(dict.fromkeys(PARTITIONS))
            self.loop.call_later(0.4, self._create)
        else:
            self._create()

    def _create(self) -> None:
        self.ids.append(f"{self.ids[-1]}i")
        self.offline.clear()
        self.spread({at: Term(self.ids[-1], self.tape.pick(NODES)) for at in PARTITIONS})

    def spread(self, terms: Any) -> None:
        """Inform the brokers: new leaders at once, others perhaps later."""
        for at, term in terms.items():
            self.terms[at] = term
            if term is not None:
                self.all_terms[at].append(term)
        leaders = {term.leader for term in terms.values() if term is not None}
        for node in NODES:
            late = self.by_id and node not in leaders and not self.calm
            self.loop.call_later(
                self.tape.pick([0, 0, 0.05, 0.5, 2.0]) if late else 0, self._hear, node, terms
            )

    def _hear(self, node: int, terms: Any) -> None:
        for at, term in terms.items():
            if self.calm or term is self.terms[at] or self.views[node][at] is not self.terms[at]:
                self.views[node][at] = self.terms[at] if self.calm else term

    def settle(self) -> None:
        """End all faults."""
        self.calm, self.lag = True, 0
        self.rotten.clear()
        for at, term in self.terms.items():
            if term is not None and term.leader < 0:
                self.elect(at)
        for view in self.views.values():
            view.update(self.terms)

    # -- what brokers answer ----------------------------------------------------------------------

    def metadata(self, node: int) -> Any:
        known = [(at, term) for at, term in self.views[node].items() if term is not None]
        newest = max((term.topic_id for _, term in known), default="", key=len)
        view = {at: term for at, term in known if term.topic_id == newest}
        partitions: list[Any] = [
            (0, at.partition, term.leader, [1], [1], []) for at, term in view.items()
        ]
        # Broker 3 is still starting: the first answer lacks it.
        brokers = [(each, "h", 1, None) for each in NODES if each != 3 or self.seen["metadata"]]
        self.seen["metadata"] += 1
        return SimpleNamespace(
            API_VERSION=12 if self.by_id else 5,
            brokers=brokers,
            controller_id=1,
            topics=[(0, "t", False, partitions)] if view else [(3, "t", False, [])],
            topic_ids={"t": newest} if view else {},
            leaders={("t", at.partition): (term.epoch, term.leader) for at, term in view.items()},
        )

    def fetch(
        self, node: int, positions: list[Any], torn: bool
    ) -> tuple[list[Any], dict[Any, Any]]:
        """Answers by partition, (partition, code, ..., replica, records), and diverging epochs."""
        found: list[Any] = []
        diverging: dict[Any, Any] = {}
        left = MAX_BYTES
        for key, number, epoch, offset, last in positions:
            at = TopicPartition("t", number)
            code, end, replica, batches = self._read(node, at, key, epoch, offset, last)
            if end is not None:
                diverging[key, number] = end
            records = bytearray()
            limit = min(left, PARTITION_BYTES)
            for batch in batches:
                if len(records) + len(batch.data) > limit and (records or left < MAX_BYTES):
                    if records:
                        records += batch.data[: limit - len(records)]
                        self.seen["cut off"] += 1
                    break
                data = bytearray(batch.data)
                if torn or batch.data in self.rotten:
                    torn, data[-1] = False, data[-1] ^ 1
                    self.torn[batch.data] += 1
                    self.seen["torn"] += 1
                    if not self.calm and self.tape.one_in(4):
                        self.rotten.add(batch.data)
                records += data
            left -= len(records)
            section = Section(memoryview(records), time.time_ns()) if records else b""
            found.append((number, code, 0, 0, 0, [], replica, section))
            if code:
                self.seen[f"code {code}"] += 1
        return found, diverging

    def _read(
        self, node: int, at: TopicPartition, key: str, epoch: int, offset: int, last: int
    ) -> tuple[int, EpochEnd | None, int, list[Batch]]:
        nothing: list[Batch] = []
        term = self.views[node][at]
        if term is None or key not in (term.topic_id, "t"):
            code = Code.UNKNOWN_TOPIC_ID if self.by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
            return code, None, -1, nothing
        if (node, at) in self.offline:
            return Code.KAFKA_STORAGE_ERROR, None, -1, nothing
        if 0 <= epoch < term.epoch:
            return Code.FENCED_LEADER_EPOCH, None, -1, nothing
        if epoch > term.epoch:
            return Code.UNKNOWN_LEADER_EPOCH, None, -1, nothing
        leads = term.leader == node
        if not leads and not self.followers:
            return Code.NOT_LEADER_OR_FOLLOWER, None, -1, nothing
        batches = term.batches if leads else term.batches[: len(term.batches) - self.lag]
        end = term.end if leads or not self.lag else max((each.next for each in batches), default=0)
        where = at, term.topic_id, offset
        if last >= 0:
            agreed = term.epoch_end(last)
            agreed = EpochEnd(agreed.leader_epoch, min(agreed.end_offset, end))
            if agreed.end_offset < offset or agreed.leader_epoch < last:
                if leads:
                    self.reported.add((Diverged, *where, agreed))
                return 0, agreed, -1, nothing
        if not term.start <= offset <= end:
            # By topic name, a former leader looks like the leader.
            if leads or not self.by_id:
                self.reported.add((OutOfRange, *where))
            if not leads:
                self.seen["out of range at a follower"] += 1
            return Code.OFFSET_OUT_OF_RANGE, None, -1, nothing
        replica = self.preferred[at]
        if leads and self.followers and replica != node and (replica, at) not in self.offline:
            self.seen["redirected"] += 1
            return 0, None, replica, nothing
        return 0, None, -1, [each for each in batches if each.next > offset]


class Connection:
    """One connection to one broker."""

    def __init__(self, brokers: Brokers, node: int, history: Any) -> None:
        self.brokers, self.node, self.history = brokers, node, history
        self.open, self.expired = True, False
        self.unanswered: set[asyncio.Future[Any]] = set()

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        self.expired = True
        _settle(answer, TimeoutError())

    def close(self, reason: Any = None) -> None:
        self.open = False
        for answer in list(self.unanswered):
            _settle(answer, KafkaConnectionError())

    def send(self, request: Any) -> Any:
        brokers, loop, tape = self.brokers, self.brokers.loop, self.brokers.tape
        assert self.open
        self.history.expect(not self.expired, "asked behind a request that timed out")
        topics = request.prepare({1: (0, 13 if brokers.by_id else 11)}).topics
        positions = [
            (topic, *each[:3], each[3] if brokers.by_id else -1)
            for topic, partitions, *_ in topics
            for each in partitions
        ]
        self.history.requested(self.node, positions)
        fate = 99 if brokers.calm else tape.below(24)
        if fate == 1:
            brokers.seen["not sent"] += 1
            self.close()
            self.history.failed(self.node)
            raise KafkaConnectionError
        answer = loop.create_future()
        self.unanswered.add(answer)
        answer.add_done_callback(self.unanswered.discard)
        answer.add_done_callback(lambda _: self.history.ended(self.node, answer))
        timer = loop.call_later(REQUEST_SECONDS, self._expire, answer)
        answer.add_done_callback(lambda _: timer.cancel())
        arrives = 0.002 + 0.01 * tape.below(4)
        if fate == 2:
            brokers.seen["broken"] += 1
            loop.call_later(arrives, self.close)
        elif fate == 3:
            brokers.seen["lost"] += 1
        elif fate == 4:
            brokers.seen["late"] += 1
            loop.call_later(arrives, self.serve, positions, answer, 1.5, fate)
        else:
            loop.call_later(arrives, self.serve, positions, answer, 0.003, fate)
        return answer

    def serve(
        self, positions: list[Any], answer: Any, after: float, fate: int, poll: bool = True
    ) -> None:
        """Answer at once if there is anything to return, otherwise after the long poll."""
        brokers = self.brokers
        found, diverging = brokers.fetch(self.node, positions, torn=fate in {5, 6})
        something = diverging or any(
            code or replica >= 0 or data for _, code, *_, replica, data in found
        )
        if poll and not something and fate not in {7, 8, 9, 10, 11, 12}:
            brokers.loop.call_later(LONG_POLL, self.serve, positions, answer, after, fate, False)
            return
        error = throttle_ms = 0
        if fate == 12:
            brokers.seen["throttled"] += 1
            found, throttle_ms = [], 700
        elif fate == 7 and brokers.by_id:
            brokers.seen["refused whole"] += 1
            found, error = [], UNKNOWN_SERVER_ERROR
        elif fate in {8, 9}:
            code = Code.KAFKA_STORAGE_ERROR if fate == 8 else Code.TOPIC_AUTHORIZATION_FAILED
            brokers.seen[f"code {code}"] += 1
            found[0] = (found[0][0], code, 0, 0, 0, [], -1, b"")
            diverging.pop(positions[0][:2], None)
        elif fate == 10:
            brokers.seen["partition missing"] += 1
            found.pop()
        keys = {each[1]: each[0] for each in positions}
        response = FetchResponse(throttle_ms, error, 0, [(keys[each[0]], [each]) for each in found])
        response.diverging = diverging if found else {}
        if not brokers.by_id:
            response.API_VERSION = 11
        brokers.loop.call_later(after, _settle, answer, response)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


class Cluster(ClusterMetadata):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's cluster metadata, with its brokers always in the same order."""

    def brokers(self) -> Any:
        return sorted(super().brokers())


class Client:
    """A client's connections and its metadata, which is updated only on demand."""

    _retry_backoff, _request_timeout_ms, _metadata_max_age_ms = BACKOFF, 2000, METADATA_MS

    def __init__(self, brokers: Brokers, history: Any) -> None:
        self.brokers, self.history = brokers, history
        self.cluster = Cluster()
        self.connections: dict[int, Connection] = {}
        self._update: asyncio.Future[bool] | None = None

    def connected(self, node: int) -> Connection | None:
        found = self.connections.get(node)
        return found if found is not None and found.open else None

    async def ready(self, node: int) -> bool:
        self.history.contacted(node)
        await asyncio.sleep(0.01)
        if not self.brokers.calm and self.brokers.tape.one_in(6):
            self.brokers.seen["not connected"] += 1
            self.history.failed(node)
            return False
        self.connections[node] = Connection(self.brokers, node, self.history)
        return True

    def force_metadata_update(self) -> asyncio.Future[bool]:
        if self._update is None:
            self._update = self.brokers.loop.create_future()
            self.brokers.loop.call_later(0.02, self._updated)
        return self._update

    def _updated(self) -> None:
        update, self._update = self._update, None
        tape = self.brokers.tape
        works = self.brokers.calm or not tape.one_in(6)
        if works:
            self.cluster.update_metadata(self.brokers.metadata(tape.pick(NODES)))
        else:
            self.brokers.seen["metadata failed"] += 1
        assert update is not None
        update.set_result(works)

    async def send(self, node: int, request: Any, *, group: Any = None) -> Any:
        await asyncio.sleep(0.01)
        if not self.brokers.calm and self.brokers.tape.one_in(6):
            raise KafkaConnectionError
        return self.brokers.metadata(node)
