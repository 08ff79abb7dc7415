"""Single records share batches, in order, and each writer gets its record's outcome."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    NodeNotReadyError,
    UnknownTopicOrPartitionError,
)

from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast import sending
from mirrortest.kafka.fast.sending import FastProducer
from mirrortest.wire.batch_header import PRODUCER, PRODUCER_AT
from mirrortest.wire.record_batch import decode_records, seal
from mirrortest.wire.single_records import write_records
from tests.unit import answered_delivery as played

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mirrortest.kafka.fast.delivery import ReadyBatch

CONFIG = ClientConfig(
    bootstrap_servers=("broker:9092",), acks=-1, enable_idempotence=True, retry_backoff_ms=1
)
OK, DUPLICATE = played.OK, played.DUPLICATE
SMALL = 1000
"""The maximum size of a batch, in bytes."""


class Connection(played.Connection):
    """Keeps the batch of each request to partition 0; `records` has its keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[bytes] = []

    def send(self, request: Any, expect_response: bool = True) -> Any:
        ((_, ((_, data),)),) = request._topics
        self.batches.append(bytes(data))
        request._topics = [("t", [(0, b"")])]
        return super().send(request, expect_response)

    def records(self, number: int) -> list[tuple[bytes | None, bytes | None]]:
        records = decode_records(self.batches[number])
        return [(records.key(index), records.value(index)) for index in range(len(records.offsets))]


class Client(played.Client):
    """One broker, which assigns producer ids."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = self.brokers[1] = Connection()
        self.identities: list[tuple[int, int, int] | Exception] = [(OK, 77, 3)]
        """For each request in turn: error, id and epoch, or an exception."""
        self.closed = False
        self.metadata: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()

    async def bootstrap(self) -> None:
        """Nothing to be done."""

    def get_random_node(self) -> int:
        return 1

    async def send(self, node: int, request: Any) -> Any:
        answer = self.identities.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(
            error_code=answer[0], producer_id=answer[1], producer_epoch=answer[2]
        )

    async def close(self) -> None:
        self.closed = True

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Wait until the test sets the topic's partitions."""
        return await self.metadata


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(sending, "Client", lambda **_: made)
    return made


async def started() -> FastProducer:
    producer = FastProducer(CONFIG, batch_bytes=SMALL)
    await producer.start()
    return producer


async def requested(client: Client, count: int) -> None:
    async with asyncio.timeout(10):
        while len(client.broker.requests) < count:  # noqa: ASYNC110  # a request has no event
            await asyncio.sleep(0)


async def failure(written: Awaitable[Any]) -> int:
    with pytest.raises(RequestError) as caught:
        await written
    return caught.value.code


async def test_records_written_at_the_same_time_share_a_request(client: Client) -> None:
    """Those written while it is in flight share the next; each gets its own offset."""
    producer = await started()
    first = asyncio.gather(producer.write("t", 0, b"a", b"1"), producer.write("t", 0, b"b", None))
    await requested(client, 1)
    then = asyncio.gather(*(producer.write("t", 0, b"c", b"%d" % number) for number in range(3)))
    await asyncio.sleep(0)
    client.broker.answer(OK, first=40)
    one, other = await first
    assert (one, other) == (40, 41)
    await requested(client, 2)
    client.broker.answer(OK, first=50)
    assert await then == [50, 51, 52]
    assert client.broker.records(0) == [(b"a", b"1"), (b"b", None)]
    assert client.broker.records(1) == [(b"c", b"0"), (b"c", b"1"), (b"c", b"2")]
    assert [PRODUCER.unpack_from(batch, PRODUCER_AT) for batch in client.broker.batches] == [
        (77, 3, 0),
        (77, 3, 2),
    ]


async def test_a_batch_of_records_has_a_size(client: Client) -> None:
    """Records that do not fit wait for the next batch, in order; a large one has its own."""
    producer = await started()
    values = [b"x" * 400, b"y" * 400, b"z" * 400, b"l" * 5 * SMALL, b"s"]
    writes = asyncio.gather(*(producer.write("t", 0, b"k", value) for value in values))
    for number, expected in enumerate((values[:2], values[2:3], values[3:4], values[4:])):
        await requested(client, number + 1)
        assert [value for _, value in client.broker.records(number)] == expected
        client.broker.answer(OK, first=10 * number)
    assert await writes == [0, 1, 10, 20, 30]


async def test_a_record_above_the_limit_of_requests_is_refused(client: Client) -> None:
    """It is refused before it is queued."""
    producer = await started()
    too_large = producer.write("t", 0, b"k", bytes(CONFIG.max_request_size))
    assert await failure(too_large) == Code.MESSAGE_TOO_LARGE
    assert not client.broker.requests


async def test_who_gives_up_waiting_takes_nothing_from_the_others(client: Client) -> None:
    """The cancelled writer's record is written with theirs."""
    producer = await started()
    one, other = (asyncio.ensure_future(producer.write("t", 0, key, b"")) for key in (b"a", b"b"))
    await requested(client, 1)
    one.cancel()
    client.broker.answer(OK, first=7)
    assert await other == 8
    assert one.cancelled()


async def test_an_error_reaches_all_who_wait_for_the_batch(client: Client) -> None:
    """Records written later get a batch of their own."""
    producer = await started()
    writes = [asyncio.ensure_future(producer.write("t", 0, key, b"")) for key in (b"a", b"b")]
    await requested(client, 1)
    client.broker.answer(Code.INVALID_PRODUCER_EPOCH)
    assert {await failure(written) for written in writes} == {Code.INVALID_PRODUCER_EPOCH}
    later = asyncio.ensure_future(producer.write("t", 0, b"c", b""))
    await requested(client, 2)
    client.broker.answer(OK)
    assert await later == 100


async def test_the_offset_of_an_old_repetition_is_unknown(client: Client) -> None:
    """The broker stored it already, but no longer knows the offset."""
    producer = await started()
    written = asyncio.ensure_future(producer.write("t", 0, b"a", b""))
    await requested(client, 1)
    client.broker.answer(DUPLICATE)
    assert await written is None


async def test_once_abandoned_no_record_is_taken(client: Client) -> None:
    """Waiting records fail at once; those in flight can be answered until the stop."""
    producer = await started()
    underway = asyncio.ensure_future(producer.write("t", 0, b"a", b""))
    await requested(client, 1)
    waiting = asyncio.ensure_future(producer.write("t", 0, b"b", b""))
    await asyncio.sleep(0)
    producer.abandon("as asked")
    assert await failure(waiting) == Code.BROKE_OFF
    assert await failure(producer.write("t", 0, b"c", b"")) == Code.BROKE_OFF
    stopped = asyncio.ensure_future(producer.stop(60))
    await asyncio.sleep(0)
    assert not client.closed
    client.broker.answer(OK)
    assert await underway == 100
    await stopped
    assert client.closed


async def test_a_request_in_flight_is_not_appended_behind_the_next_producers_records(
    client: Client,
) -> None:
    """Brokers refuse its epoch: after an outage, an old state could replace a newer one."""
    failed = await started()
    written = asyncio.ensure_future(failed.write("t", 0, b"k", b"old"))
    await requested(client, 1)
    failed.abandon("as asked")
    following = FastProducer(CONFIG, batch_bytes=SMALL, after=failed)
    await following.start()
    client.broker.answers[0].set_exception(TimeoutError())
    assert await failure(written) == Code.REQUEST_TIMED_OUT
    newer = asyncio.ensure_future(following.write("t", 0, b"k", b"new"))
    await requested(client, 2)
    client.broker.answer(OK)
    await newer
    assert [PRODUCER.unpack_from(batch, PRODUCER_AT) for batch in client.broker.batches] == [
        (77, 3, 0),
        (77, 4, 0),
    ]


async def test_after_the_last_epoch_a_producer_has_another_id(client: Client) -> None:
    """The next epoch would be negative."""
    client.identities = [(OK, 77, 2**15 - 1), (OK, 78, 0)]
    failed = await started()
    following = FastProducer(CONFIG, batch_bytes=SMALL, after=failed)
    await following.start()
    assert not client.identities


async def test_what_was_written_before_a_stop_is_still_sent(client: Client) -> None:
    """Even if it waits for the answer to another request."""
    producer = await started()
    one = asyncio.ensure_future(producer.write("t", 0, b"a", b""))
    await requested(client, 1)
    other = asyncio.ensure_future(producer.write("t", 0, b"b", b""))
    await asyncio.sleep(0)
    stopped = asyncio.ensure_future(producer.stop(60))
    client.broker.answer(OK)
    await requested(client, 2)
    client.broker.answer(OK)
    await stopped
    assert [await one, await other] == [100, 100]


async def test_a_producer_id_is_asked_for_until_a_broker_has_one(client: Client) -> None:
    """A loading coordinator and an unreachable broker are tried again."""
    client.identities = [(14, -1, -1), NodeNotReadyError(), (OK, 5, 0)]
    await started()
    assert client.updates == 2


async def test_a_refused_producer_id_is_reported(client: Client) -> None:
    """Another try would not help."""
    client.identities = [(Code.CLUSTER_AUTHORIZATION_FAILED, -1, -1)]
    assert await failure(started()) == Code.CLUSTER_AUTHORIZATION_FAILED


async def test_a_producer_id_that_no_broker_can_give_is_not_asked_for_again(
    client: Client,
) -> None:
    """The error names the cause; it was "no answer in time" after a minute."""
    client.identities = [IncompatibleBrokerVersion("InitProducerIdRequest")]
    with pytest.raises(RequestError, match="InitProducerIdRequest"):
        await started()


class Sends:
    """Batches of one record each, and how each ended: its offset, or the error's code."""

    def __init__(self, producer: FastProducer) -> None:
        self._producer = producer
        self.batches: list[ReadyBatch] = []
        self.ended: dict[int, int | None] = {}

    def send(self, value: bytes) -> None:
        batch, number = self._producer.batch(Encoded(value)), len(self.batches)
        self.batches.append(batch)

        def report(offset: int | None, error: RequestError | None) -> None:
            assert number not in self.ended
            self.ended[number] = offset if error is None else error.code

        self._producer.send(batch, "t", 0, report)


class Encoded:
    def __init__(self, value: bytes) -> None:
        self.buffer = write_records([(0, 0, None, value, ())])
        self.count = 1

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        seal(self.buffer, producer_id, epoch, base_sequence)


async def test_batches_of_a_partition_that_is_not_found_yet_keep_their_order(
    client: Client,
) -> None:
    """Even with those that are sent once it has been found."""
    producer = await started()
    sends = Sends(producer)
    client.leaders[played.A] = None
    sends.send(b"0")
    sends.send(b"1")
    await asyncio.sleep(0)
    assert not any(batch.queued for batch in sends.batches)
    client.leaders[played.A] = 1
    sends.send(b"2")
    client.metadata.set_result({0})
    for number in range(3):
        await requested(client, number + 1)
        assert client.broker.records(number) == [(None, b"%d" % number)]
        client.broker.answer(OK, first=number)
        await asyncio.sleep(0)
    assert sends.ended == {0: 0, 1: 1, 2: 2}


@pytest.mark.parametrize(
    ("partitions", "code"),
    [({1}, Code.NO_PARTITION), (None, Code.UNKNOWN_TOPIC_OR_PARTITION)],
)
async def test_batches_of_a_partition_that_does_not_exist_are_not_queued(
    client: Client, partitions: set[int] | None, code: int
) -> None:
    """Each is reported; a later batch is sent once the partition has a leader."""
    sends = Sends(await started())
    client.leaders[played.A] = None
    sends.send(b"0")
    sends.send(b"1")
    if partitions is None:
        client.metadata.set_exception(UnknownTopicOrPartitionError())
    else:
        client.metadata.set_result(partitions)
    async with asyncio.timeout(10):
        while len(sends.ended) < 2:  # noqa: ASYNC110  # a report has no event
            await asyncio.sleep(0)
    assert sends.ended == {0: code, 1: code}
    assert not any(batch.queued or batch.handed_over for batch in sends.batches)
    client.leaders[played.A] = 1
    sends.send(b"2")
    await requested(client, 1)


async def test_a_stop_ends_the_search_for_a_partition(client: Client) -> None:
    """Nothing is queued afterwards, whatever metadata arrives."""
    producer = await started()
    sends = Sends(producer)
    client.leaders[played.A] = None
    sends.send(b"0")
    await asyncio.sleep(0)
    producer.abandon("as asked")
    await producer.stop(60)
    assert client.metadata.cancelled()
    assert not sends.batches[0].queued
