"""The fill: a block that never changes, and one window of it for each seq."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.wire.payload import (
    CURRENT,
    FIRST,
    GENERATORS,
    MAX_SIZE,
    VARYING,
    Generator,
    block,
    fill,
    phase_of,
    windows,
    zeros,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

phases = st.integers(0, (1 << 64) - 1)
seqs = st.integers(0, 10**12 - 1)
generators = st.sampled_from(sorted(GENERATORS.values()))
percents = st.integers(0, 100)
MIB = 1 << 20


def test_the_blocks_are_golden() -> None:
    """They never change, so another version can prove a message intact."""
    assert fill(FIRST, 0, 0, 0, 16, 16).hex() == "8bdc03166f24c8e916e2baca34570aad"
    digest = hashlib.sha256(fill(FIRST, 0, 0, 0, 0, FIRST.period)).hexdigest()
    assert digest == "fb61dbd908d60585b29731472cf005ba2978411187dfba59b5d1fb2d5b2e96e5"
    assert fill(CURRENT, 0, 0, 0, 16, 16).hex() == "de9cae4607d791d3699069a06f73f207"
    digest = hashlib.sha256(fill(CURRENT, 0, 0, 0, 0, CURRENT.period)).hexdigest()
    assert digest == "25cf4d9b3abc5a54c588214298dd7db4c2cd66de94be88d17ff3efc513ec9509"
    assert phase_of("orders", b"pa@run7.3", 11) == 6970618969285188583


@given(phases, seqs, st.integers(1, 40), st.integers(0, 300), percents, st.booleans())
def test_windows_are_the_fills_of_consecutive_seqs(
    phase: int, seq: int, count: int, size: int, percent: int, varies: bool
) -> None:
    """Step by step, the window is the fill of each next message."""
    found, (start,), step, period, compressibility = windows(
        phase, seq, None if varies else size + 9, size, percent
    )
    generator = VARYING if varies else CURRENT
    assert period - 1 + size <= len(found)
    run = zeros(size, compressibility)
    for i in range(count):
        at = (start + i * step) % period
        filled = found[at : at + size - run] + bytes(run)
        assert filled == fill(generator, percent, phase, seq + i, size + 9, size)


@given(generators, phases, seqs, st.integers(1, 64))
def test_the_block_wraps(generator: Generator, phase: int, seq: int, size: int) -> None:
    """One period later the fill is the same, also across the block's end."""
    again = fill(generator, 0, phase, seq + generator.period, size, size)
    assert fill(generator, 0, phase, seq, size, size) == again
    last = fill(generator, 0, generator.period - 3, 0, 10, 10)
    assert last[3:] == fill(generator, 0, 0, 0, 10, 7)


@pytest.mark.parametrize("generator", GENERATORS.values())
def test_neighbours_differ(generator: Generator) -> None:
    """Over as many consecutive seqs as a period has bytes, all fills begin at different places.

    Their first eight bytes all differ, too.
    """
    starts = np.arange(generator.period, dtype=np.uint64) * np.uint64(generator.step_of(16))
    starts %= np.uint64(generator.period)
    assert (np.bincount(starts.astype(np.int64), minlength=generator.period) == 1).all()
    found = block(generator, 8)
    view: NDArray[np.uint8] = np.ndarray((generator.period, 8), np.uint8, found, 0, (1, 1))
    words = np.sort(view.copy().view("<u8")[:, 0])
    assert (words[1:] > words[:-1]).all()


def distances(step: int) -> NDArray[np.int64]:
    """The distances between the fills of messages 1, 2, ... apart, each times that number."""
    apart = np.arange(1, 1 << 18, dtype=np.int64)
    places = apart * step % VARYING.period
    return np.minimum(places, VARYING.period - places) * apart


def test_fills_that_share_a_batch_are_distinct_parts_of_the_block() -> None:
    """In a batch of 1 MiB, messages of a size are at most 1 MiB divided by that size apart."""
    assert distances(VARYING.step).min() >= MIB
    for size in (4, 10, 100, 999, 1000, 10_000, 200_000):
        count = MIB // size
        starts = np.arange(count, dtype=np.int64) * CURRENT.step_of(size) % CURRENT.period
        assert np.diff(np.sort(starts)).min() >= size
        assert starts.max() + size <= CURRENT.period  # the last one does not wrap to the first


def test_the_current_block_has_all_bytes_but_the_ancestors_separator() -> None:
    """Each of them occurs as often as any other, within six standard deviations."""
    counts = np.bincount(np.frombuffer(block(CURRENT, 0), np.uint8, CURRENT.period), minlength=256)
    assert counts[ord(";")] == 0
    mean = CURRENT.period / 255
    assert abs(np.delete(counts, ord(";")) - mean).max() < 6 * mean**0.5


@pytest.mark.parametrize("generator", GENERATORS.values())
@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 3 << 20, MAX_SIZE])
def test_great_fills(generator: Generator, size: int) -> None:
    """The fill continues past the period."""
    great = fill(generator, 0, 7, 0, size, size)
    assert len(great) == size
    assert great[-20:] == fill(generator, 0, 7 + size - 20, 0, 20, 20)


@given(generators, phases, seqs, st.integers(0, 500), percents)
def test_a_share_of_the_fill_is_zeros(
    generator: Generator, phase: int, seq: int, size: int, percent: int
) -> None:
    """The zeros are 1 % more than requested, at the end; what precedes them is unchanged."""
    without_zeros, shared = (fill(generator, each, phase, seq, size, size) for each in (0, percent))
    run = zeros(size, percent)
    assert abs(run - min(size, size * percent * 1.01 / 100)) <= 0.5
    assert shared == without_zeros[: size - run] + bytes(run)
