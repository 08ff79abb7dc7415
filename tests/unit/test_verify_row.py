"""Rows represent exactly the messages they were built from, and split only where they must."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.verify.row import MINUTE_NS, Messages, rows_of, streams_of
from mirrortest.wire.stream import ProducerId, StreamId

if TYPE_CHECKING:
    from numpy.typing import NDArray

STREAMS = [StreamId("t", "r", "a", 1, 0), StreamId("t", "r", "b", 1, 3)]
MESSAGE = st.tuples(
    st.integers(-1, 1),  # stream
    st.integers(0, 4),  # seq
    st.integers(1, 2),  # offset step
    st.sampled_from([0, 0, MINUTE_NS - 1, MINUTE_NS]),  # intended
    st.sampled_from([0, 7, 8]),  # sent
    st.sampled_from([0, 0, int(Finding.CORRUPTED), int(Finding.MISROUTED)]),
)


def messages_of(
    listed: list[tuple[int, int, int, int, int, int]], arrived: NDArray[np.int64] | int = 50
) -> Messages:
    stream, seq, step, intended, sent, findings = zip(*listed, strict=True) if listed else ((),) * 6
    return Messages(
        STREAMS,
        np.array(stream, np.int32),
        np.array(seq, np.int64),
        np.cumsum(np.array(step, np.int64)),
        np.array(intended, np.int64),
        np.array(sent, np.int64),
        np.array(findings, np.uint32),
        arrived,
    )


@given(st.lists(MESSAGE, max_size=12))
def test_rows_unfold_to_their_messages(listed: list[tuple[int, int, int, int, int, int]]) -> None:
    """Unfolding the rows gives every message back: stream, seq, offset, findings and minute."""
    messages = messages_of(listed)
    unfolded: list[tuple[Any, ...]] = []
    for row in rows_of(messages):
        assert row.offset_lo < row.offset_hi
        for k in range(row.offset_hi - row.offset_lo):
            minutes = (row.intended_first // MINUTE_NS, row.intended_last // MINUTE_NS)
            seq = row.seq_lo + k if row.stream else None
            unfolded.append((row.stream, seq, row.offset_lo + k, row.findings, *minutes))
    expected: list[tuple[Any, ...]] = []
    for (stream, seq, _, intended, _, findings), offset in zip(
        listed, messages.offset.tolist(), strict=True
    ):
        named = stream >= 0
        minute = intended // MINUTE_NS if named else 0
        expected.append(
            (
                STREAMS[stream] if named else None,
                seq if named else None,
                offset,
                findings,
                minute,
                minute,
            )
        )
    assert unfolded == expected


@given(st.lists(MESSAGE, min_size=2, max_size=12))
def test_rows_are_as_long_as_they_can_be(listed: list[tuple[int, int, int, int, int, int]]) -> None:
    """No two neighbouring rows could have been one."""
    rows = rows_of(messages_of(listed))
    for before, after in pairwise(rows):
        same = before.stream == after.stream and before.findings == after.findings
        assert not (
            same
            and before.offset_hi == after.offset_lo
            and (before.seq_hi == after.seq_lo)
            and before.intended_last // MINUTE_NS == after.intended_first // MINUTE_NS
            and (before.sent_first == 0) == (after.sent_first == 0)
        )


def test_times_are_least_and_greatest() -> None:
    """A row has the span of its messages' times, also of individual arrival times."""
    listed = [(0, 0, 1, 30, 7, 0), (0, 1, 1, 20, 9, 0), (0, 2, 1, 40, 8, 0)]
    (row,) = rows_of(messages_of(listed, np.array([5, 6, 4])))
    assert row == (STREAMS[0], 0, 3, 1, 4, 0, 20, 40, 7, 9, 4, 6, -1)


def test_a_row_in_no_stream_has_one_lanes_key() -> None:
    """It matters which lane's key another run's message has."""
    messages = messages_of([(-1, 0, 1, 0, 0, int(Finding.OTHER_RUN))] * 5)
    messages = replace(messages, key_lane=np.array([3, 3, 5, -1, -1]))
    found = [(row.stream, row.offset_lo, row.offset_hi, row.key_lane) for row in rows_of(messages)]
    assert found == [(None, 1, 3, 3), (None, 3, 4, 5), (None, 4, 6, -1)]


def test_no_messages_make_no_rows() -> None:
    """An empty batch has no rows."""
    assert rows_of(messages_of([])) == []


def test_streams_of_one_run() -> None:
    """Ids and lanes become streams; other runs', foreign and unknown messages get no stream."""
    ids = [ProducerId("a", "r", 1), ProducerId("a", "old", 1), None]
    streams, index, findings = streams_of(
        "t",
        "r",
        ids,
        np.array([0, 0, 1, -1, 0, 2, 0, 0], np.int32),
        np.array([0, 0, 0, -1, 5, 0, -1, 0]),
        np.array([0, 8, 0, 8, 0, 1, 0, 1], np.uint32),
    )
    assert streams == [StreamId("t", "r", "a", 1, 0), StreamId("t", "r", "a", 1, 5)]
    assert index.tolist() == [0, 0, -1, -1, 1, -1, -1, -1]
    other, foreign = int(Finding.OTHER_RUN), int(Finding.FOREIGN)
    assert findings.tolist() == [0, 8, other, 8, 0, 1, foreign, 1]
    none = np.array([], np.int32)
    assert streams_of("t", "r", ids, none, none.astype(np.int64), none.astype(np.uint32))[0] == []
