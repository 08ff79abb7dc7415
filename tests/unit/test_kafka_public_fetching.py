"""Reading with aiokafka's public calls only."""

from __future__ import annotations

from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord, TopicPartition, errors

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fetched import End, FetchedBatches, ReadPosition
from mirrortest.kafka.public.fetching import PublicConsumer
from mirrortest.wire import kernels
from mirrortest.wire.batch_header import LOG_APPEND_TIME
from mirrortest.wire.record_batch import decode_records
from tests.unit.record_content import content

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def record(
    offset: int, *, at: TopicPartition = AT, stamp: int = 5, kind: int = 0, value: bytes = b"v"
) -> ConsumerRecord:
    return ConsumerRecord(
        at.topic,
        at.partition,
        offset,
        stamp,
        kind,
        b"k",
        value,
        None,
        1,
        len(value),
        (("h", None),),
    )


class Consumer:
    """Returns answers as AIOKafkaConsumer does: (records or an error, positions afterwards)."""

    def __init__(self, *answers: Any) -> None:
        self.answers = iter(answers)
        self.positions: dict[TopicPartition, int] = {}
        self.asked: list[int] = []
        self.sought: list[tuple[TopicPartition, int]] = []
        self.resting: set[TopicPartition] = set()
        self.polled: int | None = None
        self.reached = True
        self.fetched: tuple[int | None, int | None] = (None, None)
        self.end = 0

    async def getmany(self, *, timeout_ms: int, max_records: int) -> Any:
        self.asked.append(max_records)
        records, positions = next(self.answers)
        self.positions = dict(positions)
        if isinstance(records, Exception):
            raise records
        return records

    def assignment(self) -> set[TopicPartition]:
        return {AT, OTHER}

    def paused(self) -> set[TopicPartition]:
        return self.resting

    def last_poll_timestamp(self, at: TopicPartition) -> int | None:
        return self.polled

    async def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        if not self.reached:
            raise errors.KafkaTimeoutError
        return dict.fromkeys(partitions, self.end)

    def last_stable_offset(self, at: TopicPartition) -> int | None:
        return self.fetched[0]

    def highwater(self, at: TopicPartition) -> int | None:
        return self.fetched[1]

    async def position(self, at: TopicPartition) -> int:
        return self.positions[at]

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.sought.append((at, offset))
        self.positions[at] = offset


class Played(PublicConsumer):
    """A PublicConsumer around the test's consumer."""

    def __init__(self, consumer: Any, request_timeout_ms: int = 20_000) -> None:
        self.client_type = lambda **_: consumer
        super().__init__(
            ClientConfig(bootstrap_servers=("b:1",), request_timeout_ms=request_timeout_ms)
        )


async def fetched(consumer: Any, reached: dict[Any, int]) -> list[FetchedBatches]:
    found = await Played(consumer).fetch(timeout_ms=1, portion=16 << 20, reached=reached)
    return [item for items in found for item in items if isinstance(item, FetchedBatches)]


async def test_records_become_a_batch_with_all_its_offsets() -> None:
    """The batch covers gaps before, between and after its records, which are unchanged."""
    consumer = Consumer(({AT: [record(5), record(8, stamp=3)]}, {AT: 12, OTHER: 0}))
    (batch,) = await fetched(consumer, {AT: 2, OTHER: 0})
    assert (batch.fetched_from, batch.next_offset, batch.count) == (2, 12, 2)
    records = decode_records(batch.buffer or b"")
    assert records.offsets.tolist() == [5, 8]
    assert content(batch.buffer) == [
        (5, b"k", b"v", (("h", None),)),
        (3, b"k", b"v", (("h", None),)),
    ]


async def test_where_nothing_is_to_be_read_reading_goes_on() -> None:
    """Markers, aborted and compacted records only advance the position."""
    (batch,) = await fetched(Consumer(({}, {AT: 7, OTHER: 0})), {AT: 3, OTHER: 0})
    assert (batch.fetched_from, batch.next_offset, batch.buffer, batch.count) == (3, 7, None, 0)
    assert await fetched(Consumer(({}, {AT: 7, OTHER: 0})), {AT: 7, OTHER: 0}) == []


async def test_the_brokers_time_is_told_as_such() -> None:
    """Records with LogAppendTime form batches of one timestamp, apart from the others."""
    rows = [record(0), record(1, stamp=9, kind=1), record(2, stamp=9, kind=1), record(3, stamp=10)]
    found = await fetched(Consumer(({AT: rows}, {AT: 4, OTHER: 0})), {AT: 0, OTHER: 0})
    assert [(batch.fetched_from, batch.next_offset) for batch in found] == [(0, 1), (1, 3), (3, 4)]
    buffers = [batch.buffer or b"" for batch in found]
    times = [decode_records(buffer).timestamps.tolist() for buffer in buffers]
    assert times == [[5], [9, 9], [10]]
    by_broker = [kernels.headers(buffer)[0][4] & LOG_APPEND_TIME for buffer in buffers]
    assert by_broker == [0, LOG_APPEND_TIME, 0]
    assert [batch.stamped for batch in found] == [False, True, False]


async def test_a_partition_that_nobody_sought_begins_with_its_first_record() -> None:
    """Offsets before it are not reported as read, since they may not have been."""
    (batch,) = await fetched(Consumer(({AT: [record(5)]}, {AT: 6, OTHER: 0})), {})
    assert (batch.fetched_from, batch.next_offset) == (5, 6)


async def test_portions_follow_the_size_of_records() -> None:
    """A fetch asks for as many records as fit, at 1 MiB each until their size is known."""
    rows = [record(0, value=bytes(1 << 19)), record(1)]
    consumer = Consumer(({AT: rows}, {AT: 2, OTHER: 0}), ({}, {AT: 2, OTHER: 0}))
    reader = Played(consumer)
    for _ in range(2):
        await reader.fetch(timeout_ms=1, portion=16 << 20, reached={AT: 2, OTHER: 0})
    assert consumer.asked == [16, 31]


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptRecordException("Invalid CRC - t-0"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a header's name"),
    ],
)
async def test_what_an_unreadable_record_took_along_is_read_again(error: Exception) -> None:
    """A read error also drops and passes the other partitions' records: they are sought again.

    The third error is raised, since reading again does not help.
    """
    consumer = Consumer(*[(error, {AT: 3, OTHER: 9})] * 3)
    reader = Played(consumer)
    for _ in range(2):
        assert await reader.fetch(timeout_ms=1, portion=1, reached={AT: 3, OTHER: 4}) == []
    assert consumer.sought == [(OTHER, 4)] * 2
    with pytest.raises(ClusterError, match="cannot be read by aiokafka: "):
        await reader.fetch(timeout_ms=1, portion=1, reached={AT: 3, OTHER: 4})


async def test_fetching_that_has_ended_is_found_out() -> None:
    """Brokers answer another request but no fetch; in an outage they answer neither."""
    nothing: Any = ({}, {AT: 0, OTHER: 0})
    consumer = Consumer(*[nothing] * 8)
    reader = Played(consumer, request_timeout_ms=1)
    reader._patience = -1

    async def fetch() -> None:
        await reader.fetch(timeout_ms=1, portion=1, reached={AT: 0, OTHER: 0})

    consumer.polled = 1
    await fetch()
    consumer.polled = 2
    await fetch()
    await fetch()  # the brokers answer: wait as long again for a fetch
    consumer.reached = False
    with pytest.raises(RequestError) as caught:
        await fetch()
    assert caught.value.code == Code.GAVE_UP_WAITING
    consumer.reached, consumer.resting = True, {AT, OTHER}
    await fetch()
    consumer.resting = set()
    await fetch()
    await fetch()
    with pytest.raises(ClusterError, match="aiokafka's fetcher has stopped"):
        await fetch()


@pytest.mark.parametrize(
    ("stable", "high", "end", "ends"),
    [
        (None, None, 5, End(5, 5)),
        (5, 9, 5, End(9, 5)),
        (5, 9, 8, End(9, 8)),
        (9, 9, 5, End(5, 5)),  # a recreated topic is shorter
        (8, 9, 5, End(5, 5)),
        (-1, 9, 5, End(5, 5)),  # not reported to read_uncommitted
    ],
)
async def test_an_open_transaction_hides_the_end_of_a_log(
    stable: int | None, high: int | None, end: int, ends: End
) -> None:
    """The stable offset and high watermark of the last fetch reveal it."""
    consumer = Consumer()
    consumer.fetched, consumer.end = (stable, high), end
    reader = Played(consumer)
    assert await reader.ends({cast("Any", AT): ReadPosition(0)}) == {AT: ends}
    assert (await reader.topic_id("t"), reader.sees_topic_ids) == (None, False)
    assert not reader.sees_markers
