"""Messages of one lane, changes of them, and what both decoders, single and batch, return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import strategies as st

from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, Record, decode
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.wire.record_batch import RecordArrays

TOPIC = "orders"
START = 1_700_000_000_000_000_000
PA = ProducerId("pa", "run7", 3)

_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
ids = st.builds(
    ProducerId,
    _names,
    st.from_regex(r"[a-z0-9]{1,16}", fullmatch=True),
    st.integers(1, 999_999_999),
)
forms = st.sampled_from(Form)


def lane_messages(
    count: int,
    *,
    producer_id: ProducerId = PA,
    lane: int = 11,
    size: int = 100,
    seq: int = 5000,
    sent_ns: int = START + 7,
) -> list[Message]:
    """Consecutive messages of one lane."""
    return [
        Message(TOPIC, producer_id, lane, seq + i, START + 1000 * i, sent_ns, 2, 5, size)
        for i in range(count)
    ]


def encoder(message: Message, form: Form) -> LaneEncoder:
    """The encoder for messages like this one."""
    return LaneEncoder(
        message.topic,
        message.id,
        message.lane,
        message.source_partition,
        message.destination_partitions,
        form,
        message.size,
        message.compressibility,
    )


def built(records: list[Record]) -> RecordArrays:
    """The decoded arrays of a batch that aiokafka builds from these records.

    Its builder treats a first timestamp of -1 as missing: tests use -2 for one before the epoch.
    """
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, record in enumerate(records):
        assert builder.append(
            offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )
    return decode_records(bytes(builder.build()))


def one_by_one(
    records: list[Record],
) -> list[tuple[Any, ...]]:
    """What the specification's decoder returns, in the form of the arrays."""
    decoded = []
    for offset, record in enumerate(records):
        d = decode(record, TOPIC)
        known = d.id is not None
        decoded.append(
            (
                d.id,
                d.lane if known else -1,
                d.seq if known else -1,
                offset,
                d.intended_ns or 0,
                d.sent_ns or 0,
                -1 if d.source_partition is None else d.source_partition,
                d.destination_partitions or 0,
                int(d.findings),
            )
        )
    return decoded


def all_at_once(
    arrays: RecordArrays,
) -> list[tuple[ProducerId | None, int, int, int, int, int, int, int, int]]:
    """What the batch decoder returns."""
    m = BatchDecoder(TOPIC, min_group=4).decode(arrays)
    assert len(set(m.ids)) == len(m.ids)
    return [
        (None if index < 0 else m.ids[index], *rest)
        for index, *rest in zip(
            m.id_index.tolist(),
            m.lane.tolist(),
            m.seq.tolist(),
            m.offset.tolist(),
            m.intended_ns.tolist(),
            m.sent_ns.tolist(),
            m.source_partition.tolist(),
            m.destination_partitions.tolist(),
            m.findings.tolist(),
            strict=True,
        )
    ]


def mutated(draw: Callable[..., Any], record: Record) -> Record:
    """The record with one change that a mirror, or bad luck, could make."""
    kind = draw(st.integers(0, 8))
    value = record.value or b""
    if kind == 0:
        return record._replace(key=draw(st.none() | st.binary(max_size=12)))
    if kind == 1:
        return record._replace(key=b"%d" % draw(st.integers(0, 1 << 35)))
    if kind == 2:
        return record._replace(timestamp_ms=draw(st.integers(0, START) | st.just(-2)))
    if kind == 3 and value:
        at = draw(st.integers(0, len(value) - 1))
        changed = bytes([value[at] ^ draw(st.integers(1, 255))])
        return record._replace(value=value[:at] + changed + value[at + 1 :])
    if kind == 4:
        at = draw(st.integers(0, len(value)))
        return record._replace(value=draw(st.sampled_from([None, value[:at], value + b"x"])))
    if kind == 5:
        extra = (draw(st.sampled_from(["x", "id", "ts"])), draw(st.none() | st.binary(max_size=3)))
        at = draw(st.integers(0, len(record.headers)))
        return record._replace(headers=(*record.headers[:at], extra, *record.headers[at:]))
    if kind == 6 and record.headers:
        at = draw(st.integers(0, len(record.headers) - 1))
        return record._replace(headers=(*record.headers[:at], *record.headers[at + 1 :]))
    if kind == 7 and record.headers:
        at = draw(st.integers(0, len(record.headers) - 1))
        name, old = record.headers[at]
        old = old or b"?"
        byte = draw(st.integers(0, len(old) - 1))
        new = old[:byte] + bytes([old[byte] ^ draw(st.integers(1, 255))]) + old[byte + 1 :]
        return record._replace(
            headers=(*record.headers[:at], (name, new), *record.headers[at + 1 :])
        )
    return record._replace(headers=record.headers[::-1])
