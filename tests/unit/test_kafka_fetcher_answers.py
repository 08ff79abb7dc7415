"""How the fetcher handles a broker's response to a fetch."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast.requests import EpochEnd
from mirrortest.kafka.fetched import (
    Diverged,
    FetchedBatches,
    OutOfRange,
    ReadPosition,
    Recreated,
    Unreadable,
)
from tests.unit.answered_fetcher import ONE, A, Reading
from tests.unit.test_kafka_fast import batch_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OUT_OF_RANGE, UNAUTHORIZED, STORAGE, FENCED = 1, 29, 56, 74


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    """A reading whose fetcher is closed after the test."""
    made = Reading()
    yield made
    made.fetcher.close()


# -- which topic and which log ---------------------------------------------------------------------


async def test_a_fetch_says_which_topic_leader_and_last_batch(reading: Reading) -> None:
    """A position without a topic id gets the current one, and keeps it if the topic changes."""
    await reading.asked(1)
    first, _ = reading.broker.requests[-1]._positions
    assert first == ("t", "X", 0, 5, 0, 4)
    assert reading.fetcher.by_id
    reading.cluster.topic_id = "Y"
    reading.broker.answer(a=ONE)
    (batch,) = await reading.take()
    assert (batch.topic_id, batch.leader_epoch) == ("X", -1)
    await reading.asked(2)
    again = reading.broker.requests[-1]._positions[-1]
    assert again == ("t", "X", 0, 5, 1, -1)


async def test_brokers_without_ids_are_asked_by_name_and_that_is_told() -> None:
    """`by_id` is then False, and the verdict notes what cannot be detected."""
    reading = Reading()
    reading.broker.by_id = False
    assert [item.next_offset for item in await reading.answered(a=ONE)] == [1]
    assert not reading.fetcher.by_id
    reading.fetcher.close()


async def test_an_offset_out_of_range_is_told_until_it_is_sought(reading: Reading) -> None:
    """The report repeats until a seek; other partitions are still read."""
    lost, batch = await reading.answered(code=OUT_OF_RANGE, b=ONE)
    assert (lost, batch.partition) == (OutOfRange("t", 0, 0), 1)
    assert (await reading.asked(2))[1] == {1: 1}
    await reading.partition_0_asked()
    reading.broker.answer(code=OUT_OF_RANGE)
    assert await reading.take() == [OutOfRange("t", 0, 0)]


async def test_where_the_log_was_cut_back_that_is_told_with_its_end(reading: Reading) -> None:
    """The report has the epoch and its end offset, and no records are returned."""
    assert await reading.answered(end=EpochEnd(3, 6)) == [Diverged("t", 0, 0, 3, 6)]


@pytest.mark.parametrize("answer", [{"end": EpochEnd(5, 6)}, {"code": OUT_OF_RANGE}])
async def test_a_follower_that_lags_behind_ends_nothing(answer: dict[str, Any]) -> None:
    """Its log may just end early: the fetcher asks the leader, which decides."""
    reading = Reading(rack="r")
    await reading.asked(1)
    reading.broker.answer(replica=2)
    assert (await reading.asked(2))[0] == 2
    reading.cluster.brokers[2].answer(**answer)
    node, _ = await reading.asked(4)
    assert {node, reading.cluster.asked[2][0]} == {1, 2}
    assert await reading.take(0) == []
    reading.fetcher.close()


async def test_a_replica_that_is_away_is_left_for_the_leader() -> None:
    """A failed follower is dropped for all its partitions, and the leader is asked."""
    reading = Reading(rack="r")
    await reading.asked(1)
    reading.broker.answer(replica=2)
    await reading.asked(2)
    reading.cluster.brokers[2].answers[-1].set_exception(KafkaConnectionError("away"))
    assert await reading.asked(3) == (1, {0: 0, 1: 0})
    reading.fetcher.close()


async def test_a_topic_is_recreated_once_most_brokers_say_so(reading: Reading) -> None:
    """Until then, the leader that reports an unknown topic id may be the outdated broker."""
    await reading.asked(1)
    reading.broker.answer(code=Code.UNKNOWN_TOPIC_ID)
    await reading.asked(2)
    await reading.partition_0_asked()
    assert await reading.take(0) == []
    reading.cluster.other = "Y"
    reading.broker.answer(code=Code.UNKNOWN_TOPIC_ID)
    assert await reading.take() == [Recreated("t", 0, 0, "Y")]


async def test_a_partition_that_was_sought_while_its_topic_was_looked_up_is_not_recreated(
    reading: Reading,
) -> None:
    """It already has a position in the new topic, so nothing is reported."""
    await reading.asked(1)
    reading.cluster.other = "Y"
    reading.broker.answer(code=Code.UNKNOWN_TOPIC_ID)
    await asyncio.sleep(0)
    reading.fetcher.seek(A, ReadPosition(0, -1, "Y"))
    assert await reading.take(0.01) == []


@pytest.mark.parametrize("code", [FENCED, 75, 78, 6, 3])
async def test_another_leader_is_looked_for(reading: Reading, code: int) -> None:
    """The fetcher refreshes the leaders and backs off; otherwise it would retry at once."""
    await reading.asked(1)
    reading.broker.answer(code=code)
    assert await reading.asked(2) == (1, {1: 0})
    reading.broker.answer()
    await reading.partition_0_asked()
    assert reading.cluster.updates


async def test_all_partitions_of_a_topic_that_was_recreated_are_looked_up_once(
    reading: Reading,
) -> None:
    """Both share one lookup, since each lookup asks several brokers."""
    await reading.asked(1)
    refused = [(at, Code.UNKNOWN_TOPIC_ID, 9, 9, 0, None, -1, b"") for at in (0, 1)]
    reading.cluster.other = "Y"
    reading.broker.answers[-1].set_result(
        SimpleNamespace(API_VERSION=13, topics=[("X", refused)], diverging={})
    )
    assert await reading.take() == [Recreated("t", 0, 0, "Y"), Recreated("t", 1, 0, "Y")]
    assert reading.cluster.looks == 1


async def test_a_request_that_is_refused_as_a_whole_is_sent_again_after_a_while(
    reading: Reading,
) -> None:
    """Such a response has an error and no partitions."""
    await reading.asked(1)
    reading.broker.answers[-1].set_result(
        SimpleNamespace(API_VERSION=13, topics=[], diverging={}, error_code=STORAGE)
    )
    await asyncio.sleep(0)
    assert len(reading.cluster.asked) == 1
    assert 0 in (await reading.asked(2))[1]


async def test_a_throttled_reader_waits_and_loses_nothing() -> None:
    """A consumer quota: the answer has no error and no partitions. The follower is asked again."""
    reading = Reading(rack="r")
    await reading.asked(1)
    reading.broker.answer(replica=2)
    await reading.asked(2)
    loop = asyncio.get_running_loop()
    throttled = loop.time()
    with structlog.testing.capture_logs() as logs:
        reading.cluster.brokers[2].answers[-1].set_result(
            SimpleNamespace(
                API_VERSION=13, topics=[], diverging={}, error_code=0, throttle_time_ms=50
            )
        )
        assert await reading.asked(3) == (2, {0: 0, 1: 0})
    assert loop.time() > throttled + 0.049
    assert not logs
    assert not reading.cluster.updates
    reading.fetcher.close()


async def test_a_reader_that_may_not_read_is_told(reading: Reading) -> None:
    """`fetched` raises an error with the topic's name and TOPIC_AUTHORIZATION_FAILED."""
    with pytest.raises(RequestError, match=r"^TOPIC_AUTHORIZATION_FAILED t$") as caught:
        await reading.answered(code=UNAUTHORIZED)
    assert caught.value.code == Code.TOPIC_AUTHORIZATION_FAILED


async def test_other_errors_pass(reading: Reading) -> None:
    """A broker's disk may recover: the fetch is retried, and others are read meanwhile."""
    await reading.asked(1)
    reading.broker.answer(code=STORAGE, b=ONE)
    (batch,) = await reading.take()
    assert batch.partition == 1
    await reading.partition_0_asked()
    assert reading.fetcher.failure is None


# -- batches ---------------------------------------------------------------------------------------


async def test_batches_come_whole(reading: Reading) -> None:
    """A batch that begins below the fetch offset is returned, too; the position advances."""
    reading.fetcher.seek(A, ReadPosition(5))
    data = batch_bytes(4, [b"x" * 99, b"y"]) + batch_bytes(6, [b"x", b"y"], codec=1)
    data += batch_bytes(8, [b"z"])
    await reading.asked(1)
    reading.broker.answer()
    await reading.asked(2)
    reading.broker.answer(a=data)
    first, second, third = await reading.take()
    assert isinstance(first, FetchedBatches)
    assert (first.fetched_from, first.next_offset, first.count) == (5, 6, 2)
    assert (second.fetched_from, second.next_offset, second.count) == (6, 8, 2)
    assert third.buffer is not None
    assert bytes(third.buffer) == batch_bytes(8, [b"z"])
    assert third.arrived_ns >= first.arrived_ns > 0


async def test_a_torn_batch_is_fetched_again_and_at_last_named(reading: Reading) -> None:
    """Batches before it are returned; the third try reports it as unreadable."""
    torn = bytearray(batch_bytes(1, [b"y"]))
    torn[-1] ^= 1
    assert [item.next_offset for item in await reading.answered(a=ONE + bytes(torn))] == [1]
    for count in (2, 3):
        await reading.asked(count)
        reading.broker.answer(a=bytes(torn))
        items = await reading.take(0.01)
    (named,) = items
    assert isinstance(named, Unreadable)
    assert (named.offset, named.reason) == (1, "the batch fails its CRC")


async def test_a_batch_that_heals_is_read(reading: Reading) -> None:
    """A batch that is torn twice and intact on the third try is returned."""
    torn = bytearray(ONE)
    torn[-1] ^= 1
    for count, data in enumerate((bytes(torn), bytes(torn), ONE), 1):
        await reading.asked(count)
        reading.broker.answer(a=data)
        items = await reading.take(0.01)
    assert [item.next_offset for item in items] == [1]


async def test_a_batch_that_no_answer_holds_is_named(reading: Reading) -> None:
    """A batch larger than the fetch size is reported; otherwise it is fetched forever."""
    (named,) = await reading.answered(a=ONE[:-1])
    assert isinstance(named, Unreadable)
    assert "max.partition.fetch.bytes" in named.reason


async def test_an_answer_goes_with_its_last_batch(reading: Reading) -> None:
    """No reference cycle keeps its megabytes until the garbage collector runs."""
    gc.collect()
    gc.disable()
    try:
        (batch,) = await reading.answered(a=ONE)
        answer = weakref.ref(reading.broker.answers.pop())
        reading.broker.requests.clear()
        del batch
        await reading.asked(2)
        assert answer() is None
    finally:
        gc.enable()
