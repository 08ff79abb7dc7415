"""The index finds a stream's fragments like asking each partition's checker."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.verify.fragment_index import FragmentIndex
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

STREAMS = [
    StreamId("t", "r", producer, incarnation, lane)
    for producer, incarnation, lane in product("ab", (1, 2), (0, 1))
]
SEEN = st.tuples(st.integers(0, 3), st.sampled_from([None, *STREAMS]), st.integers(0, 9))
"""Partition, stream (None: an unread offset), seq."""


def _checkers(
    steps: list[tuple[int, StreamId | None, int]], *, most: int
) -> dict[int, PartitionChecker]:
    checkers = {number: PartitionChecker("t", number, max_intervals=most) for number in range(4)}
    for number, stream, seq in steps:
        checker = checkers[number]
        at = checker.next_offset
        if stream is None:
            checker.unread(at, at + 1)
        else:
            checker.apply(SeenRow(stream, seq, seq + 1, at, at + 1, 0, 1, 1, 1, 1, 1, 1))
    return checkers


def index_of(checkers: dict[int, PartitionChecker]) -> FragmentIndex:
    index = FragmentIndex()
    for number, checker in checkers.items():
        index.add(number, checker)
    return index


@given(st.lists(SEEN, max_size=20), st.sampled_from([2, 6, 1000]))
def test_it_tells_what_each_partition_tells(
    steps: list[tuple[int, StreamId | None, int]], most: int
) -> None:
    """Both agree on seen and unseen streams, with unread offsets, and past the memory bound."""
    checkers = _checkers(steps, most=most)
    index = index_of(checkers)
    for stream in STREAMS:
        each = {number: checker.fragment(stream) for number, checker in checkers.items()}
        assert index.fragments(stream) == {
            n: fragment for n, fragment in each.items() if fragment is not None
        }
    assert set(index.streams) == {s for checker in checkers.values() for s in checker.fragments}


@given(
    st.lists(SEEN.filter(lambda step: step[0] == 0), min_size=1, max_size=20),
    st.sampled_from([6, 1000]),
)
def test_a_fragments_mark_changes_with_it(
    steps: list[tuple[int, StreamId | None, int]], most: int
) -> None:
    """A stream's fragments with equal marks have equal states."""
    states: dict[tuple[StreamId, object], object] = {}
    for count in range(len(steps) + 1):
        (checker, *_) = _checkers(steps[:count], most=most).values()
        for stream, fragment in checker.fragments.items():
            state = fragment.to_state()
            assert states.setdefault((stream, fragment.mark), state) == state
