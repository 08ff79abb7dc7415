"""The one door to what aiokafka does not promise to keep: written for 0.14, held by tests.

- **Out**: `ReadyBatch` is what `AIOKafkaProducer.send_batch` asks of a batch, around bytes that
  are encoded already. It counts how often its bytes were handed over for transmission.
- **In**: the fetcher looks up `MemoryRecords` and `PartitionRecords` among its module's globals
  when a response arrives. `install` puts ours there: a consumer whose `key_deserializer` is a
  `Door` then gets whole batches from `getmany`, any other consumer its records as ever.
- **Metadata**: `install` also keeps aiokafka's clients from having missing topics created by the
  mere question for them, where the broker allows it.
"""

# ruff: noqa: SLF001  # private members are this module's business, and no other's

from __future__ import annotations

import functools
import inspect
import time
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import aiokafka
from aiokafka import client as _client
from aiokafka import conn as _conn
from aiokafka.admin import client as _admin
from aiokafka.consumer import fetcher as _fetcher
from aiokafka.errors import KafkaError
from aiokafka.producer import message_accumulator as _accumulator
from aiokafka.producer import sender as _sender
from aiokafka.producer import transaction_manager as _transactions
from aiokafka.protocol.metadata import MetadataRequest

from mirrortest.errors import ClusterError
from mirrortest.kafka.fetched import Unreadable, batches, has_whole_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    from mirrortest.kafka.fetched import Fetched

SERIES = "0.14"
_READ_COMMITTED = 1
_TORN_READS = 3
_MAX_SEQUENCE = 2**31 - 1

_MemoryRecords = _fetcher.MemoryRecords
_PartitionRecords = _fetcher.PartitionRecords

_SIGNATURES: tuple[tuple[Any, str], ...] = (
    (
        _PartitionRecords.__init__,
        (
            "self tp records aborted_transactions fetch_offset key_deserializer "
            "value_deserializer check_crcs isolation_level"
        ),
    ),
    (_fetcher.FetchResult.__init__, "self tp assignment partition_records backoff"),
    (_fetcher.Fetcher._proc_fetch_request, "self assignment node_id request"),
    (_accumulator.MessageBatch.set_producer_state, "self producer_id producer_epoch base_sequence"),
    (_accumulator.MessageBatch.failure, "self exception"),
    (_accumulator.MessageAccumulator.add_batch, "self builder tp timeout"),
    (_accumulator.MessageAccumulator.fail_all, "self exception"),
    (_sender.Sender.close, "self"),
    (_transactions.TransactionManager.increment_sequence_number, "self tp increment"),
    (_client.AIOKafkaClient._metadata_update, "self cluster_metadata topics"),
)
"""What this module relies on: callables and their parameters."""


def install() -> None:
    """Open the door; to be called before a client of ours is made, as often as one likes.

    Raises:
        ClusterError: this aiokafka is not the one that the door was made for.
    """
    check_series()
    _fetcher.MemoryRecords = RawRecords
    _fetcher.PartitionRecords = _partition_records
    _client.MetadataRequest = _ask_only
    _admin.MetadataRequest = _ask_only


@functools.cache
def check_series() -> None:
    """Refuse an aiokafka of another series or of another shape, before it does harm.

    Raises:
        ClusterError: what differs.
    """
    version = aiokafka.__version__
    if not version.startswith(f"{SERIES}."):
        _refuse(f"it is {version}")
    for function, expected in _SIGNATURES:
        found = " ".join(inspect.signature(function).parameters)
        if found != expected:
            _refuse(f"{function.__qualname__} takes ({found})")


def _refuse(what: str) -> NoReturn:
    raise ClusterError(
        f"this aiokafka cannot be used: {what}; install 'aiokafka=={SERIES}.*', as mirrortest "
        "is tested with"
    )


_ask_only = functools.partial(MetadataRequest, allow_auto_topic_creation=False)


async def try_connection(arguments: dict[str, Any]) -> None:
    """Connect to one bootstrap server and close; what goes wrong is raised, not only logged."""
    host, port, _ = _conn.collect_hosts(arguments["bootstrap_servers"])[0]
    unused = {"bootstrap_servers", "metadata_max_age_ms", "retry_backoff_ms"}
    idle = arguments["connections_max_idle_ms"]
    options = {key: value for key, value in arguments.items() if key not in unused}
    del options["connections_max_idle_ms"]
    connection = await _conn.create_conn(host, port, max_idle_ms=idle, **options)
    await connection.close()


# -- out: batches that are encoded already -------------------------------------------------------


class Encoded(Protocol):
    """What is asked of an encoded batch (`wire.batch.EncodedBatch`)."""

    @property
    def buffer(self) -> bytearray:
        """The whole record batch, header included."""

    @property
    def count(self) -> int:
        """Number of records."""

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the producer's state and the CRC."""


class WithdrawnError(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """A batch was asked for after it had been given up: the sender ends with it."""


class ReadyBatch:
    """What `send_batch` takes for a BatchBuilder.

    `handed_over` counts the times the bytes were taken for transmission: whether the network took
    them, too, cannot be known. Once `withdrawn` they are never given out again.
    """

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self._sealed = False
        self.handed_over = 0
        self.withdrawn = False

    def record_count(self) -> int:
        """Number of records."""
        return self._encoded.count

    def size(self) -> int:
        """Bytes of the batch."""
        return len(self._encoded.buffer)

    def closed(self) -> bool:
        """Nothing can be added, so nothing is waited for."""
        return True

    def close(self) -> None:
        """Nothing to do."""

    def append(self, **_: Any) -> None:
        """Refuse, as a full batch does."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base: int) -> None:
        self._encoded.seal(producer_id, producer_epoch, base)
        self._sealed = True

    def _build(self) -> bytearray:
        if self.withdrawn:
            raise WithdrawnError("the batch was given up")
        if not self._sealed:
            self._encoded.seal(-1, -1, -1)
            self._sealed = True
        self.handed_over += 1
        return self._encoded.buffer


def wrap_sequences(producer: AIOKafkaProducer) -> None:
    """Let sequence numbers go on at 0 after 2^31 - 1, as brokers expect; aiokafka goes negative."""
    manager = producer._txn_manager
    if manager is None:
        return
    numbers = manager._sequence_numbers

    def increment(tp: Any, increment: int) -> None:
        numbers[tp] = (numbers[tp] + increment) & _MAX_SEQUENCE

    manager.increment_sequence_number = increment


def abandon(producer: AIOKafkaProducer, reason: str) -> None:
    """Take up no batch any more; once those on their way are answered, all other futures fail."""
    task = producer._sender.sender_task
    accumulator = producer._message_accumulator

    def fail_rest(_: object) -> None:
        waiting = [batch for queue in accumulator._batches.values() for batch in queue]
        accumulator.fail_all(KafkaError(reason))
        for batch in waiting:
            # Otherwise asyncio reports an exception that nobody asked for.
            if batch._drain_waiter.done():
                batch._drain_waiter.exception()

    if task is None or task.done():
        fail_rest(None)
        return
    task.add_done_callback(fail_rest)
    task.cancel()


def delivery_failure(producer: AIOKafkaProducer) -> BaseException | None:
    """Why the producer's delivery task has ended by itself; None while it runs."""
    task = producer._sender.sender_task
    if task is None or not task.done() or task.cancelled():
        return None
    failure: BaseException | None = task.exception()
    return failure


# -- in: whole batches ---------------------------------------------------------------------------


class Door:
    """Given as `key_deserializer`, it marks a consumer as ours; it keeps count of torn reads."""

    def __init__(self) -> None:
        self.torn: dict[Any, tuple[int, int]] = {}
        """partition -> (offset, how often it was read torn in a row)"""


class RawRecords:
    """In place of MemoryRecords: keeps the response's bytes, and is a MemoryRecords to others."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._original: Any = None

    def size_in_bytes(self) -> int:
        """Bytes of the response for this partition."""
        return len(self.data)

    def has_next(self) -> bool:
        """Whether there is a whole batch left."""
        if self._original is None:
            return has_whole_batch(self.data)
        return bool(self._original.has_next())

    def next_batch(self) -> Any:
        """The next batch, decoded by aiokafka."""
        return self.original().next_batch()

    def original(self) -> Any:
        """The same bytes as aiokafka's own object."""
        if self._original is None:
            self._original = _MemoryRecords(self.data)
        return self._original


class WholeBatches:
    """In place of PartitionRecords: iterates over batches, and moves the position with each."""

    def __init__(
        self, door: Door, tp: Any, data: bytes, aborted: Any, fetch_offset: int, isolation: int
    ) -> None:
        self.next_fetch_offset = fetch_offset
        self._door = door
        self._tp = tp
        found = batches(
            data,
            topic=tp.topic,
            partition=tp.partition,
            fetch_offset=fetch_offset,
            arrived_ns=time.time_ns(),
            aborted=(aborted or ()) if isolation == _READ_COMMITTED else None,
        )
        self._items = self._readable(found)

    def __iter__(self) -> Iterator[Fetched]:
        return self

    def __next__(self) -> Fetched:
        return next(self._items)

    def _readable(self, found: Iterator[Fetched]) -> Iterator[Fetched]:
        """Pass batches on; a torn one ends the response, so that it is fetched again."""
        for item in found:
            if not isinstance(item, Unreadable):
                self.next_fetch_offset = item.next_offset
                yield item
                continue
            offset, times = self._door.torn.get(self._tp, (item.offset, 0))
            times = times + 1 if offset == item.offset else 1
            self._door.torn[self._tp] = (item.offset, times)
            if not item.torn or times >= _TORN_READS:
                yield item
            return
        self._door.torn.pop(self._tp, None)


def _partition_records(
    tp: Any,
    records: RawRecords,
    aborted_transactions: Any,
    fetch_offset: int,
    key_deserializer: Any,
    *rest: Any,
) -> Any:
    if isinstance(key_deserializer, Door):
        isolation = rest[-1]
        return WholeBatches(
            key_deserializer, tp, records.data, aborted_transactions, fetch_offset, isolation
        )
    return _PartitionRecords(
        tp, records.original(), aborted_transactions, fetch_offset, key_deserializer, *rest
    )


def fetch_failure(consumer: AIOKafkaConsumer) -> BaseException | None:
    """Why the consumer's fetching has ended by itself, which aiokafka tells nobody."""
    task = consumer._fetcher._fetch_task
    if not task.done() or task.cancelled():
        return None
    failure: BaseException | None = task.exception()
    return failure or RuntimeError("fetching has ended")


def positions(consumer: AIOKafkaConsumer) -> dict[Any, tuple[int | None, bool]]:
    """Of each assigned partition, the next offset to be read (None: none yet), and if paused."""
    subscription = consumer._subscription.subscription
    if subscription is None or subscription.assignment is None:
        return {}
    assignment = subscription.assignment
    states = {tp: assignment.state_value(tp) for tp in assignment.tps}
    return {
        tp: (state.position if state.has_valid_position else None, state.paused)
        for tp, state in states.items()
    }


async def disconnect(consumer: AIOKafkaConsumer) -> None:
    """Close the connections of a consumer that cannot be stopped in order."""
    await consumer._client.close()
