"""Which offsets of a partition were read, and what follows for messages missing there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.reconcile.compact import Zone
from mirrortest.reconcile.coverage import ReadOffsets, Span, cover
from mirrortest.reconcile.job import reconcile_by
from mirrortest.reconcile.overlap import (
    Cut,
    SeenRange,
    misjudged,
    online_cuts,
    overlaps,
    unread_but_seen,
)
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Detail
from mirrortest.seqlog.schema import ENDLESS
from tests.oracle.in_process import InProcess
from tests.spark.spark_history import History, lost, seen, stream

if TYPE_CHECKING:
    from collections.abc import Sequence


def observed(
    read: Sequence[tuple[int, int, int]] = (),
    unread: Sequence[tuple[int, int, int]] = (),
    tails: Sequence[tuple[int, int, int]] = (),
    *,
    partitions: int = 1,
) -> ReadOffsets:
    """One topic; spans are (partition, lo, hi)."""

    def spans(given: Sequence[tuple[int, int, int]]) -> list[Span]:
        return [Span("t", partition, 0, lo, hi, 0) for partition, lo, hi in given]

    return ReadOffsets(spans(read), spans(unread), spans(tails), {"t": partitions}, {0: 0})


def unread_ranges(seen: ReadOffsets) -> list[tuple[int, int, int, Finding]]:
    """(partition, lo, hi, finding) of the unread ranges."""
    return [(b.partition, b.lo, b.hi, b.finding) for b in cover(seen, "t").unread]


def test_read_from_start_to_tail_leaves_nothing_blind() -> None:
    """Overlapping and adjacent `read` rows leave no gap."""
    coverage = cover(observed([(0, 0, 10), (0, 5, 20), (0, 20, 30)], tails=[(0, 30, 30)]), "t")
    assert (coverage.unread, coverage.reasons) == ([], [])


def test_an_empty_partition_needs_only_its_tail() -> None:
    """There was nothing to read."""
    assert unread_ranges(observed(tails=[(0, 0, 0)])) == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            observed([(0, 0, 10), (0, 15, 20)], tails=[(0, 20, 20)]),
            (0, 10, 15, Finding.INCONCLUSIVE),
        ),
        (observed([(0, 0, 10)], tails=[(0, 12, 12)]), (0, 10, 12, Finding.IN_FLIGHT)),
        (observed([(0, 0, 10)]), (0, 10, ENDLESS, Finding.IN_FLIGHT)),
        (observed(tails=[(0, 7, 7)]), (0, 0, ENDLESS, Finding.INCONCLUSIVE)),
        (
            observed([(0, 0, 5)], [(0, 5, 8)], [(0, 8, 8)]),
            (0, 5, 8, Finding.INCONCLUSIVE),
        ),
        (
            observed([(0, 0, 5), (0, 6, 9)], [(0, 3, 6), (0, 4, 6)], [(0, 9, 9)]),
            (0, 5, 6, Finding.INCONCLUSIVE),
        ),
        (
            observed([(0, 5, 10)], [(0, 0, 5)], [(0, 10, 10)]),
            (0, 0, 5, Finding.INCONCLUSIVE),
        ),
        (
            observed([(0, 0, 10)], tails=[(0, 10, 10)], partitions=2),
            (1, 0, ENDLESS, Finding.INCONCLUSIVE),
        ),
    ],
)
def test_what_was_not_read_is_blind_and_named(
    seen: ReadOffsets, expected: tuple[int, int, int, Finding]
) -> None:
    """A gap, an unread end, no end, no reader at all: one range and one reason each."""
    coverage = cover(seen, "t")
    assert unread_ranges(seen) == [expected]
    assert len(coverage.reasons) == 1


def test_what_stands_before_all_that_any_log_covers_is_blind() -> None:
    """The first reader of a partition begins at 0: the log of a consumer before it is missing.

    The same is true if the present reader found offsets deleted, and however early it started: a
    group's consumer does not have all its partitions from the start.
    """
    relieved = observed([(0, 5, 10)], tails=[(0, 10, 10)])
    assert unread_ranges(relieved) == [(0, 0, 5, Finding.INCONCLUSIVE)]
    assert cover(relieved, "t").reasons == []
    overtaken = observed([(0, 8, 10)], [(0, 5, 8)], [(0, 10, 10)])
    assert unread_ranges(overtaken) == [
        (0, 0, 5, Finding.INCONCLUSIVE),
        (0, 5, 8, Finding.INCONCLUSIVE),
    ]


def test_no_consumer_at_all_makes_everything_blind() -> None:
    """Without a partition count, partition 0 represents all."""
    coverage = cover(ReadOffsets([], [], [], {"t": None}, {}), "t")
    assert [b.hi for b in coverage.unread] == [ENDLESS]
    assert coverage.reasons == ["t: no consumer's log covers it"]


def test_an_end_not_read_is_told_beside_what_was_deleted_before_it() -> None:
    """A consumer found offsets deleted and then read no further: the rest is in flight."""
    seen = observed([(0, 0, 5)], [(0, 5, 8)], [(0, 20, 20)])
    assert unread_ranges(seen) == [
        (0, 5, 8, Finding.INCONCLUSIVE),
        (0, 8, 20, Finding.IN_FLIGHT),
    ]


def test_an_end_tells_how_far_a_verdict_goes_only_of_whom_it_was_judged_by() -> None:
    """Session 1 judged partition 0 only to 5; rows that a fenced session 0 logged are unjudged."""
    tails = [Span("t", 0, 0, 5, 9, 1), Span("t", 1, 0, 4, 4, 1), Span("t", 2, 0, 0, 0, 1)]
    assert online_cuts([], tails) == [Cut("t", 1, 0, 4), Cut("t", 2, 0, 0)]
    assert Cut("t", 0, 0, 5) in online_cuts([("t", 0, 0, 5)], tails)


def test_of_a_topic_made_again_the_last_incarnations_verdict_counts() -> None:
    """However few its offsets are; a verdict on the one before says nothing about it."""
    tails = [Span("t", 0, 0, 90, 90, 1), Span("t", 0, 1, 3, 3, 2)]
    assert online_cuts([("t", 0, 0, 90)], tails) == [Cut("t", 0, 0, 90)]
    assert online_cuts([("t", 0, 0, 90), ("t", 0, 1, 3)], tails) == [Cut("t", 0, 1, 3)]
    assert online_cuts([], tails) == [Cut("t", 0, 1, 3)]


@pytest.mark.parametrize(
    ("read", "tails", "blind", "why"),
    [
        ([], [], (1, 0, ENDLESS, Finding.IN_FLIGHT), "no log records the partition's end"),
        ([], [5], (1, 0, 5, Finding.IN_FLIGHT), "not read to its end"),
        ([], [0], None, ""),
        ([(0, 5)], [5], None, ""),
    ],
)
def test_a_topic_made_again_must_be_read_to_its_end_as_well(
    read: list[tuple[int, int]],
    tails: list[int],
    blind: tuple[int, int, int, Finding] | None,
    why: str,
) -> None:
    """A consumer logs that it found the new topic, even if nothing of it was read since."""
    coverage = cover(
        ReadOffsets(
            [Span("t", 0, 0, 0, 9, 0), *(Span("t", 0, 1, *each, 0) for each in read)],
            [Span("t", 0, 0, 9, ENDLESS, 0)],
            [Span("t", 0, 0, 9, 9, 0), *(Span("t", 0, 1, end, end, 0) for end in tails)],
            {"t": 1}, {0: 0},
        ),
        "t",
    )  # fmt: skip
    found = [tuple(each)[2:6] for each in coverage.unread]
    rest = (0, 9, ENDLESS, Finding.INCONCLUSIVE)
    assert found == ([rest] if blind is None else [rest, blind])
    assert "deleted and recreated after offset 9" in coverage.reasons[0]
    assert why in coverage.reasons[-1]


def test_what_is_unread_tells_the_last_minute_from_which_messages_may_stand_there() -> None:
    """The earliest minute of all sessions that found an offset deleted; ENDLESS if no log has one.

    The latest is kept, too, as one consumer may know only that. What another session has read is
    not unread; a range that was found in parts has one reason.
    """
    read = [Span("t", 0, 0, 0, 5, 0), Span("t", 0, 0, 20, 40, 0), Span("t", 0, 1, 0, 9, 0)]
    unread = [
        Span("t", 0, 0, 3, 12, 0, 8),
        Span("t", 0, 0, 5, 10, 1, 7),
        Span("t", 0, 0, 8, 10, 1),
        Span("t", 0, 0, 15, 20, 1),
    ]
    found = cover(
        ReadOffsets(read, unread, [Span("t", 0, 1, 9, 9, 0)], {"t": 1}, {0: 0, 1: 0}), "t"
    )
    assert sorted((b.lo, b.hi, b.minute, b.latest) for b in found.unread) == [
        (5, 8, 7, 8), (8, 10, 7, ENDLESS), (10, 12, 8, 8), (12, 15, ENDLESS, ENDLESS),
        (15, 20, ENDLESS, ENDLESS), (40, ENDLESS, ENDLESS, ENDLESS),
    ]  # fmt: skip
    assert len([reason for reason in found.reasons if "were not read" in reason]) == 2


@pytest.mark.parametrize(
    ("went_on", "minute"), [((), 9), ((0,), 7), ((1,), 9), ((0, 1), 7), ((2,), 9)]
)
def test_of_what_is_left_of_an_incarnation_who_read_on_in_the_next_tells_the_minute(
    went_on: tuple[int, ...], minute: int
) -> None:
    """A session that came later may have skipped an incarnation: then the latest minute counts.

    A session that read on did so from a state that names the next one, so it skipped none.
    """
    read = [Span("t", 0, 0, 0, 5, 0), *(Span("t", 0, 1, 0, 9, number) for number in went_on)]
    unread = [Span("t", 0, 0, 5, ENDLESS, 0, 7), Span("t", 0, 0, 4, ENDLESS, 1, 9)]
    found = cover(ReadOffsets(read, unread, [Span("t", 0, 1, 9, 9, 0)], {"t": 1}, {}), "t")
    left = [(b.lo, b.minute, b.latest) for b in found.unread if b.identity == 0]
    assert left == [(5, minute, 9)]


def test_nothing_of_a_topic_that_is_gone_is_on_its_way() -> None:
    """Session 0 logged its end; session 1 found it recreated before it had read that far."""
    coverage = cover(
        ReadOffsets(
            [Span("t", 0, 0, 0, 1, 1), Span("t", 0, 1, 0, 2, 1)],
            [Span("t", 0, 0, 1, ENDLESS, 1)],
            [Span("t", 0, 0, 0, 2, 0), Span("t", 0, 1, 2, 2, 1)],
            {"t": 1},
            {0: 0, 1: 0},
        ),
        "t",
    )
    assert [tuple(each)[2:6] for each in coverage.unread] == [(0, 1, ENDLESS, Finding.INCONCLUSIVE)]
    assert len(coverage.reasons) == 1


def test_who_had_read_more_of_a_topic_that_is_gone_knows_more_than_its_judge() -> None:
    """Session 0 saw offsets to 9, session 1 logged them as unread from 5: no verdict covers all."""
    ranges = [SeenRange("t", 0, 0, 0, 9, 0, 0, 0), SeenRange("t", 1, 0, 0, 5, 0, 0, 0)]
    unread = [Span("t", number, 0, 5, ENDLESS, 1) for number in (0, 1)]
    assert unread_but_seen(unread, ranges) == {("t", 0)}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(1, 12), st.booleans()), min_size=1, max_size=4
        ),
        min_size=2,
        max_size=3,
    ),
    st.sampled_from(Detail),
)
def test_each_latency_counts_once_whichever_session_measured_it(
    readings: list[list[tuple[int, int, bool]]], detail: Detail
) -> None:
    """Sessions read the same offsets, go back, and jump; not all of them measure latencies."""
    history = History(detail=detail, consumers=[[] for _ in readings])
    history.sends(stream(), 42)
    measured: set[int] = set()
    for log, session in zip(history.consumers, readings, strict=True):
        for lo, count, timed in session:
            for seq in range(lo, lo + count):
                row = seen(stream(), seq, seq + 1, seq)
                untimed = row._replace(negative=None, latency_bucket=None, latency_count=None)
                log.append(row if timed else untimed)
            measured |= set(range(lo, lo + count)) if timed else set()
            log.append(rows.read("t", 0, lo, lo + count, topic_identity="0"))
    with tempfile.TemporaryDirectory() as place:
        summary = reconcile_by(InProcess(), plan([str(history.write(Path(place)))], None), ())
    assert sum(each.count for each in summary.latency_seconds.values()) == len(measured)


def test_a_reading_counts_up_to_the_end_of_what_it_measured() -> None:
    """Session 1 began first, by its clock. Rows may cross a place where another one takes over."""
    seen_by = [SeenRange("t", 0, 0, lo, hi, at, at, 0) for lo, hi, at in ((0, 30, 0), (10, 50, 1))]
    observed = ReadOffsets([], [], [], {}, {0: 5, 1: 3})
    first = overlaps(seen_by, observed)
    assert first == [Zone("t", 0, 0, 10, 30, ((1, 1, 0),))]
    timed = [seen_by[0]._replace(hi=20), seen_by[1]]
    second = overlaps(seen_by, observed, timed)
    assert second == [Zone("t", 0, 0, 10, 20, ((1, 1, 0),)), Zone("t", 0, 0, 20, 30)]
    assert misjudged(first, second, timed) == [1]
    assert misjudged(first, second, timed[:1]) == []


@pytest.mark.parametrize(
    ("damaged", "expected"), [(False, {"late": 1}), (True, {"inconclusive": 1})]
)
def test_what_a_damaged_log_may_have_shown_is_not_lost_though_it_was_claimed(
    tmp_path: Path, *, damaged: bool, expected: dict[str, int]
) -> None:
    """Session 1 saw 4 after session 0 had claimed it; only its `seen` row is damaged."""
    of = stream()
    history = History()
    history.sends(of, 6)
    history.consumers = [
        [seen(of, 0, 4, 0), seen(of, 5, 6, 4), lost(of, 4, 5)],
        [seen(of, 4, 5, 5)],
        [rows.read("t", 0, 0, 6, topic_identity="0"), rows.tail("t", 0, 6, topic_identity="0")],
    ]
    [file] = history.write(tmp_path).glob("run=*/role=consumer/c1-*/*.parquet")
    if damaged:
        file.write_bytes(file.read_bytes()[::-1])
    counts = reconcile_by(InProcess(), plan([str(tmp_path)], None), ()).counts
    names = ("lost", "late", "inconclusive")
    assert {name: counts[name] for name in names if counts[name]} == expected


def test_nothing_is_missing_of_a_topic_that_no_producer_wrote_to() -> None:
    """It only matches a pattern, or a wrong alias gave it its name."""
    assert cover(observed(tails=[(0, 0, 9)]), {"other"}).reasons == []
