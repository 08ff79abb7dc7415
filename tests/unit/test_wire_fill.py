"""The fill of many messages, compared at once, against one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.fill import differing
from mirrortest.wire.payload import PERIOD, fill

RUNS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2 * PERIOD), st.integers(PERIOD - 40, PERIOD)),  # first seq
        st.integers(1, 80),  # messages
        st.integers(0, 30),  # bytes between them
    ),
    min_size=1,
    max_size=4,
)


@given(RUNS, st.one_of(st.integers(1, 40), st.integers(250, 300)), st.data())
def test_exactly_the_messages_with_a_wrong_byte_differ(
    runs: list[tuple[int, int, int]], size: int, data: st.DataObject
) -> None:
    """At one stride or many, sliding or not, over the block's end, whichever bytes are wrong."""
    buffer, at, starts = bytearray(), [], []
    for seq, count, gap in runs:
        for number in range(seq, seq + count):
            at.append(len(buffer))
            starts.append(number % PERIOD)
            buffer += fill(0, number, size) + bytes(gap)
    hurt = data.draw(st.sets(st.integers(0, len(at) - 1), max_size=5))
    for row in hurt:
        buffer[at[row] + data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = differing(np.frombuffer(buffer, np.uint8), np.array(at), np.array(starts), size)
    assert set(np.flatnonzero(found).tolist()) == hurt


def test_nothing_to_compare_differs_nowhere() -> None:
    """No fill, or no message."""
    nothing = np.zeros(0, np.uint8)
    some, none = np.array([0, 1]), np.zeros(0, np.int64)
    assert not differing(nothing, some, some, 0).any()
    assert len(differing(nothing, none, none, 5)) == 0
