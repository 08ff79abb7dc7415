"""Holes that logs name, or only report to exist: as ranges, and how they are judged."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.reconcile import compact
from mirrortest.reconcile.compaction import _short
from mirrortest.reconcile.hole_ranges import Holes
from mirrortest.reconcile.interval_rows import fewer_holes, merged
from mirrortest.reconcile.job import reconcile_by
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.sweep import Spans
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.schema import Kind
from tests.oracle import compaction as oracle
from tests.oracle.in_process import InProcess
from tests.spark.spark_history import History, seen, stream
from tests.unit.test_verify_compaction import GAP

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.verify.compaction import Gap

RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 6)), max_size=12)
"""Incarnation, first offset, how many."""
_NAMES = (Finding.LOST.label, Finding.COMPACTED.label, Finding.INCONCLUSIVE.label)


def _missing(history: History, place: Path) -> dict[str, int]:
    """How many messages are missing, by finding."""
    counts = reconcile_by(InProcess(), plan([str(history.write(place))], None), ()).counts
    return {name: counts[name] for name in _NAMES if counts[name]}


@given(RANGES)
def test_the_holes_before_a_place_are_counted_once_however_often_they_were_read(
    ranges: list[tuple[int, int, int]],
) -> None:
    """The order is that of incarnations, then of offsets."""
    holes = Holes.of((identity, lo, lo + count, count) for identity, lo, count in ranges)
    every = {(identity, lo + n) for identity, lo, count in ranges for n in range(count)}
    places = [(identity, offset) for identity in range(3) for offset in range(50)]
    at = np.array(places, dtype=np.int64).T
    expected = [sum(hole < place for hole in every) for place in places]
    for ranks in (*holes.ranks(*at), *holes.possible(*at)):
        assert ranks.tolist() == expected
    assert holes.total == len(every)


@given(RANGES, st.integers(1, 8))
@example([(0, 0, 5), (0, 1, 1), (0, 3, 1)], 1)
def test_fewer_rows_of_holes_have_as_many_holes(
    ranges: list[tuple[int, int, int]], most: int
) -> None:
    """The closest ones are joined first; which of their offsets are holes is then unknown."""
    written = [
        rows.hole("t", 0, lo, lo + count, topic_identity=str(identity))
        for identity, lo, count in ranges
    ]
    read = rows.read("t", 0, 0, 50, topic_identity="0", has_holes=True)
    batch = batch_of([read, *written])
    fewer = fewer_holes(merged([batch], 1, 2), most).to_pylist()
    assert [row["kind"] for row in fewer].count(Kind.READ.value) == 1
    found = [row for row in fewer if row["kind"] == Kind.HOLE.value]
    exact = Holes.of((identity, lo, lo + count, count) for identity, lo, count in ranges)
    of_rows = Holes.of(
        (r["identity"], r["offset_lo"], r["offset_hi"], r["messages"]) for r in found
    )
    assert of_rows.total == exact.total
    assert len(found) <= most + len({identity for identity, *_ in ranges})
    places = np.array([(n, at) for n in range(3) for at in range(50)], dtype=np.int64).T
    expected = exact.ranks(*places)[0]
    for fewest, greatest in (of_rows.ranks(*places), of_rows.possible(*places)):
        assert (fewest <= expected).all()
        assert (greatest >= expected).all()


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.booleans(), min_size=1, max_size=9)), max_size=4
    )
)
def test_holes_that_several_sessions_joined_in_their_own_ways_are_bounded(
    ranges: list[tuple[int, list[bool]]],
) -> None:
    """Two sessions that read the same 5 holes in 10 offsets do not count 10 holes."""
    every = {lo + n for lo, is_hole in ranges for n, each in enumerate(is_hole) if each}
    holes = Holes.of(
        (0, lo, lo + len(is_hole), sum((lo + n) in every for n in range(len(is_hole))))
        for lo, is_hole in ranges
    )
    places = np.zeros(40, dtype=np.int64), np.arange(40)
    (least, most), (least_possible, most_possible) = holes.ranks(*places), holes.possible(*places)
    for lo in range(40):
        for hi in range(lo, 40):
            between = sum(lo <= hole < hi for hole in every)
            assert least[hi] - most[lo] <= between <= most_possible[hi] - least_possible[lo]


@given(RANGES, RANGES, st.booleans())
def test_no_hole_is_left_at_an_offset_where_a_message_was_seen(
    ranges: list[tuple[int, int, int]], seen_at: list[tuple[int, int, int]], joined: bool
) -> None:
    """Of joined ranges, which may have holes at any of their offsets, bounds are left."""
    named = [(identity, lo, lo + count, count) for identity, lo, count in ranges]
    if joined and named:
        # One range of incarnation 0 instead of its holes.
        own = {at for identity, lo, hi, _ in named if identity == 0 for at in range(lo, hi)}
        named = [each for each in named if each[0]]
        among = {*range(min(own, default=0), max(own, default=-1) + 1)}
        named += [(0, min(own), max(own) + 1, len(own))] if own else []
        seen_at = [*seen_at, *((0, at, 1) for at in among - own)]
    every = {(identity, lo + n) for identity, lo, count in ranges for n in range(count)}
    every -= {(identity, lo + n) for identity, lo, count in seen_at for n in range(count)}
    spans = np.array([(i, lo, lo + n) for i, lo, n in seen_at], dtype=np.int64).reshape(-1, 3)
    left = Holes.of(named).without(Spans(*spans.T))
    places = np.array([(n, at) for n in range(3) for at in range(50)], dtype=np.int64).T
    expected = np.array(
        [sum(hole < place for hole in every) for place in zip(*places.tolist(), strict=True)]
    )
    (least, most), (least_possible, most_possible) = left.ranks(*places), left.possible(*places)
    if not joined:
        for ranks in (least, most, least_possible, most_possible):
            assert ranks.tolist() == expected.tolist()
    between = expected[None, :] - expected[:, None]
    later = np.triu(np.ones_like(between, dtype=bool))
    assert (between >= least[None, :] - most[:, None])[later].all()
    assert (between <= most_possible[None, :] - least_possible[:, None])[later].all()
    assert left.total >= len(every)


def _most(holes: Holes, lo: int, hi: int) -> int:
    """How many holes are among these offsets, at most."""
    least, most = holes.possible(np.array([0, 0]), np.array([lo, hi]))
    return int(most[1] - least[0])


def test_sessions_that_joined_the_same_ranges_do_not_blur_those_behind() -> None:
    """Their holes are the same, and a range of uncertain holes leaves later ranges exact."""
    holes = Holes.of([(0, 0, 10, 3), (0, 0, 10, 3), (0, 100, 101, 1)])
    assert (holes.total, _most(holes, 50, 60)) == (4, 0)
    (_, most), (least, _) = (holes.ranks(np.array([0]), np.array([at])) for at in (99, 101))
    assert (least - most).tolist() == [1]
    overlapping = Holes.of([(0, 0, 10, 3), (0, 5, 15, 4), (0, 100, 101, 1)])
    assert (overlapping.total, _most(overlapping, 50, 60)) == (8, 0)


@given(st.lists(GAP, max_size=7))
def test_gaps_go_short_as_the_oracle_says(gaps: list[Gap]) -> None:
    """The oracle uses augmenting paths for single messages; gaps of other rounds do not compete."""
    begin, end, needed = np.array(gaps, dtype=np.int64).reshape(-1, 3).T
    short = _short(np.arange(len(gaps)) % 2, begin, end, needed)
    for at_round in range(2):
        mine = range(at_round, len(gaps), 2)
        competing = oracle.in_competition(
            {
                (at, n): range(gaps[at].begin, gaps[at].end)
                for at in mine
                for n in range(gaps[at].needed)
            }
        )
        assert {at for at in mine if short[at]} == {at for at, _ in competing}


def test_a_million_holes_cost_no_more_than_the_gaps_among_them() -> None:
    """A reused topic that is read from its beginning has more holes than fit into memory."""
    far = 1 << 40
    begin, end, needed = np.array([[0, far, 1], [5, 6, 2], [far - 1, far, 1]], dtype=np.int64).T
    assert _short(np.zeros(3, dtype=np.int64), begin, end, needed).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [((0, 1), {"inconclusive": 2}), ((0, 0), {"inconclusive": 2}), ((0, None), {"compacted": 1})],
)
def test_streams_of_a_partition_do_not_share_a_hole(
    tmp_path: Path, lanes: tuple[int, int | None], expected: dict[str, int]
) -> None:
    """Compaction removed a1 and the mirror lost b1: one hole does not explain both.

    Nor does it if a and b have different keys. A user would have seen `compacted`, and a pass.
    """
    history = History({"t": 1}, compacted_copies=("t",))
    streams = [
        stream(topic="t", lane=lane, producer=producer)
        for lane, producer in zip(lanes, "ab", strict=True)
        if lane is not None
    ]
    for at, of in enumerate(streams):
        history.sends(of, 3)
        history.consumers[0] += [seen(of, 0, 1, at), seen(of, 2, 3, at + 3)]
    if len(streams) == 1:
        history.consumers[0].append(rows.hole("t", 0, 1, 2, topic_identity="0"))
    history.consumers[0] += [
        rows.hole("t", 0, 2, 3, topic_identity="0"),
        rows.read("t", 0, 0, 5, topic_identity="0", has_holes=True),
        rows.tail("t", 0, 5, topic_identity="0"),
    ]
    assert _missing(history, tmp_path) == expected


@pytest.mark.parametrize(
    ("joined", "expected"),
    [(False, {"inconclusive": 4}), (True, {"compacted": 3, "inconclusive": 1})],
)
def test_one_hole_too_few_leaves_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, joined: bool, expected: dict[str, int]
) -> None:
    """a1, b1, b2 and b3 are missing, but there are three holes: any of the four may be lost.

    If ranges are joined, a hole may be in the gap of a1, but none certainly is: a1 is not lost.
    """
    if joined:
        monkeypatch.setattr(compact, "fewer_holes", functools.partial(fewer_holes, most=0))
    history = History({"t": 1}, compacted_copies=("t",))
    a, b = (stream(topic="t", producer=producer) for producer in "ab")
    history.sends(a, 3)
    history.sends(b, 5)
    history.consumers[0] += [
        *(seen(b, seq, seq + 1, at) for seq, at in ((0, 0), (4, 6))),
        *(seen(a, seq, seq + 1, at) for seq, at in ((0, 2), (2, 4))),
        *(rows.hole("t", 0, at, at + 1, topic_identity="0") for at in (1, 3, 5)),
        rows.read("t", 0, 0, 7, topic_identity="0", has_holes=True),
        rows.tail("t", 0, 7, topic_identity="0"),
    ]
    assert _missing(history, tmp_path) == expected


def test_a_message_uses_a_hole_only_where_it_can_be_alone(tmp_path: Path) -> None:
    """Partition 0: a0 b0 a2 - b2 a3; partition 1: - b3 b4. Compaction removed a1 and b1.

    b is in both partitions, so either hole explains b1; the other may be a1's, written after a2.
    """
    history = History({"t": 2}, compacted_copies=("t",))
    a, b = (stream(topic="t", producer=producer) for producer in "ab")
    history.sends(a, 4)
    history.sends(b, 5)
    history.consumers[0] += [
        *(seen(a, seq, seq + 1, at) for seq, at in ((0, 0), (2, 2), (3, 5))),
        *(seen(b, seq, seq + 1, at) for seq, at in ((0, 1), (2, 4))),
        seen(b, 3, 5, 1, partition=1),
        rows.hole("t", 0, 3, 4, topic_identity="0"),
        rows.hole("t", 1, 0, 1, topic_identity="0"),
        *(
            rows.read("t", at, 0, hi, topic_identity="0", has_holes=True)
            for at, hi in ((0, 6), (1, 3))
        ),
        *(rows.tail("t", at, hi, topic_identity="0") for at, hi in ((0, 6), (1, 3))),
    ]
    assert "lost" not in _missing(history, tmp_path)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (9, {"lost": 1}),
        (8, {"inconclusive": 1}),  # nobody saw a message at the last hole
    ],
)
def test_a_hole_where_another_session_saw_any_message_explains_nothing(
    tmp_path: Path, before: int, expected: dict[str, int]
) -> None:
    """Session 0 saw messages of two lanes and a foreign one; session 1 found holes there."""
    history = History({"t": 1}, compacted_copies=("t",))
    of, other = stream(topic="t"), stream(1, topic="t", producer="q")
    history.sends(of, 5)
    history.sends(other, 4)
    first = [
        *(seen(of, seq, seq + 1, at) for seq, at in ((0, 0), (1, 2), (3, 4), (4, 7))),
        *(seen(other, seq, seq + 1, at) for seq, at in enumerate((1, 3, 5, 6))),
        seen(None, 0, 1, 8, findings=Finding.FOREIGN),
    ]
    history.consumers[0] += [
        *(row for row in first if (row.offset_hi or 0) <= before),
        rows.read("t", 0, 0, before, topic_identity="0"),
    ]
    history.consumers.append(
        [
            seen(None, 0, 1, 9, findings=Finding.FOREIGN),
            rows.hole("t", 0, 0, 9, topic_identity="0"),
            rows.read("t", 0, 0, 10, topic_identity="0", has_holes=True),
            rows.tail("t", 0, 10, topic_identity="0"),
        ]
    )
    assert _missing(history, tmp_path) == expected


def test_holes_that_may_be_elsewhere_explain_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of very many holes are joined: which of their offsets are holes is then unknown.

    The mirror lost 1, between offsets 3 and 5; another run's messages left holes at 1, 7 and 8.
    A user would have seen `compacted`, and a pass.
    """
    monkeypatch.setattr(compact, "fewer_holes", functools.partial(fewer_holes, most=0))
    history = History({"t": 1}, compacted_copies=("t",))
    of, other = stream(topic="t"), stream(topic="t", producer="q")
    history.sends(of, 3)
    history.sends(other, 5)
    history.consumers[0] += [
        *(seen(other, seq, seq + 1, at) for seq, at in enumerate((0, 2, 4, 6, 9))),
        *(seen(of, seq, seq + 1, at) for seq, at in ((0, 3), (2, 5))),
        *(rows.hole("t", 0, at, at + 1, topic_identity="0") for at in (1, 7, 8)),
        rows.read("t", 0, 0, 10, topic_identity="0", has_holes=True),
        rows.tail("t", 0, 10, topic_identity="0"),
    ]
    assert _missing(history, tmp_path) == {"inconclusive": 1}


@pytest.mark.parametrize(
    ("holes", "holed", "expected"),
    [
        ([(2, 3)], True, {"inconclusive": 1, "lost": 2}),
        ([(2, 3), (7, 8)], True, {"inconclusive": 3}),  # one hole is left over
        ([], False, {"lost": 3}),
        ([], True, {"inconclusive": 3}),  # of an older version: any offset may be a hole
        ([], None, {"inconclusive": 3}),
    ],
)
def test_a_log_that_names_its_holes_is_judged_by_them_and_one_that_does_not_by_all(
    tmp_path: Path, holes: list[tuple[int, int]], *, holed: bool | None, expected: dict[str, int]
) -> None:
    """0, 1, 3, 4 and 6 are seen at offsets 0, 1, 3, 4 and 5; the cleanup policy is unknown."""
    history = History({"t": 1}, hidden=("t",))
    of = stream(topic="t")
    history.sends(of, 8)
    history.consumers[0] += [
        *(seen(of, lo, hi, at) for lo, hi, at in ((0, 2, 0), (3, 5, 3), (6, 7, 5))),
        *(rows.hole("t", 0, *hole, topic_identity="0") for hole in holes),
        rows.read("t", 0, 0, 8, topic_identity="0", has_holes=holed),
        rows.tail("t", 0, 8, topic_identity="0"),
    ]
    assert _missing(history, tmp_path) == expected


def test_a_named_hole_leaves_the_others_of_a_log_of_before(tmp_path: Path) -> None:
    """Two logs read offsets 3 to 5; the newer one names the hole at 4: the one at 1 counts, too.

    One named hole made all others of the older log's row forgotten: the message at 1 was lost.
    """
    history = History({"t": 1}, compacted_copies=("t",))
    of = stream(topic="t")
    history.sends(of, 8)
    history.consumers = [
        [
            *(seen(of, lo, hi, lo) for lo, hi in ((0, 1), (2, 4), (5, 6))),
            rows.read("t", 0, 0, 6, topic_identity="0"),
        ],
        [
            *(seen(of, lo, hi, lo) for lo, hi in ((3, 4), (5, 8))),
            rows.hole("t", 0, 4, 5, topic_identity="0"),
            rows.read("t", 0, 3, 8, topic_identity="0", has_holes=True),
            rows.tail("t", 0, 8, topic_identity="0"),
        ],
    ]
    assert _missing(history, tmp_path) == {"compacted": 2}


def test_what_a_log_of_before_read_without_a_record_is_a_marker_where_nothing_is_compacted(
    tmp_path: Path,
) -> None:
    """The consumers saw that the topic is not compacted: what is missing is lost."""
    history = History({"t": 1})
    of = stream(topic="t")
    history.sends(of, 3)
    history.consumers[0] += [
        seen(of, 0, 1, 0),
        seen(of, 2, 3, 2),
        rows.read("t", 0, 0, 3, topic_identity="0", has_holes=True),
        rows.tail("t", 0, 3, topic_identity="0"),
    ]
    assert _missing(history, tmp_path) == {"lost": 1}
