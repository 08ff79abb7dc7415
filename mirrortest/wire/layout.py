"""The layout of a message in a batch: where its parts stand, and what others like it share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.findings import Finding
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire.digits import SEQ_DIGITS, TIME_DIGITS
from mirrortest.wire.message import FIXED_HEADER, HEADER_NAMES, ID, PROOF, SEQ, TIME
from mirrortest.wire.record_headers import header_spans
from mirrortest.wire.stream import ProducerId
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from mirrortest.wire.record_batch import RecordArrays

_LONGEST_ID = 100
"""More bytes than an id of ours can have: 64 of name, 16 of run, 9 digits, 2 signs."""

Span = tuple[int, int]
"""An offset, and how many bytes stand there."""


class Layout(NamedTuple):
    """What the bytes of a record say of those that are laid out like it, and where they stand.

    Such a record has as many bytes of headers, the same bytes in `constants` of them, and the same
    `opening` bytes at the beginning of its value; in body form its value holds all that stands
    before `fill_at`, and nothing behind it where there is no proof. Offsets count from the value
    in body form, from the header section in header form; `fill_at` counts from the value in both.
    `proof_at` is None in a lone header (unproven).
    """

    in_headers: bool
    id: ProducerId
    raw_id: bytes
    opening: int
    seq_at: int
    time_at: int
    proof_at: int | None
    fill_at: int
    altered: Finding
    constants: list[Span]


def layout_of(records: RecordArrays, row: int) -> Layout | None:
    """The layout of one record; None where it has to be read by itself."""
    raw = records.raw_headers(row)
    try:
        spans = header_spans(raw)
    except MalformedBatchError:
        return None
    names = [raw[name_lo:name_hi].decode(errors="replace") for name_lo, name_hi, _, _ in spans]
    values = {name: (lo, hi) for name, (_, _, lo, hi) in zip(names[::-1], spans[::-1], strict=True)}
    variable = {(lo, hi) for _, _, lo, hi in spans if lo >= 0}
    if ID not in values or SEQ not in values:
        return _of_body(records, row, _constants(raw, variable), bool(names))
    variable.discard(values[ID])
    return _of_headers(raw, names, values, _constants(raw, variable))


def _constants(raw: bytes, variable: set[tuple[int, int]]) -> list[Span]:
    """The stretches of a header section besides the values that vary."""
    constants: list[Span] = []
    position = 0
    for lo, hi in sorted(variable):
        constants.append((position, lo - position))
        position = hi
    constants.append((position, len(raw) - position))
    return constants


def _of_body(
    records: RecordArrays, row: int, constants: list[Span], has_headers: bool
) -> Layout | None:
    start, length = int(records.value_start[row]), int(records.value_len[row])
    if length < 0:
        return None
    opening = records.buffer[start : start + min(length, _LONGEST_ID)].tobytes()
    raw_id, semicolon, _ = opening.partition(b";")
    producer_id = ProducerId.parse(raw_id)
    if not semicolon or producer_id is None or not producer_id.run:
        return None
    header = len(raw_id) + FIXED_HEADER
    proven = length >= header + descriptors.SIZE
    if not proven and length != header:
        return None
    return Layout(
        in_headers=False,
        id=producer_id,
        raw_id=raw_id,
        opening=len(raw_id) + 1,
        seq_at=len(raw_id) + 1,
        time_at=len(raw_id) + SEQ_DIGITS + 2,
        proof_at=header if proven else None,
        fill_at=header + descriptors.SIZE if proven else header,
        altered=Finding.ALTERED_HEADERS if has_headers else Finding(0),
        constants=constants,
    )


def _of_headers(
    raw: bytes,
    names: list[str],
    values: dict[str, tuple[int, int]],
    constants: list[Span],
) -> Layout | None:
    widths = {SEQ: SEQ_DIGITS, TIME: TIME_DIGITS, PROOF: descriptors.SIZE}
    for name, width in widths.items():
        lo, hi = values.get(name, (-1, -1))
        if lo < 0 or hi - lo != width:
            return None
    lo, hi = values[ID]
    producer_id = ProducerId.parse(raw[lo:hi]) if lo >= 0 else None
    if producer_id is None or not producer_id.run:
        return None
    return Layout(
        in_headers=True,
        id=producer_id,
        raw_id=raw[lo:hi],
        opening=0,
        seq_at=values[SEQ][0],
        time_at=values[TIME][0],
        proof_at=values[PROOF][0],
        fill_at=0,
        altered=Finding(0) if tuple(names) == HEADER_NAMES else Finding.ALTERED_HEADERS,
        constants=constants,
    )
