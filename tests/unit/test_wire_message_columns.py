"""The compiled loop reads the messages of a layout together, and trusts no position.

test_wire_batch_decoder proves that its results equal `message.decode`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire import message_columns, payload
from mirrortest.wire.batch_decoder import BatchDecoder, MessageArrays, layout_of
from mirrortest.wire.descriptor import SIZE, check_value, identity_hash, mix
from mirrortest.wire.digits import SEQ_DIGITS, TIME_DIGITS
from mirrortest.wire.form import Form
from mirrortest.wire.message import Record, encode
from mirrortest.wire.payload import CURRENT, FIRST, MAX_SIZE, VARYING, Generator, block, phase_of
from tests.unit.lane_batches import PA, TOPIC, all_at_once, built, lane_messages, one_by_one

if TYPE_CHECKING:
    from mirrortest.wire.batch_decoder import Layout
    from mirrortest.wire.record_batch import RecordArrays

WORD = st.integers(0, (1 << 64) - 1)
COLUMNS = ("key_start", "key_len", "value_start", "value_len", "headers_start", "headers_len")


def sent(form: Form, count: int, size: int = 100) -> list[Record]:
    return [encode(message, form) for message in lane_messages(count, size=size)]


def read(
    records: RecordArrays,
    layout: Layout,
    rows: list[int],
    fills: bytes | None = None,
    like: int = 0,
    messages: MessageArrays | None = None,
) -> tuple[list[int], MessageArrays]:
    """The rows that were left out, and what was read."""
    messages = messages or MessageArrays.unread(records.offsets)
    others = message_columns.read(
        records,
        np.array(rows, np.int64),
        like,
        layout,
        identity_hash(TOPIC, layout.raw_id),
        lambda lane: phase_of(TOPIC, layout.raw_id, lane),
        block(layout.generator or CURRENT, MAX_SIZE) if fills is None else fills,
        None,
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
    """Each byte of id, seq, time and descriptor takes every value; keys vary, too."""
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
    """Messages that differ only in lane, seq, size and time share a layout; none is left."""
    every = [
        encode(message, form)
        for size in range(80, 180)
        for message in lane_messages(3, size=size, lane=size * size * size)
    ]
    records = built(every)
    others, messages = read(records, laid_out(records), list(range(len(every))))
    assert others == []
    assert set(messages.findings.tolist()) == {0}


@pytest.mark.parametrize("form", Form)
def test_messages_of_both_generators_are_read_each_with_its_own(form: Form) -> None:
    """They alternate, as after an update of producers; one read leaves the other generator's."""
    older = [message._replace(generator=1) for message in lane_messages(10)]
    every = [
        encode(message, form)
        for pair in zip(lane_messages(10, lane=3), older, strict=True)
        for message in pair
    ]
    records = built(every)
    others, messages = read(records, laid_out(records), list(range(20)))
    assert others == list(range(1, 20, 2))
    assert not messages.findings.any()
    assert all_at_once(records) == one_by_one(every)
    assert not BatchDecoder(TOPIC).decode(records).findings.any()


def test_a_value_that_is_gone_is_corrupted_where_headers_tell_who_it_was() -> None:
    """A null value is not the same as an empty one."""
    records = sent(Form.HEADERS, 20)
    records[7] = records[7]._replace(value=None)
    records[8] = records[8]._replace(value=b"")
    assert all_at_once(built(records)) == one_by_one(records)


def seq_at_the_end(generator: Generator, phase: int, size: int) -> int:
    """A seq whose fill begins 7 bytes before the end of the block's period."""
    inverse = pow(generator.step_of(size), -1, generator.period)
    return (generator.period - 7 - phase) * inverse % generator.period


@given(
    st.sampled_from(Form),
    st.sampled_from([130, 400, 1000]),
    st.sampled_from([(FIRST, 0), (CURRENT, 0), (CURRENT, 30), (VARYING, 0), (VARYING, 100)]),
    st.data(),
)
def test_exactly_the_messages_with_a_wrong_byte_of_fill_are_corrupted(
    form: Form, size: int, kind: tuple[Generator, int], data: st.DataObject
) -> None:
    """Fills may continue past the end of the block's period, and any bytes may be wrong."""
    generator, compressibility = kind
    every = []
    for lane in (0, 11):
        last = seq_at_the_end(generator, phase_of(TOPIC, PA.encode(), lane), size)
        for message in lane_messages(15, lane=lane, size=size, seq=last - 7 + generator.period):
            kept = message._replace(generator=generator.number, compressibility=compressibility)
            every.append(encode(kept, form))
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
    """They have another id, no descriptor, or other headers."""
    records = sent(Form.BODY, 6)
    records[1] = encode(lane_messages(1, producer_id=PA._replace(name="pb"))[0], Form.BODY)
    records[3] = encode(lane_messages(1, size=0)[0], Form.BODY)
    records[4] = records[4]._replace(headers=(("a", b"b"),))
    arrays = built(records)
    others, messages = read(arrays, laid_out(arrays), [0, 1, 3, 4, 5])
    assert others == [1, 3, 4]
    assert messages.id_index.tolist() == [0, -1, -1, -1, -1, 0]
    assert messages.seq.tolist() == [5000, -1, -1, -1, -1, 5005]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that `BatchDecoder` has read one by one."""
    rows: list[int] = []
    was = BatchDecoder._decode_one

    def noted(self: BatchDecoder, records: Any, row: int, messages: Any) -> None:
        rows.append(row)
        was(self, records, row, messages)

    monkeypatch.setattr(BatchDecoder, "_decode_one", noted)
    return rows


def named(number: int, count: int, size: int = 100) -> list[Record]:
    """Messages of one of many producers."""
    producer = PA._replace(name=f"p{number}")
    return [encode(m, Form.BODY) for m in lane_messages(count, producer_id=producer, size=size)]


@pytest.mark.parametrize("strangers", [20, 200])
def test_strangers_cost_the_others_nothing(strangers: int, alone: list[int]) -> None:
    """Even with many ids, hardly any but foreign records are read one by one."""
    runs = [named(number, 20) for number in range(40)]
    records = [Record(b"k", b"no message", (), 5)] * strangers
    records += [record for together in zip(*runs, strict=True) for record in together]
    messages = BatchDecoder(TOPIC).decode(built(records))
    assert set(range(strangers)) <= set(alone)
    assert len(alone) < strangers + 50
    assert len(messages.ids) == 40
    assert not messages.findings[strangers:].any()


def test_strangers_in_between_cost_the_others_little(alone: list[int]) -> None:
    """If nine of ten records are foreign, fewer than 200 of 1,000 others are read one by one."""
    ours = named(0, 1000)
    records = []
    for record in ours:
        records += [Record(b"k", b"no message", (), 5)] * 9 + [record]
    messages = BatchDecoder(TOPIC).decode(built(records))
    assert len(alone) < 9000 + 200
    assert len(messages.seq[messages.seq >= 0]) == 1000


def test_what_is_rare_does_not_send_what_is_frequent_the_slow_way(alone: list[int]) -> None:
    """Many ids with a few messages each are before and after thousands of messages of one id."""
    few = [record for number in range(60) for record in named(number, 3)]
    records = few + named(100, 2000) + few
    messages = BatchDecoder(TOPIC).decode(built(records))
    assert not set(alone) & set(range(len(few), len(few) + 2000))
    assert not messages.findings.any()


def test_a_message_that_is_too_long_is_read_by_itself(
    alone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages before and after it are still read together."""
    monkeypatch.setattr(payload, "MAX_SIZE", 0)
    size = (1 << 16) + 500  # more than the part of the block that is always available
    records = named(0, 40) + named(0, 1, size) + named(0, 40)
    arrays = built(records)
    messages = BatchDecoder(TOPIC).decode(arrays)
    assert alone == [40]
    assert not messages.findings.any()


def test_what_waits_for_an_answer_is_no_more_than_a_few_scans(
    alone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endless ids are read one by one, after a limited number of scans for more of the same."""
    scanned, reads = 0, 0
    was = message_columns.read

    def counted(records: Any, rows: Any, *rest: Any) -> Any:
        nonlocal scanned, reads
        scanned, reads = scanned + len(rows), reads + 1
        return was(records, rows, *rest)

    monkeypatch.setattr(message_columns, "read", counted)
    records = [record for number in range(3000) for record in named(number, 1)]
    messages = BatchDecoder(TOPIC).decode(built(records))
    assert scanned <= 33 * len(records) + 500 * reads
    assert alone
    assert not messages.findings.any()


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("sent_ns", [-1, -999_999, -1_000_000, -1_000_001, 0, 999_999])
def test_times_before_the_epoch_are_rounded_down(form: Form, sent_ns: int) -> None:
    """Whether the record's timestamp is altered depends on rounding as in the specification."""
    every = [encode(message, form) for message in lane_messages(20, sent_ns=sent_ns)]
    records = built([record._replace(timestamp_ms=0) for record in every])
    for stamp in (-2, -1, 0):
        stamped = [record._replace(timestamp_ms=stamp) for record in every]
        records.timestamps[:] = stamp
        assert all_at_once(records) == one_by_one(stamped)


HEADERS = st.tuples(
    st.sampled_from(["x", "id", "seq", "ts", "d", "\ufffd"]),
    st.none() | st.binary(max_size=3),
)


@given(
    st.sampled_from(Form),
    st.lists(HEADERS, max_size=3),
    st.lists(HEADERS, max_size=3),
    st.booleans(),
    st.data(),
)
def test_headers_that_all_have_are_read_as_one_by_one(
    form: Form, before: list[Any], behind: list[Any], turned: bool, data: st.DataObject
) -> None:
    """They may be foreign, repeat our names, have another order, or differ in one record."""
    every = [
        record._replace(headers=(*before, *record.headers, *behind)) for record in sent(form, 20)
    ]
    if turned:
        every = [record._replace(headers=record.headers[::-1]) for record in every]
    at = data.draw(st.integers(0, 19))
    changed = [
        (name, data.draw(st.just(value) | st.none() | st.binary(max_size=3)))
        for name, value in every[at].headers
    ]
    every[at] = every[at]._replace(headers=tuple(changed))
    assert all_at_once(built(every)) == one_by_one(every)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("part", ["key", "value", "headers"])
@pytest.mark.parametrize("row", [0, 7])
def test_no_position_is_trusted(form: Form, part: str, row: int) -> None:
    """A part outside the buffer, by one byte or by many, is an error; one inside it is not."""
    records = built(sent(form, 20))
    size = len(records.buffer)
    layout = laid_out(records)
    length = int(getattr(records, f"{part}_len")[row])
    far = 1 << 62
    starts = [-far, -length - 1, -1, 0, size - length, size - length + 1, size, size + 1, far]
    for column, places, fits in (
        (f"{part}_start", starts, lambda start: 0 <= start <= size - length),
        (f"{part}_len", [size + 1, far, 2 * far - 1], lambda _: False),
    ):
        for place in places:
            moved = getattr(records, column).copy()
            moved[row] = place
            wrong = replace(records, **{column: moved})
            if fits(place):
                read(wrong, layout, list(range(20)))
                continue
            with pytest.raises(IndexError):
                read(wrong, layout, list(range(20)))


@pytest.mark.parametrize("form", Form)
def test_no_layout_is_trusted(form: Form) -> None:
    """Its positions must be within the layout's own record."""
    records = built(sent(form, 20))
    layout = laid_out(records)
    least = int(records.headers_len[0]) if layout.in_headers else layout.fill_at
    behind = 0 if layout.in_headers else 1  # a semicolon
    ends = {"seq_at": SEQ_DIGITS + behind, "time_at": TIME_DIGITS + behind, "proof_at": SIZE}
    far = (1 << 63) - 1
    for name, width in ends.items():
        read(records, layout._replace(**{name: least - width}), list(range(20)))  # type: ignore[arg-type]
        for place in (-far - 1, -1, least - width + 1, far):
            with pytest.raises(IndexError):
                read(records, layout._replace(**{name: place}), list(range(20)))  # type: ignore[arg-type]
    for wrong in (
        layout._replace(opening=-1),
        layout._replace(opening=layout.fill_at + 1),
        layout._replace(opening=far),
        layout._replace(fill_at=-1),
        layout._replace(fill_at=far),
        layout._replace(fill_at=len(records.buffer) if form is Form.BODY else 1),
    ):
        with pytest.raises(IndexError):
            read(records, wrong, list(range(20)))


@pytest.mark.parametrize(
    ("rows", "constants"),
    [
        ([0, 20], []),
        ([0, -1], []),
        ([0], [(0, 1 << 40)]),
        ([0], [(-1, 1)]),
    ],
)
def test_what_lies_outside_is_refused(rows: list[int], constants: list[tuple[int, int]]) -> None:
    """Rows that do not exist, and constants outside the headers, are refused."""
    records = built(sent(Form.BODY, 20))
    layout = laid_out(records)
    with pytest.raises(IndexError):
        read(records, layout._replace(constants=constants), rows)


@pytest.mark.parametrize("form", Form)
def test_fills_beyond_the_block_are_left(form: Form) -> None:
    """Messages with longer fills than the block are left out, to be read one by one."""
    every = [
        encode(message, form) for size in (100, 300) for message in lane_messages(5, size=size)
    ]
    records = built(every)
    others, _ = read(
        records, laid_out(records), list(range(10)), block(CURRENT, 0)[: CURRENT.period + 150]
    )
    assert others == [5, 6, 7, 8, 9]
    assert all_at_once(records) == one_by_one(every)


def test_columns_of_other_lengths_are_refused() -> None:
    """Each column needs an element for each record."""
    records = built(sent(Form.BODY, 20))
    layout = laid_out(records)
    for column in COLUMNS:
        short = replace(records, **{column: getattr(records, column)[:19]})
        with pytest.raises(IndexError):
            read(short, layout, [0])
    for like in (-1, 20):
        with pytest.raises(IndexError):
            read(records, layout, [0], like=like)
    messages = MessageArrays.unread(records.offsets)
    for field in fields(messages):
        if field.name not in {"ids", "offset"}:
            cut = replace(messages, **{field.name: getattr(messages, field.name)[:19]})
            with pytest.raises(IndexError):
                read(records, layout, [0], messages=cut)


@given(WORD, st.lists(st.tuples(WORD, WORD, WORD), min_size=1, max_size=5))
def test_check_values_are_those_of_the_definition(
    state: int, messages: list[tuple[int, int, int]]
) -> None:
    """Arrays equal single values, from one state or many; unequal lengths are refused."""
    states, intended, seqs = np.array(messages, np.uint64).reshape(-1, 3).T.copy()
    one = np.array([state], np.uint64)
    found = message_columns.check_values(one, intended, seqs)
    assert found.tolist() == [check_value(2, mix(state, words)) for _, *words in messages]
    found = message_columns.check_values(states, intended, seqs)
    assert found.tolist() == [check_value(2, mix(mixed, words)) for mixed, *words in messages]
    wrong = (
        (one, intended, np.append(seqs, seqs[:1])),
        (np.append(states, one), intended, seqs),
        (one[:0], intended, seqs),
    )
    for arguments in wrong:
        with pytest.raises(ValueError, match="one time and one seq"):
            message_columns.check_values(*arguments)
