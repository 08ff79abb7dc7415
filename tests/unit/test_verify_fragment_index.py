"""Looking a stream up in all partitions at once tells what asking each of them tells."""

from __future__ import annotations

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.verify.fragment_index import FragmentIndex
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.oracle import judge as oracle

STREAMS = [
    StreamId("t", "r", who, incarnation, lane)
    for who, incarnation, lane in product("ab", (1, 2), (0, 1))
]
SEEN = st.tuples(st.integers(0, 3), st.sampled_from([None, *STREAMS]), st.integers(0, 9))
"""Partition, stream (None: an offset that nobody read), seq."""
KEYED = st.tuples(st.integers(0, 2), st.sampled_from([None, 0, 1, *STREAMS]), st.integers(0, 9))
"""Partition, stream (None: no record; a number: another run's record with this lane's key), seq."""


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
    """With streams that were seen and others, unread offsets, and past the memory bound."""
    checkers = _checkers(steps, most=most)
    index = index_of(checkers)
    for stream in STREAMS:
        each = {number: checker.fragment(stream) for number, checker in checkers.items()}
        assert index.fragments(stream) == {n: held for n, held in each.items() if held is not None}
    assert set(index.streams) == {s for checker in checkers.values() for s in checker.fragments}


@given(
    st.lists(KEYED, max_size=12),
    st.sampled_from(STREAMS),
    st.frozensets(st.integers(0, 2)),
    st.booleans(),
)
def test_compaction_explains_what_the_oracle_says(
    steps: list[tuple[int, StreamId | int | None, int]],
    stream: StreamId,
    homes: frozenset[int],
    at_source: bool,
) -> None:
    """As one finds who goes through all messages; after a restart, too."""
    checkers = {number: PartitionChecker("t", number) for number in range(3)}
    stood: dict[int, dict[int, oracle.Message]] = {number: {} for number in checkers}
    for number, of, seq in steps:
        checker = checkers[number]
        at = checker.next_offset
        if of is None:
            checker.advance(at + 1)
        elif isinstance(of, int):
            checker.apply(_keyed(of, at))
            stood[number][at] = oracle.Message(None, 0, frozenset({Finding.OTHER_RUN}), of)
        else:
            checker.apply(SeenRow(of, seq, seq + 1, at, at + 1, 0, 1, 1, 1, 1, 1, 1))
            stood[number][at] = oracle.Message(of, seq)
        checkers[number] = PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))
    passed = {n: [oracle.Passed(0, checker.next_offset)] for n, checker in checkers.items()}
    partitions = {n: oracle.Partition.of(stood[n], passed[n]) for n in checkers}
    others = oracle.explained(stream, partitions, homes, compact=True, at_source=at_source)
    own = [
        message.seq + 1
        for n, here in stood.items()
        for message in here.values()
        if message.stream == stream and (at_source or partitions[n].holed)
    ]
    found = index_of(checkers).explained_below(stream, homes, at_source=at_source)
    assert min(found, oracle.HORIZON) == max([others, *own])


def test_very_many_keys_of_others_take_no_more_memory_and_hide_no_compaction() -> None:
    """Past the bound any lane's key may stand where the last of the others was seen."""
    checker = PartitionChecker("t", 0)
    for lane in range(2000):
        checker.apply(_keyed(lane, lane))
    assert len(checker.keys) < 2000
    assert checker.key_seen(7) == 7
    assert checker.key_seen(1999) == checker.key_seen(5000) == 1999
    again = PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))
    assert again.to_state() == checker.to_state()
    assert again.key_seen(1999) == 1999


def test_a_state_of_before_may_have_met_any_key_and_any_hole() -> None:
    """It told of none: what compaction may explain is not lost."""
    checker = PartitionChecker("t", 0)
    checker.apply(_keyed(0, 0))
    state = checker.to_state()
    for name in ("keys", "keys_beyond", "holed"):
        del state[name]
    old = PartitionChecker.from_state(state)
    assert (old.key_seen(5), old.holed) == (0, True)


def _keyed(lane: int, offset: int) -> SeenRow:
    """Another run's message with this lane's key."""
    return SeenRow(None, 0, 0, offset, offset + 1, int(Finding.OTHER_RUN), 0, 0, 0, 0, 1, 1, lane)


@given(
    st.lists(SEEN.filter(lambda step: step[0] == 0), min_size=1, max_size=20),
    st.sampled_from([6, 1000]),
)
def test_a_fragments_mark_changes_with_it(
    steps: list[tuple[int, StreamId | None, int]], most: int
) -> None:
    """What is kept under the mark of a fragment is true of it."""
    states: dict[tuple[StreamId, object], object] = {}
    for count in range(len(steps) + 1):
        (checker, *_) = _checkers(steps[:count], most=most).values()
        for stream, fragment in checker.fragments.items():
            state = fragment.to_state()
            assert states.setdefault((stream, fragment.mark), state) == state
