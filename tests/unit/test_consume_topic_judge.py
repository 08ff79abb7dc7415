"""When a missing message is claimed lost, and when it is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.consume.topic_judge import (
    TopicJudge,
)
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify import judge as check_judge
from mirrortest.verify.fragment import ALWAYS
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord, Registration
from mirrortest.verify.loss import Losses, all_ends_known, ended_earlier, read_past
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition, homes_of
from mirrortest.verify.row import MINUTE_NS, SeenRow
from mirrortest.wire.lanes import lane_key, lane_numbers, partition_of
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.verify.judge import StreamVerdict
from tests.unit.judged_topic import (
    checker_of,
    claimed_now,
    judged_round,
    ledger_of,
    note_lanes,
    row_of,
    topic_judge,
)

STREAM = StreamId("t", "r1", "p", 1, 0)
DEADLINE = 1000
HOUR = 60 * MINUTE_NS


def test_nothing_is_lost_before_its_deadline() -> None:
    """An acknowledged seq that is missing is in flight until its deadline has passed."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 3)]), {0: checker_of(0, 2)}
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, checkers, DEADLINE - 1).overdue
    (verdict,) = judged_round(judge, ledger, checkers, closed=False).verdicts.values()
    assert verdict.having(Finding.IN_FLIGHT).to_list() == IntervalSet([(1, 2)]).to_list()
    assert not verdict.having(Finding.LOST)


def test_lost_is_claimed_once_the_ends_told_after_the_deadline_are_read() -> None:
    """After its deadline, a seq is still not lost while there are offsets left to read."""
    judge, ledger = topic_judge(), ledger_of([(0, 3)])
    checker = checker_of(0, 2)
    note_lanes(judge, ledger, 0)
    assert judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 4})
    assert claimed_now(judge, ledger, {0: checker}) == {}
    checker.expect_markers([(2, 4)])
    checker.advance(4)
    assert claimed_now(judge, ledger, {0: checker}) == {STREAM: IntervalSet([(1, 2)])}
    assert judged_round(judge, ledger, {0: checker}).judged


def test_what_stands_in_another_partition_is_not_lost() -> None:
    """Loss is judged on the union of all partitions."""
    judge, ledger = topic_judge(), ledger_of([(0, 3)])
    checkers = {0: checker_of(0, 2), 1: checker_of(1, partition=1)}
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, checkers, 2 * DEADLINE).overdue
    assert judged_round(judge, ledger, checkers).judged


def test_a_partition_that_nobody_reads_keeps_everything_open() -> None:
    """An end above zero without a reader proves nothing; an empty partition needs no reader."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 3)]), {0: checker_of(0, 2)}
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, checkers, 2 * DEADLINE).overdue, {0: 2, 1: 5})
    assert claimed_now(judge, ledger, checkers) == {}
    assert read_past(checkers, {0: 2, 1: 0})


def test_a_claimed_message_that_comes_after_all_is_late() -> None:
    """The message is no longer lost, but late."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 2)]), checker_of(0)
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 1})
    assert claimed_now(judge, ledger, {0: checker}) == {STREAM: IntervalSet([(1, 2)])}
    late = checker_of(0, 1)
    (verdict,) = judged_round(judge, ledger, {0: late}, closed=True).verdicts.values()
    assert (
        verdict.having(Finding.LOST).count,
        verdict.having(Finding.LATE).count,
        verdict.delivered.count,
    ) == (0, 1, 2)


def test_what_may_stand_in_offsets_that_nobody_read_is_never_claimed() -> None:
    """Retention that overtakes the reader makes seqs inconclusive, not lost."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 5)]), checker_of(0)
    checker.unread(1, 4)
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue
    (verdict,) = judged_round(judge, ledger, {0: checker}, closed=True).verdicts.values()
    assert (verdict.having(Finding.LOST).count, verdict.having(Finding.INCONCLUSIVE).count) == (
        0,
        4,
    )


@pytest.mark.parametrize("found_ns", [None, HOUR])
def test_what_was_reordered_may_stand_in_offsets_that_nobody_read(found_ns: int | None) -> None:
    """1, 2, then 0 deleted unread, then 3, 4: retention never makes 0 lost."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 6)]), checker_of(1, 2)
    checker.unread(2, 3, found_ns)
    for offset, seq in ((3, 3), (4, 4)):
        checker.apply(row_of(seq, offset, HOUR - MINUTE_NS))
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue
    (verdict,) = judged_round(judge, ledger, {0: checker}, closed=True).verdicts.values()
    assert (
        verdict.having(Finding.INCONCLUSIVE).to_list(),
        verdict.having(Finding.REORDERED).count,
    ) == ([0, 1, 4, 1], 0)


def test_what_was_sent_after_offsets_were_found_gone_is_lost() -> None:
    """No message sent ten minutes later was there: clocks are not that far apart."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 9)]), checker_of(0)
    checker.unread(1, 4, HOUR)
    checker.apply(row_of(4, 4, HOUR + 4 * MINUTE_NS))
    checker.apply(row_of(6, 5, HOUR + 10 * MINUTE_NS))
    checker.apply(row_of(8, 6, HOUR + 11 * MINUTE_NS))
    checker = PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 7})
    assert claimed_now(judge, ledger, {0: checker}) == {STREAM: IntervalSet([(7, 8)])}
    (verdict,) = judged_round(judge, ledger, {0: checker}, closed=True).verdicts.values()
    assert verdict.having(Finding.INCONCLUSIVE) == IntervalSet([(1, 4), (5, 6)])


def test_a_state_of_before_doubts_all_that_is_missing_behind_offsets_that_nobody_read() -> None:
    """It lacks the time when these were found deleted: no missing seq is proven lost."""
    checker = checker_of(0)
    checker.unread(1, 2, 0)
    checker.apply(row_of(3, 2, HOUR))
    assert checker.fragments[STREAM].doubtful_below == 3
    state = checker.to_state()
    del state["unread_minute"]
    (_, _, _, _, fragment), *_ = state["streams"]
    del fragment["unread"]
    old = PartitionChecker.from_state(state)
    assert old.fragments[STREAM].doubtful_below == ALWAYS
    assert PartitionChecker.from_state(old.to_state()).to_state() == old.to_state()


@pytest.mark.parametrize(
    "policy", [ExpectPartition.MURMUR2, ExpectPartition.SOURCE_MODULO, ExpectPartition.ANY]
)
def test_what_stood_unread_where_a_lane_belonged_before_is_not_lost(
    policy: ExpectPartition,
) -> None:
    """Partitions were added to the destination, and the mirror now puts the lane elsewhere.

    If any partition is allowed, it is unknown where the lane was before.
    """
    mirrors = ExpectPartition.MURMUR2 if policy is ExpectPartition.ANY else policy
    lane = next(n for n in lane_numbers(7) if len({_home(mirrors, n, c) for c in (2, 3)}) == 2)
    old, new = (_home(mirrors, lane, count) for count in (2, 3))
    stream = STREAM._replace(lane=lane)
    ledger = Ledger()
    acked = IntervalSet([(0, 3)])
    ledger.merge(LaneRecord(stream, 3, acked, end=3, destination_partitions=2, source_partitions=7))
    checkers = {number: PartitionChecker("t", number) for number in range(3)}
    checkers[old].unread(0, 1)
    checkers[new].apply(SeenRow(stream, 1, 3, 0, 2, 0, 1, 1, 1, 1, 2, 2))
    judge = TopicJudge("t", "r1", policy, Losses(DEADLINE), [3])
    note_lanes(judge, ledger, 0)
    topic_round = judged_round(judge, ledger, checkers, 2 * DEADLINE)
    assert not topic_round.overdue
    assert topic_round.verdicts[stream].having(Finding.INCONCLUSIVE) == IntervalSet([(0, 1)])


def _home(policy: ExpectPartition, lane: int, count: int) -> int:
    (home,) = homes_of(policy, lane, partition_of(lane_key(lane), 7), [count])
    return home


def test_a_topic_that_the_mirror_never_made_loses_everything() -> None:
    """Without partitions, nothing is left to read."""
    judge, ledger = topic_judge(), ledger_of([(0, 5)])
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, {}, 2 * DEADLINE).overdue, {})
    assert claimed_now(judge, ledger, {}) == {STREAM: IntervalSet([(0, 5)])}


def test_claims_taken_over_are_not_made_again() -> None:
    """Another consumer's claims count like our own."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 2)]), checker_of(0)
    judge.losses.merge({STREAM: IntervalSet([(1, 2)])})
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue
    assert judged_round(judge, ledger, {0: checker}).judged


def test_what_another_claims_amid_a_round_is_not_claimed_again() -> None:
    """The verdict was computed before that claim; the loss counts once."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 3)]), {0: checker_of(0)}
    note_lanes(judge, ledger, 0)
    topic_round = judged_round(judge, ledger, checkers, 2 * DEADLINE)
    judge.losses.open(topic_round.overdue, {0: 1})
    judge.losses.merge({STREAM: IntervalSet([(1, 2)])})
    assert judge.claim_losses(topic_round, checkers) == {STREAM: IntervalSet([(2, 3)])}


def test_a_hearing_whose_ends_went_back_is_held_again() -> None:
    """A recreated topic may never reach the ends of a pending loss, which is then dropped."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 5)]), checker_of(0, 2)
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 900})
    judge.losses.cancel({0: 900})
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 2})
    assert not claimed_now(judge, ledger, {0: checker})
    judge.losses.cancel({0: 2})
    judge.losses.open(judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue, {0: 2})
    assert claimed_now(judge, ledger, {0: checker})


def test_a_partition_whose_end_is_not_told_leaves_all_open() -> None:
    """A broker that has just started may not list a topic: that does not make the topic empty."""
    assert not all_ends_known({0: checker_of(0), 1: checker_of(partition=1)}, {0: 5})
    assert all_ends_known({0: checker_of(0)}, {0: 5, 1: 0})
    assert all_ends_known({}, {})


def test_an_end_before_what_was_read_proves_nothing() -> None:
    """The topic was recreated, and its reader has not noticed: all of it is unread."""
    checkers = {0: checker_of(0, 2), 1: checker_of(partition=1)}
    assert all_ends_known(checkers, {0: 2, 1: 4})
    assert not all_ends_known(checkers, {0: 1, 1: 4})
    assert (ended_earlier(checkers, {0: 2, 1: 0}), ended_earlier(checkers, {0: 1})) == ([], [0])


def test_a_stream_unknown_to_the_ledger_is_waited_for_one_deadline() -> None:
    """Then the run may end without it; if the ledger gets its record first, it is not awaited."""
    judge, checkers = topic_judge(), {0: checker_of(0)}
    assert judge.awaits_ledger(judged_round(judge, Ledger(), checkers), 5)
    assert judge.awaits_ledger(judged_round(judge, Ledger(), checkers), 4 + DEADLINE)
    assert not judge.awaits_ledger(judged_round(judge, Ledger(), checkers), 5 + DEADLINE)
    assert not judge.awaits_ledger(judged_round(judge, ledger_of([(0, 1)]), checkers), 6)


def test_only_of_an_incarnation_that_the_ledger_knows_an_unknown_stream_is_a_phantom() -> None:
    """A ledger's copy may have expired the records of producers that ended long ago.

    A registration names all lanes of its incarnation: a stream in another lane was never sent.
    """
    ledger = ledger_of([(0, 3)], end=3)
    ledger.add_registration(Registration("r1", "p", 1, "s", {"t": (0,)}))
    forgotten = [STREAM._replace(producer="ended"), STREAM._replace(incarnation=2)]
    unregistered = STREAM._replace(lane=1)
    checker = checker_of(0, 1, 2)
    for at, stream in enumerate((*forgotten, unregistered), start=3):
        checker.apply(SeenRow(stream, 0, 1, at, at + 1, 0, 1, 1, 1, 1, 2, 2))
    assert ledger.complete("r1")
    verdicts = judged_round(topic_judge(), ledger, {0: checker}, closed=True).verdicts
    assert {stream for stream, found in verdicts.items() if found.having(Finding.PHANTOM)} == {
        unregistered
    }


def test_a_stream_of_which_nothing_changed_is_not_judged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers that have ended cost a round nothing; a changed input renews the verdict."""
    judged: list[StreamId] = []

    def counted(stream: StreamId, *rest: Any, **more: Any) -> StreamVerdict:
        judged.append(stream)
        return check_judge.judge(stream, *rest, **more)

    monkeypatch.setattr("mirrortest.consume.topic_judge.judge", counted)
    judge, ledger, checker = topic_judge(), ledger_of([(0, 5)]), checker_of(0, 2)
    ledger.add_registration(Registration("r1", "p", 1, "s", {"t": (0,)}))
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: checker.apply(SeenRow(STREAM, 3, 4, 2, 3, 0, 1, 1, 1, 1, 2, 2)),
        lambda: ledger.merge(LaneRecord(STREAM, 6, IntervalSet([(0, 6)]))),
        lambda: judge.losses.merge({STREAM: IntervalSet([(1, 2)])}),
        lambda: judge.counts.append(7),
        lambda: checker.unread(3, 4, DEADLINE),
        lambda: checker.apply(SeenRow(STREAM, 8, 9, 4, 5, 0, *[1 << 60] * 6)),
        lambda: checker.unread(5, 6, 1 << 60),
        checker.fragments[STREAM].collapse,
    ]
    for change in changes:
        change()
        judged.clear()
        for closed in (False, False, True):
            kept = judged_round(judge, ledger, {0: checker}, closed=closed).verdicts
            fresh = TopicJudge("t", "r1", ExpectPartition.ANY, Losses(DEADLINE))
            fresh.counts += judge.counts
            fresh.losses.merge(judge.losses.claimed)
            judged_before = len(judged)
            assert kept == judged_round(fresh, ledger, {0: checker}, closed=closed).verdicts
            del judged[judged_before:]
        assert len(judged) == 2  # after the change, and once the ledger is complete
