"""Users' payloads: a digest in the descriptor proves them, one by one and in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_decoder import BatchDecoder
from mirrortest.wire.descriptor import OPENINGS, SIZE, TAGS
from mirrortest.wire.digests import digest, digests
from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, Record, decode, encode
from mirrortest.wire.own_payloads import Payloads
from mirrortest.wire.payload import OWN
from mirrortest.wire.record_batch import decode_records
from tests.unit.lane_batches import (
    PA,
    START,
    TOPIC,
    all_at_once,
    built,
    lane_messages,
    mutated,
    one_by_one,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
VALUES = st.lists(st.binary(max_size=150), min_size=1, max_size=8)


def turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & MASK


def mixed(state: int, word: int) -> int:
    return turned((state + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    """XXH64 by its definition, with seed 0."""
    state = P5
    striped = len(data) // 32 * 32
    if striped:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        for at in range(0, striped, 8):
            lane = at // 8 % 4
            lanes[lane] = mixed(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
        state = sum(map(turned, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            state = ((state ^ mixed(0, lane)) * P1 + P4) & MASK
    state = (state + len(data)) & MASK
    rest = data[striped:]
    while len(rest) >= 8:
        word, rest = int.from_bytes(rest[:8], "little"), rest[8:]
        state = (turned(state ^ mixed(0, word), 27) * P1 + P4) & MASK
    if len(rest) >= 4:
        word, rest = int.from_bytes(rest[:4], "little"), rest[4:]
        state = (turned(state ^ word * P1 & MASK, 23) * P2 + P3) & MASK
    for byte in rest:
        state = turned(state ^ byte * P5 & MASK, 11) * P1 & MASK
    state = (state ^ state >> 33) * P2 & MASK
    state = (state ^ state >> 29) * P3 & MASK
    return state ^ state >> 32


def column(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def payloads(values: list[bytes]) -> Payloads:
    sizes = column([len(value) for value in values])
    return Payloads.of(b"".join(values), np.cumsum(sizes) - sizes, sizes)


def messages(values: list[bytes]) -> list[Message]:
    """Messages with these values, in their order."""
    return [
        message._replace(generator=OWN.number, payload=value)
        for message, value in zip(lane_messages(len(values)), values, strict=True)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_digest_is_that_of_the_public_hash(data: bytes, expected: int) -> None:
    """XXH64's libraries return these values."""
    assert digest(data) == xxh64(data) == expected


@given(st.lists(st.binary(max_size=200), max_size=9))
def test_digests_are_those_of_the_definition(values: list[bytes]) -> None:
    """Parts of one buffer have the digests of the values by themselves."""
    found = payloads(values).digests.tolist() if values else []
    assert found == [xxh64(value) for value in values] == [digest(value) for value in values]


def test_a_value_that_is_null_counts_as_empty() -> None:
    """Its length of -1 differs from every size in a descriptor, which tells the two apart."""
    assert digests(b"abc", column([1]), column([-1])).tolist() == [digest(b"")]
    assert digests(b"", column([0]), column([0])).tolist() == [digest(b"")]


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([-1], [1]), ([4], [0]), ([0], [4]), ([3], [1]), ([1 << 62], [1]), ([0], [1 << 62]),
     ([0, 1], [1]), ([], [1])],
)  # fmt: skip
def test_no_stretch_is_trusted(starts: list[int], lengths: list[int]) -> None:
    """A position outside the bytes, or a missing start, is an error."""
    with pytest.raises(IndexError):
        digests(b"abc", column(starts), column(lengths))


def test_header_form_golden() -> None:
    """The bytes of a message with a user's payload must never change."""
    record = encode(messages([b'{"id": 7, "name": "Jos\xc3\xa9"}'])[0], Form.HEADERS)
    assert record == Record(
        b"11",
        b'{"id": 7, "name": "Jos\xc3\xa9"}',
        (
            ("id", b"pa@run7.3"),
            ("seq", b"000000005000"),
            ("ts", b"1700000000000000000"),
            ("d", bytes.fromhex(GOLDEN_PROOF)),
        ),
        1_700_000_000_000,
    )


GOLDEN_PROOF = "d10402000b0000001a0000000500ed0007002a36fe9c971752d0d3ab5e85cc048454cb2b10b6d195"


def test_a_payload_of_the_users_is_not_in_body_form() -> None:
    """Neither specification nor encoder writes it; a record that looks like one is corrupted."""
    message = messages([b"abc"])[0]
    with pytest.raises(ValueError, match="user payloads need header form"):
        encode(message, Form.BODY)
    with pytest.raises(ValueError, match="user payloads need header form"):
        LaneEncoder(TOPIC, PA, 11, 2, 5, Form.BODY, 100, own=True)
    record = encode(lane_messages(1)[0], Form.BODY)
    at = (record.value or b"").index(OPENINGS[1])
    other = TAGS[OWN.number].to_bytes(2, "little")
    value = (record.value or b"")[:at] + other + (record.value or b"")[at + 2 :]
    every = [record._replace(value=value)] * 20
    assert all_at_once(built(every)) == one_by_one(every)
    assert decode(every[0], TOPIC).findings is Finding.CORRUPTED


@given(VALUES, st.lists(st.integers(0, 7), min_size=1, max_size=100))
def test_a_batch_is_the_messages_one_by_one(values: list[bytes], chosen: list[int]) -> None:
    """Payloads are in any order, also empty and repeated ones."""
    rows = column(chosen) % len(values)
    largest = max(map(len, values))
    taken = payloads(values).taken(rows)
    sent = messages([values[row] for row in rows])
    encoder = LaneEncoder(TOPIC, PA, 11, 2, 5, Form.HEADERS, largest, own=True)
    batch = encoder.encode(
        sent[0].seq,
        column([each.intended_ns for each in sent]),
        sent[0].sent_ns,
        taken.sizes,
        taken,
    )
    batch.seal(1, 2, 3)
    kafka = MemoryRecords(bytes(batch.buffer)).next_batch()
    assert kafka.validate_crc()
    want = [encode(message, Form.HEADERS) for message in sent]
    assert [(r.key, r.value, tuple(r.headers), r.timestamp) for r in kafka] == want
    decoded = all_at_once(decode_records(batch.buffer))
    assert decoded == one_by_one(want)
    assert {findings for *_, findings in decoded} == {0}


@given(st.binary(min_size=1, max_size=100), st.data())
def test_no_changed_byte_of_a_value_escapes(value: bytes, data: st.DataObject) -> None:
    """A changed, shortened, longer or null value is corrupted; the headers prove its id."""
    record = encode(messages([value])[0], Form.HEADERS)
    at = data.draw(st.integers(0, len(value) - 1))
    flipped = bytes([value[at] ^ data.draw(st.integers(1, 255))])
    for changed in (value[:at] + flipped + value[at + 1 :], value[:at], value + flipped, None):
        every = [record._replace(value=changed)] * 20
        assert all_at_once(built(every)) == one_by_one(every)
        decoded = decode(every[0], TOPIC)
        assert (decoded.id, decoded.seq) == (PA, 5000)
        assert decoded.findings is Finding.CORRUPTED


@pytest.mark.parametrize("at", range(SIZE + 8))
def test_no_changed_byte_of_the_descriptor_escapes(at: int) -> None:
    """This includes the digest's bytes: then nothing proves the id."""
    record = encode(messages([b"some value"])[0], Form.HEADERS)
    proof = record.headers[3][1] or b""
    changed = proof[:at] + bytes([proof[at] ^ 0x40]) + proof[at + 1 :]
    other = record._replace(headers=(*record.headers[:3], ("d", changed)))
    assert decode(other, TOPIC).findings is Finding.CORRUPTED
    assert decode(other, TOPIC).id is None
    assert all_at_once(built([record] * 10 + [other])) == one_by_one([record] * 10 + [other])


@settings(deadline=None)
@given(VALUES, st.data())
def test_whatever_befalls_them_is_read_as_one_by_one(
    values: list[bytes], data: st.DataObject
) -> None:
    """They may be among messages with generated payloads."""
    every = [encode(message, Form.HEADERS) for message in messages(values * 8)]
    every += [encode(message, Form.HEADERS) for message in lane_messages(20, seq=9000)]
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(every) - 1))
        every[at] = mutated(data.draw, every[at])
    every = data.draw(st.permutations(every))
    assert all_at_once(built(every)) == one_by_one(every)


def test_large_values_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have 100 kB: no block limits their size."""
    value = bytes(range(256)) * 400
    every = [encode(message, Form.HEADERS) for message in messages([value] * 20)]
    monkeypatch.setattr(BatchDecoder, "_decode_one", None)
    found = BatchDecoder(TOPIC).decode(built(every))
    assert found.seq.tolist() == list(range(5000, 5020))
    assert not found.findings.any()
    assert set(found.intended_ns.tolist()) == {START + 1000 * i for i in range(20)}
