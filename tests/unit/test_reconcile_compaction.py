"""The holes that logs name, or only count as there: as ranges, and what is judged by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.reconcile.compaction import Holes
from mirrortest.reconcile.interval_rows import fewer_holes, merged
from mirrortest.reconcile.job import reconcile_by
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.schema import Kind
from tests.oracle.in_process import InProcess
from tests.spark.spark_history import History, seen, stream

if TYPE_CHECKING:
    from pathlib import Path

RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 6)), max_size=12)
"""Incarnation, first offset, how many."""


@given(RANGES)
def test_the_holes_before_a_place_are_counted_once_however_often_they_were_read(
    ranges: list[tuple[int, int, int]],
) -> None:
    """In the order of incarnations, and of offsets within each."""
    holes = Holes.of((identity, lo, lo + count, count) for identity, lo, count in ranges)
    every = {(identity, lo + n) for identity, lo, count in ranges for n in range(count)}
    places = [(identity, offset) for identity in range(3) for offset in range(50)]
    found = holes.before(*np.array(places, dtype=np.int64).T)
    assert found.tolist() == [sum(hole < place for hole in every) for place in places]
    assert holes.total == len(every)
    assert holes.within(1, 5, 20) == sum(identity == 1 and 5 <= at < 20 for identity, at in every)


@given(RANGES, st.integers(1, 8))
@example([(0, 0, 5), (0, 1, 1), (0, 3, 1)], 1)
def test_fewer_rows_of_holes_have_as_many_holes(
    ranges: list[tuple[int, int, int]], most: int
) -> None:
    """Those next to each other are joined first; which offsets they are is then unknown."""
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
    assert of_rows.exact is (len(of_rows.lo) == len(exact.lo))
    assert len(found) <= most + len({identity for identity, *_ in ranges})
    places = np.array([(n, at) for n in range(3) for at in range(50)], dtype=np.int64).T
    assert (of_rows.before(*places) >= exact.before(*places)).all()


@pytest.mark.parametrize(
    ("holes", "holed", "told"),
    [
        ([(2, 3)], True, {"inconclusive": 1, "lost": 2}),
        ([(2, 3), (7, 8)], True, {"inconclusive": 3}),  # one that is left
        ([], False, {"lost": 3}),
        ([], True, {"inconclusive": 3}),  # of the version before: any of them
        ([], None, {"inconclusive": 3}),
    ],
)
def test_a_log_that_names_its_holes_is_judged_by_them_and_one_that_does_not_by_all(
    tmp_path: Path, holes: list[tuple[int, int]], *, holed: bool | None, told: dict[str, int]
) -> None:
    """Seen are 0, 1, 3, 4 and 6 at offsets 0, 1, 3, 4 and 5; the topic's policy is hidden."""
    history = History({"t": 1}, hidden=("t",))
    of = stream(topic="t")
    history.sends(of, 8)
    history.consumers[0] += [
        *(seen(of, lo, hi, at) for lo, hi, at in ((0, 2, 0), (3, 5, 3), (6, 7, 5))),
        *(rows.hole("t", 0, *hole, topic_identity="0") for hole in holes),
        rows.read("t", 0, 0, 8, topic_identity="0", has_holes=holed),
        rows.tail("t", 0, 8, topic_identity="0"),
    ]
    history.write(tmp_path)
    counts = reconcile_by(InProcess(), plan([str(tmp_path)], None), ()).counts
    names = (Finding.LOST.label, Finding.COMPACTED.label, Finding.INCONCLUSIVE.label)
    assert {name: counts[name] for name in names if counts[name]} == told


def test_what_a_log_of_before_read_without_a_record_is_a_marker_where_nothing_is_compacted(
    tmp_path: Path,
) -> None:
    """Its consumers saw the topic's policy: what is missing is lost."""
    history = History({"t": 1})
    of = stream(topic="t")
    history.sends(of, 3)
    history.consumers[0] += [
        seen(of, 0, 1, 0),
        seen(of, 2, 3, 2),
        rows.read("t", 0, 0, 3, topic_identity="0", has_holes=True),
        rows.tail("t", 0, 3, topic_identity="0"),
    ]
    history.write(tmp_path)
    assert reconcile_by(InProcess(), plan([str(tmp_path)], None), ()).counts["lost"] == 1
