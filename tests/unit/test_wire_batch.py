"""Batches are written byte for byte as the specification writes single messages."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, encode
from mirrortest.wire.payload import CURRENT
from mirrortest.wire.record_batch import decode_records, decompressed
from tests.unit.lane_batches import (
    PA,
    START,
    TOPIC,
    all_at_once,
    encoder,
    forms,
    ids,
    lane_messages,
    one_by_one,
)

if TYPE_CHECKING:
    from mirrortest.wire.stream import ProducerId

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
    """The encoder's records are those of `message.encode`, and its size is as predicted."""
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
    predicted = encoder(first, form)._record_size * len(intended) + HEADER_SIZE
    assert predicted - 2 * len(intended) <= batch.size <= predicted


@given(ids, lanes, forms, st.integers(0, 300), st.sampled_from([0, 30, 100]), st.data())
def test_a_batch_of_varying_sizes_is_the_messages_one_by_one(
    producer_id: ProducerId,
    lane: int,
    form: Form,
    largest: int,
    compressibility: int,
    data: st.DataObject,
) -> None:
    """Some are too small for a descriptor; the decoder reads all of them."""
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
    """A size must not be above the lane's, below 0, or missing for a message."""
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
    """All of 9,000 messages, with offset deltas of three widths, are read."""
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
    """The bytes of a sealed batch must never change."""
    batch = encoder(lane_messages(1)[0], Form.BODY).encode(
        5000, START + np.arange(2) * 1000, START + 7
    )
    batch.seal(77, 3, 1000)
    assert batch.buffer.hex() == GOLDEN_BATCH


def test_compressed() -> None:
    """A compressed batch contains the same messages."""
    batch = encoder(lane_messages(1)[0], Form.BODY).encode(
        5000, START + np.arange(50) * 1000, START + 7
    )
    small = batch.compressed(1, gzip.compress)
    assert small.size < batch.size
    records = gzip.decompress(bytes(small.buffer[HEADER_SIZE:]))
    messages = BatchDecoder(TOPIC).decode(decode_records(decompressed(small.buffer, records)))
    assert messages.seq.tolist() == list(range(5000, 5050))


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
