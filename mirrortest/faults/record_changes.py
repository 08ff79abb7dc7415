"""Applies one act to one record: a pure function for each kind, for both forms of message.

Each returns the changed record, or None if the act does not apply (to strip a header that does not
exist, to change an empty payload). A change always changes at least one byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mirrortest.faults.records import form_of
from mirrortest.verify.anomaly import AT_PROOF, FILL, IN_ID, IN_NUMBERS, IN_PROOF, Anomaly
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire.digits import TIME_DIGITS
from mirrortest.wire.form import ID, PROOF, SEQ, TIME, Form
from mirrortest.wire.lanes import lane_key, parse_lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.faults.seeded_random import Draw
    from mirrortest.faults.spec import Act
    from mirrortest.wire.message import Record

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_DIGITS = b"0123456789"
_BYTES = bytes(range(256))
_OTHER_LANES = 9


Application: TypeAlias = "Callable[[Act, Record, Draw], Change | None]"
"""Applies an act to a record."""


class Change(NamedTuple):
    """A changed record, and a description; `part` as in the truth's columns."""

    record: Record
    detail: str
    part: str = ""


class Span(NamedTuple):
    """The position of a message's part: in a header's value, or in the record's (`header` "")."""

    header: str
    lo: int
    hi: int

    def __bool__(self) -> bool:
        return self.lo < self.hi


def span_of(record: Record, part: str) -> Span | None:
    """The span of `part` (a header's name, or `FILL`); None if the message lacks it."""
    if form_of(record) is Form.HEADERS:
        if part == FILL:
            return Span("", 0, len(record.value or b""))
        value = dict(reversed(record.headers)).get(part)
        return None if value is None else Span(part, 0, len(value))
    ends = _semicolons(record.value or b"")
    if len(ends) < 3:
        return None
    size = len(record.value or b"")
    fill_at = min(ends[2] + 1 + descriptors.SIZE, size)
    proof = Span("", ends[2] + 1, fill_at) if fill_at - ends[2] > descriptors.SIZE else None
    return {
        ID: Span("", 0, ends[0]),
        SEQ: Span("", ends[0] + 1, ends[1]),
        TIME: Span("", ends[1] + 1, ends[2]),
        PROOF: proof,
        FILL: Span("", fill_at if proof else ends[2] + 1, size),
    }[part]


def _semicolons(value: bytes) -> list[int]:
    """The positions of a body's first three semicolons."""
    found: list[int] = []
    while len(found) < 3:
        at = value.find(b";", found[-1] + 1 if found else 0)
        if at < 0:
            break
        found.append(at)
    return found


def _read(record: Record, span: Span) -> bytes:
    value = dict(reversed(record.headers))[span.header] if span.header else record.value
    return (value or b"")[span.lo : span.hi]


def _replace_byte(record: Record, span: Span, at: int, byte: int) -> Change:
    """Replace one byte of a value, the record's or a header's."""
    if not span.header:
        value, detail = _with_byte(record.value or b"", at, byte)
        return Change(record._replace(value=value), detail)
    headers = list(record.headers)
    index = [name for name, _ in headers].index(span.header)
    value, detail = _with_byte(headers[index][1] or b"", at, byte)
    headers[index] = (span.header, value)
    return Change(record._replace(headers=tuple(headers)), f"header {span.header}, {detail}")


def _with_byte(raw: bytes, at: int, byte: int) -> tuple[bytes, str]:
    changed = raw[:at] + bytes([byte]) + raw[at + 1 :]
    return changed, f"byte {at}: {raw[at]:#04x} -> {byte:#04x}"


def _another(draw: Draw, byte: int, of: bytes) -> int:
    """A random byte of `of` other than this one."""
    others = of.replace(bytes([byte]), b"")
    return others[draw.below(len(others))]


def _change_in(part: str, allowed: Callable[[bytes, int], bytes]) -> Application:
    """Changes one byte of a part to one of `allowed(part, position)`; b"" allows none there."""

    def change(_: Act, record: Record, draw: Draw) -> Change | None:
        span = span_of(record, part)
        if not span:
            return None
        raw = _read(record, span)
        at = draw.below(len(raw))
        for step in range(len(raw)):  # the first that can be changed, from a random position on
            position = (at + step) % len(raw)
            choice = allowed(raw, position)
            if choice:
                byte = _another(draw, raw[position], choice)
                return _replace_byte(record, span, span.lo + position, byte)
        return None

    return change


def _id_bytes(raw: bytes, position: int) -> bytes:
    """The bytes allowed at a position, so that the id keeps its separators and its form."""
    incarnation_at = raw.rfind(b".") + 1
    if b"@" in raw and position >= incarnation_at:
        return _DIGITS[1:] if position == incarnation_at else _DIGITS
    return _LETTERS if raw[position : position + 1].isalnum() else b""


def _time_bytes(raw: bytes, position: int) -> bytes:
    """The digits allowed at a position: a valid time is below 2^63."""
    return _DIGITS[:9] if position == 0 and len(raw) == TIME_DIGITS else _DIGITS


def _truncate(act: Act, record: Record, _: Draw) -> Change | None:
    value = record.value
    if not value:
        return None
    cut = min(act.parameter("bytes"), len(value))
    left = len(value) - cut
    part = "" if form_of(record) is Form.HEADERS else _end_within(record, left)
    detail = f"{len(value)} -> {left} bytes"
    return Change(record._replace(value=value[:left]), detail, part)


def _end_within(record: Record, size: int) -> str:
    """The part of a body in which a value of this size ends."""
    id_, proof, fill = (span_of(record, part) for part in (ID, PROOF, FILL))
    if id_ is None or fill is None or size <= id_.hi:
        return IN_ID
    if proof is None:
        return FILL if size >= fill.lo else IN_NUMBERS
    if size >= fill.lo:
        return FILL
    if size > proof.lo:
        return IN_PROOF
    return AT_PROOF if size == proof.lo else IN_NUMBERS


def _extend(act: Act, record: Record, draw: Draw) -> Change | None:
    value = record.value
    if value is None:
        return None
    longer = value + draw.bytes(act.parameter("bytes"))
    return Change(record._replace(value=longer), f"{len(value)} -> {len(longer)} bytes")


def _rekey(act: Act, record: Record, draw: Draw) -> Change | None:
    given = act.parameter("key")
    if given is not None:
        key = given.encode()
    else:
        key = lane_key((parse_lane(record.key) or 0) + 1 + draw.below(_OTHER_LANES))
    if key == record.key:
        return None
    return Change(record._replace(key=key), f"key {record.key!r} -> {key!r}")


def _strip_header(act: Act, record: Record, _: Draw) -> Change | None:
    wanted = act.parameter("header")
    remaining = tuple(header for header in record.headers if header[0] != wanted)
    if len(remaining) == len(record.headers):
        return None
    return Change(record._replace(headers=remaining), f"header {wanted} stripped", wanted)


def _add_header(act: Act, record: Record, _: Draw) -> Change:
    name, value = act.parameter("header"), act.parameter("value").encode()
    added = (*record.headers, (name, value))
    return Change(record._replace(headers=added), f"header {name} added: {value!r}", name)


def _rename_header(act: Act, record: Record, _: Draw) -> Change | None:
    wanted = act.parameter("header")
    name = act.parameter("to_header") or f"x-{wanted}"
    renamed = tuple((name if found == wanted else found, value) for found, value in record.headers)
    if renamed == record.headers:
        return None
    return Change(record._replace(headers=renamed), f"header {wanted} -> {name}", wanted)


def _restamp(act: Act, record: Record, _: Draw) -> Change | None:
    stamp = record.timestamp_ms + act.parameter("shift_ms")
    if stamp < 0 or stamp == record.timestamp_ms:
        return None
    detail = f"timestamp {record.timestamp_ms} -> {stamp}"
    return Change(record._replace(timestamp_ms=stamp), detail)


CONTENT: dict[Anomaly, Application] = {
    Anomaly.CHANGE_ID: _change_in(ID, _id_bytes),
    Anomaly.CHANGE_SEQ: _change_in(SEQ, lambda *_: _DIGITS),
    Anomaly.CHANGE_TIME: _change_in(TIME, _time_bytes),
    Anomaly.CHANGE_DESCRIPTOR: _change_in(PROOF, lambda *_: _BYTES),
    Anomaly.STRIP_HEADER: _strip_header,
    Anomaly.RENAME_HEADER: _rename_header,
    Anomaly.CHANGE_PAYLOAD: _change_in(FILL, lambda *_: _BYTES),
    Anomaly.TRUNCATE: _truncate,
    Anomaly.EXTEND: _extend,
    Anomaly.ADD_HEADER: _add_header,
    Anomaly.REKEY: _rekey,
    Anomaly.RESTAMP: _restamp,
}
"""The function for each kind that changes a record, in the order of their application."""
