"""Messages that compaction of the source explains are compacted; a missing last one is lost."""

from __future__ import annotations

import functools
import random
from collections import defaultdict

import pytest

from mirrortest.seqlog import rows
from mirrortest.verify.compaction import removed_from_source
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.spark.scenes import Result, scene
from tests.spark.spark_history import RUN, History, intended, lost, sent
from tests.unit.test_verify_fragment_index import index_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 2


CLAIMED = 3
"""How many messages that compaction explains a consumer claimed lost."""
HOMES = (0,)
"""All lanes are in the source's partition 0, and the mirror keeps it."""


def later_seen(of: StreamId, seq: int, where: dict[tuple[StreamId, int], tuple[int, int]]) -> bool:
    """Whether a message of the same key was seen that may be later than this one.

    `where` is (stream, seq) -> (partition, offset).
    """
    mine = {s: at for (its, s), at in where.items() if its == of}
    if any(s > seq for s in mine):
        return True
    for (its, _), (partition, offset) in where.items():
        if (its.topic, its.lane) != (of.topic, of.lane) or its == of:
            continue
        here = [at for p, at in mine.values() if p == partition]
        if not here and partition not in HOMES:
            continue
        behind = offset > max(here) if here else its.producer != of.producer
        if behind or (its.producer == of.producer and its.incarnation > of.incarnation):
            return True
    return False


def mirrored(
    topic: str, rng: random.Random, history: History
) -> tuple[dict[StreamId, int], dict[tuple[StreamId, int], tuple[int, int]]]:
    """A topic with many missing messages: each stream's count, and where each message is."""
    counts = {
        StreamId(topic, RUN, producer, incarnation, lane): rng.randint(1, 9)
        for producer in "pq"
        for incarnation in (1, 2, 3)
        for lane in range(4)
    }
    stood: dict[int, list[tuple[StreamId, int]]] = {number: [] for number in range(PARTITIONS)}
    for of, count in counts.items():
        history.producer += [rows.reserved(of, 0, count), sent(of, 0, count), rows.end(of, count)]
        kept = rng.choice((0.0, 0.3, 0.8))
        for seq in range(count):
            if rng.random() < kept:
                stood[rng.choice((0, 0, 0, 1)) if of.lane % 2 else 0].append((of, seq))
    where = {}
    for partition, messages in stood.items():
        rng.shuffle(messages)
        for number, at in enumerate(messages):
            where[at] = (partition, 3 * number)
        history.reads(3 * len(messages), topic=topic, partition=partition)
    return counts, where


@functools.cache
def compacted() -> tuple[History, dict[str, set[tuple[StreamId, int]]]]:
    """Two topics, one of them compacted, and the expected verdict on each missing message."""
    rng = random.Random(9)
    history = History({"kept": PARTITIONS, "plain": PARTITIONS}, compacted=("kept",))
    expected = defaultdict(set)
    for topic in history.topics:
        counts, where = mirrored(topic, rng, history)
        checkers = {number: PartitionChecker(topic, number) for number in range(PARTITIONS)}
        for (of, seq), (partition, at) in where.items():
            time = intended(seq)
            row = SeenRow(of, seq, seq + 1, at, at + 1, 0, *[time] * 6)
            checkers[partition].apply(row)
            checkers[partition].advance(at + 2)
            written = rows.seen(row, topic=topic, partition=partition, topic_identity="0")
            history.consumers[0].append(written)
        for of, count in counts.items():
            missing = [seq for seq in range(count) if (of, seq) not in where]
            for seq in missing:
                explained = topic == "kept" and later_seen(of, seq, where)
                expected["compacted" if explained else "lost"].add((of, seq))
            if missing and not any(seq > missing[-1] for its, seq in where if its == of):
                bound = removed_from_source(of, HOMES, index_of(checkers))
                assert (bound > missing[-1]) == later_seen(of, missing[-1], where)
    claimed = sorted(expected["compacted"])[:CLAIMED] + sorted(expected["lost"])
    history.consumers[0] += [lost(of, seq, seq + 1) for of, seq in claimed]
    return history, expected


@scene
def _compacted() -> History:
    return compacted()[0]


def test_gaps_below_a_later_message_of_the_key_are_explained(together: Result) -> None:
    """As by definition and online: by stream, producer and incarnation, over all partitions.

    Messages that a consumer claimed lost are explained, too, and named as a disagreement. In a
    topic that is not compacted all missing messages are lost.
    """
    history, expected = compacted()
    by_verdict: dict[str, set[tuple[StreamId, int]]] = defaultdict(set)
    for topic in history.topics:
        for row in together.rows("undelivered", topic):
            of = StreamId(topic, RUN, row["producer"], row["incarnation"], row["lane"])
            by_verdict[row["verdict"]] |= {(of, seq) for seq in range(row["seq_lo"], row["seq_hi"])}
        differing = [line for line in together.disagreements(topic) if ": lost:" in line]
        assert len(differing) == (topic == "kept")
        assert all(f"{CLAIMED:,} messages only online, 0" in d for d in differing)
    assert dict(by_verdict) == dict(expected)
    assert len(expected["compacted"]) > 5
    assert any(of.topic == "kept" for of, _ in expected["lost"])
    for name, ids in expected.items():
        assert sum(together.count(name, topic) for topic in history.topics) == len(ids)
        assert sum(
            part.counts[name]
            for part in together.summary.partitions
            if part.topic in history.topics
        ) == len(ids)
