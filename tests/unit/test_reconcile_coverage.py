"""What of a partition was read, and what that says of messages missing there."""

from __future__ import annotations

import pytest

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.coverage import ENDLESS, Observed, Span, cover


def observed(read=(), unread=(), tails=(), *, partitions=1, started=0, began=10):
    """One topic; spans are (partition, lo, hi)."""

    def spans(given):
        return [Span("t", partition, 0, lo, hi, 0) for partition, lo, hi in given]

    return Observed(
        spans(read), spans(unread), spans(tails), {"t": partitions}, {0: started}, {"t": began}
    )


def blind(seen):
    """(partition, lo, hi, finding) of the blind ranges."""
    return [(b.partition, b.lo, b.hi, b.finding) for b in cover(seen).blind]


def test_read_from_start_to_tail_leaves_nothing_blind():
    """Overlapping and touching stretches of several sessions make one coverage."""
    coverage = cover(observed([(0, 0, 10), (0, 5, 20), (0, 20, 30)], tails=[(0, 30, 30)]))
    assert (coverage.blind, coverage.reasons) == ([], [])


def test_an_empty_partition_needs_only_its_tail():
    """Nothing was there to be read."""
    assert blind(observed(tails=[(0, 0, 0)])) == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            observed([(0, 0, 10), (0, 15, 20)], tails=[(0, 20, 20)]),
            (0, 10, 15, Finding.INCONCLUSIVE),
        ),
        (observed([(0, 0, 10)], tails=[(0, 12, 12)]), (0, 10, 12, Finding.IN_FLIGHT)),
        (observed([(0, 0, 10)]), (0, 10, ENDLESS, Finding.IN_FLIGHT)),
        (observed(tails=[(0, 7, 7)]), (0, 0, 7, Finding.INCONCLUSIVE)),
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
def test_what_was_not_read_is_blind_and_named(seen, expected):
    """Holes, an unread end, no end, no reader at all: one range and one reason each."""
    coverage = cover(seen)
    assert blind(seen) == [expected]
    assert len(coverage.reasons) == 1


def test_a_late_start_is_blind_unless_the_reader_was_there_first():
    """Who began at offset 5 before the first message was sent has missed none; else perhaps."""
    late = {"read": [(0, 5, 10)], "tails": [(0, 10, 10)]}
    assert blind(observed(**late, started=5, began=10)) == []
    assert blind(observed(**late, started=15, began=10)) == [(0, 0, 5, Finding.INCONCLUSIVE)]


def test_no_consumer_at_all_makes_everything_blind():
    """Without a partition count any one partition stands for all."""
    coverage = cover(Observed([], [], [], {"t": None}, {}, {}))
    assert [b.hi for b in coverage.blind] == [ENDLESS]
    assert coverage.reasons == ["t: no consumer's log covers it"]
