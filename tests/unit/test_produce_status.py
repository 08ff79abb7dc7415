"""The status of a producer, and of several producers together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrortest.model.findings import Outcome
from mirrortest.model.verdict import Verdict
from mirrortest.produce.produce_status import PartitionBacklog, merged
from tests.unit.statuses import producing, producing_badly


@pytest.mark.parametrize(
    ("changed", "remaining"),
    [
        ({"total": None}, None),
        ({"total": None, "duration_seconds": 100.0}, 20.0),
        ({"total": 240_000}, 80_000 / 1_999.7),
        ({"total": 240_000, "duration_seconds": 100.0}, 20.0),
        ({"total": 240_000, "acked_per_second": 0.0}, None),
        ({"total": None, "duration_seconds": 70.0, "in_flight": 0, "due": 0}, 0.0),
        ({"total": None, "duration_seconds": 70.0, "due": 59_976}, 60_000 / 1_999.7),
        ({"total": None, "duration_seconds": 100.0, "due": 59_976}, 60_000 / 1_999.7),
        ({"total": None, "duration_seconds": 100.0, "acked_per_second": 0.0}, 20.0),
        ({"total": None, "duration_seconds": 70.0, "acked_per_second": 0.0}, None),
    ],
)
def test_what_remains_is_the_shorter_of_duration_and_messages(
    changed: dict[str, float | None], remaining: float | None
) -> None:
    """At the present rate; None if neither limit gives a time.

    Messages that are late at the end of the duration are still sent: it is not over before.
    """
    found = replace(producing(), **changed).remaining_seconds  # type: ignore[arg-type]  # by name
    assert found == (None if remaining is None else pytest.approx(remaining))


def test_what_is_wrong_is_said() -> None:
    """Failures by reason, the most frequent first; the fault; the delay behind the schedule."""
    status = producing_badly()
    line = str(status)
    for text in (
        "1,234 failed and 5,678 unknown",
        "the source does not answer: no broker of kafka-1",
        "nothing was acknowledged for 31 s",
        "31.4 s behind schedule",
        "not acked: 5,678 the brokers did not answer",
        "and 1 more reasons",
    ):
        assert text in line
    assert status.view().verdict is Verdict.FAILED
    assert producing().view().verdict is Verdict.PASSED
    assert producing().view().warnings == ()


def test_workers_together_have_the_sums() -> None:
    """Each has a share of rate and messages; a partition that two write to is listed once."""
    one = replace(producing(), backlogs=(PartitionBacklog("orders-0", 2, 1, 5),), reasons={"x": 1})
    two = replace(one, backlogs=(PartitionBacklog("orders-0", 3, 1, 9),), quiet_seconds=7.0)
    both = merged("p", [one, two])
    assert (both.total, both.asked_per_second, both.in_flight) == (480_000, 4_000.0, 48)
    assert both.outcomes[Outcome.ACKED] == 320_000
    assert both.reasons == {"x": 2}
    assert both.backlogs == (PartitionBacklog("orders-0", 5, 2, 9),)
    assert both.quiet_seconds == 7.0
    assert both.remaining_seconds == pytest.approx(one.remaining_seconds)
    endless = replace(one, total=None, asked_per_second=None)
    assert merged("p", [endless, endless]).asked_per_second is None


def test_the_slowest_partition_of_all_workers_is_none_of_a_worker_alone() -> None:
    """Each worker has 60 slower partitions of its own; the shared one has the largest sum."""
    own = [
        [PartitionBacklog(f"orders-{worker}-{number}", 10, 0, 0) for number in range(60)]
        for worker in range(3)
    ]
    each = [
        replace(producing(), backlogs=[*mine, PartitionBacklog("orders-shared", 9, 0, 0)])
        for mine in own
    ]
    slowest = merged("p", each).view().slowest
    assert slowest is not None
    assert slowest.total == 181
    assert len(slowest.rows) == 50
    assert slowest.rows[0][:2] == ("orders-shared", "27")


def test_a_worker_that_has_ended_has_no_rate_and_waits_for_nothing() -> None:
    """What it has sent counts; its last rates, backlog and warnings do not."""
    waits = [PartitionBacklog("orders-0", 24, 3, 9)]
    running = replace(producing(), backlogs=waits)
    ended = replace(
        running, ended=True, behind_ns=9, quiet_seconds=31.0, fault="the source does not answer"
    )
    both = merged("p", [ended, running])
    assert both.outcomes[Outcome.ACKED] == 320_000
    assert both.total == 480_000
    now = (both.acked_per_second, both.asked_per_second, both.bytes_per_second)
    assert now == (1_999.7, 2_000.0, 2_000_000.0)
    assert (both.in_flight, both.due, both.behind_ns, both.quiet_seconds) == (24, 3, 0, 0.0)
    assert both.fault == ""
    assert both.latency.recent.counts == running.latency.recent.counts
    assert sum(both.latency.all.counts) == 2 * sum(running.latency.all.counts)
    assert list(both.backlogs) == waits
