"""What compaction explains, compared with the definition; and what a state saves for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify.compaction import (
    Explained,
    Gap,
    Missing,
    contested_gaps,
    explained,
    partitions_of,
    removed_from_source,
)
from mirrortest.verify.fragment import ALWAYS, HoleCounts
from mirrortest.verify.partition import KeySeen, PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.stream import StreamId
from tests.oracle import compaction as explaining
from tests.oracle import judge as oracle
from tests.oracle.online import ids
from tests.oracle.online import intervals as of
from tests.unit.test_verify_fragment_index import STREAMS, index_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from mirrortest.verify.fragment_index import FragmentIndex

STREAM = StreamId("t", "r", "a", 1, 0)
OTHER = STREAM._replace(producer="b")
MARKER = "marker"
STEP = st.tuples(
    st.integers(0, 2), st.sampled_from([None, None, MARKER, 0, 1, *STREAMS]), st.integers(0, 9)
)
"""Partition, stream (None: a hole; a number: another run's record with this lane's key), seq."""
SEQS = st.frozensets(st.integers(0, 9))


def _explained(
    missing: Mapping[StreamId, Missing], index: FragmentIndex
) -> dict[StreamId, Explained]:
    """What compaction of all partitions explains."""
    found = dict.fromkeys(missing, Explained())
    for number, checker in index.checkers.items():
        here = {
            stream: its
            for stream, its in missing.items()
            if its.numbers and number in partitions_of(stream, its.homes, index)
        }
        for stream, its in (
            _returned(explained(number, here, index)).items() if checker.holes else ()
        ):
            found[stream] |= its
    return found


def _returned(steps: Generator[None, None, dict[StreamId, Explained]]) -> dict[StreamId, Explained]:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return cast("dict[StreamId, Explained]", end.value)


def _again(checker: PartitionChecker) -> PartitionChecker:
    return PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))


def _keyed(lane: int, offset: int) -> SeenRow:
    """Another run's message with this lane's key."""
    return SeenRow(None, 0, 0, offset, offset + 1, int(Finding.OTHER_RUN), 0, 0, 0, 0, 1, 1, lane)


def _seen(stream: StreamId, seq: int, offset: int, count: int = 1) -> SeenRow:
    return SeenRow(stream, seq, seq + count, offset, offset + count, 0, 1, 1, 1, 1, 1, 1)


@given(
    st.lists(STEP, max_size=24),
    st.dictionaries(st.sampled_from(STREAMS), st.tuples(SEQS, SEQS), min_size=1),
    st.dictionaries(st.sampled_from(STREAMS), st.frozensets(st.integers(0, 2))),
)
def test_compaction_explains_what_the_oracle_says(
    steps: list[tuple[int, StreamId | int | str | None, int]],
    acked: dict[StreamId, tuple[frozenset[int], frozenset[int]]],
    homes: dict[StreamId, frozenset[int]],
) -> None:
    """The oracle goes through all messages; restarts change nothing."""
    checkers = {number: PartitionChecker("t", number) for number in range(3)}
    stood: dict[int, dict[int, oracle.Message]] = {number: {} for number in checkers}
    markers: dict[int, set[int]] = {number: set() for number in checkers}
    for number, what, seq in steps:
        checker = checkers[number]
        at = checker.next_offset
        if what is None or isinstance(what, str):
            checker.expect_markers([(at, at + 1)] if what else [])
            checker.advance(at + 1)
            markers[number] |= {at} if what else set()
        elif isinstance(what, int):
            checker.apply(_keyed(what, at))
            stood[number][at] = oracle.Message(None, 0, frozenset({Finding.OTHER_RUN}), what)
        else:
            checker.apply(_seen(what, seq, at))
            stood[number][at] = oracle.Message(what, seq)
        checkers[number] = _again(checker)
    partitions = {
        n: explaining.Partition.of(stood[n], [oracle.Passed(0, checker.next_offset)], markers[n])
        for n, checker in checkers.items()
    }
    seen = {m.stream: set[int]() for here in stood.values() for m in here.values()}
    for message in (m for here in stood.values() for m in here.values()):
        seen[message.stream].add(message.seq)
    unseen: explaining.Missing = {}
    for stream, (numbers, due) in acked.items():
        missing = set(numbers - seen.get(stream, set()))
        unseen[stream] = missing, missing & due
    index = index_of(checkers)
    its = {
        s: Missing(of(numbers), of(due), homes.get(s, ())) for s, (numbers, due) in unseen.items()
    }
    found = _explained(its, index)
    assert {
        s: (ids(each.removed), ids(each.doubtful)) for s, each in found.items()
    } == explaining.explained(unseen, partitions, homes)
    for stream in STREAMS:
        bound = removed_from_source(stream, homes.get(stream, ()), index)
        expected = explaining.removed_from_source(stream, partitions, homes.get(stream, ()))
        assert min(bound, oracle.HORIZON) == expected


@pytest.mark.parametrize(
    ("offsets", "removed", "others"),
    [
        ({2: 2, 3: 3, 5: 4}, {0, 1}, "lost"),  # 4 is missing where offsets have no hole
        ({2: 2, 3: 3, 5: 5}, {0, 1, 4}, "lost"),
        ({2: 1, 3: 2, 5: 4}, {4}, "doubtful"),  # one hole, and two are missing
        ({2: 3, 3: 4, 5: 5}, {0, 1}, "doubtful"),  # a hole is left, which may be 4's or another's
        ({5: 4, 3: 5}, {0, 1, 2}, "doubtful"),  # out of order: 4 has no gap
    ],
)
def test_a_hole_explains_one_number_and_only_between_its_neighbours(
    offsets: dict[int, int], removed: set[int], others: str
) -> None:
    """Messages without a hole are lost, unless an unused hole elsewhere may be theirs."""
    checker = PartitionChecker("t", 0)
    for seq, offset in offsets.items():
        checker.apply(_seen(STREAM, seq, offset))
    missing = of(set(range(7)) - offsets.keys())
    found = _explained({STREAM: Missing(missing, missing)}, index_of({0: checker}))[STREAM]
    assert ids(found.removed) == removed
    assert found.doubtful == (missing if others == "doubtful" else IntervalSet())


def test_a_hole_in_the_gap_of_two_streams_may_be_eithers() -> None:
    """One lacks as many messages as there are holes, the other more: which are lost is unknown."""
    checker = PartitionChecker("t", 0)
    checker.apply(_seen(STREAM, 2, 2))
    two, many = IntervalSet([(0, 2)]), IntervalSet([(0, 5)])
    both = {STREAM: Missing(two, two), OTHER: Missing(many, many)}
    found = _explained(both, index_of({0: checker}))
    assert found == {STREAM: Explained(NOTHING, two), OTHER: Explained(NOTHING, many)}


def test_two_keys_of_a_partition_do_not_share_a_hole() -> None:
    """A1 was compacted, and the mirror lost B1: one hole must not explain both.

    A user would have seen `compacted`, and a pass. Keys share a partition if the destination has
    fewer partitions than the source.
    """
    checker = PartitionChecker("t", 0)
    other = OTHER._replace(lane=1)
    for stream, seq, offset in [(STREAM, 0, 0), (other, 0, 1), (STREAM, 2, 3), (other, 2, 4)]:
        checker.apply(_seen(stream, seq, offset))
    one = IntervalSet([(1, 2)])
    found = _explained(dict.fromkeys([STREAM, other], Missing(one, one)), index_of({0: checker}))
    assert found == dict.fromkeys([STREAM, other], Explained(NOTHING, one))


def test_what_is_in_flight_uses_no_hole_of_what_was_written_out_of_order() -> None:
    """A1 was written after A2 and compacted: its hole is in the gap of B1, which is in flight.

    A1 would have been claimed lost, for good, as soon as its deadline had passed.
    """
    checker = PartitionChecker("t", 0)
    for stream, seq, offset in [(OTHER, 0, 0), (STREAM, 0, 1), (STREAM, 2, 2), (OTHER, 2, 4)]:
        checker.apply(_seen(stream, seq, offset))
    one = IntervalSet([(1, 2)])
    missing = {STREAM: Missing(one, one, (0,)), OTHER: Missing(one, NOTHING, (0,))}
    found = _explained(missing, index_of({0: checker}))
    assert found[STREAM] == Explained(NOTHING, one)


def test_what_may_be_in_two_partitions_uses_no_hole() -> None:
    """A hole in either partition explains B1, so one may be that of A1, written out of order."""
    first, second = PartitionChecker("t", 0), PartitionChecker("t", 1)
    for stream, seq, offset in [(STREAM, 0, 0), (OTHER, 0, 1), (STREAM, 2, 2), (OTHER, 2, 4)]:
        first.apply(_seen(stream, seq, offset))
    second.apply(_seen(OTHER, 3, 1))
    one = IntervalSet([(1, 2)])
    both = {STREAM: Missing(one, one, (0,)), OTHER: Missing(one, one, (0, 1))}
    assert _explained(both, index_of({0: first, 1: second}))[STREAM].doubtful == one


def test_who_has_holes_of_its_own_is_explained_whatever_others_lack() -> None:
    """Only the two gaps that share one hole compete, not those with holes of their own."""
    gaps = [Gap(0, 1, 1), Gap(0, 1, 1), Gap(1, 3, 2), Gap(0, 9, 5)]
    assert contested_gaps(gaps) == {0, 1}


GAP = st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 6)).map(
    lambda drawn: Gap(drawn[0], drawn[0] + drawn[1], drawn[2])
)


@given(st.lists(GAP, max_size=7))
def test_gaps_compete_as_the_oracle_says(gaps: list[Gap]) -> None:
    """The oracle uses augmenting paths, message by message."""
    messages = {
        (at, n): range(gap.begin, gap.end) for at, gap in enumerate(gaps) for n in range(gap.needed)
    }
    competing = explaining.in_competition(messages)
    expected = {at for at, _ in competing}
    assert contested_gaps(gaps) == expected
    # The messages of one gap have the same holes: all of them compete, or none does.
    assert competing == {each for each in messages if each[0] in expected}


def test_two_streams_of_one_key_do_not_share_a_hole() -> None:
    """They lack more messages than there are holes: which one was removed is unknown."""
    checker = PartitionChecker("t", 0)
    for offset, (stream, seq) in enumerate([(STREAM, 0), (OTHER, 0)]):
        checker.apply(_seen(stream, seq, offset))
    checker.apply(_seen(STREAM, 2, 3))
    checker.apply(_seen(OTHER, 2, 4))
    one = IntervalSet([(1, 2)])
    both = _explained(dict.fromkeys([STREAM, OTHER], Missing(one, one)), index_of({0: checker}))
    assert both == dict.fromkeys([STREAM, OTHER], Explained(NOTHING, one))
    alone = _explained({STREAM: Missing(one, one)}, index_of({0: checker}))
    assert alone[STREAM].removed == one


def test_markers_and_aborted_records_are_no_holes() -> None:
    """Only the expected marker offsets are no holes, and only until the next `advance`."""
    checker = PartitionChecker("t", 0)
    checker.expect_markers([(1, 3)])
    checker.apply(_seen(STREAM, 0, 0))
    checker.apply(_seen(STREAM, 1, 5))
    assert (checker.holes, checker.take_new_holes()) == (2, [(3, 5)])
    checker.advance(6)
    checker.expect_markers([(6, 7)])
    checker.advance(7)
    checker.advance(9)
    assert (checker.holes, checker.take_new_holes()) == (4, [(7, 9)])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(0, 3))))
def test_the_holes_before_each_number_are_those_before_its_first_copy(
    rows: list[tuple[int, int, int]],
) -> None:
    """The counts are right for any order of seqs, and after restarts."""
    checker, offset = PartitionChecker("t", 0), 0
    first: dict[int, int] = {}
    holes = 0
    for seq, count, skip in rows:
        offset, holes = offset + skip, holes + skip
        checker.apply(_seen(STREAM, seq, offset, count))
        offset += count
        for number in range(seq, seq + count):
            first.setdefault(number, holes)
        checker = _again(checker)
    if rows:
        counts = checker.fragments[STREAM].holes_before or HoleCounts()
        assert {number: counts.at(number) for number in first} == first
        assert checker._size == checker.fragments[STREAM].size


@pytest.mark.parametrize("steps", [[1], [3, 1, 2, 1], [1, 1, 1, 2], [-1, 2], ["1", 2]])
def test_counts_that_contradict_themselves_are_refused(steps: list[object]) -> None:
    with pytest.raises(RecordError):
        HoleCounts.from_list(steps)


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        ([(STREAM, 0), (OTHER, 0)], True),
        ([(OTHER, 0), (STREAM, 0)], False),
        ([(OTHER, 0)], True),
        ([(STREAM._replace(incarnation=2), 0)], True),
        ([(STREAM._replace(incarnation=2), 0), (STREAM, 0)], True),
        ([(STREAM._replace(lane=7), 0)], False),
    ],
)
def test_what_supersedes_a_stream_in_a_compacted_source(
    events: list[tuple[StreamId, int]], answer: bool
) -> None:
    """A later message with the key does, or one of a later incarnation.

    An earlier one or another key's does not. If nothing of the stream was seen, any message with
    its key may be later.
    """
    checker = PartitionChecker("t", 0)
    for offset, (stream, seq) in enumerate(events):
        checker.apply(_seen(stream, seq, offset))
    assert (removed_from_source(STREAM, (), index_of({0: checker})) == ALWAYS) is answer


@pytest.mark.parametrize(
    ("homes", "number", "answer"),
    [((0,), 1, False), ((0,), 0, True), ((0, 1), 1, True), ((), 1, True)],
)
def test_a_later_incarnation_explains_only_where_the_tail_may_have_stood(
    homes: tuple[int, ...], number: int, answer: bool
) -> None:
    """Where a stream was not seen and does not belong, holes and messages explain nothing."""
    checkers = {n: PartitionChecker("t", n) for n in range(2)}
    checkers[number].apply(_seen(STREAM._replace(incarnation=2), 0, 3))
    tail = {STREAM: Missing(IntervalSet([(4, 6)]), IntervalSet([(4, 6)]), homes)}
    index = index_of(checkers)
    assert bool(_explained(tail, index)[STREAM].removed) is answer
    assert (removed_from_source(STREAM, homes, index) == ALWAYS) is answer
    checkers[0].apply(_seen(STREAM, 3, 5))
    index = index_of(checkers)
    # Seen in partition 0, it has no other partition if its homes are unknown.
    assert (removed_from_source(STREAM, homes, index) == ALWAYS) is (number in {0, *homes})


@pytest.mark.parametrize("mine_first", [True, False])
def test_what_stands_in_a_topic_made_again_is_later(mine_first: bool) -> None:
    """Offsets start again with it; an old topic's message explains nothing in the new one."""
    checker = PartitionChecker("t", 0)
    for number, stream in enumerate((STREAM, OTHER) if mine_first else (OTHER, STREAM)):
        if number:
            checker.begin_incarnation()
        offset = 3 - 3 * number
        checker.expect_markers([(0, offset)])
        checker.advance(offset)
        checker.apply(_seen(stream, 0, offset))
        checker = _again(checker)
    assert (removed_from_source(STREAM, (), index_of({0: checker})) == ALWAYS) is mine_first
    assert checker.unread_offsets.to_list() == IntervalSet([(4, 5)]).to_list()


def test_very_many_keys_of_others_take_no_more_memory_and_hide_no_compaction() -> None:
    """Past the bound, all other lanes' keys count as seen where the last of them was seen."""
    checker = PartitionChecker("t", 0)
    for lane in range(2000):
        checker.apply(_keyed(lane, 2 * lane + 1))
    assert len(checker.keys) < 2000
    assert checker.key_seen(7) == KeySeen(15, 8)
    assert checker.key_seen(1999) == checker.key_seen(5000) == KeySeen(3999, 2000)
    again = _again(checker)
    assert again.to_state() == checker.to_state()
    assert again.key_seen(1999) == KeySeen(3999, 2000)


@pytest.mark.parametrize("absent", [("holes",), ("holes", "keys", "keys_beyond", "holed")])
def test_a_state_of_before_may_have_met_any_key_and_any_hole(absent: tuple[str, ...]) -> None:
    """An older version counted neither: what compaction may explain is not lost."""
    checker = PartitionChecker("t", 0)
    checker.apply(_keyed(0, 0))
    checker.apply(_seen(STREAM, 3, 5))
    state = checker.to_state()
    for name in absent:
        del state[name]
    old = PartitionChecker.from_state(state)
    assert (old.holes, old.take_new_holes()) == (4, [(0, 6)])
    assert old.key_seen(0).holes == 4
    missing = IntervalSet([(0, 3), (4, 5)])
    found = _explained({STREAM: Missing(missing, missing)}, index_of({0: old}))[STREAM]
    assert found.removed | found.doubtful == missing


def test_a_state_that_saw_no_hole_has_none() -> None:
    checker = PartitionChecker("t", 0)
    checker.apply(_seen(STREAM, 0, 0))
    state = checker.to_state()
    del state["holes"]
    assert PartitionChecker.from_state(state).holes == 0
    state["holes"] = [2, 0]
    with pytest.raises(RecordError):
        PartitionChecker.from_state(state)
