"""aiokafka by its public calls alone (`--portable`): slower, and the same judgement.

For an aiokafka whose insides `seam` does not know. What differs:

- **Out**: each record is handed to a batch builder, and aiokafka numbers and compresses the batch.
  Nobody tells when its bytes are handed over, nor how often: what was queued and not acknowledged
  is unknown. A producer that is given up cannot be told to send no more.
- **In**: records come as objects, and are put together to record batches again. They arrive when
  they are returned. How a batch was compressed is not told. A record whose header has a name that
  is no UTF-8 cannot be read.
- **Topics**: aiokafka's question for a missing topic may have it made. So all topics are asked
  for; only one that is deleted while it is written or read may come back, where brokers allow it.
- **Identity**: neither topic ids nor leader epochs are asked for, so that a topic re-created behind
  the reader, or a log cut back, is only seen where the last record that was read is another one.
- **Entry**: that a password is refused is written to aiokafka's log alone.
"""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from aiokafka import TopicPartition as KafkaPartition

from mirrortest.errors import ClusterError
from mirrortest.kafka.fetched import End, FetchedBatches, OutOfRange
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire.record_batch import decode_records, parse_headers
from mirrortest.wire.record_write import write_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrortest.kafka.access import Encoded
    from mirrortest.kafka.fetched import Fetched, Place

ASKING_MAKES_TOPICS = True
"""See `kafka.access`."""

_PERHAPS = 1 << 30
"""How often a batch may have been handed over, once it was queued."""
_LARGEST_BATCH = 1 << 30
"""Bytes: what comes here is small enough already."""
_NUMBERS = 1 << 31
"""A partition's sequence numbers, which aiokafka does not let begin anew as brokers expect."""
_NO_HEADERS = 1
"""Bytes of a header section that counts no header."""
_RECORD_BYTES = 1 << 20
"""What a record is taken to have before one was seen."""
_RECORD_COST = 200
"""Bytes in memory for a record beside its content, at least."""
_MOST_RECORDS = 4_000
"""Returned at once: each is made of several objects, while nothing else runs."""
_LOG_APPEND_TIME = 1
_NO_TIME = -1
_TORN_READS = 3
_PATIENCE = 3
"""So many times the time that a request may take."""

_leaving: set[asyncio.Future[Any]] = set()
"""Clients that are being stopped and no longer waited for."""


class QueuedBatch:
    """A batch of records; see `access.Batch`."""

    def __init__(self, builder: Any, count: int) -> None:
        self.builder = builder
        self.count = count
        self.handed_over = 0
        self.withdrawn = False


class Outlet:
    """See `access.Outlet`."""

    def __init__(self, client: AIOKafkaProducer) -> None:
        self.client = client
        self._numbered: dict[tuple[str, int], int] = {}
        self._failure: BaseException | None = None
        self._stopping: asyncio.Future[Any] | None = None

    def batch(self, encoded: Encoded) -> QueuedBatch:
        """See `access.Outlet`.

        Raises:
            ClusterError: this aiokafka's builder does not take records as they are.
        """
        builder = self.client.create_batch()
        for stamp, key, value, headers in _records(encoded.buffer):
            told = builder.append(timestamp=stamp, key=key, value=value, headers=headers)
            if told is None or told.timestamp != stamp:
                why = "is full too early" if told is None else "changes a record's timestamp"
                raise ClusterError(f"this aiokafka cannot be used: its batch builder {why}")
        builder.close()
        return QueuedBatch(builder, encoded.count)

    async def send(self, batch: QueuedBatch, topic: str, partition: int) -> asyncio.Future[Any]:
        """See `access.Outlet`."""
        batch.handed_over = _PERHAPS
        try:
            delivered: asyncio.Future[Any] = await self.client.send_batch(
                batch.builder, topic, partition=partition
            )
        except Exception as error:
            batch.handed_over = 0
            self._note(error)
            raise
        self._numbered[topic, partition] = self._numbered.get((topic, partition), 0) + batch.count
        delivered.add_done_callback(self._ended)
        return delivered

    def numbers_left(self, topic: str, partition: int) -> int:
        """See `access.Outlet`."""
        return _NUMBERS - self._numbered.get((topic, partition), 0)

    def failure(self) -> BaseException | None:
        """See `access.Outlet`."""
        return self._failure

    def abandon(self, why: str) -> None:
        """It cannot be told."""

    async def stop(self, seconds: float, why: str) -> None:  # noqa: ARG002  # nobody to tell it
        """See `access.Outlet`."""
        self._stopping = await _stopped(self.client, seconds)

    async def gone(self) -> None:
        """See `access.Outlet`."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})

    def _ended(self, delivered: asyncio.Future[Any]) -> None:
        if not delivered.cancelled():
            self._note(delivered.exception())

    def _note(self, error: BaseException | None) -> None:
        # So ends what is underway when delivery as a whole has broken off.
        if type(error) is errors.KafkaError:
            self._failure = error


class Inlet:
    """See `access.Inlet`."""

    def __init__(self, client: AIOKafkaConsumer, patience: float) -> None:
        self.client = client
        self._patience = patience
        """Seconds without an answer to a fetch, after which it is asked whether there are any."""
        self._largest = _RECORD_BYTES
        """Bytes of the largest record in the last answer."""
        self._torn: dict[str, int] = {}
        """In aiokafka's words what could not be read -> how often."""
        self._polled = 0
        """When a broker last answered a fetch, ms of wall time; 0: never."""
        self._polled_since = time.monotonic()
        self._suspect = False
        """Whether no fetch was answered for long, and another question was."""

    sees_topic_ids = False
    """See `access.Inlet`."""

    def place(self, partition: TopicPartition, place: Place) -> None:
        """It cannot be told."""

    async def topic_id(self, topic: str) -> str | None:
        """It cannot be asked."""

    async def ends(self, read: Mapping[TopicPartition, Place]) -> dict[TopicPartition, End]:
        """See `access.Inlet`; how far a log is replicated is known of what is read alone."""
        told = await self.client.end_offsets([KafkaPartition(*at) for at in read])
        return {
            TopicPartition(*at): End(self._replicated(at, int(end)), int(end))
            for at, end in told.items()
        }

    def _replicated(self, at: Any, end: int) -> int:
        """Where a log ends that a reader may read up to `end`: an open transaction hides more."""
        if at not in self.client.assignment():
            return end
        stable, high = self.client.last_stable_offset(at), self.client.highwater(at)
        # Both are of the last fetch. An end before them is another topic's.
        if stable is None or high is None or not 0 <= stable < high or end < stable:
            return end
        return max(end, int(high))

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[TopicPartition, int]
    ) -> list[list[Fetched]]:
        """See `access.Inlet`.

        Raises:
            ClusterError: a record cannot be read, and reading it again did not help; or nothing
                is fetched any more.
        """
        most = min(max(1, portion // self._largest), _MOST_RECORDS)
        try:
            fetched = await self.client.getmany(timeout_ms=timeout_ms, max_records=most)
        except (errors.CorruptRecordException, errors.UnsupportedCodecError, ValueError) as error:
            await self._rewind(reached)
            self._unreadable(error)
            return []
        except errors.OffsetOutOfRangeError as error:
            return [
                [OutOfRange(at.topic, at.partition, offset)] for at, offset in error.args[0].items()
            ]
        arrived_ns = time.time_ns()
        found: list[list[Fetched]] = []
        largest = 0
        for at in self.client.assignment():
            records = fetched.get(at, ())
            begin = reached.get(at)
            if begin is None:
                if not records:
                    continue
                begin = records[0].offset
            position = await self.client.position(at)
            if records:
                largest = max(largest, *map(_size, records))
                found.append(list(_batches(at, records, begin, position, arrived_ns)))
            elif position > begin:
                found.append([_gap(at, begin, position, arrived_ns)])
        self._largest = largest or self._largest
        if not found:
            await self._still_fetches()
        return found

    def failure(self) -> BaseException | None:
        """It cannot be told; see `_still_fetches`."""
        return None

    async def stop(self, seconds: float) -> None:
        """See `access.Inlet`."""
        await _stopped(self.client, seconds)

    async def _rewind(self, reached: Mapping[TopicPartition, int]) -> None:
        """Go back where an answer was lost: aiokafka has moved on in other partitions, too."""
        for at in self.client.assignment():
            begin = reached.get(at)
            if begin is not None and await self.client.position(at) != begin:
                self.client.seek(at, begin)

    async def _still_fetches(self) -> None:
        """Raise where no fetch was answered for long though the brokers answer other questions.

        aiokafka's fetching may end by an error of its own, which it tells nobody.
        """
        wanted = self.client.assignment() - self.client.paused()
        polled = max((self.client.last_poll_timestamp(at) or 0 for at in wanted), default=0)
        now = time.monotonic()
        if not wanted or polled != self._polled:
            self._polled, self._polled_since, self._suspect = polled, now, False
        elif now - self._polled_since > self._patience:
            suspect, self._suspect, self._polled_since = self._suspect, False, now
            await self.client.end_offsets(wanted)
            if suspect:
                raise ClusterError(
                    f"nothing was fetched for {self._patience:g} s though the brokers answer: "
                    "aiokafka has broken off; start again, to go on where the state is"
                )
            self._suspect = True  # they may only just have come back

    def _unreadable(self, error: Exception) -> None:
        what = str(error)
        self._torn[what] = times = self._torn.get(what, 0) + 1
        if times >= _TORN_READS:
            raise ClusterError(f"a record cannot be read by aiokafka: {what}") from error


def outlet(arguments: dict[str, Any], *, compression: str = "none") -> Outlet:
    """A producer, which compresses by itself."""
    own = {
        "max_batch_size": _LARGEST_BATCH,
        "compression_type": None if compression == "none" else compression,
    }
    return Outlet(AIOKafkaProducer(**(own | arguments)))


def inlet(arguments: dict[str, Any]) -> Inlet:
    """A consumer of records."""
    patience = _PATIENCE * arguments["request_timeout_ms"] / 1000
    return Inlet(AIOKafkaConsumer(**arguments), patience)


async def try_connection(arguments: dict[str, Any]) -> None:
    """Connect to one bootstrap server as far as TLS, and close; what goes wrong is raised."""
    host, _, port = arguments["bootstrap_servers"][0].rpartition(":")
    tls = arguments["ssl_context"]
    async with asyncio.timeout(arguments["request_timeout_ms"] / 1000):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    writer.close()


async def _stopped(client: Any, seconds: float) -> asyncio.Future[Any]:
    """Stop a client, waiting for it so many seconds at most; the stopping goes on by itself."""
    stopping: asyncio.Future[Any] = asyncio.ensure_future(client.stop())
    _leaving.add(stopping)
    stopping.add_done_callback(_left)
    await asyncio.wait({stopping}, timeout=seconds)
    return stopping


def _left(stopping: asyncio.Future[Any]) -> None:
    _leaving.discard(stopping)
    if not stopping.cancelled():
        stopping.exception()  # without a broker it may be anything


def _records(
    batch: bytearray | memoryview,
) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """An uncompressed batch's records: timestamp in ms, key, value, headers."""
    records = decode_records(batch)
    data = records.buffer.data
    columns = zip(
        records.timestamps.tolist(),
        records.key_start.tolist(),
        records.key_len.tolist(),
        records.value_start.tolist(),
        records.value_len.tolist(),
        records.headers_start.tolist(),
        records.headers_len.tolist(),
        strict=True,
    )
    for stamp, key_at, key_len, value_at, value_len, headers_at, headers_len in columns:
        yield (
            stamp,
            None if key_len < 0 else bytes(data[key_at : key_at + key_len]),
            None if value_len < 0 else bytes(data[value_at : value_at + value_len]),
            []
            if headers_len == _NO_HEADERS
            else list(parse_headers(bytes(data[headers_at : headers_at + headers_len]))),
        )


def _batches(
    at: Any, records: list[Any], begin: int, position: int, arrived_ns: int
) -> Iterator[FetchedBatches]:
    """A partition's records as batches, each of one kind of time."""
    runs = [(stamp, list(run)) for stamp, run in groupby(records, _append_stamp)]
    for index, (stamp, run) in enumerate(runs):
        last = run[-1].offset + 1
        following = position if index == len(runs) - 1 else last
        yield FetchedBatches(
            topic=at.topic,
            partition=at.partition,
            fetched_from=begin,
            next_offset=max(following, last),
            arrived_ns=arrived_ns,
            buffer=write_records(map(_row, run), log_append_time=stamp is not None),
            count=len(run),
        )
        begin = max(following, last)


def _gap(at: Any, begin: int, position: int, arrived_ns: int) -> FetchedBatches:
    """Where there is nothing to be read: markers, aborted and compacted records."""
    return FetchedBatches(
        topic=at.topic,
        partition=at.partition,
        fetched_from=begin,
        next_offset=position,
        arrived_ns=arrived_ns,
        buffer=None,
        count=0,
    )


def _append_stamp(record: Any) -> int | None:
    """The broker's timestamp, which all records of its batch have; None for the producer's."""
    return int(record.timestamp) if record.timestamp_type == _LOG_APPEND_TIME else None


def _row(record: Any) -> tuple[int, int, bytes | None, bytes | None, Any]:
    stamp = _NO_TIME if record.timestamp is None else record.timestamp
    return record.offset, stamp, record.key, record.value, record.headers


def _size(record: Any) -> int:
    return _RECORD_COST + len(record.key or b"") + len(record.value or b"")
