"""Messages read by the compiled loop: none is left to be read by itself, no position is trusted.

That what it says of a message is what `message.decode` says is held by test_wire_batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire import message_columns
from mirrortest.wire.batch_decoder import BatchDecoder, MessageArrays
from mirrortest.wire.descriptor import SIZE, identity_hash
from mirrortest.wire.layout import layout_of
from mirrortest.wire.message import Form, Record, encode
from mirrortest.wire.payload import PERIOD, block, phase_of
from tests.unit.test_wire_batch import PA, TOPIC, all_at_once, built, lane_messages, one_by_one

if TYPE_CHECKING:
    from mirrortest.wire.layout import Layout
    from mirrortest.wire.record_batch import RecordArrays

COLUMNS = ("key_start", "key_len", "value_start", "value_len", "headers_start", "headers_len")
OFFSETS = ("opening", "seq_at", "time_at", "proof_at", "fill_at")
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 20_000)


def sent(form: Form, count: int, size: int = 100) -> list[Record]:
    return [encode(message, form) for message in lane_messages(count, size=size)]


def read(
    records: RecordArrays, layout: Layout, rows: list[int], fills: bytes = block(2 * PERIOD)
) -> tuple[list[int], MessageArrays]:
    """The rows that were left, and what was read."""
    messages = MessageArrays.unread(records.offsets)
    others = message_columns.read(
        records,
        np.array(rows, np.int64),
        layout,
        identity_hash(TOPIC, layout.raw_id),
        lambda lane: phase_of(TOPIC, layout.raw_id, lane),
        fills,
        0,
        messages,
    )
    return others.tolist(), messages


def laid_out(records: RecordArrays) -> Layout:
    layout = layout_of(records, 0)
    assert layout is not None
    return layout


@pytest.mark.parametrize("size", [44, 100])
def test_whatever_byte_stands_before_the_fill_it_is_read_as_one_by_one(size: int) -> None:
    """Each byte of id, numbers and proof in turn is every other byte; so it is of the key."""
    first, *_ = sent(Form.BODY, 1, size)
    value = first.value or b""
    places = range(min(len(value), len(PA.encode()) + 34 + SIZE))
    for at in places:
        turned = [
            first._replace(value=value[:at] + bytes([byte]) + value[at + 1 :])
            for byte in range(256)
        ]
        assert all_at_once(built([first, *turned])) == one_by_one([first, *turned])
    keys = [None, b"", b"0", b"00", b"011", b"11 ", b"4294967295", b"4294967296", b"9" * 10]
    keys += [b"1" * 11, b"11" * 40] + [bytes([byte]) + b"1" for byte in range(256)]
    keyed = [first._replace(key=key) for key in keys]
    assert all_at_once(built([first, *keyed])) == one_by_one([first, *keyed])


@pytest.mark.parametrize("form", Form)
def test_keys_and_values_of_any_length_are_read_together(form: Form) -> None:
    """What differs in lanes, sizes and times alone has one layout; none is read by itself."""
    every = [
        encode(message, form)
        for size in range(80, 180)
        for message in lane_messages(3, size=size, lane=size * size * size)
    ]
    records = built(every)
    others, messages = read(records, laid_out(records), list(range(len(every))))
    assert others == []
    assert set(messages.findings.tolist()) == {0}


def test_a_value_that_is_gone_is_corrupted_where_headers_tell_who_it_was() -> None:
    """A null is no value of no bytes."""
    records = sent(Form.HEADERS, 20)
    records[7] = records[7]._replace(value=None)
    records[8] = records[8]._replace(value=b"")
    assert all_at_once(built(records)) == one_by_one(records)


@given(st.sampled_from(Form), st.sampled_from([130, 400, 1000]), st.data())
def test_exactly_the_messages_with_a_wrong_byte_of_fill_are_corrupted(
    form: Form, size: int, data: st.DataObject
) -> None:
    """Over the end of the block's period, too, whichever bytes are wrong."""
    every = [
        encode(message, form)
        for lane in (0, 11)
        for message in lane_messages(
            15, lane=lane, size=size, seq=2 * PERIOD - 7 - phase_of(TOPIC, PA.encode(), lane)
        )
    ]
    hurt = data.draw(st.sets(st.integers(0, len(every) - 1), max_size=5))
    for row in hurt:
        value = bytearray(every[row].value or b"")
        value[data.draw(st.integers(size - 50, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
        every[row] = every[row]._replace(value=bytes(value))
    records = built(every)
    others, messages = read(records, laid_out(records), list(range(len(every))))
    assert others == []
    assert set(np.flatnonzero(messages.findings).tolist()) == hurt


def test_rows_that_are_laid_out_otherwise_come_back_in_their_order() -> None:
    """Another id, another proof's absence, other headers."""
    records = sent(Form.BODY, 6)
    records[1] = encode(lane_messages(1, producer_id=PA._replace(name="pb"))[0], Form.BODY)
    records[3] = encode(lane_messages(1, size=0)[0], Form.BODY)
    records[4] = records[4]._replace(headers=(("a", b"b"),))
    arrays = built(records)
    others, messages = read(arrays, laid_out(arrays), [0, 1, 3, 4, 5])
    assert others == [1, 3, 4]
    assert messages.id_index.tolist() == [0, -1, -1, -1, -1, 0]
    assert messages.seq.tolist() == [5000, -1, -1, -1, -1, 5005]


@pytest.mark.parametrize("strangers", [20, 200])
def test_strangers_do_not_slow_down_what_comes_behind_them(
    strangers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And many ids are as good as one: only strangers are read by themselves."""
    alone: list[int] = []
    was = BatchDecoder._decode_one

    def noted(self: BatchDecoder, records: Any, row: int, messages: Any) -> None:
        alone.append(row)
        was(self, records, row, messages)

    monkeypatch.setattr(BatchDecoder, "_decode_one", noted)
    records = [Record(b"k", b"no message", (), 5)] * strangers
    runs = [
        [encode(m, Form.BODY) for m in lane_messages(20, producer_id=PA._replace(name=f"p{n}"))]
        for n in range(40)
    ]
    records += [record for together in zip(*runs, strict=True) for record in together]
    messages = BatchDecoder(TOPIC).decode(built(records))
    assert alone == list(range(strangers))
    assert len(messages.ids) == 40
    assert not messages.findings[strangers:].any()


@given(st.sampled_from(Form), st.sampled_from(COLUMNS), st.integers(0, 19), INT64)
def test_no_position_is_trusted(form: Form, column: str, row: int, position: int) -> None:
    """A position outside the bytes is an error, and one inside them is read for what it is."""
    records = built(sent(form, 20))
    layout = laid_out(records)
    moved = getattr(records, column).copy()
    moved[row] = position
    try:
        others, messages = read(replace(records, **{column: moved}), layout, list(range(20)))
    except IndexError:
        return
    sound = [at for at in range(20) if at != row and at not in others]
    if row:  # else the others are laid out as what it is taken for
        assert messages.seq[sound].tolist() == [5000 + at for at in sound]


@given(st.sampled_from(Form), st.sampled_from(OFFSETS), INT64)
def test_no_layout_is_trusted(form: Form, field: str, offset: int) -> None:
    """Nor is where it says that something stands."""
    records = built(sent(form, 20))
    layout = laid_out(records)._replace(**{field: offset})  # type: ignore[arg-type]  # offsets are
    try:
        read(records, layout, list(range(20)))
    except IndexError:
        return
    assert 0 <= offset <= len(records.buffer)


@pytest.mark.parametrize(
    ("rows", "constants"),
    [
        ([], []),
        ([0, 20], []),
        ([0, -1], []),
        ([0], [(0, 1 << 40)]),
        ([0], [(-1, 1)]),
    ],
)
def test_what_lies_outside_is_refused(rows: list[int], constants: list[tuple[int, int]]) -> None:
    """No row, a row that there is not, constants beyond the headers."""
    records = built(sent(Form.BODY, 20))
    layout = laid_out(records)
    with pytest.raises(IndexError):
        read(records, layout._replace(constants=constants), rows)


@pytest.mark.parametrize("form", Form)
def test_fills_beyond_the_block_are_left(form: Form) -> None:
    """Longer than any message may be; what is left has to be read by itself, not for ever."""
    every = [
        encode(message, form) for size in (100, 300) for message in lane_messages(5, size=size)
    ]
    records = built(every)
    others, _ = read(records, laid_out(records), list(range(10)), block(2 * PERIOD)[: PERIOD + 150])
    assert others == [5, 6, 7, 8, 9]
    assert all_at_once(records) == one_by_one(every)


def test_columns_of_other_lengths_are_refused() -> None:
    """Each has an element for each record."""
    records = built(sent(Form.BODY, 20))
    layout = laid_out(records)
    for column in COLUMNS:
        short = replace(records, **{column: getattr(records, column)[:19]})
        with pytest.raises(IndexError):
            read(short, layout, [0])
