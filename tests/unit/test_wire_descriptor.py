"""The descriptor: masks, check values and limits, one at a time and many at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrortest.wire.descriptor import (
    Descriptor,
    check_value,
    constant_words,
    finish,
    masked,
    masked_arrays,
    pack,
    sized,
    unpack,
)
from mirrortest.wire.payload import MAX_SIZE, OWN

SEMICOLONS = 0x3B3B3B3B3B3B3B3B
WORD = st.integers(0, (1 << 64) - 1)
OPEN = st.binary(min_size=6, max_size=6).map(
    lambda raw: int.from_bytes(b"\xd1\x02" + raw, "little")
)
PROOFS = st.builds(
    Descriptor,
    st.integers(0, 65535),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, MAX_SIZE),
    st.integers(0, 65535),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 100),
    st.just(2),
    WORD,
)


@given(PROOFS, WORD, WORD)
def test_a_descriptor_has_no_semicolon_and_comes_back(
    proof: Descriptor, intended_ns: int, seq: int
) -> None:
    """The first generator's (not compressible) and user payloads' descriptors come back, too."""
    own = proof._replace(generator=OWN.number)
    raw = pack(own, "t", b"id", intended_ns, seq)
    assert unpack(raw, "t", b"id", intended_ns, seq) == own
    proof = proof._replace(digest=0)
    raw = pack(proof, "t", b"id", intended_ns, seq)
    assert b";" not in raw
    assert unpack(raw, "t", b"id", intended_ns, seq) == proof
    assert unpack(raw, "t", b"id", intended_ns, seq ^ 1) is None
    older = proof._replace(compressibility=0, generator=1)
    raw = pack(older, "t", b"id", intended_ns, seq)
    assert unpack(raw, "t", b"id", intended_ns, seq) == older


@given(OPEN, st.lists(st.integers(0, MAX_SIZE), min_size=1, max_size=50), WORD)
@example(SEMICOLONS & ~0xFFFF | 0x02D1, [0x3B, 0x3B3B, 0x3B3B3B, 0], SEMICOLONS)
@example(0x0102030405060000 | 0x02D1, [0x3B ^ 7, 0x3B ^ 8], 0x3B)
def test_masks_of_many_are_those_of_each(word0: int, sizes: list[int], word2: int) -> None:
    """Each is the smallest mask with which no byte is `;`, whatever the sizes."""
    word1 = constant_words(Descriptor(0, 0, 5, 59, 0, 30), "t")[1]
    contents = sized(word1, np.array(sizes))
    found = masked_arrays((word0, contents, word2))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        masked((word0, content, word2)) for content in contents.tolist()
    ]


@given(WORD)
@example(SEMICOLONS)
@example(SEMICOLONS ^ 0x0100FF0001000080)
def test_check_values_have_no_semicolon(state: int) -> None:
    """Those of the first generator are not changed."""
    assert check_value(1, state) == finish(state)
    check = check_value(2, state).to_bytes(8, "little")
    assert check == finish(state).to_bytes(8, "little").replace(b";", b":")


@pytest.mark.parametrize(
    "wrong",
    [
        Descriptor(65536, 0, 0, 0, 0),
        Descriptor(0, 1 << 32, 0, 0, 0),
        Descriptor(0, 0, MAX_SIZE + 1, 0, 0),
        Descriptor(0, 0, -1, 0, 0),
        Descriptor(0, 0, 0, 65536, 0),
        Descriptor(0, 0, 0, 0, 1 << 63),
        Descriptor(0, 0, 0, 0, 0, 101),
        Descriptor(0, 0, 0, 0, 0, -1),
        Descriptor(0, 0, 0, 0, 0, 30, 1),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(wrong: Descriptor) -> None:
    """Each field has its limits; the first generator has no compressible fill."""
    with pytest.raises(ValueError, match="does not fit a message"):
        pack(wrong, "t", b"id", 0, 0)
