"""The fill: one block for ever, one window for each seq."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.payload import MAX_SIZE, PERIOD, fill, phase_of, windows, windows_at

phases = st.integers(0, PERIOD - 1)
seqs = st.integers(0, 10**12 - 1)


def test_the_block_is_golden() -> None:
    """A message sent by one version is proven intact by another."""
    assert fill(0, 0, 16).hex() == "8bdc03166f24c8e916e2baca34570aad"
    digest = hashlib.sha256(fill(0, 0, PERIOD)).hexdigest()
    assert digest == "fb61dbd908d60585b29731472cf005ba2978411187dfba59b5d1fb2d5b2e96e5"
    assert phase_of("orders", b"pa@run7.3", 11) == 515047


@given(phases, seqs, st.integers(0, 40), st.integers(0, 300))
def test_windows_are_the_fills_of_consecutive_seqs(
    phase: int, seq: int, count: int, size: int
) -> None:
    """The view equals one fill for each message, and cannot be written."""
    view = windows(phase, seq, count, size)
    assert view.shape == (count, size)
    assert not view.flags.writeable
    assert [row.tobytes() for row in view] == [fill(phase, seq + i, size) for i in range(count)]


@given(st.lists(phases, max_size=20), st.integers(0, 300))
def test_windows_at_are_the_fills_that_start_there(starts: list[int], size: int) -> None:
    """Gathered windows equal the fills of seq 0 at these phases."""
    rows = windows_at(np.array(starts, np.int64), size)
    assert [row.tobytes() for row in rows] == [fill(start, 0, size) for start in starts]


@given(phases, st.integers(0, 10**9), st.integers(1, 64))
def test_the_block_wraps(phase: int, seq: int, size: int) -> None:
    """One period later the fill is the same, also across the block's end."""
    assert fill(phase, seq, size) == fill(phase, seq + PERIOD, size)


def test_windows_across_the_wrap() -> None:
    """A batch may straddle the end of the period."""
    view = windows(PERIOD - 3, 0, 6, 10)
    assert [row.tobytes() for row in view] == [fill(PERIOD - 3, i, 10) for i in range(6)]
    assert view[3].tobytes() == fill(0, 0, 10)


def test_neighbours_differ() -> None:
    """No two of a million consecutive fills of 16 bytes are equal."""
    words = windows(0, 0, PERIOD, 16).copy().view("<u8")
    assert len(np.unique(words, axis=0)) == PERIOD


@pytest.mark.parametrize("size", [PERIOD, 3 * PERIOD, MAX_SIZE])
def test_great_fills(size: int) -> None:
    """The fill goes on past the period."""
    great = fill(7, 5, size)
    assert len(great) == size
    assert great[-20:] == fill(7, 5 + size - 20, 20)
