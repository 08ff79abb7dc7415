"""Shared by the faulty mirror's tests: source records in both forms, and an injector for them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrortest.faults.alteration import Target, TruthRow
from mirrortest.faults.injector import PartitionInjector, Write
from mirrortest.faults.records import encode_batch
from mirrortest.faults.selection import Selection
from mirrortest.faults.source_batch import SourceBatch
from mirrortest.faults.spec import Spec
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.message import Message, Record, decode, encode
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.single_records import parse_headers
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.wire.form import Form

TOPIC, OTHER = "orders", "clicks"
PARTITIONS = {TOPIC: 4, OTHER: 2}
ANN, BOB = ProducerId("ann", "r7", 1), ProducerId("bob", "r7", 2)
START = 1_700_000_000_000_000_000


def message(
    seq: int,
    *,
    producer: ProducerId = ANN,
    lane: int = 3,
    partition: int = 1,
    size: int = 150,
    topic: str = TOPIC,
) -> Message:
    at = START + 1_000_000 * seq
    return Message(topic, producer, lane, seq, at, at + 500_000, partition, 4, size)


def batch_of(
    records: list[Record], *, first: int = 0, partition: int = 1, topic: str = TOPIC
) -> SourceBatch:
    """Records as one fetched batch that begins at a source offset."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, r in enumerate(records):
        assert builder.append(offset, r.timestamp_ms, r.key, r.value, list(r.headers))
    arrays = decode_records(bytes(builder.build()))
    arrays.offsets[:] += np.int64(first)
    return SourceBatch(topic, partition, arrays, BatchDecoder(topic).decode(arrays))


class Written(NamedTuple):
    """One record that the injector wrote."""

    target: Target
    record: Record
    faults: tuple[TruthRow, ...]

    @property
    def seq(self) -> int:
        seq = decode(self.record, self.target.topic).seq
        assert seq is not None
        return seq


def written(writes: list[Write]) -> list[Written]:
    """The records that a destination would contain, in the order of each partition."""
    found = []
    for target, content, faults in writes:
        arrays = decode_records(encode_batch([content]).buffer)
        assert arrays.offsets.tolist() == list(range(len(arrays)))
        for row in range(len(arrays)):
            headers = parse_headers(arrays.raw_headers(row))
            stamp = int(arrays.timestamps[row])
            record = Record(arrays.key(row), arrays.value(row), headers, stamp)
            found.append(Written(target, record, faults))
    return found


def injector(spec_text: str) -> PartitionInjector:
    spec = Spec.parse(spec_text)
    return PartitionInjector(spec, Selection(spec, TOPIC, 1), Target(TOPIC, 1), PARTITIONS)


def through(
    spec_text: str, records: list[Record], *, cuts: Sequence[int] = ()
) -> tuple[list[Written], list[TruthRow]]:
    """What an injector writes for these records, and the truth rows of unwritten messages.

    The records are split into batches at `cuts`.
    """
    way = injector(spec_text)
    writes, faults = [], []
    bounds = [0, *cuts, len(records)]
    for lo, hi in pairwise(bounds):
        step = way.feed(batch_of(records[lo:hi], first=lo), 0)
        writes += step.writes
        faults += step.faults
    step = way.finish(7_000_000_000)
    return written(writes + step.writes), faults + step.faults


def lane(count: int, form: Form, **changes: Any) -> list[Record]:
    return [encode(message(seq, **changes), form) for seq in range(count)]
