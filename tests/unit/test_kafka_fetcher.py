"""Which fetch requests the fetcher sends to brokers, and when."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from aiokafka.errors import (
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
)

from mirrortest.kafka.fast import fetcher, places
from mirrortest.kafka.fetched import ReadPosition
from tests.unit.answered_fetcher import ONE, PLENTY, A, B, Reading
from tests.unit.test_kafka_fast import batch_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    """A reading whose fetcher is closed after the test."""
    made = Reading()
    yield made
    made.fetcher.close()


async def test_a_broker_is_asked_again_once_what_it_sent_is_taken(reading: Reading) -> None:
    """The next fetch is sent once the data is taken, from its end, for both partitions at once."""
    assert await reading.asked(1) == (1, {0: 0, 1: 0})
    reading.broker.answer(a=batch_bytes(0, [b"x", b"y"]))
    await asyncio.sleep(0)
    assert len(reading.cluster.asked) == 1
    (batch,) = await reading.take()
    assert (batch.partition, batch.fetched_from, batch.next_offset) == (0, 0, 2)
    assert await reading.asked(2) == (1, {0: 2, 1: 0})
    await asyncio.sleep(0.01)
    assert len(reading.cluster.asked) == 2


async def test_an_answer_without_news_is_followed_by_the_next_request(reading: Reading) -> None:
    """A response without records leaves nothing to take, so the next fetch follows at once."""
    await reading.asked(1)
    reading.broker.answer()
    assert await reading.asked(2) == (1, {0: 0, 1: 0})


async def test_records_that_are_null_are_none(reading: Reading) -> None:
    """Brokers may send null or empty records; aiokafka tells them apart, the fetcher does not."""
    await reading.asked(1)
    reading.broker.answer(a=None, b=ONE)
    assert [item.partition for item in await reading.take()] == [1]
    assert reading.fetcher.failure is None


async def test_a_portion_at_a_time_is_returned(reading: Reading) -> None:
    """`fetched` returns about one portion; no fetch is sent before the rest is taken."""
    await reading.asked(1)
    compressed = [batch_bytes(at, [b"x" * 2000], codec=1) for at in (0, 1)]
    reading.broker.answer(a=b"".join(compressed), b=ONE)
    (first,) = await reading.take(portion=1)
    (second,) = await reading.take(portion=1)
    assert (first.next_offset, second.fetched_from) == (1, 1)
    assert len(reading.cluster.asked) == 1
    (third,) = await reading.take(portion=PLENTY)
    assert third.partition == 1
    assert await reading.asked(2) == (1, {0: 2, 1: 1})


@pytest.mark.parametrize("committed", [False, True])
async def test_what_a_reader_is_late_for_arrived_when_an_answer_first_showed_it(
    monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """A slow reader's own delay does not count as the mirror's.

    With read_committed, records arrive when the last stable offset passes them.
    """
    reading, arrived, read = Reading(committed=committed), [], 0
    there = "stable" if committed else "high"
    # Of each response: its time, its record count, and the partition's end by then.
    answers = [(10, 2, 2), (20, 1, 5), (30, 0, 5), (40, 2, 9), (50, 4, 9)]
    for number, (now_ns, count, end) in enumerate(answers, 1):
        monkeypatch.setattr(fetcher, "time", SimpleNamespace(time_ns=lambda at=now_ns: at))
        await reading.asked(number)
        data = batch_bytes(read, [b"x"] * count) if count else b""
        reading.broker.answer(a=data, **{"high": 99, "stable": 99, there: end})  # type: ignore[arg-type]  # numbers
        found = await reading.take() if count else []
        arrived += [(item.arrived_ns, item.next_offset - item.fetched_from) for item in found]
        read += count
    assert arrived == [(10, 2), (20, 1), (20, 2), (40, 4)]
    reading.fetcher.close()


def test_what_a_place_remembers_of_ends_is_bounded_and_goes_when_the_log_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offset may get the time of a later response, never of an earlier one.

    After a truncation, the ends that were seen before it are dropped.
    """
    monkeypatch.setattr(places, "_MAX_ENDS", 2)
    place = places.Place(A, ReadPosition(0, 4))
    for end, at_ns in ((0, 5), (3, 10), (6, 20), (9, 30)):
        place.reaches(end, at_ns)
    assert [place._first_shown_ns(offset, 99) for offset in (2, 3, 5, 9)] == [10, 10, 30, 30]
    place.offset = 9
    for end, at_ns in ((20, 40), (12, 50), (20, 60)):
        place.reaches(end, at_ns)
    assert [place._first_shown_ns(offset, 99) for offset in (12, 20, 21)] == [50, 60, 99]


async def test_who_brought_something_is_asked_for_behind_the_others(reading: Reading) -> None:
    """A broker fills its response in request order: partitions at the end must not starve."""
    await reading.answered(a=ONE)
    _, offsets = await reading.asked(2)
    assert list(offsets) == [1, 0]


async def test_nothing_comes_in_time(reading: Reading) -> None:
    """`fetched` returns nothing at its timeout; the next call returns later data."""
    assert await reading.take(0.001) == []
    taking = asyncio.create_task(reading.take())
    await reading.asked(1)
    reading.broker.answer(b=ONE)
    assert [item.partition for item in await taking] == [1]


async def test_a_partition_without_leader_is_asked_for_once_there_is_one() -> None:
    """Until then, the fetcher keeps refreshing the metadata."""
    reading = Reading()
    reading.cluster.led_by = None
    async with asyncio.timeout(10):
        while reading.cluster.updates < 3:  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0)
    reading.cluster.led_by = 2
    assert await reading.asked(1) == (2, {0: 0, 1: 0})
    reading.fetcher.close()


async def test_news_of_a_leader_are_heard_while_the_one_before_is_silent(reading: Reading) -> None:
    """The new leader is asked at once; the old leader's late response is dropped."""
    await reading.asked(1)
    reading.cluster.led_by = 2
    reading.cluster.listeners[0](reading.cluster)
    assert await reading.asked(2) == (2, {0: 0, 1: 0})
    reading.broker.answer(a=ONE)
    reading.cluster.brokers[2].answer(a=batch_bytes(0, [b"x", b"y"]))
    (batch,) = await reading.take()
    assert batch.next_offset == 2


async def test_a_paused_partition_waits(reading: Reading) -> None:
    """Data that arrived for it is dropped, and fetched again after it is resumed."""
    await reading.asked(1)
    reading.broker.answer(a=ONE, b=ONE)
    await asyncio.sleep(0)
    reading.fetcher.pause([A])
    assert [item.partition for item in await reading.take()] == [1]
    assert await reading.asked(2) == (1, {1: 1})
    reading.broker.answer()
    await reading.asked(3)
    reading.fetcher.resume([A])
    reading.broker.answer()
    assert await reading.asked(4) == (1, {0: 0, 1: 1})


async def test_a_sought_partition_begins_there(reading: Reading) -> None:
    """A seek drops responses to earlier fetches, whether they have arrived or not."""
    await reading.asked(1)
    reading.fetcher.seek(B, ReadPosition(7))
    reading.broker.answer(a=ONE, b=ONE)
    await asyncio.sleep(0)
    reading.fetcher.seek(A, ReadPosition(5))
    assert await reading.take(0) == []
    assert (await reading.asked(2))[1] == {0: 5, 1: 7}


async def test_another_assignment_begins_anew(reading: Reading) -> None:
    """Only assigned partitions can be sought; responses for the old assignment are dropped."""
    await reading.asked(1)
    reading.assign(B)
    with pytest.raises(IllegalStateError):
        reading.fetcher.seek(A, ReadPosition(0))
    reading.broker.answer(a=ONE, b=ONE)
    assert await reading.asked(2) == (1, {1: 0})
    assert await reading.take(0) == []


async def test_while_a_group_rebalances_nothing_is_returned(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetched data may belong to another member now; `fetched` still returns at its timeout."""
    await reading.asked(1)
    monkeypatch.setattr(type(reading.subscriptions), "reassignment_in_progress", True)
    reading.broker.answer(a=ONE)
    assert await reading.take(0.001) == []
    monkeypatch.setattr(type(reading.subscriptions), "reassignment_in_progress", False)
    assert [item.next_offset for item in await reading.take()] == [1]


async def test_a_groups_error_is_told_to_whoever_waits(reading: Reading) -> None:
    """The coordinator of aiokafka aborts waiters with its error, and `fetched` raises it."""
    taking = asyncio.create_task(reading.take())
    await asyncio.sleep(0)
    reading.subscriptions.abort_waiters(KafkaError("refused"))
    with pytest.raises(KafkaError, match="refused"):
        await taking


# -- brokers that do not answer --------------------------------------------------------------------


@pytest.mark.parametrize("error", [KafkaConnectionError("away"), TimeoutError()])
async def test_a_broker_that_does_not_answer_is_asked_again(
    reading: Reading, error: Exception
) -> None:
    """The metadata is refreshed before the retry; a timeout closes the connection."""
    await reading.asked(1)
    reading.broker.answers[-1].set_exception(error)
    assert await reading.asked(2) == (1, {0: 0, 1: 0})
    assert reading.cluster.updates == 1
    assert len(reading.broker.closed) == isinstance(error, TimeoutError)


async def test_a_connection_is_opened_where_there_is_none() -> None:
    """The fetcher connects before it fetches, and retries failed attempts."""
    reading = Reading()
    reading.cluster.open, reading.cluster.reachable = set(), False
    async with asyncio.timeout(10):
        while reading.cluster.connects < 3:  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0)
    reading.cluster.reachable = True
    assert await reading.asked(1) == (1, {0: 0, 1: 0})
    reading.fetcher.close()


async def test_a_connection_that_cannot_be_written_to_is_no_end() -> None:
    """A send error on a connection is retried."""
    reading = Reading()
    reading.broker.refusal = KafkaConnectionError("broken")
    async with asyncio.timeout(10):
        while not reading.cluster.updates:  # noqa: ASYNC110  # no event to wait for
            await asyncio.sleep(0)
    reading.broker.refusal = None
    await reading.asked(1)
    reading.fetcher.close()


async def test_a_broker_that_is_too_old_ends_fetching() -> None:
    """Endless retries would leave a consumer without messages, log lines or an end."""
    reading = Reading()
    reading.broker.refusal = IncompatibleBrokerVersion("record batches need Kafka 0.11 or newer")
    assert await reading.take() == []
    assert "need Kafka 0.11" in (reading.fetcher.failure or "")


async def test_what_should_not_happen_ends_fetching_and_is_told(reading: Reading) -> None:
    """An unexpected error becomes `failure`; without it, the reader would wait forever."""
    await reading.asked(1)
    reading.broker.answers[-1].set_exception(ValueError("odd"))
    assert await reading.take() == []
    assert reading.fetcher.failure == "odd"


async def test_what_is_underway_when_all_ends_is_forgotten(
    reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    """A response that fails after `close` is not logged as an unretrieved exception."""
    await reading.asked(1)
    reading.fetcher.close()
    reading.broker.answers.pop().set_exception(KafkaConnectionError("closed"))
    await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records
