"""The verdict on a stream over all partitions, compared with the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.model.findings import MISSING, OF_STREAM, Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.compaction import Explained
from mirrortest.verify.fragment import ALWAYS
from mirrortest.verify.judge import RunVerdict, doubtful_below, judge
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.oracle import judge as oracle
from tests.oracle.online import ids
from tests.oracle.online import intervals as of
from tests.unit.settled import judge_settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.judge import Lane, Message, Passed

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


def row(
    stream: StreamId, seq: int, offset: int, count: int = 1, labels: tuple[str, ...] = ()
) -> SeenRow:
    findings = sum(int(Finding[label.upper()]) for label in labels)
    return SeenRow(stream, seq, seq + count, offset, offset + count, findings, 0, 0, 0, 0, 0, 0)


def played(
    partition: int, steps: list[tuple[Any, ...]]
) -> tuple[PartitionChecker, tuple[dict[int, Message], list[Passed]]]:
    """A checker after some steps; for the oracle, the messages by offset and what was passed."""
    checker, offset = PartitionChecker("t", partition), 0
    stood: dict[int, Message] = {}
    passed: list[Passed] = []
    for step in steps:
        if step[0] == "unread":
            checker.unread(offset, offset + 1)
            count = 1
        else:
            _, stream, seq, count, labels = step
            checker.apply(row(stream, seq, offset, count, labels))
            shown = frozenset(Finding[label.upper()] for label in labels)
            stood |= {offset + k: oracle.Message(stream, seq + k, shown) for k in range(count)}
        passed.append(oracle.Passed(offset, offset + count, blind=step[0] == "unread"))
        offset += count
    return checker, (stood, passed)


def lane_of(model: Lane | None) -> LaneRecord | None:
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
def lanes(draw: Callable[..., Any]) -> Lane | None:
    """A lane's ledger record, with at most one outcome per seq; or None."""
    outcomes = draw(st.lists(st.sampled_from(["acked", "acked", "failed", "unknown", ""])))
    by = {name: {n for n, o in enumerate(outcomes) if o == name} for name in outcomes}
    end = draw(st.sampled_from([None, len(outcomes)]))
    acked, failed, unknown = (
        frozenset(by.get(name, ())) for name in ("acked", "failed", "unknown")
    )
    lane: Lane | None = draw(
        st.sampled_from([None, *[oracle.Lane(acked, failed, unknown, end)] * 3])
    )
    return lane


@given(
    st.lists(STEPS, min_size=1, max_size=3),
    lanes(),
    SEQS,
    SEQS,
    st.frozensets(st.integers(0, 1)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([range(3, 4), range(3, 4), range(2, 4), range(2, 5)]),
    st.none() | st.tuples(SEQS, SEQS),
)
def test_the_verdict_is_the_oracles(
    per_partition: list[list[tuple[Any, ...]]],
    model: Lane | None,
    expired: frozenset[int],
    claimed: frozenset[int],
    homes: frozenset[int],
    flags: tuple[bool, bool, bool],
    counts: range,
    explained: tuple[frozenset[int], frozenset[int]] | None,
) -> None:
    """Every set of the verdict is the oracle's, whatever the partitions and the ledger contain."""
    read_to_end, complete, any_partition = flags
    played_all = dict(enumerate(played(n, steps) for n, steps in enumerate(per_partition)))
    known = {n: checker.fragment(STREAM) for n, (checker, _) in played_all.items()}
    fragments = {n: fragment for n, fragment in known.items() if fragment is not None}
    models = {n: oracle.Fragment(STREAM, *observed) for n, (_, observed) in played_all.items()}
    verdict = judge_settled(
        STREAM,
        fragments,
        lane_of(model),
        claimed=of(claimed),
        expired=of(expired if read_to_end else ()),
        ledger_complete=complete,
        policy=ExpectPartition.ANY if any_partition else ExpectPartition.MURMUR2,
        homes=homes,
        counts=(counts[-1], counts[0], 0),
        explained=Explained(*map(of, explained)) if explained else None,
    )
    removed, doubtful = explained or (frozenset(), frozenset())
    expected = oracle.judge(
        models,
        model,
        nobody_else=complete,
        due=expired if read_to_end else (),
        claimed=claimed,
        homes=homes,
        any_partition=len(counts) if any_partition else 0,
        removed=removed,
        doubted_holes=doubtful,
        compacted=True,
    )
    for finding in OF_STREAM:
        found = verdict.having(finding)
        assert ids(found) == expected.get(finding.label, set()), finding.label
        assert verdict.counts().get(finding, 0) == len(ids(found))
    assert ids(verdict.delivered) == expected.get("delivered", set())
    assert ids(verdict.unknown) == expected.get("unknown", set())
    every = [seq for m in models.values() for seq in m.seqs]
    assert verdict.copies == len(every) - len(set(every))
    parts = (verdict.delivered, *map(verdict.having, MISSING))
    assert sum(part.count for part in parts) == verdict.acked.count


def test_judging_leaves_its_inputs_alone() -> None:
    """It changes no input, and adding to an empty set, which all verdicts share, is refused."""
    checker, _ = played(0, [("seen", STREAM, 0, 5, ("corrupted",))])
    before = checker.to_state()
    lane = LaneRecord(STREAM, 9, IntervalSet([(0, 9)]), end=9)
    fragments = {0: checker.fragments[STREAM]}
    for claimed in (None, IntervalSet([(5, 6)]), IntervalSet([(2, 9)])):
        verdict = judge(STREAM, fragments, lane, claimed=claimed, ledger_complete=True)
        assert verdict.having(Finding.CORRUPTED).count == 5
        assert checker.to_state() == before
        assert lane == LaneRecord(STREAM, 9, IntervalSet([(0, 9)]), end=9)
    with pytest.raises(TypeError, match="shared"):
        verdict.having(Finding.DUPLICATED).add(100, 101)
    with pytest.raises(TypeError, match="shared"):
        verdict.having(Finding.DUPLICATED).update(IntervalSet([(0, 1)]))
    assert not verdict.having(Finding.DUPLICATED)


def test_a_partition_that_is_no_home_puts_nothing_in_doubt() -> None:
    """Unread offsets of a partition where the lane does not belong excuse no loss."""
    checker = PartitionChecker("t", 1)
    checker.unread(0, 10)
    fragment = checker.fragment(STREAM)
    assert fragment is not None
    fragments = {1: fragment}
    assert doubtful_below(fragments, homes={0}) == 0
    assert doubtful_below(fragments, homes={0, 1}) == ALWAYS
    assert doubtful_below(fragments) == ALWAYS


def test_past_the_memory_bound_nothing_missing_is_proven() -> None:
    """If ids were given up, missing messages are inconclusive; counted findings stay proven."""
    checker = PartitionChecker("t", 0, max_intervals=10)
    for number in range(20):
        checker.apply(row(STREAM, 2 * number, number, labels=("corrupted",)))
    lane = LaneRecord(STREAM, 40, IntervalSet([(0, 40)]), end=40)
    verdict = judge_settled(
        STREAM,
        {0: checker.fragments[STREAM]},
        lane,
        expired=lane.acked,
        policy=ExpectPartition.SOURCE,
    )
    assert verdict.bounded
    assert not verdict.having(Finding.LOST)
    assert verdict.having(Finding.INCONCLUSIVE) == lane.acked
    assert verdict.counts()[Finding.CORRUPTED] == 20
    total = RunVerdict.of([verdict])
    assert (total.bounded, total.counts[Finding.CORRUPTED]) == ([STREAM], 20)


def test_totals_include_what_enters_no_stream() -> None:
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
    # The same in two parts.
    parts = RunVerdict.of([verdict])
    parts.add(RunVerdict.of([], [checker]))
    assert parts == total


def test_what_compaction_may_have_removed_is_claimed_by_nobody() -> None:
    """It is compacted or inconclusive; the rest is lost."""
    checker, _ = played(0, [("seen", STREAM, 2, 1, ())])
    lane = LaneRecord(STREAM, 5, IntervalSet([(0, 5)]), end=5)
    verdict = judge_settled(
        STREAM,
        {0: checker.fragments[STREAM]},
        lane,
        expired=lane.acked,
        explained=Explained(IntervalSet([(0, 2)]), IntervalSet([(3, 4)])),
    )
    found = {finding: ids(numbers) for finding, numbers in verdict.found.items()}
    assert found == {
        Finding.COMPACTED: {0, 1},
        Finding.INCONCLUSIVE: {3},
        Finding.LOST: {4},
    }


@given(acked=SEQS, seen=SEQS, before=st.none() | SEQS, claimed=SEQS)
def test_what_lost_states_had_seen_is_delivered_and_nothing_else_is_claimed(
    acked: frozenset[int],
    seen: frozenset[int],
    before: frozenset[int] | None,
    claimed: frozenset[int],
) -> None:
    """If a state was lost, any missing message may have been where only its reader had read."""
    checker = PartitionChecker("t", 0)
    for offset, seq in enumerate(sorted(seen)):
        checker.apply(row(STREAM, seq, offset))
    verdict = judge(
        STREAM,
        {0: checker.fragments[STREAM]} if seen else {},
        LaneRecord(STREAM, 16, of(acked)),
        claimed=of(claimed),
        seen_before=None if before is None else of(before),
    )
    known = seen | (before or frozenset())
    missing = acked - known
    assert ids(verdict.delivered) == acked & known
    assert ids(verdict.having(Finding.LATE)) == known & claimed
    assert ids(verdict.having(Finding.LOST)) == missing & claimed
    doubtful = missing - claimed if before is not None else set()
    assert ids(verdict.having(Finding.INCONCLUSIVE)) == doubtful
    assert ids(verdict.having(Finding.IN_FLIGHT)) == missing - claimed - doubtful
    assert not verdict.having(Finding.DUPLICATED)
