"""One message: the specification of what is sent and of how a record is read.

Body form (the record value, ASCII header then bytes)::

    NAME@RUN.INCARNATION;<seq, 12 digits>;<intended time ns, 19 digits>;<descriptor, 32 bytes><fill>

padded with fill to `size` bytes. If `size` has no room for the descriptor, the value is the header
alone, and the message is unproven.

Header form: Kafka headers ``id``, ``seq``, ``ts``, ``d`` (the descriptor), in this order and no
others. The value is `size` bytes of fill, or a user's payload, whose digest is in the descriptor.

In both forms, the record key is the lane in decimal, and the record timestamp is the time of the
actual send in milliseconds.

The ancestor's messages are read too: ``id;seq;timestamp;payload`` with an id without ``@`` and
decimals of up to 19 digits, or headers ``id`` and ``seq`` (then the record's timestamp is the
intended time). They have no descriptor, so they are unproven, with run "" and incarnation 0. A
message with one of our descriptors and a foreign id is one of ours whose id was changed: corrupted.

`batch` and `batch_decoder` do the same for batches; tests prove that they equal this module.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire.descriptor import Descriptor
from mirrortest.wire.digests import digest
from mirrortest.wire.digits import SEQ_DIGITS, SEQ_LIMIT, TIME_DIGITS, TIME_LIMIT
from mirrortest.wire.form import ANCESTOR_HEADER_NAMES, HEADER_NAMES, ID, PROOF, SEQ, TIME, Form
from mirrortest.wire.lanes import lane_key, parse_lane
from mirrortest.wire.payload import CURRENT, GENERATORS, MAX_SIZE, OWN, fill, phase_of
from mirrortest.wire.stream import ProducerId

NS_PER_MS = 1_000_000
FIXED_HEADER = SEQ_DIGITS + TIME_DIGITS + 3
"""Bytes of a body's header besides the id: two numbers and three semicolons."""
_AFTER_ID = re.compile(
    rb"[0-9]{%d};[0-9]{%d};(?:%s)"
    % (SEQ_DIGITS, TIME_DIGITS, b"|".join(map(re.escape, descriptors.OPENINGS)))
)
_LONGEST_OPENING = 256
"""A body's header ends within this many bytes, even if its id was changed."""


class Record(NamedTuple):
    """The parts of a Kafka record that a mirror must not change."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Message(NamedTuple):
    """What a producer sends. Times are ns since the epoch; `size` is the bytes of the record value.

    `compressibility` is in percent of the fill. Producers write the current `generator` if all
    sizes are equal, else the varying one. `payload` is the complete value if it is the user's
    (`payload.OWN`); then `size` is ignored.
    """

    topic: str
    id: ProducerId
    lane: int
    seq: int
    intended_ns: int
    sent_ns: int
    source_partition: int
    destination_partitions: int
    size: int
    compressibility: int = 0
    generator: int = CURRENT.number
    payload: bytes = b""


class Decoded(NamedTuple):
    """The content of one record.

    `id`, `lane` and `seq` are None if and only if the record is foreign, or corrupted such that it
    proves no identity. Such a message never counts as seen. Without a descriptor, `sent_ns`,
    `source_partition` and `destination_partitions` are None. `intended_ns` is None if no
    trustworthy field has it.
    """

    id: ProducerId | None
    lane: int | None
    seq: int | None
    intended_ns: int | None
    sent_ns: int | None
    source_partition: int | None
    destination_partitions: int | None
    findings: Finding
    form: Form


def least_proven(id_size: int) -> int:
    """The least bytes of a record value in body form with room for a descriptor."""
    return id_size + FIXED_HEADER + descriptors.SIZE


def value_size(id_size: int, form: Form, size: int) -> tuple[int, int | None]:
    """Bytes of the record value, and of the fill in it (None: no descriptor, no fill).

    Raises ValueError if `size` is not in [0, MAX_SIZE].
    """
    if not 0 <= size <= MAX_SIZE:
        raise ValueError(f"a message has 0 to {MAX_SIZE} bytes, not {size}")
    if form is Form.HEADERS:
        return size, size
    least = least_proven(id_size)
    if size < least:
        return least - descriptors.SIZE, None
    return size, size - least


def encode(message: Message, form: Form) -> Record:
    """The record to send.

    Raises ValueError if a number is out of its field's range, or for a user's payload in body form.
    """
    if not 0 <= message.seq < SEQ_LIMIT:
        raise ValueError(f"seq {message.seq} is not in [0, {SEQ_LIMIT})")
    if not 0 <= message.intended_ns < TIME_LIMIT:
        raise ValueError(f"time {message.intended_ns} is not in [0, {TIME_LIMIT})")
    raw_id = message.id.encode()
    seq = b"%0*d" % (SEQ_DIGITS, message.seq)
    intended = b"%0*d" % (TIME_DIGITS, message.intended_ns)
    own = message.generator == OWN.number
    if own and form is Form.BODY:
        raise ValueError("user payloads need header form")
    requested = len(message.payload) if own else message.size
    size, fill_size = value_size(len(raw_id), form, requested)
    content = Descriptor(
        message.source_partition,
        message.lane,
        size,
        message.destination_partitions,
        message.sent_ns,
        message.compressibility,
        message.generator,
        digest(message.payload) if own else 0,
    )
    proof = descriptors.pack(content, message.topic, raw_id, message.intended_ns, message.seq)
    filled = message.payload
    if not own:
        phase = phase_of(message.topic, raw_id, message.lane)
        generator = GENERATORS[message.generator]
        filled = fill(generator, message.compressibility, phase, message.seq, size, fill_size or 0)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if form is Form.HEADERS:
        headers = tuple(zip(HEADER_NAMES, (raw_id, seq, intended, proof), strict=True))
        value = filled
    else:
        value = b";".join((raw_id, seq, intended, b"" if fill_size is None else proof + filled))
    return Record(lane_key(message.lane), value, headers, message.sent_ns // NS_PER_MS)


def decode(record: Record, topic: str) -> Decoded:
    """Read a record of the copy of source topic `topic`; no content makes this raise."""
    names = tuple(name for name, _ in record.headers)
    if ID in names and SEQ in names:
        return _decode_headers(record, topic, names)
    return _decode_body(record, topic)


def foreign(form: Form) -> Decoded:
    """The result for a record that is not one of our messages."""
    return Decoded(None, None, None, None, None, None, None, Finding.FOREIGN, form)


def corrupted(form: Form) -> Decoded:
    """The result for one of our messages that no longer proves its identity."""
    return Decoded(None, None, None, None, None, None, None, Finding.CORRUPTED, form)


def _decode_body(record: Record, topic: str) -> Decoded:
    if record.value is None:
        return foreign(Form.BODY)
    raw_id, semicolon, rest = record.value.partition(b";")
    producer_id = ProducerId.parse(raw_id)
    foreign_id = producer_id is None or not producer_id.run
    if foreign_id and _AFTER_ID.search(record.value, 0, _LONGEST_OPENING):
        return corrupted(Form.BODY)
    if not semicolon or producer_id is None:
        return foreign(Form.BODY)
    altered = Finding.ALTERED_HEADERS if record.headers else Finding(0)
    if not producer_id.run:
        fields = rest.split(b";", 2)
        if len(fields) < 3:
            return foreign(Form.BODY)
        seq = _decimal(fields[0])
        intended_ns = _decimal(fields[1])
        if seq is None or intended_ns is None:
            return foreign(Form.BODY)
        return _unproven(record, producer_id, seq, intended_ns, altered, Form.BODY)
    raw_seq, _, rest = rest.partition(b";")
    raw_time, semicolon, payload = rest.partition(b";")
    seq = _seq(raw_seq)
    intended_ns = _time(raw_time)
    if not semicolon or seq is None or intended_ns is None:
        return corrupted(Form.BODY)
    if not payload:
        return _unproven(record, producer_id, seq, intended_ns, altered, Form.BODY)
    proof, filled = payload[: descriptors.SIZE], payload[descriptors.SIZE :]
    content = descriptors.unpack(proof, topic, raw_id, intended_ns, seq)
    if content is None:
        return corrupted(Form.BODY)
    return _proven(record, topic, producer_id, seq, intended_ns, content, filled, altered)


def _decode_headers(record: Record, topic: str, names: tuple[str, ...]) -> Decoded:
    values: dict[str, bytes | None] = {}
    for name, value in record.headers:
        values.setdefault(name, value)  # the first is ours: mirrors append their headers
    raw_id, raw_seq = values[ID], values[SEQ]
    producer_id = None if raw_id is None else ProducerId.parse(raw_id)
    raw_time, proof = values.get(TIME), values.get(PROOF)
    foreign_id = producer_id is None or not producer_id.run
    if foreign_id and proof and len(proof) == descriptors.size_of(proof):
        return corrupted(Form.HEADERS)
    if raw_id is None or producer_id is None:
        return foreign(Form.HEADERS)
    if not producer_id.run:
        seq = None if raw_seq is None else _decimal(raw_seq)
        if seq is None:
            return foreign(Form.HEADERS)
        altered = Finding(0) if names == ANCESTOR_HEADER_NAMES else Finding.ALTERED_HEADERS
        restamped_ns = record.timestamp_ms * NS_PER_MS
        trusted = restamped_ns if 0 <= restamped_ns < TIME_LIMIT else None
        return _unproven(record, producer_id, seq, trusted, altered, Form.HEADERS)
    seq = None if raw_seq is None else _seq(raw_seq)
    intended_ns = None if raw_time is None else _time(raw_time)
    if proof is None or seq is None or intended_ns is None:
        return corrupted(Form.HEADERS)
    content = descriptors.unpack(proof, topic, raw_id, intended_ns, seq)
    if content is None:
        return corrupted(Form.HEADERS)
    altered = Finding(0) if names == HEADER_NAMES else Finding.ALTERED_HEADERS
    return _proven(
        record, topic, producer_id, seq, intended_ns, content, record.value, altered, Form.HEADERS
    )


def _unproven(
    record: Record,
    producer_id: ProducerId,
    seq: int,
    intended_ns: int | None,
    altered: Finding,
    form: Form,
) -> Decoded:
    lane = parse_lane(record.key)
    if lane is None:  # only the key has the lane here, and without a lane there is no stream
        return corrupted(form) if producer_id.run else foreign(form)
    findings = Finding.UNPROVEN | altered
    return Decoded(producer_id, lane, seq, intended_ns, None, None, None, findings, form)


def _proven(
    record: Record,
    topic: str,
    producer_id: ProducerId,
    seq: int,
    intended_ns: int,
    content: Descriptor,
    filled: bytes | None,
    findings: Finding,
    form: Form = Form.BODY,
) -> Decoded:
    size = None if record.value is None else len(record.value)
    if (
        filled is None
        or size != content.value_size
        or not _is_sent(content, phase_of(topic, producer_id.encode(), content.lane), seq, filled)
    ):
        findings |= Finding.CORRUPTED
    if record.key != lane_key(content.lane):
        findings |= Finding.ALTERED_KEY
    if record.timestamp_ms != content.sent_ns // NS_PER_MS:
        findings |= Finding.ALTERED_TIMESTAMP
    return Decoded(
        producer_id,
        content.lane,
        seq,
        intended_ns,
        content.sent_ns,
        content.source_partition,
        content.destination_partitions,
        findings,
        form,
    )


def _is_sent(content: Descriptor, phase: int, seq: int, filled: bytes) -> bool:
    """Whether `filled` is the fill, or the user's payload, that the descriptor names."""
    if content.generator == OWN.number:
        return digest(filled) == content.digest
    generator, size = GENERATORS[content.generator], content.value_size
    return filled == fill(generator, content.compressibility, phase, seq, size, len(filled))


def _seq(raw: bytes) -> int | None:
    return int(raw) if len(raw) == SEQ_DIGITS and raw.isdigit() else None


def _time(raw: bytes) -> int | None:
    return _decimal(raw) if len(raw) == TIME_DIGITS else None


def _decimal(raw: bytes) -> int | None:
    """A non-negative decimal of up to 19 digits that fits a signed 64-bit integer."""
    if not raw.isdigit() or len(raw) > TIME_DIGITS:
        return None
    number = int(raw)
    return number if number < TIME_LIMIT else None
