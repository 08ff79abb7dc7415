"""The fill: one block for ever, one window for each seq."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.payload import MAX_SIZE, PERIOD, fill, phase_of, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

phases = st.integers(0, PERIOD - 1)
seqs = st.integers(0, 10**12 - 1)


def fills(phase: int, seq: int, count: int, size: int) -> list[bytes]:
    """What the windows of a batch show."""
    block, start, step, period = windows(phase, seq, size)
    assert period - 1 + size <= len(block)
    starts = [(start + i * step) % period for i in range(count)]
    return [block[at : at + size] for at in starts]


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
    """Step by step the window is the fill of one message after the other."""
    assert fills(phase, seq, count, size) == [fill(phase, seq + i, size) for i in range(count)]


@given(phases, st.integers(0, 10**9), st.integers(1, 64))
def test_the_block_wraps(phase: int, seq: int, size: int) -> None:
    """One period later the fill is the same, also across the block's end."""
    assert fill(phase, seq, size) == fill(phase, seq + PERIOD, size)


def test_windows_across_the_wrap() -> None:
    """A batch may straddle the end of the period."""
    found = fills(PERIOD - 3, 0, 6, 10)
    assert found == [fill(PERIOD - 3, i, 10) for i in range(6)]
    assert found[3] == fill(0, 0, 10)


def test_neighbours_differ() -> None:
    """No two of a million consecutive fills of 16 bytes are equal."""
    block, _, _, period = windows(0, 0, 16)
    view: NDArray[np.uint8] = np.ndarray((period, 16), np.uint8, block, 0, (1, 1))
    words = view.copy().view("<u8")
    assert len(np.unique(words, axis=0)) == period == PERIOD


@pytest.mark.parametrize("size", [PERIOD, 3 * PERIOD, MAX_SIZE])
def test_great_fills(size: int) -> None:
    """The fill goes on past the period."""
    great = fill(7, 5, size)
    assert len(great) == size
    assert great[-20:] == fill(7, 5 + size - 20, 20)
