"""Sending with aiokafka's public calls only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka import errors
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import RecordMetadata

from mirrortest.config.client_config import ClientConfig, Compression
from mirrortest.errors import ClusterError, UnreachableError
from mirrortest.kafka import compacted
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.error_table import ERRORS
from mirrortest.kafka.public.sending import PublicProducer
from mirrortest.kafka.sender import Sender, SenderDeadError
from mirrortest.model.findings import Outcome
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.unit.record_content import content

if TYPE_CHECKING:
    from mirrortest.wire.batch import EncodedBatch

REFUSED_BEFORE_WRITING = [errors.for_code(code) for code, row in ERRORS.items() if row.unwritten]

CONFIG = ClientConfig(bootstrap_servers=("broker:9092",), portable=True)


def messages(count: int = 3, form: Form = Form.BODY, size: int = 200) -> EncodedBatch:
    encoder = LaneEncoder("t", ProducerId("p", "r", 1), 0, 0, 1, form, size)
    now = 1_700_000_000_000_000_000

    return encoder.encode(0, np.full(count, now), now)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_the_builder_gets_what_was_encoded(form: Form, codec: str) -> None:
    """The builder's records equal the encoded ones; aiokafka compresses them at any batch size."""
    encoded = messages(5000, form)
    config = ClientConfig(bootstrap_servers=("127.0.0.1:9",), compression_type=Compression(codec))
    producer = PublicProducer(config)
    batch = producer.batch(encoded)
    made = MemoryRecords(bytes(batch.builder._build())).next_batch()
    assert (made.compression_type != 0) == (codec != "none")
    read = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in made]
    assert read == content(encoded.buffer)
    await producer.stop(1)


async def test_a_builder_that_changes_times_is_refused() -> None:
    """Messages with a changed timestamp would be reported as altered by the mirror."""
    builder = SimpleNamespace(append=lambda **_: SimpleNamespace(timestamp=1), close=lambda: None)
    producer = played(SimpleNamespace(create_batch=lambda: builder))
    with pytest.raises(ClusterError, match="changes a record's timestamp"):
        producer.batch(messages())


def played(client: Any, after: PublicProducer | None = None) -> PublicProducer:
    """A PublicProducer around the test's client."""

    class Played(PublicProducer):
        client_type = staticmethod(lambda **_: client)

    return Played(CONFIG, after=after)


class Producer:
    """Accepts batches as AIOKafkaProducer does; the test decides how they end."""

    def __init__(self) -> None:
        self.queued: list[asyncio.Future[Any]] = []
        self.refusal: Exception | None = None
        self.room = asyncio.Event()
        self.room.set()
        self.answers = asyncio.Event()

    def create_batch(self) -> Any:
        return SimpleNamespace(
            append=lambda timestamp, **_: SimpleNamespace(timestamp=timestamp), close=lambda: None
        )

    async def send_batch(self, builder: Any, topic: str, *, partition: int) -> Any:
        await self.room.wait()
        if self.refusal is not None:
            raise self.refusal
        self.queued.append(asyncio.get_running_loop().create_future())
        return self.queued[-1]

    async def stop(self) -> None:
        await self.answers.wait()


@pytest.fixture
async def producer() -> Producer:
    return Producer()


def sender(producer: Producer, **changes: Any) -> Sender:
    made = Sender(replace(CONFIG, **changes))
    made._producer = played(producer)
    return made


async def queued(producer: Producer) -> asyncio.Future[Any]:
    """Wait until a batch is queued; return the first one's future."""
    while not producer.queued:  # noqa: ASYNC110  # no event to wait for
        await asyncio.sleep(0)
    return producer.queued[0]


async def test_an_acknowledgement_is_acked_at_its_offset(producer: Producer) -> None:
    """The outcome and the base offset come from the broker's response."""
    made = sender(producer)
    ended = made.send("t", 0, messages())
    (await queued(producer)).set_result(RecordMetadata("t", 0, None, 42, -1, 0, 0))
    sent = await ended
    assert (sent.outcome, sent.base_offset, sent.error) == (Outcome.ACKED, 42, None)


@pytest.mark.parametrize("error", [*REFUSED_BEFORE_WRITING, errors.LeaderNotAvailableError])
async def test_a_refusal_proves_nothing(producer: Producer, error: type[Exception]) -> None:
    """It may be the response to a retry: aiokafka does not report how often it sent the batch."""
    made = sender(producer)
    ended = made.send("t", 0, messages())
    (await queued(producer)).set_exception(error())
    assert (await ended).outcome is Outcome.UNKNOWN
    assert made.dead is not None


async def test_what_was_not_queued_has_failed(producer: Producer) -> None:
    """If the call that queues a batch raises, the batch was not queued."""
    made = sender(producer, acks=1, enable_idempotence=False)
    producer.refusal = errors.KafkaTimeoutError()
    sent = await made.send("t", 0, messages())
    assert sent.outcome is Outcome.FAILED
    assert made.dead is None


async def test_what_may_have_been_queued_is_unknown(producer: Producer) -> None:
    """A batch that times out while it waits for room is unknown; the one behind it failed."""
    made = sender(producer, delivery_timeout_ms=1)
    producer.room.clear()
    first, second = (made.send("t", 0, messages()) for _ in range(2))
    while made.dead is None:  # noqa: ASYNC110  # no event to wait for
        await asyncio.sleep(0)
    producer.room.set()
    await queued(producer)
    assert (await first).outcome is Outcome.UNKNOWN
    assert (await second).outcome is Outcome.FAILED
    assert len(producer.queued) == 1


async def test_batches_of_a_partition_keep_their_order(producer: Producer) -> None:
    """A slow batch delays later ones of its partition, but not other partitions."""
    queued: list[tuple[int, Any]] = []
    room = asyncio.Event()

    async def send_batch(builder: Any, topic: str, *, partition: int) -> Any:
        if not partition:
            await room.wait()
        queued.append((partition, builder))
        return asyncio.get_running_loop().create_future()

    producer.send_batch = send_batch  # type: ignore[method-assign]  # a test double
    made = sender(producer)
    for partition in (0, 0, 0, 1):
        made.send("t", partition, messages())
    while not queued:  # noqa: ASYNC110  # no event to wait for
        await asyncio.sleep(0)
    assert [partition for partition, _ in queued] == [1]
    room.set()
    while len(queued) < 4:  # noqa: ASYNC110  # no event to wait for
        await asyncio.sleep(0)
    builders = [pending.batch.builder for pending in made._pending]  # type: ignore[attr-defined]
    assert [builder for _, builder in queued] == [builders[3], *builders[:3]]


async def test_a_stop_leaves_nothing_open(producer: Producer) -> None:
    """A producer that does not stop in time is no longer awaited; its batches are unknown."""
    made = sender(producer)
    ended = made.send("t", 0, messages())
    await made.stop()
    assert (await ended).outcome is Outcome.UNKNOWN
    assert not made._pending
    ours = made._started
    assert isinstance(ours, PublicProducer)
    assert ours.stopping is not None
    assert not ours.stopping.done()
    producer.answers.set()
    await ours.stopping


async def test_a_delivery_that_broke_off_ends_the_sender(producer: Producer) -> None:
    """Even a sender without idempotence ends, since aiokafka delivers nothing more."""
    made = sender(producer, acks=1, enable_idempotence=False)
    ended = made.send("t", 0, messages())
    (await queued(producer)).set_exception(
        errors.KafkaError("Unexpected error during batch delivery")
    )
    assert (await ended).outcome is Outcome.UNKNOWN
    assert made.dead is not None


async def test_used_up_sequence_numbers_need_a_new_producer(producer: Producer) -> None:
    """The next number would be negative: the batch is refused unsent, so nothing is unknown."""
    made = sender(producer)
    ours = made._started
    assert isinstance(ours, PublicProducer)
    made.send("t", 0, messages(3))
    ours._numbered["t", 0] = 2**31 - 3
    made.send("t", 0, messages(3))
    with pytest.raises(SenderDeadError, match="used up"):
        made.send("t", 0, messages(1))


def failing_first(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A table's clients in order of start: the first one's writes fail; all stop on `answers`."""
    clients: list[Any] = []

    class Client(Producer):
        async def start(self) -> None:
            clients.append(self)

        async def send_and_wait(self, *_: object, **__: object) -> Any:
            if self is clients[0]:
                raise errors.RequestTimedOutError
            return SimpleNamespace(offset=7)

    used = SimpleNamespace(producer=lambda _, batch_bytes, after: played(Client(), after))
    monkeypatch.setattr(compacted, "library", lambda _: used)
    return clients


async def test_a_record_is_never_written_behind_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed producer may still write: the next one starts only after it has stopped."""
    clients = failing_first(monkeypatch)
    monkeypatch.setattr(compacted, "_STOP_SECONDS", 0)
    patient = replace(CONFIG, request_timeout_ms=60_000)
    table = CompactedTopic(patient, "t")
    # Only the write that must wait in vain gets a short timeout: another one could exceed it.
    for table._config in (patient, replace(CONFIG, request_timeout_ms=1)):
        with pytest.raises(UnreachableError):
            await table.write(b"k", b"v")
    assert len(clients) == 1
    clients[0].answers.set()
    table._config = patient
    assert await table.write(b"k", b"v") == 7
    clients[1].answers.set()
    await table.close()


async def test_a_record_waits_for_the_producer_that_another_writer_is_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """States are saved concurrently: an old state could replace a newer one in the topic."""
    clients = failing_first(monkeypatch)
    table = CompactedTopic(replace(CONFIG, request_timeout_ms=60_000), "t")
    failing = asyncio.create_task(table.write(b"a", b"v"))
    while table._failed is None:  # noqa: ASYNC110  # no event to wait for
        await asyncio.sleep(0)
    writing = asyncio.create_task(table.write(b"k", b"v"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(clients) == 1
    clients[0].answers.set()
    with pytest.raises(UnreachableError):
        await failing
    assert await writing == 7
    clients[1].answers.set()
    await table.close()
