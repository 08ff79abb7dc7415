"""A partition's checker, compared with the oracle, through re-reads and restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.verify.fragment import CLOCK_TOLERANCE_NS
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.stream import StreamId
from tests.oracle.judge import ALWAYS, HORIZON, Fragment, Message, Passed
from tests.oracle.online import START, STEP, found_ns

if TYPE_CHECKING:
    from mirrortest.model.intervals import IntervalSet

STREAMS = [StreamId("t", "r", "a", 1, 0), StreamId("t", "r", "b", 1, 0)]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("seen"),
            st.integers(0, 1),
            st.integers(0, 20),
            st.integers(1, 8),
            st.sampled_from([(), (), ("corrupted",), ("misrouted", "altered_key"), ("unproven",)]),
            st.sampled_from([False, False, False, True]),
        ),
        st.tuples(st.just("unread"), st.integers(1, 3), st.sampled_from([-1, 0, 1, 2, ALWAYS])),
        st.tuples(st.just("gap"), st.integers(1, 3)),
    ),
    max_size=14,
)


def row(
    stream: StreamId | None,
    seq: int,
    offset: int,
    count: int,
    findings: int | Finding = 0,
    at: int = 0,
    arrived: int | None = None,
) -> SeenRow:
    seq_hi = seq + count if stream else 0
    times = (at, at, at, at, *(at if arrived is None else arrived,) * 2)
    return SeenRow(stream, seq, seq_hi, offset, offset + count, int(findings), *times)


def bits(labels: tuple[str, ...]) -> int:
    return sum(int(Finding[label.upper()]) for label in labels)


def script(
    steps: list[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], tuple[dict[int, Message], list[Passed]], int]:
    """The steps as calls on a checker; for the oracle, messages by offset and what was passed."""
    calls: list[tuple[Any, ...]] = []
    stood: dict[int, Message] = {}
    passed: list[Passed] = []
    offset = 0
    for kind, *of in steps:
        if kind == "seen":
            which, seq, count, labels, early = of
            stream = STREAMS[which]
            shown = frozenset(Finding[label.upper()] for label in labels)
            for k in range(count):
                at = START + (seq + k) * STEP
                arrived = at - (CLOCK_TOLERANCE_NS + 1) * early
                one = row(stream, seq + k, offset + k, 1, bits(labels), at, arrived)
                calls.append(("apply", one))
            stood |= {offset + k: Message(stream, seq + k, shown, -1, early) for k in range(count)}
            passed.append(Passed(offset, offset + count))
        elif kind == "unread":
            count, minute = of
            calls.append(("unread", offset, offset + count, found_ns(minute)))
            passed.append(Passed(offset, offset + count, blind=True, minute=minute))
        else:
            (count,) = of
            calls.append(("advance", offset + count))
            passed.append(Passed(offset, offset + count))
        offset += count
    return calls, (stood, passed), offset


def call(checker: PartitionChecker, step: tuple[Any, ...]) -> None:
    getattr(checker, step[0])(*step[1:])


def ids(intervals: IntervalSet) -> set[int]:
    return {n for lo, hi in intervals.intervals() for n in range(lo, hi)}


def restarted(checker: PartitionChecker) -> PartitionChecker:
    return PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))


@given(STEPS, st.data())
def test_a_checker_agrees_with_the_oracle(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """Every stream's sets are the oracle's, wherever a restart falls and whatever is re-read."""
    calls, observed, end = script(steps)
    checker = PartitionChecker("t", 0)
    cut = data.draw(st.integers(0, len(calls)))
    for step in calls[:cut]:
        call(checker, step)
    checker = restarted(checker)
    for step in calls[data.draw(st.integers(0, cut)) :]:
        call(checker, step)
    assert checker.next_offset == end
    for stream in STREAMS:
        model = Fragment(stream, *observed)
        fragment = checker.fragment(stream)
        if fragment is None:
            assert not model.seqs
            assert not model.doubtful
            continue
        assert ids(fragment.seen) == model.seen
        assert ids(fragment.duplicated) == model.duplicated
        assert fragment.copies == model.copies
        assert ids(fragment.reordered) == model.reordered
        doubtful = set(range(min(fragment.doubtful_below, HORIZON)))
        assert doubtful - model.seen == model.doubtful - model.seen
        assert {f: ids(v) for f, v in fragment.by_finding.items()} == model.by_finding
    assert restarted(checker).to_state() == checker.to_state()
    assert restarted(checker)._size == checker._size


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(1, 8))))
def test_a_row_shows_which_of_its_messages_were_seen_before(
    steps: list[tuple[int, int, int]],
) -> None:
    """Applying a row returns the seqs that its stream had here before, and keeps the size true."""
    checker, offset = PartitionChecker("t", 0), 0
    seen: list[set[int]] = [set(), set()]
    for which, seq, count in steps:
        numbers = set(range(seq, seq + count))
        assert ids(checker.apply(row(STREAMS[which], seq, offset, count))) == numbers & seen[which]
        seen[which] |= numbers
        offset += count
        assert checker._size == sum(fragment.size for fragment in checker.fragments.values())


@given(STEPS, st.data())
def test_rows_may_be_cut_anywhere(steps: list[tuple[Any, ...]], data: st.DataObject) -> None:
    """Rows that are split, and re-read from their middle, are judged like complete ones."""
    calls, _, _ = script(steps)
    uncut, cut = PartitionChecker("t", 0), PartitionChecker("t", 0)
    for step in calls:
        call(uncut, step)
        if step[0] == "apply":
            full = step[1]
            at = data.draw(st.integers(0, full.offset_hi - full.offset_lo))
            first = full._replace(seq_hi=full.seq_lo + at, offset_hi=full.offset_lo + at)
            cut.apply(first)
            cut.apply(full)
        else:
            call(cut, step)
    assert cut.to_state() == uncut.to_state()


def test_a_replay_is_duplicates_and_no_reorder() -> None:
    """Seqs 0-99 and then 50-149 give fifty duplicates, and none is reordered."""
    checker = PartitionChecker("t", 0)
    checker.apply(row(STREAMS[0], 0, 0, 100))
    checker.apply(row(STREAMS[0], 50, 100, 100))
    fragment = checker.fragments[STREAMS[0]]
    assert (fragment.copies, list(fragment.duplicated.intervals())) == (50, [(50, 100)])
    assert not fragment.reordered
    assert list(fragment.seen.intervals()) == [(0, 150)]


def test_messages_without_a_stream_are_counted_once() -> None:
    """Foreign, other runs' and unreadable corrupted ones are counted once if partly re-read."""
    checker = PartitionChecker("t", 0)
    for offset, finding in (
        (0, Finding.FOREIGN),
        (2, Finding.FOREIGN),
        (5, Finding.OTHER_RUN),
        (10, Finding.CORRUPTED),
        (15, 0),
    ):
        checker.apply(row(None, 0, offset, 5, finding))
    assert checker.streamless == {Finding.FOREIGN: 12, Finding.OTHER_RUN: 3, Finding.CORRUPTED: 5}
    assert checker.fragments == {}


def test_times_span_all_rows() -> None:
    """A fragment has the least and the greatest of its rows' times."""
    checker = PartitionChecker("t", 0)
    for offset, at in enumerate((30, 10, 20)):
        checker.apply(row(STREAMS[0], offset, offset, 1, at=at))
    fragment = checker.fragments[STREAMS[0]]
    assert (fragment.intended_first, fragment.intended_last) == (10, 30)
    assert (fragment.arrived_first, fragment.arrived_last, fragment.last_place) == (10, 30, 2)


def test_past_the_memory_bound_a_summary_stays() -> None:
    """The largest fragment gives up its ids first; it still counts, and others stay exact."""
    checker = PartitionChecker("t", 0, max_intervals=20)
    checker.apply(row(STREAMS[1], 0, 0, 4))
    for offset in range(4, 60):
        checker.apply(row(STREAMS[0], 2 * offset, offset, 1, Finding.CORRUPTED))
        assert checker._size <= 20
    fragment = checker.fragments[STREAMS[0]]
    assert fragment.inconclusive
    assert fragment.summary == {"seen": 56, "corrupted": 56}
    assert not checker.fragments[STREAMS[1]].inconclusive
    assert restarted(checker).to_state() == checker.to_state()
    clean = checker.fragment(StreamId("t", "r", "c", 1, 0))
    assert clean is None


def test_streams_past_the_bound_are_only_counted() -> None:
    """Endless new streams cannot fill the memory; untracked ones are inconclusive."""
    checker = PartitionChecker("t", 0, max_intervals=20)
    for number in range(50):
        stream = StreamId("t", "r", "a", 1, number)
        checker.apply(row(stream, 0, number, 1, Finding.UNPROVEN))
    assert checker._size <= 20
    assert len(checker.fragments) + checker.untracked["seen"] == 50
    assert checker.untracked["unproven"] == checker.untracked["seen"]
    fragment = checker.fragment(StreamId("t", "r", "a", 1, 49))
    assert fragment is not None
    assert fragment.inconclusive


def test_another_topics_row_is_refused() -> None:
    """A row of another topic is a programming error, which raises at once."""
    with pytest.raises(ValueError, match="checker of other"):
        PartitionChecker("other", 0).apply(row(STREAMS[0], 0, 0, 1))


@pytest.mark.parametrize(
    "damage",
    [{"v": 2}, {"streams": [[1]]}, {"unread": [1]}, {"streamless": {"no": 1}}, {"next": None}],
)
def test_a_damaged_state_is_refused(damage: dict[str, Any | None]) -> None:
    """A state of another version or shape raises RecordError, and nothing else."""
    state = PartitionChecker("t", 0).to_state() | damage
    if damage == {"next": None}:
        del state["next"]
    with pytest.raises(RecordError):
        PartitionChecker.from_state(state)


def test_the_fullness_reaches_the_bound_before_ids_are_given_up() -> None:
    """It counts intervals or streams, whichever is nearer the bound: an alert can come in time."""
    checker = PartitionChecker("t", 0, max_intervals=20)
    levels = []
    for number in range(12):
        if any(fragment.inconclusive for fragment in checker.fragments.values()):
            break
        levels.append(checker.fullness)
        checker.apply(row(STREAMS[0], 2 * number, number, 1))
    assert levels == sorted(levels)
    assert levels[0] == 0
    assert 0.5 < levels[-1] <= 1
    checker = PartitionChecker("t", 0, max_intervals=1000)
    for number in range(400):
        checker.apply(row(StreamId("t", "r", f"p{number}", 1, 0), 0, number, 1))
    assert checker.fullness >= 0.8
