"""Whole batches: byte for byte and finding for finding what the specification does one by one."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.wire.batch import BatchDecoder, LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, Record, decode, encode
from mirrortest.wire.payload import CURRENT
from mirrortest.wire.record_batch import (
    HEADER_SIZE,
    RecordArrays,
    decode_batches,
    decode_records,
    decompressed,
)
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "orders"
START = 1_700_000_000_000_000_000
PA = ProducerId("pa", "run7", 3)

GOLDEN_BATCH = (
    "00000000000000000000010fffffffff024dc379a60000000000010000018bcfe568000000018bcf"
    "e56800000000000000004d0003000003e800000002da01000000043131c80170614072756e372e33"
    "3b3030303030303030353030303b313730303030303030303030303030303030303bd10202000b00"
    "0000640000000500ed0007002a36fe9c97173a99b25c995e2bda0f6656639918aedc8221dc302b4d"
    "f009af5aee7c7b34430bdf00da01000002043131c80170614072756e372e333b3030303030303030"
    "353030313b313730303030303030303030303030313030303bd10202000b000000640000000500ed"
    "0007002a36fe9c9717fedd3ec0d7a843c78b37f5f81970d0d1c6e52a8ca02d2880a160502fa286d6"
    "690700"
)


def lane_messages(
    count: int,
    *,
    producer_id: ProducerId = PA,
    lane: int = 11,
    size: int = 100,
    seq: int = 5000,
    sent_ns: int = START + 7,
) -> list[Message]:
    """Messages of one lane, one after the other."""
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
    """The decoded arrays of a batch that aiokafka builds of these records.

    Its builder takes a first timestamp of -1 for none: tests use -2 for one before the epoch.
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
    """What the specification says, in the arrays' terms."""
    said = []
    for offset, record in enumerate(records):
        d = decode(record, TOPIC)
        known = d.id is not None
        said.append(
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
    return said


def all_at_once(
    arrays: RecordArrays,
) -> list[tuple[ProducerId | None, int, int, int, int, int, int, int, int]]:
    """What the batch decoder says."""
    m = BatchDecoder(TOPIC, worth_it=4).decode(arrays)
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


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
ids = st.builds(
    ProducerId,
    names,
    st.from_regex(r"[a-z0-9]{1,16}", fullmatch=True),
    st.integers(1, 999_999_999),
)
forms = st.sampled_from(Form)
lanes = st.integers(0, (1 << 32) - 1)
times = st.integers(0, (1 << 63) - 1)


@given(
    st.builds(
        Message,
        st.just(TOPIC),
        ids,
        lanes,
        st.integers(0, 10**12 - 200),
        times,
        times,
        st.integers(0, 65535),
        st.integers(0, 65535),
        st.integers(0, 250),
        st.sampled_from([0, 0, 1, 30, 100]),
        st.just(CURRENT.number),
    ),
    forms,
    st.lists(times, min_size=1, max_size=100),
)
def test_a_batch_is_the_messages_one_by_one(
    first: Message, form: Form, intended: list[int]
) -> None:
    """The encoder's records are those of `message.encode`, and its size is as told."""
    batch = encoder(first, form).encode(first.seq, np.array(intended, np.int64), first.sent_ns)
    batch.seal(1, 2, 3)
    arrays = decode_records(batch.buffer)
    for i, time in enumerate(intended):
        record = encode(first._replace(seq=first.seq + i, intended_ns=time), form)
        assert arrays.key(i) == record.key
        assert arrays.value(i) == record.value
        assert int(arrays.timestamps[i]) == record.timestamp_ms
    kafka = MemoryRecords(bytes(batch.buffer)).next_batch()
    assert kafka.validate_crc()
    assert [(r.value, tuple(r.headers)) for r in kafka] == [
        (
            (record := encode(first._replace(seq=first.seq + i, intended_ns=time), form)).value,
            record.headers,
        )
        for i, time in enumerate(intended)
    ]
    told = encoder(first, form)._record_size * len(intended) + HEADER_SIZE
    assert told - 2 * len(intended) <= batch.size <= told


@given(ids, lanes, forms, st.integers(0, 300), st.sampled_from([0, 30, 100]), st.data())
def test_a_batch_of_varying_sizes_is_the_messages_one_by_one(
    producer_id: ProducerId,
    lane: int,
    form: Form,
    largest: int,
    compressibility: int,
    data: st.DataObject,
) -> None:
    """With those among them that are too small for their proof; and none is left unread."""
    count = data.draw(st.integers(1, 100))
    few = data.draw(st.lists(st.integers(0, largest), min_size=1, max_size=6))
    sizes = [few[i * i % len(few)] for i in range(count)]
    messages = [
        message._replace(size=size, compressibility=compressibility, generator=3)
        for message, size in zip(
            lane_messages(count, producer_id=producer_id, lane=lane), sizes, strict=True
        )
    ]
    encoder_ = encoder(messages[0]._replace(size=largest), form)
    times = np.array([message.intended_ns for message in messages])
    batch = encoder_.encode(messages[0].seq, times, messages[0].sent_ns, np.array(sizes))
    batch.seal(1, 2, 3)
    want = [encode(message, form) for message in messages]
    kafka = MemoryRecords(bytes(batch.buffer)).next_batch()
    assert kafka.validate_crc()
    assert [(r.key, r.value, tuple(r.headers), r.timestamp) for r in kafka] == want
    assert all_at_once(decode_records(batch.buffer)) == one_by_one(want)
    assert batch.size <= HEADER_SIZE + count * (encoder_._record_size + 1)


def test_sizes_out_of_range_are_refused() -> None:
    """A size above the lane's, below 0, or without its message."""
    lane = encoder(lane_messages(1, size=200)[0], Form.BODY)
    times = START + np.arange(3)
    lane.encode(0, times, START, np.array([0, 200, 100]))
    with pytest.raises(ValueError, match=r"a size is not in \[0, 200\]"):
        lane.encode(0, times, START, np.array([0, 201, 100]))
    with pytest.raises(ValueError, match=r"a size is not in \[0, 200\]"):
        lane.encode(0, times, START, np.array([0, -1, 100]))
    with pytest.raises(ValueError, match="2 sizes for 3 messages"):
        lane.encode(0, times, START, np.array([0, 100]))


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("size", [0, 45, 100, 1000])
def test_clean_batches_come_back(form: Form, size: int) -> None:
    """Thousands of messages over all widths of the offset delta, read without one exception."""
    count = 9000
    first = lane_messages(1, size=size, seq=(1 << 20) - 700)[0]
    intended = START + np.arange(count) * 12_345
    batch = encoder(first, form).encode(first.seq, intended, first.sent_ns)
    messages = BatchDecoder(TOPIC).decode(decode_records(batch.buffer))
    assert messages.ids == [PA]
    assert np.array_equal(messages.seq, first.seq + np.arange(count))
    assert np.array_equal(messages.intended_ns, intended)
    assert set(messages.lane.tolist()) == {11}
    lone = form is Form.BODY and size < 75
    assert set(messages.findings.tolist()) == {int(Finding.UNPROVEN) if lone else 0}
    assert set(messages.sent_ns.tolist()) == {0 if lone else first.sent_ns}


def test_batch_golden() -> None:
    """The bytes of a whole sealed batch, for ever."""
    batch = encoder(lane_messages(1)[0], Form.BODY).encode(
        5000, START + np.arange(2) * 1000, START + 7
    )
    batch.seal(77, 3, 1000)
    assert batch.buffer.hex() == GOLDEN_BATCH


def test_compressed() -> None:
    """A compressed batch holds the same messages."""
    batch = encoder(lane_messages(1)[0], Form.BODY).encode(
        5000, START + np.arange(50) * 1000, START + 7
    )
    small = batch.compressed(1, gzip.compress)
    assert small.size < batch.size
    records = gzip.decompress(bytes(small.buffer[HEADER_SIZE:]))
    messages = BatchDecoder(TOPIC).decode(decode_records(decompressed(small.buffer, records)))
    assert messages.seq.tolist() == list(range(5000, 5050))


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


strangers = st.sampled_from(
    [
        Record(None, None, (), 5),
        Record(b"1", b"", (), 5),
        Record(b"1", b"p1;42;17;payload", (), 5),
        Record(b"1", b"p1;43;17;payload", (), 5),
        Record(b"1", b"xyz", (("id", b"p1"), ("seq", b"42")), -2),
        Record(b"1", b"xyz", (("id", b"p1"), ("seq", b"42")), START // 1_000_000),
        Record(b"k", b"\xff" * 100, (("h", None),), 5),
        Record(b"11", b"pa@run7.3;000000005000;x700000000000000000;", (), 5),
    ]
)


@st.composite
def traffic(draw: Callable[..., Any]) -> list[Record]:
    """What may arrive in a batch: runs of lanes, some of it changed, strangers in between."""
    records = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            records.extend([draw(strangers)] * draw(st.integers(1, 10)))
        form = draw(forms)
        sent = lane_messages(
            draw(st.integers(1, 40)),
            producer_id=draw(st.sampled_from([PA, PA._replace(name="pb")]) | ids),
            lane=draw(st.integers(0, 12) | lanes),
            size=draw(st.sampled_from([0, 44, 50, 80, 100, 130])),
            seq=draw(st.integers(0, 1 << 21)),
            sent_ns=draw(st.sampled_from([START + 7, START - 1])),
        )
        run = [encode(message, form) for message in sent]
        shared = draw(st.sampled_from([(), (), (("from", b"dc1"),), (("n", None),)]))
        run = [record._replace(headers=record.headers + shared) for record in run]
        records.extend(run)
    order = draw(st.sampled_from(["as is", "shuffled"]))
    if order == "shuffled":
        records = draw(st.permutations(records))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(records) - 1))
        records[at] = mutated(draw, records[at])
    return records


@settings(max_examples=150, deadline=None)
@given(traffic())
def test_reading_at_once_equals_reading_one_by_one(records: list[Record]) -> None:
    """Whatever a batch holds, the arrays say what `message.decode` says of each record."""
    assert all_at_once(built(records)) == one_by_one(records)


@settings(deadline=None)
@given(st.data(), forms, st.sampled_from([44, 100, 130]))
def test_every_field_of_one_lane(data: st.DataObject, form: Form, size: int) -> None:
    """The same in one long lane with many small changes: the way by columns, not the other."""
    records = [encode(message, form) for message in lane_messages(60, size=size)]
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(1, len(records) - 1))
        records[at] = mutated(data.draw, records[at])
    assert all_at_once(built(records)) == one_by_one(records)


def test_lanes_interleaved() -> None:
    """Several lanes and producers, message by message, of one length and of many."""
    others = [PA._replace(name=name) for name in ("pb", "pc", "longer")]
    runs = [
        [encode(m, Form.BODY) for m in lane_messages(30, producer_id=p, lane=lane, size=size)]
        for p in (PA, *others)
        for lane in (1, 2, 30)
        for size in (100, 101)
    ]
    records = [record for row in zip(*runs, strict=True) for record in row]
    said = all_at_once(built(records))
    assert said == one_by_one(records)
    assert {findings for *_, findings in said} == {0}


def test_forty_producers_of_a_few_messages() -> None:
    """Of some ids there are enough to be read together, of others there are not."""
    runs = [
        [encode(m, Form.HEADERS) for m in lane_messages(4, producer_id=PA._replace(name=f"p{i}"))]
        for i in range(10, 50)
    ]
    records = [record for row in zip(*runs, strict=True) for record in row]
    assert all_at_once(built(records)) == one_by_one(records)


@pytest.mark.parametrize("form", Form)
def test_swapped_fill_is_found(form: Form) -> None:
    """The payloads of two neighbours swapped: both corrupted, both known."""
    records = [encode(message, form) for message in lane_messages(20)]
    cut = 75 if form is Form.BODY else 0
    a, b = records[4].value or b"", records[5].value or b""
    records[4] = records[4]._replace(value=a[:cut] + b[cut:])
    records[5] = records[5]._replace(value=b[:cut] + a[cut:])
    said = all_at_once(built(records))
    assert said == one_by_one(records)
    wrong = [seq for _, _, seq, *_, findings in said if findings == Finding.CORRUPTED]
    assert wrong == [5004, 5005]


@settings(deadline=None)
@given(st.binary(max_size=12), st.integers(0, 30))
def test_broken_header_sections_are_foreign(garbage: bytes, count: int) -> None:
    """A record whose header section cannot be read is foreign, and the others stand."""
    records = [encode(message, Form.HEADERS) for message in lane_messages(count + 1)]
    arrays = built(records)
    broken = arrays.buffer.copy()
    at = int(arrays.headers_start[count])
    broken[at : at + len(garbage)] = np.frombuffer(garbage, np.uint8)
    said = all_at_once(decode_records(broken.tobytes()))
    assert said[:count] == one_by_one(records)[:count]


def test_very_long_header_sections_of_several_lengths() -> None:
    """A megabyte of headers before ours: one that is cut off at the end of all is foreign."""
    long = ("pad", b"x" * (1 << 20))
    records = [encode(message, Form.HEADERS) for message in lane_messages(17)]
    records = [record._replace(headers=(long, *record.headers)) for record in records]
    arrays = built(records)
    arrays.headers_len[-1] -= 8
    cut = RecordArrays(
        **{name: getattr(arrays, name) for name in RecordArrays.__slots__ if name != "buffer"},
        buffer=arrays.buffer[:-8].copy(),
    )
    said = all_at_once(cut)
    assert said[:-1] == one_by_one(records)[:-1]
    assert said[-1][-1] == Finding.FOREIGN


def test_small_batches_together() -> None:
    """Many small batches, one of them compressed, are read as if they were one."""
    lane = encoder(lane_messages(1)[0], Form.BODY)
    batches = [lane.encode(i, START + np.arange(5) + i, START + 7 + i) for i in range(0, 100, 5)]
    for batch, base in zip(batches, range(0, 2000, 100), strict=True):
        batch.buffer[:8] = base.to_bytes(8, "big")
    parts: list[bytes | bytearray] = [bytes(batch.buffer) for batch in batches]
    small = batches[3].compressed(1, gzip.compress)
    parts[3] = decompressed(small.buffer, gzip.decompress(bytes(small.buffer[HEADER_SIZE:])))
    messages = BatchDecoder(TOPIC).decode(decode_batches(parts))
    assert messages.seq.tolist() == list(range(100))
    assert messages.intended_ns.tolist() == [START + i for i in range(100)]
    assert messages.offset.tolist() == [100 * (i // 5) + i % 5 for i in range(100)]
    assert messages.findings.tolist() == [0] * 100


def test_an_empty_batch() -> None:
    """No records, no messages."""
    arrays = built([encode(m, Form.BODY) for m in lane_messages(3)]).from_offset(99)
    assert len(BatchDecoder(TOPIC).decode(arrays)) == 0


@pytest.mark.parametrize(
    ("seq", "intended", "sent_ns"),
    [
        (-1, [START], START),
        (10**12 - 1, [START, START], START),
        (0, [-1], START),
        (0, [START], 1 << 63),
        (0, [], START),
    ],
)
def test_what_does_not_fit_is_refused(seq: int, intended: list[int], sent_ns: int) -> None:
    """Encoding raises rather than sending what cannot be read back."""
    lane = encoder(lane_messages(1)[0], Form.BODY)
    with pytest.raises(ValueError, match=r"not|negative|at least"):
        lane.encode(seq, np.array(intended, np.int64), sent_ns)
