"""Messages that compaction may have removed are not claimed lost; those it cannot have are."""

from __future__ import annotations

import json

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord, lane_value
from mirrortest.verify.ledger_record import lane_key as ledger_lane_key
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
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


def test_a_gap_in_a_compacted_topic_is_compacted_and_a_missing_last_message_is_lost() -> None:
    """Only a hole at its place explains a missing message."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 5)], end=5), {0: checker_of()}
    checkers[0].apply(row_of(1, 1, 1))
    checkers[0].apply(row_of(3, 3, 1))
    judge.compact = True
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, checkers, 2 * DEADLINE).overdue, {0: 4})
    assert claimed_now(judge, ledger, checkers) == {STREAM: IntervalSet([(4, 5)])}
    assert judged_round(judge, ledger, checkers).judged
    (verdict,) = judged_round(judge, ledger, checkers, closed=True).verdicts.values()
    assert list(verdict.having(Finding.COMPACTED).intervals()) == [(0, 1), (2, 3)]
    assert (verdict.having(Finding.LOST).count, verdict.delivered.count) == (1, 2)


def test_what_compaction_could_explain_is_inconclusive_where_nobody_saw_it() -> None:
    """Without DescribeConfigs, or if the policy has changed: neither lost nor compacted."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 5)], end=5), {0: checker_of()}
    checkers[0].apply(row_of(1, 1, 1))
    checkers[0].apply(row_of(3, 3, 1))
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, checkers, 2 * DEADLINE).overdue, {0: 4})
    assert claimed_now(judge, ledger, checkers) == {STREAM: IntervalSet([(4, 5)])}
    (verdict,) = judged_round(judge, ledger, checkers, closed=True).verdicts.values()
    assert list(verdict.having(Finding.INCONCLUSIVE).intervals()) == [(0, 1), (2, 3)]
    assert (verdict.having(Finding.COMPACTED).count, verdict.having(Finding.LOST).count) == (0, 1)


def test_what_may_have_been_in_a_hole_elsewhere_is_in_flight_until_its_deadline() -> None:
    """Then it is inconclusive: a consumer must not end while the message may still arrive."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 5)], end=5), {0: checker_of(0, 1, 2)}
    checkers[0].advance(5)
    judge.compact = True
    note_lanes(judge, ledger, 0)
    before = judged_round(judge, ledger, checkers, DEADLINE // 2)
    assert before.in_flight(STREAM) == IntervalSet([(3, 5)])
    after = judged_round(judge, ledger, checkers, 2 * DEADLINE)
    assert after.judged
    assert not after.overdue
    assert after.verdicts[STREAM].having(Finding.INCONCLUSIVE) == IntervalSet([(3, 5)])


def test_a_gap_in_a_compacted_topic_whose_offsets_have_none_is_lost() -> None:
    """A message that compaction removes leaves a hole in the offsets."""
    judge, ledger, checkers = topic_judge(), ledger_of([(0, 4)], end=4), {0: checker_of(1, 3)}
    judge.compact = True
    note_lanes(judge, ledger, 0)
    topic_round = judged_round(judge, ledger, checkers, 2 * DEADLINE)
    assert topic_round.overdue == {STREAM: IntervalSet([(0, 1), (2, 3)])}


def test_another_runs_message_of_the_key_explains_a_tail() -> None:
    """Two runs on one compacted topic, with the same keys."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 3)], end=3), checker_of(0)
    judge.compact = True
    note_lanes(judge, ledger, 0)
    other = SeenRow(None, 0, 0, 5, 6, int(Finding.OTHER_RUN), 0, 0, 0, 0, 2, 2)
    for key_lane, compacted in ((-1, 0), (STREAM.lane + 1, 0), (STREAM.lane, 2)):
        offset = checker.next_offset + (2 if compacted else 0)
        checker.apply(other._replace(offset_lo=offset, offset_hi=offset + 1, key_lane=key_lane))
        checker = PartitionChecker.from_state(json.loads(json.dumps(checker.to_state())))
        topic_round = judged_round(judge, ledger, {0: checker}, 2 * DEADLINE)
        assert topic_round.verdicts[STREAM].having(Finding.COMPACTED).count == compacted
        assert bool(topic_round.overdue) is not bool(compacted)


def test_what_a_compacted_source_lacks_is_not_the_mirrors_loss() -> None:
    """The ledger shows it; compaction keeps the last message of a key there, too."""
    judge, checkers = topic_judge(), {0: checker_of(1, 3)}
    ledger = Ledger()
    acked = IntervalSet([(0, 5)])
    lane = LaneRecord(STREAM, 5, acked, end=5, compacted=True)
    ledger.apply(ledger_lane_key(STREAM), lane_value(lane))
    note_lanes(judge, ledger, 0)
    judge.losses.open(judged_round(judge, ledger, checkers, 2 * DEADLINE).overdue, {0: 2})
    assert claimed_now(judge, ledger, checkers) == {STREAM: IntervalSet([(4, 5)])}
    (verdict,) = judged_round(judge, ledger, checkers, closed=True).verdicts.values()
    assert verdict.having(Finding.COMPACTED) == IntervalSet([(0, 1), (2, 3)])


def test_a_later_incarnation_elsewhere_does_not_explain_a_tail() -> None:
    """It must be in the partition of the tail, or a lost tail would count as compacted."""
    judge, ledger = topic_judge(), ledger_of([(0, 5)], end=5)
    judge.compact = True
    later = STREAM._replace(incarnation=2)
    elsewhere = PartitionChecker("t", 1)
    elsewhere.apply(SeenRow(later, 0, 1, 9, 10, 0, 1, 1, 1, 1, 2, 2))
    note_lanes(judge, ledger, 0)
    topic_round = judged_round(judge, ledger, {0: checker_of(0, 1, 2), 1: elsewhere}, 2 * DEADLINE)
    assert topic_round.overdue == {STREAM: IntervalSet([(3, 5)])}


def test_a_later_incarnation_explains_an_earlier_ones_tail() -> None:
    """Both incarnations write the same keys: later messages supersede the earlier ones."""
    judge, ledger = topic_judge(), ledger_of([(0, 5)], end=5)
    judge.compact = True
    later = STREAM._replace(incarnation=2)
    ledger.merge(LaneRecord(later, 1, IntervalSet([(0, 1)]), end=1))
    checker = PartitionChecker("t", 0)
    checker.apply(SeenRow(later, 0, 1, 9, 10, 0, 1, 1, 1, 1, 2, 2))
    note_lanes(judge, ledger, 0)
    assert not judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).overdue
    verdicts = judged_round(judge, ledger, {0: checker}, closed=True).verdicts
    assert verdicts[STREAM].having(Finding.COMPACTED).count == 5


def test_under_compaction_other_streams_renew_a_verdict() -> None:
    """Another stream's later message with the same key changes it."""
    judge, ledger, checker = topic_judge(), ledger_of([(0, 2)]), checker_of(0)
    judge.compact = True
    note_lanes(judge, ledger, 0)
    assert judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).in_flight(STREAM)
    later = STREAM._replace(producer="q")
    checker.apply(SeenRow(later, 0, 1, 5, 6, 0, 1, 1, 1, 1, 2, 2))
    assert not judged_round(judge, ledger, {0: checker}, 2 * DEADLINE).in_flight(STREAM)


def test_what_compaction_explained_is_forgotten_with_the_holes_that_it_rested_on() -> None:
    """Of a partition that was given up, only the last state is visible, which may be older."""
    judge, ledger, older = topic_judge(), ledger_of([(0, 2)]), checker_of(0)
    newer = PartitionChecker.from_state(older.to_state())
    newer.advance(5)
    note_lanes(judge, ledger, 0)
    for checker, in_flight in ((older, 1), (newer, 0), (older, 1)):
        topic_round = judged_round(judge, ledger, {0: checker}, 2 * DEADLINE)
        assert topic_round.in_flight(STREAM).count == in_flight
