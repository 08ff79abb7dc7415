"""The consumer's judgement of random histories, compared with the brute-force judge."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import OF_STREAM, Finding
from mirrortest.verify import judge as check_judge
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import rows_of
from tests.oracle.judge import Fragment as Expected
from tests.oracle.judge import Lane, Passed, doubted, judge
from tests.oracle.online import arrays, ids, intervals
from tests.oracle.play import DiffersError, play
from tests.oracle.script import (
    Die,
    History,
    Read,
    Renew,
    Round,
    Save,
    Take,
    Unread,
    make_history,
)
from tests.oracle.tape import LENGTH, Tape, shrunk
from tests.oracle.truth import make_truth
from tests.unit.settled import judge_settled

if TYPE_CHECKING:
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.wire.stream import StreamId

TAPES = st.binary(min_size=LENGTH, max_size=LENGTH)


def seeded(number: int) -> History:
    """A different history for each number."""
    return make_history(Tape(random.Random(f"test/{number}").randbytes(LENGTH)))


@settings(max_examples=250)
@given(TAPES)
def test_the_online_judgement_is_the_references(tape: bytes) -> None:
    """Every checker agrees at each save, every claim in each round, all verdicts at the end.

    In tests/spark, two thousand more are judged like this, and by the reconciliation.
    """
    play(make_history(Tape(tape)))


def test_the_histories_hold_what_they_are_meant_to() -> None:
    """Every finding and outcome, every kind of event, and zombies: none is too rare."""
    counts: Counter[object] = Counter()
    for number in range(300):
        history = seeded(number)
        reference, _ = play(history)
        counts.update({type(event) for event in history.events})
        counts.update({"zombie" for e in history.events if isinstance(e, Save) and e.zombie})
        counts.update({name for _, name in reference.offline()})
    findings = {f.label for f in Finding} - {"foreign", "other_run"}
    for name in (*findings, "acked", "delivered", "unknown", "zombie",
                 Die, Read, Renew, Round, Save, Take, Unread):  # fmt: skip
        assert counts[name] >= 3, (name, counts)


def test_a_difference_is_found_and_made_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that ignores reordering is caught, and the example is made much simpler."""

    def forgetful(*args: Any, **kwargs: Any) -> StreamVerdict:
        verdict = check_judge_judge(*args, **kwargs)
        verdict.found.pop(Finding.REORDERED, None)
        return verdict

    check_judge_judge = check_judge.judge
    monkeypatch.setattr("mirrortest.consume.topic_judge.judge", forgetful)

    def fails(tape: bytes) -> bool:
        try:
            play(make_history(Tape(tape)))
        except DiffersError:
            return True
        return False

    tapes = (random.Random(f"test/{number}").randbytes(LENGTH // 3) for number in range(300))
    tape = next(filter(fails, tapes))
    simpler = shrunk(tape, fails)
    assert fails(simpler)
    assert len(simpler) - simpler.count(0) < (len(tape) - tape.count(0)) / 4
    assert len(str(make_history(Tape(simpler)))) < len(str(make_history(Tape(tape))))


@settings(max_examples=200)
@given(TAPES, st.integers(2, 24))
def test_past_the_memory_bound_nothing_is_invented(tape: bytes, bound: int) -> None:
    """Wherever ids are dropped, remaining findings are true, and no missing message is lost."""
    truth = make_truth(Tape(tape))
    checkers, passed = {}, {}
    for partition, stood in enumerate(truth.stood):
        checker = checkers[partition] = PartitionChecker(
            truth.topic, partition, max_intervals=bound
        )
        for row in rows_of(arrays(truth, partition, sorted(stood.items()))):
            checker.apply(row)
            checker = checkers[partition] = PartitionChecker.from_state(
                checker.to_state(), max_intervals=bound
            )
        passed[partition] = [Passed(0, truth.ends[partition][-1])]
    for sent in truth.sent:
        lane, stream = sent.lane, sent.stream
        fragments = {
            n: fragment
            for n, checker in checkers.items()
            if (fragment := checker.fragment(stream)) is not None
        }
        claimed = frozenset(n for n in lane.acked if n % 3 == 0)
        verdict = judge_settled(
            stream,
            fragments,
            record(stream, lane),
            claimed=intervals(claimed),
            expired=intervals(lane.acked),
            policy=truth.policy,
        )
        expected = judge(
            {n: Expected(stream, truth.stood[n], stretch) for n, stretch in passed.items()},
            lane,
            claimed=claimed,
            due=lane.acked,
            any_partition=int(truth.policy is ExpectPartition.ANY),
        )
        assert verdict.bounded == any(fragment.inconclusive for fragment in fragments.values())
        for finding in OF_STREAM:
            if finding in {Finding.INCONCLUSIVE, Finding.MISROUTED}:
                continue  # INCONCLUSIVE is the remainder; MISROUTED comes from routing, not judging
            found = ids(verdict.having(finding))
            if verdict.bounded:
                assert found <= expected.get(finding.label, set()), finding.label
            else:
                assert found == expected.get(finding.label, set()), finding.label
        if verdict.bounded:
            assert not verdict.having(Finding.LOST)
            assert ids(verdict.having(Finding.INCONCLUSIVE) | verdict.delivered) == lane.acked


def record(stream: StreamId, lane: Lane) -> LaneRecord:
    """A closed lane, as the ledger records it."""
    acked, failed, unknown = map(intervals, (lane.acked, lane.failed, lane.unknown))
    return LaneRecord(stream, lane.end or 0, acked, failed, unknown, lane.end)


def test_doubt_is_only_where_a_stream_was_seen_or_belongs() -> None:
    """Unread offsets in a partition to which a lane does not belong excuse nothing."""
    stream = make_truth(Tape(b"")).sent[0].stream
    blind = {1: Expected(stream, {}, [Passed(0, 5, blind=True)])}
    assert not doubted(blind, homes={0})
    assert 7 in doubted(blind, homes={1})
    assert 7 in doubted(blind, homes=())
    judged = judge({**blind, 0: Expected(stream, {}, [])}, Lane(acked=frozenset({7})), homes={0})
    assert judged["in_flight"] == {7}


@pytest.mark.parametrize("size", [0, 1, 10])
def test_a_short_tape_is_a_plain_history(size: int) -> None:
    """Past its end, a tape contains zeros, and these are the simplest choices."""
    assert play(make_history(Tape(bytes(size))))
