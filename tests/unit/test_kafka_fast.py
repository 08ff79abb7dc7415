"""Contract with aiokafka: these tests fail loudly if another version breaks `fast`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka.client import ConnectionGroup
from aiokafka.consumer import fetcher
from aiokafka.errors import KafkaError, RequestTimedOutError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast import contract
from mirrortest.kafka.fast.connection import Client, Connection
from mirrortest.kafka.fast.delivery import ReadyBatch
from mirrortest.kafka.fast.fetching import FastConsumer
from mirrortest.kafka.fast.rebinding import rebound
from mirrortest.kafka.library import SERIES, library


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
    """The error names the callable that has other parameters."""
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
    """A function that no longer uses the name is not silently left unchanged."""
    with pytest.raises(AttributeError, match=r"FetchResult\.getall does not use MemoryRecords"):
        rebound(fetcher.FetchResult.getall, MemoryRecords=None)


async def test_a_ready_batch_without_a_producer_id_is_sealed_once() -> None:
    """It is sealed with -1 for id, epoch and sequence number, at its first use only."""
    encoded = Encoded()
    ready = ReadyBatch(encoded)
    ready.data()
    ready.data()
    assert encoded.sealed == [(-1, -1, -1)]


async def test_no_metadata_request_of_a_client_makes_a_topic() -> None:
    """A client's metadata requests do not allow brokers to create missing topics."""
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


@pytest.mark.parametrize("odd", [KeyError("r"), ValueError("nonce"), AssertionError("1 < 0")])
async def test_a_broker_whose_messages_are_odd_is_not_connected(
    odd: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of SCRAM: aiokafka does not expect the error, which ended fetching for good."""

    async def refuse(_: Any) -> None:
        raise odd

    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1") as server:
        client = Client(bootstrap_servers="127.0.0.1:1")
        at = server.sockets[0].getsockname()
        client.cluster.broker_metadata = lambda _: SimpleNamespace(host=at[0], port=at[1])
        client.force_metadata_update = lambda: None
        monkeypatch.setattr(Connection, "_do_version_lookup", refuse)
        assert await client.ready(1) is False


async def test_a_broker_that_advertises_no_host_name_is_not_connected() -> None:
    """An empty part of it, as of an unset variable, cannot be encoded."""
    client = Client(bootstrap_servers="127.0.0.1:1")
    client.cluster.broker_metadata = lambda _: SimpleNamespace(host=".kafka.svc", port=1)
    client.force_metadata_update = lambda: None
    assert await client.ready(1) is False


@pytest.mark.parametrize("code", [Code.GROUP_MAX_SIZE_REACHED, Code.FENCED_INSTANCE_ID])
async def test_a_group_that_refuses_a_member_for_good_ends_its_reader(code: int) -> None:
    """To aiokafka these codes are unknown, and it puts an error's repr into another one."""
    consumer = FastConsumer(CONFIG, "g")
    consumer.client._closed = True

    def check() -> None:
        raise KafkaError(f"Unexpected exception in heartbeat task: {for_code(code)()!r}")

    consumer.client._coordinator = SimpleNamespace(check_errors=check)
    with pytest.raises(RequestError) as caught:
        await consumer.fetch(timeout_ms=0, portion=1, reached={})
    assert caught.value.code == code
    assert caught.value.traits.error is ClusterError


async def test_a_group_coordination_that_broke_off_ends_its_reader() -> None:
    """Its task does not start again; without a group there is none."""
    consumer = FastConsumer(CONFIG, "g")
    consumer.client._closed = True

    async def break_off() -> None:
        raise KafkaError("Unexpected error during coordination KeyError('t')")

    task = asyncio.create_task(break_off())
    consumer.client._coordinator = SimpleNamespace(_coordination_task=task)
    assert consumer.failure() is None
    await asyncio.wait({task})
    assert "KeyError('t')" in str(consumer.failure())
    consumer.client._coordinator = SimpleNamespace()
    assert consumer.failure() is None


async def test_a_connection_that_does_not_close_holds_nothing_up() -> None:
    """A reader's end over a slow TLS connection was taken for a cancellation."""
    consumer = FastConsumer(ClientConfig(bootstrap_servers=("localhost:1",)))
    never = asyncio.get_running_loop().create_future()
    consumer.client._client._conns[1, 0] = SimpleNamespace(close=lambda **_: never)
    await consumer.stop(0.01)
    assert never.cancelled()


async def test_a_connection_that_is_gone_when_a_request_times_out_is_no_surprise() -> None:
    """Another request timed out before and closed it, and a reconnect removed it."""
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
    """A KeyError with another cause is raised as it is."""
    client = Client(bootstrap_servers="127.0.0.1:1")

    async def odd() -> None:
        raise KeyError("odd")

    client._conns[1, ConnectionGroup.DEFAULT] = SimpleNamespace(
        connected=lambda: True, send=lambda _, expect_response: odd()
    )
    with pytest.raises(KeyError, match="odd"):
        await client.send(1, SimpleNamespace())
