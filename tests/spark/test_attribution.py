"""Attribution: whether source, mirror or consumer lost a message."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.model.findings import Finding, Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.reconcile.attribution import Attribution
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.lookup import LookedUp, LookUp, never_read
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.schema import ENDLESS
from tests.spark.scenes import Result, joined, look_ups, scene
from tests.spark.spark_history import History, lost, seen, sent, stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrortest.reconcile.coverage import ReadOffsets
    from mirrortest.wire.stream import StreamId

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def judged(spark: SparkSession, logdir: Path, look_up: Destination | None = None) -> Result:
    """Reconcile these logs."""
    asked = plan([str(logdir)], None)
    return Result(logdir, reconcile(spark, asked, thresholds(()), look_up=played(look_up)))


def attributed(result: Result) -> dict[tuple[int, int], tuple[str, str | None]]:
    """(lane, seq) -> (verdict, attribution) of topic t, one message at a time."""
    return {
        (row["lane"], seq): (row["verdict"], row["attribution"])
        for row in result.rows("undelivered", "t")
        for seq in range(row["seq_lo"], row["seq_hi"])
    }


class Destination:
    """The content of a topic's copy: by partition, the (stream, seq) at each offset."""

    def __init__(self, topic: str, content: Sequence[list[tuple[StreamId, int]]]) -> None:
        self.topic = topic
        self.content = content

    def read(self, observed: ReadOffsets) -> LookedUp:
        """Look up offsets that no consumer read."""
        looked = LookedUp()
        for at in never_read(observed, {self.topic: len(self.content)}):
            records = self.content[at.partition]
            for offset in range(at.lo, min(at.hi, len(records))):
                of, seq = records[offset]
                looked.found.setdefault(of, IntervalSet()).add(seq, seq + 1)
        return looked


def played(destination: Destination | None) -> LookUp | None:
    """This destination in place of a look-up that reads a cluster."""
    return cast("LookUp | None", destination)


def everything(seed: int) -> tuple[History, Destination, dict[tuple[int, int], SimpleNamespace]]:
    """Two streams per partition through a lossy source, a lossy mirror, a consumer that stops.

    Returns the history, the destination's content, and what happened to each id.
    """
    rng = random.Random(seed)
    history = History({"t": 2})
    history.observers = [[]]
    destination = Destination("t", [[], []])
    facts = {}
    for partition in range(2):
        both = [stream(partition), stream(partition + 2)]
        order = rng.choices(both, k=50)
        acked = [(of, order[:at].count(of)) for at, of in enumerate(order)]
        count = len(acked)
        # The last acks have no offset; in partition 1 the first records are deleted unobserved.
        known_offset, watched_from = rng.randint(count // 2, count), 6 * partition
        # The source loses the tail: the observer cannot read it, and claims some of it lost.
        end = count - rng.randint(3, 8)
        copied = destination.content[partition]
        for offset, (of, seq) in enumerate(acked):
            where = offset - seq if offset < known_offset else None
            history.producer.append(sent(of, seq, seq + 1, partition=partition, offset=where))
            claimed = offset >= end and rng.random() < 0.5
            if claimed:
                history.observers[0].append(lost(of, seq, seq + 1))
            in_source = offset < end and rng.random() < 0.85
            observed = in_source and offset >= watched_from
            if observed:
                history.observers[0].append(seen(of, seq, seq + 1, offset, partition=partition))
            mirrored = in_source and rng.random() < 0.85
            if mirrored:
                copied.append((of, seq))
            facts[of.lane, seq] = SimpleNamespace(
                looked_for=watched_from <= offset < min(end, known_offset),
                claimed=claimed,
                observed=observed,
                at=mirrored,
                consumed=False,
            )
        for of in both:
            numbers = sum(its == of for its, _ in acked)
            history.producer += [rows.reserved(of, 0, numbers), rows.end(of, numbers)]
        if watched_from:
            history.observers[0].append(rows.unread("t", partition, 0, watched_from))
        history.observers[0].append(rows.read("t", partition, watched_from, end))
        history.observers[0].append(rows.tail("t", partition, end))
        stop = len(copied) - rng.randint(3, 10)
        # Partition 1 gets messages after its logged end, which no consumer reads.
        history.reads(stop, partition=partition, tail=stop if partition else len(copied))
        for offset, (its, seq) in enumerate(copied[:stop]):
            history.consumers[0].append(seen(its, seq, seq + 1, offset, partition=partition))
            facts[its.lane, seq].consumed = True
        for of, seq in acked:
            if not facts[of.lane, seq].consumed and rng.random() < 0.5:
                history.consumers[0].append(lost(of, seq, seq + 1))
    for (lane, seq), fact in facts.items():
        others = {its for (of, its), each in facts.items() if of == lane and each.observed}
        later = fact.looked_for and max(others, default=-1) > seq
        fact.absent = min(others, default=seq) < seq and (fact.claimed or later)
    return history, destination, facts


def by_definition(fact: SimpleNamespace, verdict: str, *, looked: bool) -> Attribution | None:
    """The attribution of one missing message."""
    if looked and fact.at:
        return Attribution.NOT_CONSUMED
    if not fact.observed and fact.absent:
        return Attribution.NEVER_IN_SOURCE
    if verdict != "lost" and not looked:
        return None
    return Attribution.NOT_MIRRORED if fact.observed else Attribution.ACKNOWLEDGED


def observed_further() -> History:
    """A topic and a compacted one, of both of which an observer read more than the consumer.

    A third one is recreated in the source: later offsets are not those that were observed.
    """
    history = History({"seen": 1, "keys": 1, "anew": 1}, compacted=("keys",))
    old, new = stream(topic="anew"), stream(1, topic="anew")
    history.sends(old, 20)
    history.sends(new, 20)
    history.consumers[0] += [seen(old, 0, 20, 0), lost(new, 0, 20)]
    history.reads(20, topic="anew")
    of, key = stream(topic="seen"), stream(topic="keys")
    history.sends(of, 100)
    history.sends(key, 10)
    history.consumers[0] += [seen(of, 0, 90, 0), lost(of, 90, 100)]
    history.consumers[0] += [seen(key, 0, 9, 0), lost(key, 9, 10)]
    history.reads(90, topic="seen")
    history.reads(9, topic="keys")
    history.observers = [
        [
            seen(of, 0, 95, 0),
            seen(of, 0, 95, 100),
            lost(of, 95, 100),
            seen(None, 0, 5, 200, findings=Finding.FOREIGN, topic="seen"),
            rows.read("seen", 0, 0, 205),
            rows.tail("seen", 0, 205),
            seen(key, 0, 9, 0),
            rows.read("keys", 0, 0, 10),
            seen(old, 0, 20, 0),
            rows.read("anew", 0, 0, 20),
            rows.unread("anew", 0, 20, ENDLESS),
        ]
    ]
    return history


def test_each_missing_id_is_attributed_as_by_its_definitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Attributions match their definitions with and without a look-up, and change no verdict.

    A damaged observer log attributes no loss: its missing rows may have shown the messages, so
    these are not called absent from the source. Nor are messages that compaction may have removed
    there.
    """
    history, destination, facts = everything(3)
    joined([history, observed_further()]).write(tmp_path)
    without = judged(spark, tmp_path)
    without_look_up = attributed(without)
    counts = {
        (name, topic): without.count(name, topic)
        for name in ("acked", "delivered", "lost", "duplicated", "foreign", "seen")
        for topic in ("seen", "keys")
    }
    assert counts == {
        ("acked", "seen"): 100, ("delivered", "seen"): 90, ("lost", "seen"): 10,
        ("duplicated", "seen"): 0, ("foreign", "seen"): 0, ("seen", "seen"): 90,
        ("acked", "keys"): 10, ("delivered", "keys"): 9, ("lost", "keys"): 1,
        ("duplicated", "keys"): 0, ("foreign", "keys"): 0, ("seen", "keys"): 9,
    }  # fmt: skip
    assert without.summary.latency_seconds["seen"].count == 90
    assert without.attribution("seen") == {
        ("lost", Attribution.NOT_MIRRORED): 5,
        ("lost", Attribution.NEVER_IN_SOURCE): 5,
    }
    assert without.attribution("keys") == {("lost", Attribution.ACKNOWLEDGED): 1}
    assert without.attribution("anew") == {("lost", Attribution.ACKNOWLEDGED): 20}

    looked = judged(spark, tmp_path, destination)
    full = attributed(looked)
    assert looked.summary.counts == without.summary.counts
    assert any("--bootstrap-server" in note for note in without.summary.notes)
    assert not any("--bootstrap-server" in note for note in looked.summary.notes)
    missing = {at for at, fact in facts.items() if not fact.consumed}
    assert set(without_look_up) == set(full) == missing
    for attributions, with_look_up in ((without_look_up, False), (full, True)):
        assert attributions == {
            at: (verdict, by_definition(facts[at], verdict, looked=with_look_up))
            for at, (verdict, _) in attributions.items()
        }
    assert {verdict for verdict, _ in full.values()} == {"lost", "in_flight"}
    counted = looked.attribution("t")
    assert {Attribution.NOT_CONSUMED, Attribution.NEVER_IN_SOURCE, Attribution.NOT_MIRRORED} <= {
        attribution for _, attribution in counted
    }
    for topic in ("seen", "keys", "anew"):
        for key, count in looked.attribution(topic).items():
            counted[key] = counted.get(key, 0) + count
    assert {(e.verdict, e.attribution): e.messages for e in looked.summary.attribution} == counted

    file = next(tmp_path.glob("run=*/role=source/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-40])
    damaged = judged(spark, tmp_path)
    assert [(e.verdict, e.attribution) for e in damaged.summary.attribution] == [
        ("lost", Attribution.ACKNOWLEDGED)
    ]
    assert any("observer's log damaged" in note for note in damaged.summary.notes)
    assert damaged.summary.counts == without.summary.counts
    assert damaged.summary.inconclusive == without.summary.inconclusive


@scene
def _late() -> History:
    of, ghost = stream(topic="late"), stream(1, producer="ghost", topic="late")
    history = History({"late": 1})
    history.sends(of, 100)
    history.consumers[0] += [
        seen(of, 0, 60, 0),
        rows.vouched(ghost, 0, 5, Outcome.ACKED),
        lost(of, 60, 100),
        lost(ghost, 0, 5),
    ]
    history.reads(60, topic="late")
    late = Destination("late", [[(of, seq) for seq in range(70)]])
    look_ups.append(cast("LookUp", late))
    return history


def test_without_an_observer_it_is_said_and_what_can_be_known_is_told(together: Result) -> None:
    """Without an observer, losses are attributed by logged acks, else unknown; a note says so.

    Messages that a consumer claimed lost, and that the mirror copied after reading had ended, are
    found in the destination, and stay lost.
    """
    assert together.attribution("late") == {
        ("lost", Attribution.NOT_CONSUMED): 10,
        ("lost", Attribution.ACKNOWLEDGED): 30,
        ("lost", Attribution.UNKNOWN): 5,
    }
    assert together.count("lost", "late") == 45
    assert any("no source observer" in note for note in together.summary.notes)
