"""Contract with aiokafka: these tests fail loudly where another version breaks `fast`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import OffsetOutOfRangeError, RequestTimedOutError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError
from mirrortest.kafka.fast import contract
from mirrortest.kafka.fast.connection import Client
from mirrortest.kafka.fast.delivery import ReadyBatch
from mirrortest.kafka.fast.fetching import Fetcher, ReadState
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.fetched import FetchedBatches, Unreadable
from mirrortest.kafka.library import SERIES, library

TP = TopicPartition("t", 0)
NO_ERROR = 0
OUT_OF_RANGE = 1


def batch_bytes(base_offset: int, values: list[bytes], codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for delta, value in enumerate(values):
        builder.append(delta, 1000, b"k", value, [])
    raw = bytearray(builder.build())
    raw[:8] = base_offset.to_bytes(8, "big")
    return bytes(raw)


class Encoded:
    def __init__(self) -> None:
        self.buffer = bytearray(batch_bytes(0, [b"a", b"b", b"c"]))
        self.count = 3
        self.sealed: list[tuple[int, int, int]] = []

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        self.sealed.append((producer_id, epoch, base_sequence))


class FakeClient:
    """Answers fetches with what it was given, as AIOKafkaClient would."""

    _metadata_max_age_ms = 300_000

    def __init__(self, error: int = NO_ERROR, records: bytes = b"") -> None:
        self._loop = asyncio.get_running_loop()
        self.response = SimpleNamespace(
            API_VERSION=4, topics=[("t", [(0, error, 10, 10, None, records)])]
        )

    async def send(self, node_id: int, request: Any) -> Any:
        return self.response


async def fetched(
    client: FakeClient,
    key_deserializer: Any,
    offset: int = 0,
    times: int = 1,
    kind: Any = Fetcher,
) -> list[Any]:
    """What one or more fetches through aiokafka's own Fetcher bring."""
    subscriptions = SubscriptionState()
    subscriptions.assign_from_user([TP])
    subscriptions.seek(TP, offset)
    made = kind(
        client,
        subscriptions,
        key_deserializer=key_deserializer,
        value_deserializer=None,
        auto_offset_reset="none",
    )
    made._fetch_task.cancel()
    assignment = subscriptions.subscription.assignment
    found: list[Any] = []
    try:
        for _ in range(times):
            position = assignment.state_value(TP).position
            request = SimpleNamespace(topics=[("t", [(0, position, 1 << 20)])])
            await made._proc_fetch_request(assignment, 1, request)
            for items in (await made.fetched_records([])).values():
                found += items
    finally:
        await made.close()
    return found


CONFIG = ClientConfig(bootstrap_servers=("127.0.0.1:9",))


def test_this_aiokafka_is_the_one_that_fast_is_written_for() -> None:
    """The installed version is of the series, and every callable has its known parameters."""
    assert aiokafka.__version__.startswith(f"{SERIES}.")
    contract.check_contract.cache_clear()
    contract.check_contract()


def test_another_series_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version is refused before a client is created, with what to do."""
    monkeypatch.setattr(aiokafka, "__version__", "0.15.0")
    with pytest.raises(ClusterError, match=r"aiokafka 0\.15\.0 .*; install 'aiokafka==0\.14"):
        library(CONFIG)


def test_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable with other parameters is refused by its name."""
    monkeypatch.setattr(contract, "_SIGNATURES", ((fetcher.FetchResult.getall, "self"),))
    contract.check_contract.cache_clear()
    with pytest.raises(ClusterError, match=r"FetchResult\.getall takes"):
        library(CONFIG)
    contract.check_contract.cache_clear()


def test_produce_answers_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a request of that version is sent: its answer would be misread."""
    monkeypatch.setattr(ProduceRequest, "_CLASSES", ProduceRequest._CLASSES[:-1])
    contract.check_contract.cache_clear()
    with pytest.raises(ClusterError, match="ProduceRequest has version 6"):
        library(CONFIG)
    contract.check_contract.cache_clear()


def test_another_name_is_refused() -> None:
    """A function that does not use the name any more is not silently left as it is."""
    with pytest.raises(AttributeError, match=r"FetchResult\.getall does not use MemoryRecords"):
        rebound(fetcher.FetchResult.getall, MemoryRecords=None)


async def test_our_consumer_gets_batches_through_aiokafkas_fetcher() -> None:
    """They come whole, one begun below the offset asked for, and the position moves on."""
    values = [b"x" * 99, b"y"]
    data = batch_bytes(4, values) + batch_bytes(6, values, codec=1) + batch_bytes(8, [b"z"])
    first, second, third = await fetched(FakeClient(records=data), ReadState(), offset=5)
    assert isinstance(first, FetchedBatches)
    assert (first.fetched_from, first.next_offset, first.count) == (5, 6, 2)
    assert (second.fetched_from, second.next_offset, second.count) == (6, 8, 2)
    assert bytes(third.buffer) == batch_bytes(8, [b"z"])
    assert third.arrived_ns >= first.arrived_ns > 0


async def test_other_consumers_get_records_as_ever() -> None:
    """Aiokafka's own classes are not changed by ours."""
    data = batch_bytes(4, [b"x", b"y"])
    records = await fetched(FakeClient(records=data), None, offset=5, kind=fetcher.Fetcher)
    assert [(record.offset, record.value) for record in records] == [(5, b"y")]


async def test_a_torn_batch_is_fetched_again_and_at_last_named() -> None:
    """A bad CRC ends the response; what lies before is delivered, the third try names the batch."""
    good, torn = batch_bytes(0, [b"x"]), bytearray(batch_bytes(1, [b"y"]))
    torn[-1] ^= 1
    client, state = FakeClient(records=good + bytes(torn)), ReadState()
    items = await fetched(client, state, times=2)
    assert [item.next_offset for item in items] == [1]
    (named,) = await fetched(client, state, offset=1)
    assert isinstance(named, Unreadable)
    assert (named.offset, named.reason) == (1, "the batch fails its CRC")


async def test_a_batch_that_heals_is_read() -> None:
    """A batch torn once on its way is read by the next fetch, and the count starts anew."""
    torn = bytearray(batch_bytes(0, [b"y"]))
    torn[-1] ^= 1
    client, state = FakeClient(records=bytes(torn)), ReadState()
    assert await fetched(client, state) == []
    client.response = FakeClient(records=batch_bytes(0, [b"y"])).response
    (item,) = await fetched(client, state)
    assert item.next_offset == 1
    assert state.torn == {}


async def test_an_offset_out_of_range_is_an_error_with_partition_and_offset() -> None:
    """Without a reset policy the error names partition and offset, as the reader relies on."""
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await fetched(FakeClient(error=OUT_OF_RANGE), ReadState(), offset=7)
    assert caught.value.args[0] == {TP: 7}


async def test_a_ready_batch_without_a_producer_id_is_sealed_once() -> None:
    """Where nobody gives a producer state the batch says so, and has its CRC."""
    encoded = Encoded()
    ready = ReadyBatch(encoded)
    ready.data()
    ready.data()
    assert encoded.sealed == [(-1, -1, -1)]


async def test_no_metadata_request_of_a_client_makes_a_topic() -> None:
    """A client asks for metadata without leave to create what is missing."""
    asked: list[Any] = []

    class Connection:
        async def send(self, request: Any) -> Any:
            asked.append(request.prepare({3: (0, 5)}))
            return SimpleNamespace(brokers=[])

    client = Client(bootstrap_servers="127.0.0.1:9")
    client.cluster.brokers = lambda: [SimpleNamespace(nodeId=1)]

    async def connect(node_id: int) -> Connection:
        return Connection()

    client._get_conn = connect
    await client._metadata_update(client.cluster, {"missing"})
    assert asked[0].allow_auto_topic_creation is False


async def test_a_connection_that_is_gone_when_a_request_times_out_is_no_surprise() -> None:
    """Another request timed out before and closed it, and somebody has since tried to connect."""
    client = Client(bootstrap_servers="127.0.0.1:1")
    here = (1, ConnectionGroup.DEFAULT)

    async def in_vain() -> None:
        del client._conns[here]
        raise TimeoutError

    client._conns[here] = SimpleNamespace(
        connected=lambda: True, send=lambda _, expect_response: in_vain()
    )
    with pytest.raises(RequestTimedOutError):
        await client.send(1, SimpleNamespace())


async def test_other_surprises_are_not_hidden() -> None:
    """A KeyError that tells of something else stays one."""
    client = Client(bootstrap_servers="127.0.0.1:1")

    async def odd() -> None:
        raise KeyError("odd")

    client._conns[1, ConnectionGroup.DEFAULT] = SimpleNamespace(
        connected=lambda: True, send=lambda _, expect_response: odd()
    )
    with pytest.raises(KeyError, match="odd"):
        await client.send(1, SimpleNamespace())
