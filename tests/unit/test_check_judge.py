"""The verdict on a stream over all partitions is held against the oracle."""

from __future__ import annotations

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.check.intervals import IntervalSet
from mirrortest.check.judge import COUNTED, RunVerdict, doubtful, judge, superseded
from mirrortest.check.ledger_record import LaneRecord
from mirrortest.check.partition import PartitionChecker
from mirrortest.check.routing import ExpectPartition
from mirrortest.check.row import SeenRow
from mirrortest.check.verdict import Finding
from mirrortest.wire.stream import StreamId

STREAM = StreamId("t", "r", "a", 1, 0)
OTHER = StreamId("t", "r", "b", 1, 0)
SEQS = st.frozensets(st.integers(0, 15))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("seen"),
            st.sampled_from([STREAM, STREAM, STREAM, OTHER]),
            st.integers(0, 15),
            st.integers(1, 6),
            st.sampled_from([(), (), ("corrupted",), ("misrouted",), ("unproven",)]),
        ),
        st.just(("unread",)),
    ),
    max_size=6,
)


def of(numbers):
    return IntervalSet((n, n + 1) for n in numbers)


def ids(intervals):
    return {n for lo, hi in intervals.intervals() for n in range(lo, hi)}


def row(stream, seq, offset, count=1, labels=()):
    findings = sum(int(Finding[label.upper()]) for label in labels)
    return SeenRow(stream, seq, seq + count, offset, offset + count, findings, 0, 0, 0, 0, 0, 0)


def played(partition, steps):
    """A checker and the oracle's events of the same steps."""
    checker, events, offset = PartitionChecker("t", partition), [], 0
    for step in steps:
        if step[0] == "unread":
            checker.unread(offset, offset + 1)
            events.append(oracle.Unread(offset, offset + 1))
            offset += 1
        else:
            _, stream, seq, count, labels = step
            checker.apply(row(stream, seq, offset, count, labels))
            events += [
                oracle.Seen(stream, seq + k, offset + k, frozenset(labels)) for k in range(count)
            ]
            offset += count
    return checker, events


def lane_of(model):
    if model is None:
        return None
    return LaneRecord(
        STREAM,
        reserved=20,
        acked=of(model.acked),
        failed=of(model.failed),
        unknown=of(model.unknown),
        end=model.end,
    )


@st.composite
def lanes(draw):
    """What the ledger says: outcomes that exclude each other, or nothing at all."""
    outcomes = draw(st.lists(st.sampled_from(["acked", "acked", "failed", "unknown", ""])))
    by = {name: {n for n, o in enumerate(outcomes) if o == name} for name in outcomes}
    end = draw(st.sampled_from([None, len(outcomes)]))
    sets = [frozenset(by.get(name, ())) for name in ("acked", "failed", "unknown")]
    return draw(st.sampled_from([None, *[oracle.Lane(*sets, end)] * 3]))


@given(
    st.lists(STEPS, min_size=1, max_size=3),
    lanes(),
    SEQS,
    SEQS,
    st.sampled_from([None, 0, 1]),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
def test_the_verdict_is_the_oracles(per_partition, model, expired, claimed, home, flags):
    """Every set of the verdict is the oracle's, whatever the partitions and the ledger hold."""
    read_to_end, complete, any_partition, compact = flags
    played_all = dict(enumerate(played(n, steps) for n, steps in enumerate(per_partition)))
    known = {n: checker.fragment(STREAM) for n, (checker, _) in played_all.items()}
    fragments = {n: held for n, held in known.items() if held is not None}
    models = {n: oracle.Fragment(events, STREAM) for n, (_, events) in played_all.items()}
    verdict = judge(
        STREAM,
        fragments,
        lane_of(model),
        claimed=of(claimed),
        expired=of(expired),
        read_to_end=read_to_end,
        ledger_complete=complete,
        policy=ExpectPartition.ANY if any_partition else ExpectPartition.MURMUR2,
        home=home,
        compact=compact,
    )
    at_home = home
    if any_partition and home is None and any(m.seqs for m in models.values()):
        at_home = max(models, key=lambda n: (len(models[n].seen), -n))
    expected = oracle.judge(
        models,
        model,
        ledger_complete=complete,
        expired=expired,
        read_to_end=read_to_end,
        claimed=claimed,
        home=home,
        misrouted_from=at_home if any_partition else None,
        compact=compact,
    )
    for finding in COUNTED:
        found = getattr(verdict, finding.label)
        assert ids(found) == expected[finding.label], finding.label
        assert verdict.count(finding) == len(expected[finding.label])
    assert ids(verdict.delivered) == expected["delivered"]
    assert ids(verdict.unknown) == expected["unknown"]
    every = [seq for m in models.values() for seq in m.seqs]
    assert verdict.copies == len(every) - len(set(every))
    parts = ("delivered", "lost", "in_flight", "compacted", "inconclusive")
    assert sum(getattr(verdict, part).count for part in parts) == verdict.acked.count


def test_judging_leaves_its_inputs_alone():
    """A verdict shares no set with fragments or ledger."""
    checker, _ = played(0, [("seen", STREAM, 0, 5, ("corrupted",))])
    before = checker.to_state()
    lane = LaneRecord(STREAM, 9, IntervalSet([(0, 9)]), end=9)
    verdict = judge(STREAM, {0: checker.fragments[STREAM]}, lane, claimed=IntervalSet([(5, 6)]))
    for finding in COUNTED:
        getattr(verdict, finding.label).add(100, 101)
    verdict.acked.add(100, 101)
    assert checker.to_state() == before
    assert lane == LaneRecord(STREAM, 9, IntervalSet([(0, 9)]), end=9)


def test_a_partition_that_is_no_home_puts_nothing_in_doubt():
    """Unread offsets of a partition where the lane does not belong excuse no loss."""
    checker = PartitionChecker("t", 1)
    checker.unread(0, 10)
    fragments = {1: checker.fragment(STREAM)}
    assert not doubtful(fragments, 5, home=0)
    assert ids(doubtful(fragments, 5, home=1)) == set(range(5))
    assert ids(doubtful(fragments, 5)) == set(range(5))


def test_past_the_memory_bound_nothing_missing_is_proven():
    """Given-up ids make what is missing inconclusive, while counted faults stay proven."""
    checker = PartitionChecker("t", 0, max_intervals=10)
    for number in range(20):
        checker.apply(row(STREAM, 2 * number, number, labels=("corrupted",)))
    lane = LaneRecord(STREAM, 40, IntervalSet([(0, 40)]), end=40)
    verdict = judge(
        STREAM,
        {0: checker.fragments[STREAM]},
        lane,
        expired=lane.acked,
        read_to_end=True,
        policy=ExpectPartition.SOURCE,
    )
    assert verdict.bounded
    assert not verdict.lost
    assert verdict.inconclusive == lane.acked
    assert verdict.count(Finding.CORRUPTED) == 20
    total = RunVerdict.of([verdict])
    assert (total.bounded, total.counts[Finding.CORRUPTED]) == ([STREAM], 20)


def test_totals_include_what_enters_no_stream():
    """Foreign messages, unreadable corrupted ones and untracked streams are in the run's totals."""
    checker = PartitionChecker("t", 0, max_intervals=2)
    checker.apply(row(STREAM, 0, 0, 3))
    checker.apply(row(OTHER, 0, 3, 2, ("unproven",)))
    checker.apply(SeenRow(None, 0, 0, 5, 9, int(Finding.FOREIGN), 0, 0, 0, 0, 0, 0))
    checker.apply(SeenRow(None, 0, 0, 9, 10, int(Finding.CORRUPTED), 0, 0, 0, 0, 0, 0))
    lane = LaneRecord(STREAM, 4, IntervalSet([(0, 3)]), unknown=IntervalSet([(3, 4)]))
    verdict = judge(STREAM, {0: checker.fragments[STREAM]}, lane)
    total = RunVerdict.of([verdict], [checker])
    assert (total.acked, total.delivered, total.unknown, total.untracked) == (3, 3, 1, 2)
    assert total.counts[Finding.FOREIGN] == 4
    assert total.counts[Finding.CORRUPTED] == 1
    assert total.counts[Finding.UNPROVEN] == 2


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        ([(STREAM, 0), (OTHER, 0)], True),
        ([(OTHER, 0), (STREAM, 0)], False),
        ([(OTHER, 0)], False),
        ([(STREAM._replace(incarnation=2), 0)], True),
        ([(STREAM._replace(lane=7), 0)], False),
    ],
)
def test_what_supersedes_a_stream(events, answer):
    """A later message of the key does; an earlier one, another key's, or any for a lost one not."""
    checker = PartitionChecker("t", 0)
    for offset, (stream, seq) in enumerate(events):
        checker.apply(row(stream, seq, offset))
    assert superseded(STREAM, {0: checker}) is answer


def test_compaction_explains_a_tail_only_if_superseded():
    """The last message is lost under compaction, unless a later one of its key was seen."""
    checker, _ = played(0, [("seen", STREAM, 2, 1, ())])
    lane = LaneRecord(STREAM, 4, IntervalSet([(0, 4)]), end=4)
    found = {}
    for later in (False, True):
        verdict = judge(
            STREAM,
            {0: checker.fragments[STREAM]},
            lane,
            expired=lane.acked,
            read_to_end=True,
            compact=True,
            superseded=later,
        )
        found[later] = (ids(verdict.compacted), ids(verdict.lost))
    assert found == {False: ({0, 1}, {3}), True: ({0, 1, 3}, set())}
