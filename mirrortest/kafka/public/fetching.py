"""A consumer with aiokafka's public API.

aiokafka returns records as objects, which are encoded as record batches again. Their arrival time
is when aiokafka returns them. A batch's compression is not reported. A record with a header name
that is not UTF-8 cannot be read. Fetches carry no topic ids and no leader epochs: a recreated topic
or a truncated log is only noticed if the last record that was read differs.
"""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, errors
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from mirrortest.errors import ClusterError
from mirrortest.kafka.fetched import End, FetchedBatches, OutOfRange
from mirrortest.kafka.public.connection import arguments, begin_stop, request_error, request_errors
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.wire.single_records import write_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.fetched import Fetched, ReadPosition
    from mirrortest.kafka.ports import RebalanceListener

_RECORD_BYTES = 1 << 20
"""The assumed size of a record before one was seen."""
_RECORD_COST = 200
"""Minimum bytes in memory for a record in addition to its content."""
_MAX_RECORDS = 4_000
"""Records returned at once: each consists of several objects, created while nothing else runs."""
_LOG_APPEND_TIME = 1
_NO_TIME = -1
_TORN_READS = 3
_PATIENCE = 3
"""How many request timeouts to wait for a response to a fetch."""
_GROUP_METADATA_MS = 10_000
"""A group's reader looks for new topics and partitions at least this often."""


class PublicConsumer:
    """See `ports.ConsumerPort`."""

    client_type: Any = AIOKafkaConsumer

    def __init__(self, config: ClientConfig, group: str | None = None) -> None:
        self.client = self.client_type(**(arguments(config) | _options(config, group)))
        self._patience = _PATIENCE * config.request_timeout_ms / 1000
        """Seconds without a response to a fetch, after which brokers are asked for end offsets."""
        self._largest = _RECORD_BYTES
        """Bytes of the largest record in the last fetch."""
        self._torn: dict[str, int] = {}
        """aiokafka's text of a read error -> how often it occurred."""
        self._polled = 0
        """When a broker last answered a fetch, in ms of wall time; 0 if never."""
        self._polled_since = time.monotonic()
        self._suspect = False
        """Whether no fetch was answered for long, but another request was."""

    async def start(self) -> None:
        """See `ports.ClientPort`."""
        with request_errors():
            await self.client.start()

    async def stop(self, seconds: float) -> None:
        """See `ports.ClientPort`."""
        await asyncio.wait({begin_stop(self.client)}, timeout=seconds)

    @property
    def sees_markers(self) -> bool:
        """See `ports.ConsumerPort`; records come without their batches."""
        return False

    @property
    def sees_topic_ids(self) -> bool:
        """See `ports.ConsumerPort`; nothing is fetched by topic id."""
        return False

    # -- what to read ---------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener) -> None:
        """See `ports.ConsumerPort`."""
        self.client.subscribe(topics=list(topics), listener=_Listener(listener))

    def subscribe_pattern(self, pattern: str, listener: RebalanceListener) -> None:
        """See `ports.ConsumerPort`."""
        self.client.subscribe(pattern=pattern, listener=_Listener(listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        self.client.assign(_to_aiokafka(partitions))

    def seek(self, partition: TopicPartition, read_position: ReadPosition) -> None:
        """See `ports.ConsumerPort`; no public call takes more than the offset."""
        with request_errors():
            self.client.seek(KafkaPartition(*partition), read_position.offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            self.client.pause(*_to_aiokafka(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            self.client.resume(*_to_aiokafka(partitions))

    # -- offsets --------------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return set(await self.client.topics())

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return _from_aiokafka(await self.client.beginning_offsets(_to_aiokafka(partitions)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `ports.ConsumerPort`."""
        with request_errors():
            return _from_aiokafka(await self.client.end_offsets(_to_aiokafka(partitions)))

    async def topic_id(self, topic: str) -> str | None:  # noqa: ARG002  # a port's method
        """See `ports.ConsumerPort`; no public call returns one."""
        return None

    async def ends(self, read: Mapping[TopicPartition, ReadPosition]) -> dict[TopicPartition, End]:
        """See `ports.ConsumerPort`; the high watermark is only that of the last fetch."""
        ends = await self.end_offsets(read)
        return {at: End(self._high_watermark(at, end), end) for at, end in ends.items()}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `ports.ConsumerPort`."""
        with request_errors():
            await self.client.commit(
                {KafkaPartition(*at): offset for at, offset in offsets.items()}
            )

    # -- fetching -------------------------------------------------------------------------------

    async def fetch(
        self, *, timeout_ms: int, portion: int, reached: Mapping[TopicPartition, int]
    ) -> list[list[Fetched]]:
        """See `ports.ConsumerPort`.

        Raises:
            ClusterError: a record cannot be read, even by repeated reads; or aiokafka's fetching
                has ended.
        """
        most = min(max(1, portion // self._largest), _MAX_RECORDS)
        try:
            fetched = await self.client.getmany(timeout_ms=timeout_ms, max_records=most)
        except (errors.CorruptRecordException, errors.UnsupportedCodecError, ValueError) as error:
            await self._rewind(reached)
            self._count_unreadable(error)
            return []
        except errors.OffsetOutOfRangeError as error:
            return [
                [OutOfRange(at.topic, at.partition, offset)] for at, offset in error.args[0].items()
            ]
        except (errors.KafkaError, OSError) as error:
            raise request_error(error) from error
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
            await self._check_fetching()
        return found

    def failure(self) -> str | None:
        """Return None: no public call reports it; see `_check_fetching`."""
        return None

    def _high_watermark(self, partition: TopicPartition, end: int) -> int:
        """The high watermark of a log readable up to `end`; open transactions hide the rest."""
        at = KafkaPartition(*partition)
        if at not in self.client.assignment():
            return end
        stable, high = self.client.last_stable_offset(at), self.client.highwater(at)
        # Both are from the last fetch. An end below them belongs to another topic.
        if stable is None or high is None or not 0 <= stable < high or end < stable:
            return end
        return max(end, int(high))

    async def _rewind(self, reached: Mapping[TopicPartition, int]) -> None:
        """Seek back after a lost response: aiokafka has advanced other partitions, too."""
        for at in self.client.assignment():
            begin = reached.get(at)
            if begin is not None and await self.client.position(at) != begin:
                self.client.seek(at, begin)

    async def _check_fetching(self) -> None:
        """Raise if no fetch was answered for long although brokers answer other requests.

        aiokafka's fetching can end with an error that no public call reports.
        """
        wanted = self.client.assignment() - self.client.paused()
        polled = max((self.client.last_poll_timestamp(at) or 0 for at in wanted), default=0)
        now = time.monotonic()
        if not wanted or polled != self._polled:
            self._polled, self._polled_since, self._suspect = polled, now, False
        elif now - self._polled_since > self._patience:
            suspect, self._suspect, self._polled_since = self._suspect, False, now
            with request_errors():
                await self.client.end_offsets(wanted)
            if suspect:
                raise ClusterError(
                    f"no fetch succeeded for {self._patience:g} s although brokers respond: "
                    "aiokafka's fetcher has stopped; restart the consumer, it resumes from its "
                    "saved state"
                )
            self._suspect = True  # the brokers may just have come back

    def _count_unreadable(self, error: Exception) -> None:
        what = str(error)
        self._torn[what] = times = self._torn.get(what, 0) + 1
        if times >= _TORN_READS:
            raise ClusterError(f"a record cannot be read by aiokafka: {what}") from error


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """A listener that forwards aiokafka's calls, with our own partition type."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """See `ports.RebalanceListener`."""
        await self._listener.on_partitions_revoked([TopicPartition(*at) for at in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        """See `ports.RebalanceListener`."""
        await self._listener.on_partitions_assigned([TopicPartition(*at) for at in assigned])


def _to_aiokafka(partitions: Iterable[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(*at) for at in partitions]


def _from_aiokafka(offsets: Mapping[KafkaPartition, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*at): int(offset) for at, offset in offsets.items()}


def _options(config: ClientConfig, group: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "fetch_min_bytes": config.fetch_min_bytes,
        "fetch_max_bytes": config.fetch_max_bytes,
        "fetch_max_wait_ms": config.fetch_max_wait_ms,
        "max_partition_fetch_bytes": config.max_partition_fetch_bytes,
        "isolation_level": str(config.isolation_level),
        "client_rack": config.client_rack or None,
    }
    if group is not None:
        options |= {
            "group_id": group,
            "group_instance_id": config.group_instance_id,
            "partition_assignment_strategy": _assignors(config),
            "session_timeout_ms": config.session_timeout_ms,
            "heartbeat_interval_ms": config.heartbeat_interval_ms,
            "max_poll_interval_ms": config.max_poll_interval_ms,
            # As in Kafka's own consumer: how long a rebalance waits for a member to revoke.
            "rebalance_timeout_ms": config.max_poll_interval_ms,
            "metadata_max_age_ms": min(config.metadata_max_age_ms, _GROUP_METADATA_MS),
        }
    return options


def _assignors(config: ClientConfig) -> tuple[type, ...]:
    # The sticky assignor keeps its state in its class: each reader gets its own class.
    classes = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": type("StickyAssignor", (StickyPartitionAssignor,), {}),
    }
    return tuple(classes[str(name)] for name in config.partition_assignment_strategy)


def _batches(
    at: Any, records: list[Any], begin: int, position: int, arrived_ns: int
) -> Iterator[FetchedBatches]:
    """A partition's records as batches, each with one append time or with producers' times."""
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
            stamped=stamp is not None,
        )
        begin = max(following, last)


def _gap(at: Any, begin: int, position: int, arrived_ns: int) -> FetchedBatches:
    """Offsets with nothing to read: markers, aborted and compacted records."""
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
    """The LogAppendTime, which all records of a batch share; None for a producer's timestamp."""
    return int(record.timestamp) if record.timestamp_type == _LOG_APPEND_TIME else None


def _row(record: Any) -> tuple[int, int, bytes | None, bytes | None, Any]:
    stamp = _NO_TIME if record.timestamp is None else record.timestamp
    return record.offset, stamp, record.key, record.value, record.headers


def _size(record: Any) -> int:
    return _RECORD_COST + len(record.key or b"") + len(record.value or b"")
