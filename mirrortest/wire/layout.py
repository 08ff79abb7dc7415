"""The layout of a message in a batch: where its parts stand, and what others like it share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.check.verdict import Finding
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire import kernels
from mirrortest.wire.digits import SEQ_DIGITS, TIME_DIGITS
from mirrortest.wire.message import FIXED_HEADER, HEADER_NAMES, ID, PROOF, SEQ, TIME, Form
from mirrortest.wire.record_headers import header_spans
from mirrortest.wire.stream import ProducerId
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.wire.record_batch import RecordArrays

_LONGEST_ID = 100
"""More bytes than an id of ours can have: 64 of name, 16 of run, 9 digits, 2 signs."""

Constant = tuple[int, bytes]
"""Bytes that must stand at an offset."""


class Layout(NamedTuple):
    """Offsets count from the value in body form, from the header section in header form.

    `fill_at` counts from the value in both. `proof_at` is None in a lone header (unproven).
    """

    form: Form
    id: ProducerId
    raw_id: bytes
    key_len: int
    value_len: int
    seq_at: int
    time_at: int
    proof_at: int | None
    fill_at: int
    fill_size: int
    altered: Finding
    value_constants: list[Constant]
    header_constants: list[Constant]

    def matches(self, records: RecordArrays, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Which of the records, all of the same part lengths, have this layout and id."""
        headers, values = records.headers_start[rows], records.value_start[rows]
        same = np.ones(len(headers), np.bool_)
        kept = same.view(np.uint8)
        for offset, expected in self.header_constants:
            kernels.keep_equal(records.buffer, headers, offset, expected, kept)
        for offset, expected in self.value_constants:
            kernels.keep_equal(records.buffer, values, offset, expected, kept)
        return same


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
    return _of_headers(records, row, raw, names, values, _constants(raw, variable))


def _constants(raw: bytes, variable: set[tuple[int, int]]) -> list[Constant]:
    """The bytes of a header section besides the values that vary."""
    constants: list[Constant] = []
    position = 0
    for lo, hi in sorted(variable):
        constants.append((position, raw[position:lo]))
        position = hi
    constants.append((position, raw[position:]))
    return constants


def _of_body(
    records: RecordArrays, row: int, constants: list[Constant], has_headers: bool
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
    fill_at = header + descriptors.SIZE if proven else header
    return Layout(
        form=Form.BODY,
        id=producer_id,
        raw_id=raw_id,
        key_len=int(records.key_len[row]),
        value_len=length,
        seq_at=len(raw_id) + 1,
        time_at=len(raw_id) + SEQ_DIGITS + 2,
        proof_at=header if proven else None,
        fill_at=fill_at,
        fill_size=length - fill_at,
        altered=Finding.ALTERED_HEADERS if has_headers else Finding(0),
        value_constants=[(0, raw_id + b";")],
        header_constants=constants,
    )


def _of_headers(
    records: RecordArrays,
    row: int,
    raw: bytes,
    names: list[str],
    values: dict[str, tuple[int, int]],
    constants: list[Constant],
) -> Layout | None:
    widths = {SEQ: SEQ_DIGITS, TIME: TIME_DIGITS, PROOF: descriptors.SIZE}
    for name, width in widths.items():
        lo, hi = values.get(name, (-1, -1))
        if lo < 0 or hi - lo != width:
            return None
    lo, hi = values[ID]
    producer_id = ProducerId.parse(raw[lo:hi]) if lo >= 0 else None
    length = int(records.value_len[row])
    if length < 0 or producer_id is None or not producer_id.run:
        return None
    return Layout(
        form=Form.HEADERS,
        id=producer_id,
        raw_id=raw[lo:hi],
        key_len=int(records.key_len[row]),
        value_len=length,
        seq_at=values[SEQ][0],
        time_at=values[TIME][0],
        proof_at=values[PROOF][0],
        fill_at=0,
        fill_size=length,
        altered=Finding(0) if tuple(names) == HEADER_NAMES else Finding.ALTERED_HEADERS,
        value_constants=[],
        header_constants=constants,
    )
