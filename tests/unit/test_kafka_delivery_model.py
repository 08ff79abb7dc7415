"""A sender reports of its batches what brokers did, whatever happened to the requests.

Random histories in virtual time: a sender and its delivery, against brokers that check sequence
numbers as Kafka's do, and a network that loses and delays requests and answers, but repeats none.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceResponse_v7
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.error_table import Code
from mirrortest.kafka.fast.delivery import Delivery, ProducerNumbers, ReadyBatch
from mirrortest.kafka.sender import Sender, SenderDeadError, Sent
from mirrortest.model.findings import Outcome
from mirrortest.model.topic_partition import TopicPartition
from tests.oracle.tape import LENGTH, Tape
from tests.simulation.loop import SimulationLoop

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
NODES = (1, 2)
REQUEST_SECONDS, DELIVERY_SECONDS, BACKOFF = 5.0, 20.0, 0.1
KEPT = 5
"""How many of a producer's last batches a broker remembers, as Kafka's do."""
OK, DUPLICATE = 0, 46
UNHEARD = Sent(Outcome.UNKNOWN, -1, "nobody waited for it")
NO_LEADER = -1

PASSING: list[int] = [*[Code.NOT_ENOUGH_REPLICAS] * 3, *[Code.KAFKA_STORAGE_ERROR] * 3]
"""Errors of a broker that has not written, and would at a later try."""
UNWRITTEN = [*PASSING, Code.MESSAGE_TOO_LARGE]
WRITTEN: list[int] = [
    *[Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 2,
    *[Code.REQUEST_TIMED_OUT] * 2,
    *[Code.NOT_LEADER_OR_FOLLOWER] * 2,
]
ALL_WELL = 40
MOST_LEADERLESS = 10


class Encoded:
    """A batch whose bytes have its name, and what a broker checks."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.buffer = bytearray()

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.buffer = bytearray(f"{self.name} {self.count} {base_sequence}".encode())


@dataclass
class Log:
    """One partition at its leader; `stored` has (first offset, batch)."""

    leader: int = 1
    end: int = 0
    stored: list[tuple[int, str]] = field(default_factory=list)
    sequence: int = 0
    recent: dict[int, int] = field(default_factory=dict)


class Brokers:
    """All brokers, and the network: the tape decides what happens to a request."""

    def __init__(self, tape: Tape, loop: SimulationLoop) -> None:
        self.tape = tape
        self.loop = loop
        self.logs = {at: Log() for at in PARTITIONS}
        self.mild = tape.below(2) == 0
        """Whether every trouble is transient, and short."""
        self.leaderless = 0

    def append(self, node: int, at: TopicPartition, data: bytes) -> tuple[int, int]:
        """Append a batch or refuse it; the code and the offset with which the broker answers."""
        log, tape = self.logs[at], self.tape
        if log.leader != node:
            return Code.NOT_LEADER_OR_FOLLOWER, -1
        name, count, sequence = data.decode().split()
        refusal = tape.pick([OK] * ALL_WELL + (PASSING if self.mild else UNWRITTEN))
        if refusal:
            return refusal, -1
        first = int(sequence)
        if first in log.recent:
            return (OK, log.recent[first]) if tape.below(2) else (DUPLICATE, -1)
        if 0 <= first < log.sequence:
            return DUPLICATE, -1
        if first > log.sequence:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset, log.end = log.end, log.end + int(count)
        log.stored.append((offset, name))
        if first >= 0:
            log.sequence += int(count)
            log.recent[first] = offset
            for old in list(log.recent)[:-KEPT]:
                del log.recent[old]
        code = tape.pick([OK] * ALL_WELL + WRITTEN)
        return code, offset if code == OK else -1


class Connection:
    """One connection to one broker, and what happens to its requests."""

    def __init__(self, brokers: Brokers, node: int) -> None:
        self.brokers = brokers
        self.node = node
        self.open = True
        self.unanswered: set[asyncio.Future[Any]] = set()
        self.requests = 0

    def close(self, reason: Any = None) -> None:
        self.open = False
        for answer in list(self.unanswered):
            if not answer.done():
                answer.set_exception(KafkaConnectionError())

    def send(self, request: Any, expect_response: bool = True) -> Any:
        loop, tape = self.brokers.loop, self.brokers.tape
        if not self.open:
            raise KafkaConnectionError
        self.requests += 1
        batches = [
            (TopicPartition(topic, partition), bytes(data))
            for topic, some in request._topics
            for partition, data in some
        ]
        # In a mild history nothing takes long.
        fate = tape.below(16)
        if self.brokers.mild and fate in {3, 5}:
            fate = 0
        answer = loop.create_future()
        self.unanswered.add(answer)
        answer.add_done_callback(self.unanswered.discard)
        loop.call_later(REQUEST_SECONDS, _fail, answer, TimeoutError())
        arrives = 0.01 * tape.below(4)
        if fate == 1:  # the connection breaks, and the broker never gets the request
            loop.call_later(arrives, self.close)
        elif fate == 2:  # it was written to a connection that breaks: it may arrive
            if tape.below(2):
                loop.call_later(arrives, self.serve, batches, answer, -1.0)
            self.close()
            raise KafkaConnectionError
        elif fate == 3:  # the broker serves it late, and does not answer
            loop.call_later(tape.pick([6.0, 1.0, 4.9, 20.0]), self.serve, batches, answer, -1.0)
        elif fate == 4:  # the answer is lost
            loop.call_later(arrives, self.serve, batches, answer, -1.0)
            loop.call_later(arrives + 0.01, self.close)
        elif fate == 5:  # the answer is late
            loop.call_later(arrives, self.serve, batches, answer, 7.0)
        else:
            loop.call_later(arrives, self.serve, batches, answer, 0.005)
        if not expect_response:
            return asyncio.sleep(0)
        return answer

    def serve(
        self,
        batches: list[tuple[TopicPartition, bytes]],
        answer: asyncio.Future[Any],
        after: float,
    ) -> None:
        """Append the batches, and answer `after` seconds; never if that is negative."""
        appended = [(at, *self.brokers.append(self.node, at, data)) for at, data in batches]
        if len(appended) > 1 and self.brokers.tape.one_in(64) and not self.brokers.mild:
            appended.pop()
        stored = [
            (at.topic, [(at.partition, code, offset, -1, 0)]) for at, code, offset in appended
        ]
        if after >= 0:
            self.brokers.loop.call_later(after, _answer, answer, ProduceResponse_v7(stored, 0))


def _answer(answer: asyncio.Future[Any], response: Any) -> None:
    if not answer.done():
        answer.set_result(response)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class Client:
    """A client's metadata: the partitions' leaders as of its last update."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.connections: dict[int, Connection] = {}
        self.every_connection: list[Connection] = []
        self.leaders: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS, 1)
        self._md_update_fut: asyncio.Future[bool] | None = None
        self.cluster = self

    def leader_for_partition(self, at: TopicPartition) -> int | None:
        return self.leaders[at]

    def connected(self, node: int) -> Connection | None:
        found = self.connections.get(node)
        return found if found is not None and found.open else None

    async def ready(self, node: int) -> bool:
        await asyncio.sleep(0.01)
        if self.brokers.tape.one_in(6):
            return False
        made = self.connections[node] = Connection(self.brokers, node)
        self.every_connection.append(made)
        return True

    def force_metadata_update(self) -> asyncio.Future[bool]:
        if self._md_update_fut is None:
            self._md_update_fut = self.brokers.loop.create_future()
            self.brokers.loop.call_later(0.02, self._updated, self._md_update_fut)
        return self._md_update_fut

    def _updated(self, future: asyncio.Future[bool]) -> None:
        self._md_update_fut = None
        tape = self.brokers.tape
        for at, log in self.brokers.logs.items():
            self.leaders[at] = tape.pick([log.leader] * 6 + [NO_LEADER, None])
            if self.brokers.mild and self.leaders[at] != log.leader:
                self.brokers.leaderless += 1
                if self.brokers.leaderless > MOST_LEADERLESS:
                    self.leaders[at] = log.leader
        future.set_result(True)


class Producer:
    """A `ports.ProducerPort` over a delivery."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def batch(self, encoded: Any) -> ReadyBatch:
        return ReadyBatch(encoded)

    def send(self, batch: ReadyBatch, topic: str, partition: int, on_delivery: Any) -> None:
        self._delivery.queue(batch, TopicPartition(topic, partition), on_delivery)

    def numbers_left(self, topic: str, partition: int) -> int:
        return 1 << 62

    def failure(self) -> None:
        return None

    def abandon(self, why: str) -> None:
        self._delivery.abandon(why)

    async def stop(self, seconds: float) -> None:
        await self._delivery.wait_idle(seconds)
        self._delivery.abandon("stopped")


@dataclass
class History:
    """What was sent, in the order of each partition, and what was reported."""

    tape: Tape
    loop: SimulationLoop = field(default_factory=SimulationLoop)
    queued: dict[TopicPartition, list[str]] = field(default_factory=dict)
    reported: dict[str, Sent] = field(default_factory=dict)
    idempotent: bool = True

    async def play(self) -> None:
        """Send, stop, and wait until every request in flight has arrived."""
        tape, loop = self.tape, self.loop
        self.brokers = Brokers(tape, loop)
        self.client = Client(self.brokers)
        self.idempotent = not tape.one_in(4)
        numbers = ProducerNumbers() if self.idempotent else None
        if numbers is not None:
            numbers.producer_id, numbers.epoch = 77, 0
        config = replace(
            ClientConfig(bootstrap_servers=("broker:9092",)),
            delivery_timeout_ms=int(DELIVERY_SECONDS * 1000),
            enable_idempotence=self.idempotent,
        )
        self.sender = sender = Sender(config)
        sender._producer = Producer(  # type: ignore[assignment]  # it plays one
            Delivery(self.client, numbers, acks=-1, seconds=REQUEST_SECONDS, backoff=BACKOFF)  # type: ignore[arg-type]
        )
        for _ in range(tape.below(4)):
            at, leader = tape.pick(PARTITIONS), tape.pick(NODES[::-1])
            loop.call_later(0.05 * tape.below(200), self._elect, at, leader)
        lanes = [self._lane(at, tape.below(6)) for at in PARTITIONS]
        work = asyncio.gather(*lanes)
        if tape.one_in(3) and not self.brokers.mild:
            await asyncio.sleep(0.05 * tape.below(100))
            await sender.stop()
            await work
        else:
            await work
            await sender.stop(3 * DELIVERY_SECONDS)
        self.requests = self._requests()
        await asyncio.sleep(100)

    def _elect(self, at: TopicPartition, leader: int) -> None:
        self.brokers.logs[at].leader = leader

    async def _lane(self, at: TopicPartition, batches: int) -> None:
        for number in range(batches):
            name = f"{at.partition}.{number}"
            await asyncio.sleep(0.01 * self.tape.below(50))
            self.queued.setdefault(at, []).append(name)
            try:
                ended = self.sender.send(
                    at.topic, at.partition, Encoded(name, 1 + self.tape.below(3))
                )
            except SenderDeadError:
                self.queued[at].pop()
                return
            ended.add_done_callback(partial(self._report, name))
            if self.tape.one_in(12):  # its waiter is cancelled
                self.brokers.loop.call_later(0.01 * self.tape.below(20), ended.cancel)

    def _report(self, name: str, ended: asyncio.Future[Sent]) -> None:
        assert name not in self.reported
        self.reported[name] = UNHEARD if ended.cancelled() else ended.result()

    def _requests(self) -> int:
        return sum(connection.requests for connection in self.client.every_connection)

    def check(self) -> None:
        """Compare what was reported with what the brokers have."""
        assert not self.sender._pending
        assert self._requests() == self.requests, "something was sent after the end"
        for at, names in self.queued.items():
            stored = self.brokers.logs[at].stored
            found = [name for _, name in stored]
            for name in names:
                sent = self.reported[name]
                if sent.outcome is Outcome.ACKED:
                    assert name in found
                    assert sent.base_offset == -1 or (sent.base_offset, name) in stored
                elif sent.outcome is Outcome.FAILED:
                    assert name not in found
            if self.brokers.mild:
                heard = [each for name in names if (each := self.reported[name]) is not UNHEARD]
                assert all(sent.outcome is Outcome.ACKED for sent in heard)
            if self.idempotent:
                assert found == names[: len(found)], "lost, repeated or overtaken"


def played(tape: bytes) -> History:
    """Run the history of a tape, and check it."""
    history = History(Tape(tape))
    try:
        history.loop.run_until_complete(history.play())
        history.check()
    finally:
        history.loop.put_away()
    return history


@settings(max_examples=150)
@given(st.binary(max_size=LENGTH))
def test_a_sender_reports_what_brokers_did(tape: bytes) -> None:
    """An acked batch is stored, a failed one is not, and of the others nothing is claimed.

    If every trouble is transient, all are acked. Idempotent sends are stored once and in order.
    """
    played(tape)


def test_the_histories_have_every_outcome() -> None:
    """Otherwise the test above would pass whatever a sender reports."""
    made = [played(random.Random(number).randbytes(LENGTH)) for number in range(200)]
    outcomes = {sent.outcome for history in made for sent in history.reported.values()}
    assert outcomes == {Outcome.ACKED, Outcome.FAILED, Outcome.UNKNOWN}
    assert sum(len(history.reported) for history in made) > 1000
