"""Rows as fewer intervals that say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrortest.check.verdict import Finding, Outcome
from mirrortest.reconcile.compact import INTERVALS, compact
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.wire.stream import StreamId

STREAM = StreamId("t", "r1", "p", 1, 0)


def compacted(written, run="r1"):
    """The intervals as dictionaries."""
    return [row for batch in compact(batch_of(written), run, 3) for row in batch.to_pylist()]


def sent(lo, hi, outcome=Outcome.ACKED, *, minute=0, latencies=None):
    """A `sent` row at source offsets 100 above its seqs."""
    at = minute * 60_000_000_000
    return rows.sent(
        STREAM, lo, hi, partition=0, outcome=outcome, offset_lo=lo + 100,
        intended=(at, at + hi), latencies=latencies,
    )  # fmt: skip


def test_rows_that_continue_each_other_are_one():
    """The same findings, minute and distance of seq and offset: one interval; else not."""
    merged = compacted([sent(10, 20), sent(0, 10), sent(20, 30, minute=1), sent(40, 50)])
    assert [(row["seq_lo"], row["seq_hi"], row["minute"]) for row in merged] == [
        (0, 20, 0),
        (40, 50, 0),
        (20, 30, 1),
    ]
    assert {row["session"] for row in merged} == {3}


def test_rows_of_another_run_go_and_those_of_none_stay():
    """Offsets that were read belong to every run."""
    other = STREAM._replace(run="r2")
    kept = compacted([rows.reserved(other, 0, 5), rows.read("t", 0, 0, 5), rows.read("t", 0, 5, 9)])
    assert [(row["kind"], row["offset_lo"], row["offset_hi"]) for row in kept] == [("read", 0, 9)]


def test_verdicts_of_different_times_are_not_mixed():
    """`found` rows keep their next offset, tails and ends stay alone."""
    kept = compacted(
        [
            rows.found(STREAM, 0, 5, Finding.REORDERED, partition=0, next_offset=50),
            rows.found(STREAM, 5, 8, Finding.REORDERED, partition=0, next_offset=60),
            rows.tail("t", 0, 50),
            rows.tail("t", 0, 50),
            rows.end(STREAM, 9),
        ]
    )
    assert sorted((row["kind"], row["offset_hi"]) for row in kept if row["kind"] == "found") == [
        ("found", 50),
        ("found", 60),
    ]
    assert [row["kind"] for row in kept].count("tail") == 2


def test_latencies_are_summed_by_minute():
    """Buckets add up, and so do those below zero."""
    told = rows.Latencies
    summed = [
        row
        for row in compacted(
            [
                sent(0, 3, latencies=told(1, (5, 7), (1, 1))),
                sent(3, 5, latencies=told(0, (7,), (2,))),
                sent(9, 10, minute=1, latencies=told(0, (5,), (1,))),
            ]
        )
        if row["kind"] == "latency"
    ]
    assert [
        (row["minute"], row["negative"], row["latency_bucket"], row["latency_count"], row["text"])
        for row in summed
    ] == [(0, 1, [5, 7], [1, 3], "sent"), (1, 0, [5], [1], "sent")]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.sampled_from(Outcome))))
def test_no_number_appears_or_vanishes(spans):
    """Whatever the rows and their order: the same numbers have the same outcomes."""

    def numbers(told):
        return {(seq, outcome) for lo, hi, outcome in told for seq in range(lo, hi)}

    written = [sent(lo, lo + count, outcome) for lo, count, outcome in spans]
    kept = compacted(written) if written else []
    assert numbers((row["seq_lo"], row["seq_hi"], row["outcome"]) for row in kept) == numbers(
        (lo, lo + count, int(outcome)) for lo, count, outcome in spans
    )
    assert all(set(row) == set(INTERVALS.names) for row in kept)
