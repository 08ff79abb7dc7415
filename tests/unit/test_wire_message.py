"""One message is proven, altered, corrupted or foreign; decoding it never raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import MAX_LANE, lane_key
from mirrortest.wire.message import Message, Record, decode, encode
from mirrortest.wire.stream import ProducerId

TOPIC = "orders"
NONE = Finding(0)

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
runs = st.from_regex(r"[a-z0-9]{1,16}", fullmatch=True)
ids = st.builds(ProducerId, names, runs, st.integers(1, 999_999_999))
times = st.integers(0, (1 << 63) - 1)
messages = st.builds(
    Message,
    topic=st.just(TOPIC),
    id=ids,
    lane=st.integers(0, MAX_LANE),
    seq=st.integers(0, 10**12 - 1),
    intended_ns=times,
    sent_ns=times,
    source_partition=st.integers(0, 65535),
    destination_partitions=st.integers(0, 65535),
    size=st.integers(0, 400),
    compressibility=st.sampled_from([0, 0, 0, 1, 30, 99, 100]),
    generator=st.sampled_from([2, 3]),
)
either = messages | messages.map(lambda each: each._replace(compressibility=0, generator=1))
forms = st.sampled_from(Form)

SAMPLE = Message(
    topic=TOPIC,
    id=ProducerId("pa", "run7", 3),
    lane=11,
    seq=123456789012,
    intended_ns=1_700_000_000_123_456_789,
    sent_ns=1_700_000_000_999_456_789,
    source_partition=2,
    destination_partitions=5,
    size=100,
)
HEADER = b"pa@run7.3;123456789012;1700000000123456789;"
BODY = encode(SAMPLE, Form.BODY)
HEADERS = encode(SAMPLE, Form.HEADERS)
GOLDEN = {
    1: (
        "d10102000b000000640000000500eddf1580bc71fe9c9717e71301cb277b6a8b",
        "1d3c97e0e38bae08d5811764ccb07fcb44507597d1248c0d02",
    ),
    2: (
        "d10202000b000000640000000500ed001580bc71fe9c97173a545efc732c69bd",
        "f0d5fb92d472906ce0e53713301804ec0deef728b4c40fdb01",
    ),
}
"""By generator, the descriptor and the beginning of the fill."""


@pytest.mark.parametrize("generator", GOLDEN)
def test_body_form_golden(generator: int) -> None:
    """The bytes of the body form must never change."""
    proof, fill = map(bytes.fromhex, GOLDEN[generator])
    written = encode(SAMPLE._replace(generator=generator), Form.BODY)
    assert Record(b"11", HEADER + proof + fill, (), 1_700_000_000_999) == written


@pytest.mark.parametrize("generator", GOLDEN)
def test_header_form_golden(generator: int) -> None:
    """The bytes of the header form must never change."""
    proof, fill = map(bytes.fromhex, GOLDEN[generator])
    written = encode(SAMPLE._replace(generator=generator), Form.HEADERS)
    assert written.headers == (
        ("id", b"pa@run7.3"),
        ("seq", b"123456789012"),
        ("ts", b"1700000000123456789"),
        ("d", proof),
    )
    assert written.value is not None
    assert len(written.value) == 100
    assert written.value.startswith(fill)
    assert written.key == b"11"
    assert written.timestamp_ms == 1_700_000_000_999


@given(either, forms)
def test_what_is_encoded_is_decoded(message: Message, form: Form) -> None:
    """Decoding returns what was encoded; only without room for the descriptor is it unproven."""
    record = encode(message, form)
    decoded = decode(record, TOPIC)
    room = form is Form.HEADERS or message.size >= len(message.id.encode()) + 34 + 32
    assert (decoded.id, decoded.lane, decoded.seq) == (message.id, message.lane, message.seq)
    assert decoded.intended_ns == message.intended_ns
    assert decoded.form is form
    if room:
        assert record.value is not None
        assert len(record.value) == message.size
        assert decoded.findings is NONE
        assert decoded.sent_ns == message.sent_ns
        assert decoded.source_partition == message.source_partition
        assert decoded.destination_partitions == message.destination_partitions
    else:
        assert decoded.findings is Finding.UNPROVEN
        assert decoded.sent_ns is decoded.source_partition is None


@given(messages)
def test_the_ancestor_reads_ours(message: Message) -> None:
    """Splitting at semicolons gives exactly id, seq, time and payload."""
    value = encode(message, Form.BODY).value
    assert value is not None
    raw_id, seq, intended, _ = value.split(b";")
    assert raw_id.decode() == f"{message.id.name}@{message.id.run}.{message.id.incarnation}"
    assert (int(seq), int(intended)) == (message.seq, message.intended_ns)


@given(either.filter(lambda m: m.size >= 160), st.data())
def test_no_changed_byte_of_a_body_escapes(message: Message, data: st.DataObject) -> None:
    """Any changed byte is detected; the id is known only if it is after the descriptor."""
    record = encode(message, Form.BODY)
    assert record.value is not None
    changed = bytearray(record.value)
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    decoded = decode(record._replace(value=bytes(changed)), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    if position >= len(message.id.encode()) + 34 + 32:
        assert (decoded.id, decoded.lane, decoded.seq) == (message.id, message.lane, message.seq)
    else:
        assert decoded.id is None


@given(either, st.data())
def test_no_changed_byte_of_a_header_escapes(message: Message, data: st.DataObject) -> None:
    """If any byte of the four headers changes, the message is corrupted and its id unknown."""
    record = encode(message, Form.HEADERS)
    which = data.draw(st.integers(0, 3))
    name, value = record.headers[which]
    assert value is not None
    changed = bytearray(value)
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    headers = [*record.headers]
    headers[which] = (name, bytes(changed))
    decoded = decode(record._replace(headers=tuple(headers)), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    assert decoded.id is None


@given(either.filter(lambda m: m.size >= 160), forms, st.data())
def test_no_other_seq_escapes(message: Message, form: Form, data: st.DataObject) -> None:
    """Any other seq in place of the right one is detected from the message alone."""
    record = encode(message, form)
    other = data.draw(st.integers(0, 10**12 - 1).filter(lambda seq: seq != message.seq))
    assert record.value is not None
    old, new = b"%012d" % message.seq, b"%012d" % other
    if form is Form.BODY:
        head, tail = record.value[: len(message.id.encode()) + 1], record.value
        record = record._replace(value=head + new + tail[len(head) + 12 :])
    else:
        record = record._replace(
            headers=tuple((name, new if value == old else value) for name, value in record.headers)
        )
    decoded = decode(record, TOPIC)
    assert decoded.id is None
    assert decoded.findings is Finding.CORRUPTED


@pytest.mark.parametrize("record", [BODY, HEADERS])
class TestWhatAMirrorMayDo:
    """Changes to an intact message, each with its own finding."""

    def test_another_topic_is_no_identity(self, record: Record) -> None:
        """A message copied into the wrong topic proves nothing there."""
        decoded = decode(record, "payments")
        assert decoded.id is None
        assert decoded.findings is Finding.CORRUPTED

    def test_rekeyed(self, record: Record) -> None:
        """The lane is known from the descriptor, and the key is altered."""
        for key in (None, b"", b"12", b"011", b"11\n"):
            decoded = decode(record._replace(key=key), TOPIC)
            assert decoded.findings is Finding.ALTERED_KEY
            assert decoded.lane == 11

    def test_restamped(self, record: Record) -> None:
        """One millisecond off is an altered timestamp."""
        decoded = decode(record._replace(timestamp_ms=record.timestamp_ms + 1), TOPIC)
        assert decoded.findings is Finding.ALTERED_TIMESTAMP
        assert decoded.id == SAMPLE.id

    def test_header_added(self, record: Record) -> None:
        """A mirror's provenance header is an alteration; the message is still read."""
        for headers in (
            (*record.headers, ("from", b"dc1")),
            (("from", None), *record.headers),
            (*record.headers, ("id", b"x")),
        ):
            decoded = decode(record._replace(headers=headers), TOPIC)
            assert decoded.findings is Finding.ALTERED_HEADERS
            assert decoded.seq == SAMPLE.seq

    def test_cut_or_grown(self, record: Record) -> None:
        """A value of another length than was sent is corrupted, with a known id."""
        sent = record.value or b""
        for value in (sent[:-1], sent + b"x", sent[:76]):
            decoded = decode(record._replace(value=value), TOPIC)
            assert decoded.findings is Finding.CORRUPTED
            assert decoded.id == SAMPLE.id

    def test_several_at_once(self, record: Record) -> None:
        """Findings add up."""
        decoded = decode(
            record._replace(
                key=b"x",
                value=(record.value or b"")[:-1] + b"\0",
                timestamp_ms=-1,
                headers=(*record.headers, ("x", b"y")),
            ),
            TOPIC,
        )
        assert decoded.findings == (
            Finding.ALTERED_KEY
            | Finding.ALTERED_HEADERS
            | Finding.ALTERED_TIMESTAMP
            | Finding.CORRUPTED
        )


def test_null_values() -> None:
    """A tombstone is foreign in body form; in header form it is a corrupted, known message."""
    assert decode(BODY._replace(value=None), TOPIC).findings is Finding.FOREIGN
    decoded = decode(HEADERS._replace(value=None), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    assert decoded.id == SAMPLE.id


def test_reordered_headers() -> None:
    """The four headers in another order are altered, but still read."""
    decoded = decode(HEADERS._replace(headers=HEADERS.headers[::-1]), TOPIC)
    assert decoded.findings is Finding.ALTERED_HEADERS
    assert decoded.id == SAMPLE.id


@pytest.mark.parametrize("missing", [0, 1])
def test_without_id_or_seq_header(missing: int) -> None:
    """Without one of these headers, the record is foreign."""
    headers = tuple(h for i, h in enumerate(HEADERS.headers) if i != missing)
    assert decode(HEADERS._replace(headers=headers), TOPIC).findings is Finding.FOREIGN


@pytest.mark.parametrize("missing", [2, 3])
def test_without_time_or_proof_header(missing: int) -> None:
    """With our id but without time or descriptor, it is corrupted, and its id unknown."""
    headers = tuple(h for i, h in enumerate(HEADERS.headers) if i != missing)
    decoded = decode(HEADERS._replace(headers=headers), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    assert decoded.id is None


@pytest.mark.parametrize(
    "value",
    [
        HEADER[:-1],
        HEADER + b"x" * 31,
        HEADER + b"x" * 32,
        b"pa@run7.3;",
        b"pa@run7.3;12;1700000000123456789;",
        b"pa@run7.3;12345678901x;1700000000123456789;",
        b"pa@run7.3;123456789012;170000000012345678;",
        b"pa@run7.3;123456789012;9999999999999999999;",
        b"pa@run7.3;123456789012;-700000000123456789;",
        "pa@run7.3;12345678901٣;1700000000123456789;".encode(),
    ],
)
def test_ours_without_proof_is_corrupted(value: bytes) -> None:
    """An id with `@`, but neither a lone header nor a valid descriptor: corrupted, id unknown."""
    decoded = decode(BODY._replace(value=value), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    assert decoded.id is None


def test_a_lone_header_is_unproven() -> None:
    """Its lane is the key's; without a readable key, it has no stream."""
    decoded = decode(BODY._replace(value=HEADER), TOPIC)
    assert decoded.findings is Finding.UNPROVEN
    assert (decoded.id, decoded.lane, decoded.seq) == (SAMPLE.id, 11, SAMPLE.seq)
    decoded = decode(BODY._replace(value=HEADER, key=b"x"), TOPIC)
    assert decoded.findings is Finding.CORRUPTED
    assert decoded.id is None


class TestTheAncestor:
    """Messages of the ancestor are accepted, unproven, with the empty run."""

    def test_body_form(self) -> None:
        """Id, seq and time may have any width."""
        record = Record(b"3", b"p1;42;1700000000123456789;\0\0\0;x", (), 5)
        decoded = decode(record, TOPIC)
        assert decoded.id == ProducerId("p1", "", 0)
        assert (decoded.lane, decoded.seq) == (3, 42)
        assert decoded.intended_ns == 1_700_000_000_123_456_789
        assert decoded.findings is Finding.UNPROVEN

    def test_header_form(self) -> None:
        """The record's timestamp is the intended time, if it can be one."""
        record = Record(b"3", b"xyz", (("id", b"p1"), ("seq", b"42")), 1_700_000_000_123)
        decoded = decode(record, TOPIC)
        assert decoded.id == ProducerId("p1", "", 0)
        assert decoded.intended_ns == 1_700_000_000_123_000_000
        assert decoded.findings is Finding.UNPROVEN
        assert decoded.form is Form.HEADERS
        assert decode(record._replace(timestamp_ms=-1), TOPIC).intended_ns is None
        assert decode(record._replace(timestamp_ms=1 << 62), TOPIC).intended_ns is None

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b";;;",
            b"p1",
            b"p1;42",
            b"p1;42;17",
            b"p1;-1;17;",
            b"p1;x;17;",
            b"p1;42;x;",
            b"p1;;17;",
            b"p1;9223372036854775808;17;",
            b"p1;42;9223372036854775808;",
            b"p 1;42;17;",
            b"\xff;42;17;",
        ],
    )
    def test_what_is_not_one(self, value: bytes) -> None:
        """Anything else is foreign; it never enters the counts as producer "" with seq 0."""
        assert decode(Record(b"3", value, (), 5), TOPIC).findings is Finding.FOREIGN

    def test_without_a_lane(self) -> None:
        """If the key is not a lane, the message has no stream."""
        assert decode(Record(b"x", b"p1;42;17;", (), 5), TOPIC).findings is Finding.FOREIGN


header_names = st.sampled_from(["id", "seq", "ts", "d", "x"]) | st.text(max_size=5)
loose = st.one_of(
    st.none(),
    st.binary(max_size=120),
    st.just(HEADER),
    st.sampled_from([bytes.fromhex(proof) for proof, _ in GOLDEN.values()]),
    st.from_regex(rb"[a-z@.0-9]{1,12};[0-9]{1,25};[0-9]{1,25};", fullmatch=True),
    st.from_regex(rb"[0-9]{12}|[0-9]{19}|a@b\.1", fullmatch=True),
)


@given(
    st.builds(
        Record,
        loose,
        loose,
        st.lists(st.tuples(header_names, loose), max_size=6).map(tuple),
        st.integers(-(1 << 63), (1 << 63) - 1),
    )
)
def test_decode_never_raises(record: Record) -> None:
    """Any record can be decoded; id, lane and seq are known together or not at all."""
    decoded = decode(record, TOPIC)
    known = decoded.id is not None
    assert (decoded.lane is not None) == (decoded.seq is not None) == known
    assert known or decoded.findings in {Finding.FOREIGN, Finding.CORRUPTED}
    assert not decoded.findings & Finding.FOREIGN or not known


@pytest.mark.parametrize(
    "change",
    [
        {"seq": -1},
        {"seq": 10**12},
        {"lane": -1},
        {"lane": 1 << 32},
        {"intended_ns": -1},
        {"intended_ns": 1 << 63},
        {"sent_ns": 1 << 63},
        {"source_partition": 65536},
        {"destination_partitions": -1},
        {"size": -1},
        {"size": (16 << 20) + 1},
    ],
)
@pytest.mark.parametrize("form", Form)
def test_what_does_not_fit_is_refused(change: dict[str, Any], form: Form) -> None:
    """Encoding raises rather than sending what cannot be read back."""
    with pytest.raises(ValueError, match=r"not|fit"):
        encode(SAMPLE._replace(**change), form)


def test_the_key_is_the_lane() -> None:
    """The record key is the lane in decimal."""
    assert encode(SAMPLE._replace(lane=0), Form.BODY).key == lane_key(0) == b"0"
