"""What the status of one consumer shows, and that of several together."""

from __future__ import annotations

from dataclasses import replace

from mirrortest.config.threshold import thresholds
from mirrortest.consume.consume_status import QUIET_SECONDS, PartitionLag, merged
from mirrortest.model.verdict import Verdict
from mirrortest.timing.recent import Latencies
from tests.unit.statuses import MS, consuming, consuming_badly, sparse

DEAD = replace(
    consuming(),
    counts={"acked": 17_778, "delivered": 17_778},
    quiet_seconds=9.2,
    ledger_since="16:42:08Z",
)


def test_a_dead_mirror_does_not_look_perfect() -> None:
    """The ledger's copy stalls as well: every message acknowledged in it was delivered."""
    line = str(DEAD)
    assert "17,778 delivered of 17,778 acknowledged" in line
    assert "; nothing has arrived for 9 s; no ledger record since 16:42:08Z" in line
    assert DEAD.view().verdict is Verdict.INCONCLUSIVE


def test_a_short_pause_and_a_complete_run_are_not_mentioned() -> None:
    """Neither a pause in a slow run nor the silence after its end is worth a warning."""
    pause = replace(DEAD, quiet_seconds=QUIET_SECONDS - 0.1, ledger_since="")
    for quiet in (pause, replace(DEAD, complete=True)):
        assert "nothing has arrived" not in str(quiet)
        assert quiet.view().verdict is Verdict.PASSED


def test_without_a_ledger_nothing_is_judged() -> None:
    """The run does not pass: the thresholds had nothing to compare."""
    view = replace(consuming(), counts={"duplicated": 0}, ledger_silent=True).view()
    assert view.verdict is Verdict.INCONCLUSIVE
    assert "the ledger has no record of this run" in view.state


def test_failing_conditions_are_named_with_what_was_measured() -> None:
    """The first ones are named; the others are counted."""
    view = consuming_badly().view()
    assert view.verdict is Verdict.FAILED
    assert "corrupted==0 is 1,234,567" in view.state
    assert view.state.endswith(" more")
    assert consuming().failed == []


def test_what_a_producer_may_have_sent_twice_itself_fails_nothing_yet() -> None:
    """They are undecided, as in the verdict."""
    status = replace(
        consuming(),
        counts={**consuming().counts, "duplicated": 3},
        thresholds=thresholds(("duplicated==0",)),
    )
    assert "duplicated==0 is 3" in status.view().state
    for own, failed in ((3, 0), (2, 1)):
        assert len(replace(status, excused={"duplicated": own}).failed) == failed


def test_a_threshold_of_latency_is_that_of_all_workers() -> None:
    """A worker that reads only the slow partition fails it; over all messages it is met."""
    slow = replace(consuming(), latency=Latencies(sparse(3_001 * MS), sparse(3_001 * MS)))
    fast = replace(consuming(), latency=Latencies(sparse(*[MS] * 999), sparse()))
    assert "p(99)<2s is " in slow.view().state
    both = merged("c", None, None, [slow, fast])
    assert both.failed == []
    assert "p50 1.00 ms" in str(both)


def test_what_clocks_may_have_caused_fails_no_threshold_yet() -> None:
    """Even if only another worker's clock was set: all latencies may be off."""
    slow = replace(consuming(), latency=Latencies(sparse(3_001 * MS), sparse(3_001 * MS)))
    other = replace(consuming(), latency=Latencies(off_ns=2_000 * MS))
    assert slow.failed
    assert merged("c", None, None, [slow, other]).failed == []
    assert merged("c", None, None, [slow, other]).document().latency_seconds.off == 2.0


def test_what_other_consumers_measured_fails_no_threshold_yet() -> None:
    """The messages that were taken over from states may meet it."""
    slow = replace(consuming(), latency=Latencies(sparse(3_001 * MS), sparse(3_001 * MS)))
    other = replace(consuming(), latency=Latencies(unmeasured=99))
    median = replace(slow, thresholds=thresholds(["p(50)<2s"]))
    assert median.failed
    assert merged("c", None, None, [median, other]).failed == []


def test_what_remains_is_the_shorter_of_duration_and_messages() -> None:
    """It depends on the rate of arriving messages; without either limit, it is unknown."""
    status = replace(consuming(), read=900, read_per_second=50.0)
    assert status.remaining_seconds == 40.0
    assert replace(status, total=1_000).remaining_seconds == 2.0
    assert replace(status, duration_seconds=None).remaining_seconds is None


def test_workers_together_have_the_verdict_of_the_first_and_the_reading_of_all() -> None:
    """Each worker judges all of the run; what arrives at any of them has arrived."""
    first = replace(consuming(), duration_seconds=None, age_seconds=None)
    other = replace(
        first,
        read=10,
        read_per_second=1.0,
        counts={"acked": 5},
        partitions=3,
        unread=7,
        age_seconds=4.0,
        slowest=(PartitionLag("A.orders-7", 7, 4.0),),
        quiet_seconds=9.0,
        outage="destination unreachable since noon",
    )
    both = merged("c", 100.0, None, [first, other])
    assert (both.name, both.counts, both.duration_seconds) == ("c", first.counts, 100.0)
    assert (both.read, both.partitions, both.unread) == (17_800, 5, 8)
    assert both.read_per_second == first.read_per_second + 1
    assert both.age_seconds == 4.0
    assert [lag.name for lag in both.slowest] == ["A.orders-7", "A.orders-1", "A.orders-0"]
    assert both.quiet_seconds == 0.0
    assert "destination unreachable since noon" in both.view().warnings


def test_a_worker_that_has_ended_reads_nothing() -> None:
    """What it read still counts; its rate, its partitions and its outage do not."""
    ended = replace(
        consuming_badly(), ended=True, read_per_second=500.0, quiet_seconds=0.0, age_seconds=0.001
    )
    running = replace(consuming(), quiet_seconds=7.0)
    both = merged("c", None, None, [running, ended])
    assert both.read == running.read + ended.read
    assert both.age_seconds == running.age_seconds
    for each in ("latency", "sent_latency"):
        recent = getattr(both, each).recent
        assert recent.counts == getattr(running, each).recent.counts
    assert (both.read_per_second, both.partitions) == (running.read_per_second, 2)
    assert (both.unread, both.outage, both.quiet_seconds) == (running.unread, "", 7.0)
    assert [lag.name for lag in both.slowest] == ["A.orders-1", "A.orders-0"]
