"""Sizes that vary: each message's depends on its index in the topic, and batches fit them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.shape import Choice, Gaussian, SizeFile, SizeShape, Uniform
from mirrortest.produce.message_sizes import DrawnPayloads, LaneSizes, MessageSizes
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.form import Form
from mirrortest.wire.own_payloads import Payloads
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SHAPES = st.one_of(
    st.builds(
        Gaussian,
        st.integers(1, 5000).map(Fraction),
        st.integers(0, 2000).map(Fraction),
        st.integers(1, 200),
    ),
    st.builds(
        lambda low, more, every: Uniform(low, low + more, every),
        st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 200),
    ),
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(1, 9).map(Fraction)), min_size=1, max_size=5
    ).map(lambda weighted: Choice(tuple(weighted))),
    st.lists(st.integers(0, 5000), min_size=1, max_size=50).map(
        lambda listed: SizeFile("sizes", tuple(listed))
    ),
)  # fmt: skip


def sizes(shape: SizeShape, count: int, *, seed: int = 5, topic: str = "t") -> NDArray[np.int64]:
    """The sizes of a topic's first messages."""
    return MessageSizes(shape, seed=seed, topic=topic).of(np.arange(count, dtype=np.int64))


@given(SHAPES, st.integers(0, 10**12))
def test_a_size_is_that_of_its_index(shape: SizeShape, first: int) -> None:
    """It is the same alone or with others, within bounds, and constant within a window."""
    found = MessageSizes(shape, seed=1, topic="t")
    indices = np.arange(first, first + 300, dtype=np.int64)
    drawn = found.of(indices)
    assert found.of(indices[7:8])[0] == drawn[7]
    assert found.of(indices[::-3]).tolist() == drawn[::-3].tolist()
    assert shape.smallest <= drawn.min() <= drawn.max() <= shape.largest
    if isinstance(shape, Gaussian | Uniform):
        changes = indices[1:][np.diff(drawn) != 0]
        assert (changes % shape.every == 0).all()


def distance(found: NDArray[np.int64], share_up_to: Callable[[int], float]) -> float:
    """The Kolmogorov-Smirnov statistic times the root of n: 1.63 is the 1 % level."""
    values, counts = np.unique(found, return_counts=True)
    reached = np.cumsum(counts) / len(found)
    expected = np.array([share_up_to(int(value)) for value in values])
    return float(np.abs(reached - expected).max() * math.sqrt(len(found)))


def test_gaussian_sizes_are_gaussian() -> None:
    """68, 95 and 99.7 % are within one, two and three deviations."""
    found = sizes(Gaussian(Fraction(5120), Fraction(1000), 1), 10_000)
    away = np.abs(found - 5120)
    for most, share in ((1000, 0.6827), (2000, 0.9545), (3000, 0.9973)):
        assert abs((away < most).mean() - share) < 4 * math.sqrt(share * (1 - share) / 10_000)
    scale = 1000 * math.sqrt(2)
    assert distance(found, lambda size: (1 + math.erf((size + 0.5 - 5120) / scale)) / 2) < 1.63


def test_uniform_sizes_are_uniform() -> None:
    """Both bounds are included."""
    found = sizes(Uniform(100, 103, 1), 10_000)
    assert set(found.tolist()) == {100, 101, 102, 103}
    assert distance(found, lambda size: (size - 99) / 4) < 1.63
    wide = sizes(Uniform(0, 10**6, 1), 10_000)
    assert distance(wide, lambda size: (size + 1) / (10**6 + 1)) < 1.63


def test_choices_have_their_shares() -> None:
    """They do, whatever the weights add up to."""
    found = sizes(Choice(((100, Fraction(9)), (10_000, Fraction(1)))), 10_000)
    assert set(found.tolist()) == {100, 10_000}
    assert abs((found == 100).mean() - 0.9) < 4 * math.sqrt(0.09 / 10_000)


def test_sizes_of_a_file_come_in_its_order() -> None:
    """After the last one, the first follows, whatever the seed and the topic."""
    shape = SizeFile("sizes", (7, 900, 8))
    for seed, topic in ((5, "t"), (6, "u")):
        assert sizes(shape, 7, seed=seed, topic=topic).tolist() == [7, 900, 8, 7, 900, 8, 7]


def test_seeds_and_topics_differ() -> None:
    """The same seed and topic give the same sizes."""
    shape = Uniform(0, 10**6, 1)
    assert sizes(shape, 50).tolist() == sizes(shape, 50).tolist()
    assert sizes(shape, 50).tolist() != sizes(shape, 50, seed=6).tolist()
    assert sizes(shape, 50).tolist() != sizes(shape, 50, topic="u").tolist()


@given(SHAPES, st.integers(500, 20_000), st.sampled_from(Form), st.integers(1, 5))
def test_a_batch_holds_what_fits(
    shape: SizeShape, batch_bytes: int, form: Form, lanes: int
) -> None:
    """Lanes take the topic's sizes in turn; a batch is as full as its bytes allow."""
    topic = MessageSizes(shape, seed=1, topic="t")
    encoder = LaneEncoder("t", ProducerId("p", "r", 1), 0, 0, 1, form, shape.largest)
    for index in range(lanes):
        lane = LaneSizes(
            topic,
            index=index,
            of=lanes,
            actual=encoder.value_sizes,
            framing=encoder.framing,
            batch_bytes=batch_bytes - HEADER_SIZE,
        )
        fit, payloads = lane.fitting(10, 200)
        asked = topic.of(np.arange(210 * lanes, dtype=np.int64)[index::lanes][10:])
        assert fit.tolist() == encoder.value_sizes(asked)[: len(fit)].tolist()
        encoded = encoder.encode(10, np.arange(len(fit), dtype=np.int64), 5, fit)
        if len(fit) > 1:
            assert encoded.size <= batch_bytes
        if len(fit) < 200:
            full = int(encoder.value_sizes(asked)[: len(fit) + 1].sum())
            assert full + (len(fit) + 1) * encoder.framing > batch_bytes - HEADER_SIZE
        assert len(fit) <= max(1, lane.most)
        assert payloads is None


VALUES = [b"a", b"", b"bcd", b"e" * 900]


def own(values: list[bytes]) -> Payloads:
    lengths = np.array([len(value) for value in values])
    return Payloads.of(b"".join(values), np.cumsum(lengths) - lengths, lengths)


def test_each_payload_is_drawn_as_often_as_any_other() -> None:
    """The draw depends on seed, topic and index alone."""
    of = DrawnPayloads(own(VALUES), seed=5, topic="t").of
    indices = np.arange(10_000, dtype=np.int64)
    drawn = of(indices)
    _, counts = np.unique(drawn.sizes, return_counts=True)
    assert np.abs(counts / 10_000 - 0.25).max() < 4 * math.sqrt(0.25 * 0.75 / 10_000)
    assert of(indices[::-7]).digests.tolist() == drawn.digests[::-7].tolist()
    for other in (
        DrawnPayloads(own(VALUES), seed=6, topic="t"),
        DrawnPayloads(own(VALUES), seed=5, topic="u"),
    ):
        assert other.of(indices).digests.tolist() != drawn.digests.tolist()


@given(st.integers(100, 3000), st.integers(1, 5))
def test_a_batch_holds_the_payloads_that_fit(batch_bytes: int, lanes: int) -> None:
    """As with sizes that vary; the values are the user's."""
    topic = DrawnPayloads(own(VALUES), seed=1, topic="t")
    encoder = LaneEncoder("t", ProducerId("p", "r", 1), 0, 0, 1, Form.HEADERS, 900, own=True)
    for index in range(lanes):
        lane = LaneSizes(
            topic,
            index=index,
            of=lanes,
            actual=encoder.value_sizes,
            framing=encoder.framing,
            batch_bytes=batch_bytes - HEADER_SIZE,
        )
        fit, payloads = lane.fitting(10, 200)
        assert payloads is not None
        asked = topic.of(np.arange(210 * lanes, dtype=np.int64)[index::lanes][10:][: len(fit)])
        encoded = encoder.encode(10, np.arange(len(fit), dtype=np.int64), 5, fit, payloads)
        records = decode_records(encoded.buffer)
        assert [records.value(row) for row in range(len(fit))] == [
            asked.data[start : start + size]
            for start, size in zip(asked.starts.tolist(), asked.sizes.tolist(), strict=True)
        ]
        assert len(fit) == 1 or encoded.size <= batch_bytes
        assert len(fit) <= lane.most


@pytest.mark.parametrize("form", Form)
def test_sizes_are_those_of_the_records_values(form: Form) -> None:
    """A size that is too small for the header becomes the header's, as without a shape."""
    encoder = LaneEncoder("t", ProducerId("p", "r", 1), 0, 0, 1, form, 2000)
    for size in (0, 10, 60, 90, 91, 92, 93, 200, 2000):
        alone = LaneEncoder("t", ProducerId("p", "r", 1), 0, 0, 1, form, size)
        asked = np.array([size], np.int64)
        times = np.array([5], np.int64)
        encoded = encoder.encode(0, times, 5, encoder.value_sizes(asked))
        lengths = [
            decode_records(batch.buffer).value_len.tolist()
            for batch in (encoded, alone.encode(0, times, 5))
        ]
        assert lengths[0] == lengths[1]
