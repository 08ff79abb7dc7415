"""Batches are read finding for finding as the specification reads single messages."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.form import Form
from mirrortest.wire.message import Record, encode
from mirrortest.wire.record_batch import RecordArrays, decode_batches, decode_records, decompressed
from mirrortest.wire.single_records import parse_headers
from mirrortest.wire.varint import MalformedBatchError
from tests.unit.lane_batches import (
    PA,
    START,
    TOPIC,
    all_at_once,
    built,
    encoder,
    forms,
    ids,
    lane_messages,
    mutated,
    one_by_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable

lanes = st.integers(0, (1 << 32) - 1)
times = st.integers(0, (1 << 63) - 1)


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
    """What may arrive in a batch: runs of lanes, some records changed, foreign ones in between."""
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
    """Whatever a batch contains, the arrays equal `message.decode` of each record."""
    assert all_at_once(built(records)) == one_by_one(records)


@settings(deadline=None)
@given(st.data(), forms, st.sampled_from([44, 100, 130]))
def test_every_field_of_one_lane(data: st.DataObject, form: Form, size: int) -> None:
    """One long lane with a few changes is read by columns, with the same result."""
    records = [encode(message, form) for message in lane_messages(60, size=size)]
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(1, len(records) - 1))
        records[at] = mutated(data.draw, records[at])
    assert all_at_once(built(records)) == one_by_one(records)


def test_lanes_interleaved() -> None:
    """Messages of several lanes and producers alternate, and have different lengths."""
    others = [PA._replace(name=name) for name in ("pb", "pc", "longer")]
    runs = [
        [encode(m, Form.BODY) for m in lane_messages(30, producer_id=p, lane=lane, size=size)]
        for p in (PA, *others)
        for lane in (1, 2, 30)
        for size in (100, 101)
    ]
    records = [record for row in zip(*runs, strict=True) for record in row]
    decoded = all_at_once(built(records))
    assert decoded == one_by_one(records)
    assert {findings for *_, findings in decoded} == {0}


def test_forty_producers_of_a_few_messages() -> None:
    """Each id has four messages, interleaved with those of the other ids."""
    runs = [
        [encode(m, Form.HEADERS) for m in lane_messages(4, producer_id=PA._replace(name=f"p{i}"))]
        for i in range(10, 50)
    ]
    records = [record for row in zip(*runs, strict=True) for record in row]
    assert all_at_once(built(records)) == one_by_one(records)


@pytest.mark.parametrize("form", Form)
def test_swapped_fill_is_found(form: Form) -> None:
    """If two neighbours swap payloads, both are corrupted, with known ids."""
    records = [encode(message, form) for message in lane_messages(20)]
    cut = 75 if form is Form.BODY else 0
    a, b = records[4].value or b"", records[5].value or b""
    records[4] = records[4]._replace(value=a[:cut] + b[cut:])
    records[5] = records[5]._replace(value=b[:cut] + a[cut:])
    decoded = all_at_once(built(records))
    assert decoded == one_by_one(records)
    wrong = [seq for _, _, seq, *_, findings in decoded if findings == Finding.CORRUPTED]
    assert wrong == [5004, 5005]


@settings(deadline=None)
@given(forms, st.binary(max_size=12), st.integers(0, 30))
def test_broken_header_sections_are_foreign(form: Form, garbage: bytes, count: int) -> None:
    """Garbage in a record's header section does not change how the others are read.

    Where it leaves readable headers, the record is read with them.
    """
    records = [encode(message, form) for message in lane_messages(count + 1)]
    arrays = built(records)
    section = arrays.raw_headers(count)
    section = garbage[: len(section)] + section[len(garbage) :]
    broken = arrays.buffer.copy()
    at = int(arrays.headers_start[count])
    broken[at : at + len(section)] = np.frombuffer(section, np.uint8)
    expected = one_by_one(records)
    try:
        headers = parse_headers(section)
    except MalformedBatchError:
        expected[count] = (None, -1, -1, count, 0, 0, -1, 0, Finding.FOREIGN)
    else:
        records[count] = records[count]._replace(headers=headers)
        expected = one_by_one(records)
    assert all_at_once(decode_records(broken.tobytes())) == expected


def test_very_long_header_sections_of_several_lengths() -> None:
    """After 1 MB of other headers, ours are read; a section cut off at the end is foreign."""
    long = ("pad", b"x" * (1 << 20))
    records = [encode(message, Form.HEADERS) for message in lane_messages(17)]
    records = [record._replace(headers=(long, *record.headers)) for record in records]
    arrays = built(records)
    arrays.headers_len[-1] -= 8
    cut = RecordArrays(
        **{name: getattr(arrays, name) for name in RecordArrays.__slots__ if name != "buffer"},
        buffer=arrays.buffer[:-8].copy(),
    )
    decoded = all_at_once(cut)
    assert decoded[:-1] == one_by_one(records)[:-1]
    assert decoded[-1][-1] == Finding.FOREIGN


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
    """A batch without records has no messages."""
    arrays = built([encode(m, Form.BODY) for m in lane_messages(3)]).from_offset(99)
    assert len(BatchDecoder(TOPIC).decode(arrays)) == 0
