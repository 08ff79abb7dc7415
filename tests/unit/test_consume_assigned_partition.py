"""A partition that a consumer owns: growth of its topic, resumption, a recreated topic."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.model.findings import Finding
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.fragment import ALWAYS
from mirrortest.verify.placement import ExpectPartition
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_key, partition_of
from mirrortest.wire.record_batch import RecordArrays, decode_records
from mirrortest.wire.single_records import write_records
from mirrortest.wire.stream import ProducerId, StreamId

START = 1_700_000_000_000_000_000
LANE = next(lane for lane in range(99) if partition_of(lane_key(lane), 3) == 0
            and partition_of(lane_key(lane), 5) == 1)  # fmt: skip
STREAM = StreamId("t", "r1", "p", 1, LANE)


def _records(seq: int, count: int, *, at: int) -> RecordArrays:
    """Messages of one lane, stored from offset `at` on."""
    encoder = LaneEncoder("t", ProducerId("p", "r1", 1), LANE, 0, 3, Form.BODY, 200)
    buffer = encoder.encode(seq, np.full(count, START), START).buffer
    struct.pack_into(">q", buffer, 0, at)
    return decode_records(buffer)


def _about(
    counts: tuple[int, ...] = (1,), policy: ExpectPartition = ExpectPartition.ANY
) -> dict[str, Any]:
    return {"source": "t", "run": "r1", "policy": policy, "counts": list(counts)}


def _again(assigned: AssignedPartition, **about: Any) -> AssignedPartition:
    """The same partition after its consumer restarted."""
    state = json.loads(json.dumps(assigned.to_state()))
    return AssignedPartition.restored(
        assigned.at, assigned.generation + 1, state, **_about(**about)
    )


def _misrouted(assigned: AssignedPartition) -> int:
    found = assigned.checker.fragments[STREAM].by_finding.get(Finding.MISROUTED)
    return 0 if found is None else found.count


@pytest.mark.parametrize("number", [0, 1])
def test_partitions_added_in_mid_run_misroute_nothing(number: int) -> None:
    """A message belongs where any of the partition counts so far puts it."""
    counts = [3]
    about = _about(policy=ExpectPartition.MURMUR2) | {"counts": counts}
    assigned = AssignedPartition.fresh(TopicPartition("A.t", number), 1, **about)
    counts.append(5)
    assigned.take(_records(0, 4, at=0), START)
    assert _misrouted(assigned) == 0
    elsewhere = AssignedPartition.fresh(TopicPartition("A.t", 2), 1, **about)
    elsewhere.take(_records(0, 4, at=0), START)
    assert _misrouted(elsewhere) == 4


@pytest.mark.parametrize("number", [0, 1])
def test_a_consumer_that_starts_after_the_growth_knows_the_count_of_before(number: int) -> None:
    """Each message has the partition count that its producer planned for."""
    about = _about(policy=ExpectPartition.MURMUR2, counts=(5,))
    assigned = AssignedPartition.fresh(TopicPartition("A.t", number), 1, **about)
    assigned.watched_from = 4
    assigned.take(_records(0, 4, at=0), START)
    assert _misrouted(assigned) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"%d" % LANE, None), (b"%d" % LANE, b"whoever wrote this"), (b"other", None), (None, b"x")],
)
def test_whatever_has_a_lanes_key_is_known_by_it(key: bytes | None, value: bytes | None) -> None:
    """Other runs' messages, foreign ones and tombstones supersede ours with the same key."""
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about())
    assigned.take(decode_records(write_records([(3, 1, key, value, ())])), START)
    assert assigned.checker.key_seen(LANE).place == (3 if key == b"%d" % LANE else -1)
    others = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about() | {"run": "r2"})
    taken = others.take(_records(0, 4, at=5), START)
    assert [(row.stream, row.key_lane) for row in taken.rows] == [(None, LANE)]
    assert others.checker.key_seen(LANE).place == 8


def test_the_state_remembers_the_counts_that_were_in_force() -> None:
    """Messages that were mirrored before the growth may be read after a restart."""
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about(counts=(3, 5)))
    assert assigned.to_state()["counts"] == [3, 5]


def test_a_resumption_reads_its_last_record_once_more_and_judges_it_once() -> None:
    """The record before the next offset proves that the topic is still the same."""
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about())
    assigned.take(_records(0, 4, at=0), START)
    resumed = _again(assigned)
    assert (resumed.start_offset, resumed.checker.next_offset) == (3, 4)
    records = _records(3, 3, at=3)
    assert not resumed.was_recreated(records, 0, may_compact=False)
    assert resumed.take(records, START).messages == 2
    assert resumed.checker.fragments[STREAM].copies == 0


def test_records_behind_the_last_one_judged_prove_no_other_topic() -> None:
    """They were fetched before the consumer sought back; as a proof they made it read all again."""
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about())
    assigned.take(_records(0, 4, at=0), START)
    for fetched_from, is_another in ((4, False), (3, True)):
        resumed = _again(assigned)
        records = _records(4, 2, at=4)
        assert resumed.was_recreated(records, fetched_from, may_compact=False) is is_another


def test_what_was_seen_before_a_topic_was_made_anew_stays_seen() -> None:
    """A mirror continues at its position: the new topic has only the later messages.

    What was seen must not be claimed lost. All missing seqs are in doubt: they may have been
    unread in the old topic.
    """
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about())
    assigned.take(_records(0, 4, at=0), START)
    resumed = _again(assigned)
    assert resumed.was_recreated(_records(10, 5, at=0), 0, may_compact=False)
    resumed.start_over()
    assert (resumed.checker.next_offset, resumed.start_offset, resumed.identity) == (0, 0, 1)
    resumed.take(_records(6, 2, at=0), START)
    resumed.take(_records(9, 1, at=2), START)
    fragment = _again(resumed).checker.fragments[STREAM]
    assert list(fragment.seen.intervals()) == [(0, 4), (6, 8), (9, 10)]
    assert fragment.doubtful_below == ALWAYS
    assert not fragment.duplicated


def test_latencies_are_from_each_messages_own_arrival() -> None:
    """Batches of several responses are judged together; messages judged before are skipped."""
    assigned = AssignedPartition.fresh(TopicPartition("A.t", 0), 1, **_about())
    assigned.take(_records(0, 2, at=0), START)
    taken = assigned.take(_records(0, 4, at=0), START + np.array([1, 2, 30, 40]))
    assert taken.latency_intended.tolist() == taken.latency_sent.tolist() == [30, 40]
    [row] = taken.rows
    assert (row.offset_lo, row.offset_hi, row.arrived_first, row.arrived_last) == (
        2, 4, START + 30, START + 40,
    )  # fmt: skip
