"""The reconciliation on Spark, against plain SQL over messages and a brute-force oracle."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pyarrow.parquet as pq
import pytest
from spark_history import RUN, History, found, lost, seen, sent, stream

from mirrortest.check.verdict import Finding, Outcome
from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import Detail

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def judged(spark, history, logdir, *, exactly_once=False):
    """Write a history's logs, reconcile them."""
    history.write(logdir)
    return reconcile(spark, plan([str(logdir)], None), thresholds((), exactly_once=exactly_once))


def table(logdir, name):
    """A result table's rows."""
    return pq.read_table(logdir / f"run={RUN}" / "result" / f"{name}.parquet").to_pylist()


def test_a_clean_run_passes(spark, tmp_path):
    """All acknowledged is seen, in order, once, and read to the end: nothing else passes."""
    history = History()
    history.producer = [
        rows.reserved(stream(), 0, 1000),
        sent(stream(), 0, 600),
        sent(stream(), 600, 1000),
        rows.end(stream(), 1000),
    ]
    history.consumers[0] += [seen(stream(), 0, 600, 0), seen(stream(), 600, 1000, 600)]
    history.reads(1000)
    summary = judged(spark, history, tmp_path)
    assert (summary.verdict, summary.inconclusive) == ("passed", [])
    assert summary.counts["delivered"] == summary.counts["acked"] == 1000
    assert summary.latency_seconds["t"].count == 1000
    assert not summary.online.disagreements
    stored = json.loads((tmp_path / f"run={RUN}" / "result" / "summary.json").read_text())
    assert stored["version"] == 1
    assert stored["exit_code"] == 0
    assert sum(row["delivered"] for row in table(tmp_path, "by_minute")) == 1000
    assert len(table(tmp_path, "by_minute")) == 2


def test_every_finding_is_told_by_its_ids(spark, tmp_path):
    """One of each, in one history; the numbers of each are exact, and the run fails."""
    history = History({"t": 2})
    a, b, c = stream(0), stream(1), stream(2)
    for each in (a, b):
        history.sends(each, 100)
    # c: the producer died; 0-49 acknowledged, 50-59 failed, 60-69 unknown, 70-99 reserved alone.
    history.producer += [
        rows.reserved(c, 0, 100),
        sent(c, 0, 50),
        sent(c, 50, 60, Outcome.FAILED),
        sent(c, 60, 70, Outcome.UNKNOWN),
    ]
    log = history.consumers[0]
    log += [
        seen(a, 0, 10, 0),
        # 10-14 are lost; 15-19 come after 20-29; 20-24 come twice.
        seen(a, 20, 30, 10),
        seen(a, 15, 25, 20),
        seen(a, 30, 100, 30),
        seen(None, 0, 3, 100, findings=Finding.FOREIGN),
        seen(None, 0, 2, 103, findings=Finding.CORRUPTED),
        seen(None, 0, 4, 105, findings=Finding.OTHER_RUN),
        # A restarted consumer reads again what it had read: no duplicates.
        seen(a, 90, 100, 90),
        seen(b, 0, 98, 0, partition=1),
        seen(b, 98, 99, 98, partition=1, findings=Finding.CORRUPTED | Finding.ALTERED_KEY),
        # 99 lands in the other partition, and 5 comes there, too.
        seen(b, 99, 100, 109, findings=Finding.MISROUTED),
        seen(b, 5, 6, 110),
        seen(c, 0, 50, 111),
        seen(c, 55, 56, 161),
        seen(c, 65, 66, 162),
        seen(c, 120, 121, 163),
        lost(a, 10, 16),
    ]
    history.reads(164)
    history.reads(99, partition=1)
    log += [
        found(a, 20, 25, Finding.DUPLICATED, 164),
        found(a, 15, 20, Finding.REORDERED, 164),
        found(b, 99, 100, Finding.MISROUTED, 164),
        found(b, 5, 6, Finding.REORDERED, 164),
        found(b, 98, 99, Finding.CORRUPTED, 99, 1),
        found(b, 98, 99, Finding.ALTERED_KEY, 99, 1),
    ]
    summary = judged(spark, history, tmp_path)
    ids = defaultdict(list)
    for row in table(tmp_path, "findings"):
        ids[row["finding"]].append((row["lane"], row["seq_lo"], row["seq_hi"]))
    assert dict(ids) == {
        "lost": [(0, 10, 15)],
        "late": [(0, 15, 16)],
        "duplicated": [(0, 20, 25), (1, 5, 6)],
        "reordered": [(0, 15, 20), (1, 5, 6)],
        "corrupted": [(1, 98, 99)],
        "altered_key": [(1, 98, 99)],
        "misrouted": [(1, 99, 100)],
        "phantom": [(2, 55, 56), (2, 120, 121)],
    }
    undelivered = {
        (row["verdict"], row["lane"], row["seq_lo"], row["seq_hi"])
        for row in table(tmp_path, "undelivered")
    }
    assert undelivered == {
        ("lost", 0, 10, 15),
        ("failed", 2, 50, 55),
        ("failed", 2, 56, 60),
        ("unknown", 2, 60, 65),
        ("unknown", 2, 66, 100),
    }
    assert summary.verdict == "failed"
    counts = summary.counts
    assert (counts["foreign"], counts["other_run"], counts["corrupted"]) == (3, 4, 3)
    assert (counts["acked"], counts["unknown"], counts["unknown_seen"]) == (250, 40, 1)
    assert summary.online.partitions == 2
    assert summary.online.disagreements == []


def test_what_was_not_read_is_never_lost_nor_passed(spark, tmp_path):
    """Messages missing where nobody looked, or too early, make a run inconclusive, by name."""
    cases = {
        "unread": ("inconclusive", "unread-0: offsets 40 to 49 were deleted before"),
        "gap": ("inconclusive", "gap-0: no log covers offsets 40 to 49"),
        "tail": ("in_flight", "tail-0: not read to its end: offsets 90 to 99 are missing"),
        "open": ("in_flight", "open-0: read up to offset 90, and no log says that it ends there"),
        "absent": ("inconclusive", "absent-1: no consumer's log covers this partition"),
        "early": ("in_flight", "acknowledged messages were still under way"),
    }
    history = History({topic: 2 if topic == "absent" else 1 for topic in cases})
    log = history.consumers[0]
    for topic in cases:
        of = stream(topic=topic)
        history.producer += [
            rows.reserved(of, 0, 100),
            sent(of, 0, 90),
            sent(of, 90, 100, at=1 << 61 if topic == "early" else None),
            rows.end(of, 100),
        ]
        if topic in {"unread", "gap"}:
            log += [seen(of, 0, 40, 0), seen(of, 50, 100, 50)]
            history.reads(40, topic=topic, tail=None)
            history.reads(100, topic=topic, lo=50)
        elif topic == "absent":
            history.reads(0, topic=topic)
        else:
            log.append(seen(of, 0, 90, 0))
            history.reads(90, topic=topic, tail={"tail": 100, "open": None}.get(topic, -1))
    log.append(rows.unread("unread", 0, 40, 50, topic_identity="0"))
    summary = judged(spark, history, tmp_path)
    assert (summary.verdict, summary.counts["lost"]) == ("inconclusive", 0)
    by_topic = {row["topic"]: row for row in table(tmp_path, "by_stream")}
    told = "\n".join(summary.inconclusive)
    for topic, (finding, reason) in cases.items():
        assert by_topic[topic][finding] == (100 if topic == "absent" else 10)
        assert reason in told


def test_logs_that_are_missing_or_damaged_are_told(spark, tmp_path):
    """A producer vouched for but absent, a truncated file, a wrong online verdict: each is told."""
    history = History()
    of, ghost = stream(), stream(producer="ghost")
    history.sends(of, 100)
    history.consumers[0] += [
        seen(of, 0, 100, 0),
        seen(ghost, 0, 5, 100),
        rows.vouched(ghost, 0, 10, Outcome.ACKED),
        rows.vouched(of, 0, 100, Outcome.ACKED),
        seen(stream(producer="stranger"), 0, 7, 105),
        found(of, 3, 5, Finding.DUPLICATED, 112),
    ]
    history.reads(112)
    summary = judged(spark, history, tmp_path / "a")
    told = "\n".join(summary.inconclusive)
    assert summary.verdict == "inconclusive"
    assert "the log of producer ghost.1 is missing" in told
    assert "7 messages were seen whose producers' logs are not here" in told
    assert "t-0: duplicated: 2 messages were found online alone" in told
    assert summary.counts["phantom"] == 0

    logs = tmp_path / "b"
    history.consumers[0] = [seen(of, 0, 90, 0)]
    history.reads(90)
    history.write(logs)
    file = next(logs.glob("run=*/role=consumer/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-40])
    summary = reconcile(spark, plan([str(logs)], RUN), thresholds(()))
    assert summary.verdict == "inconclusive"
    assert any("log damaged" in reason for reason in summary.inconclusive)


def random_history(seed):
    """A stream set through a bad mirror, and all its messages as plain tuples."""
    rng = random.Random(seed)
    history = History({"t": 2}, policy="any" if seed % 2 else "source")
    history.detail = Detail.MESSAGES if seed % 2 else Detail.INTERVALS
    streams = [stream(lane) for lane in range(3)]
    copies = defaultdict(list)
    facts = {}
    for of in streams:
        count = rng.randint(30, 60)
        history.producer.append(rows.reserved(of, 0, count))
        at = 0
        while at < count:
            hi = min(count, at + rng.randint(1, 12))
            outcome = rng.choices(list(Outcome), (8, 1, 1))[0]
            history.producer.append(sent(of, at, hi, outcome))
            facts |= {(of, seq): outcome for seq in range(at, hi)}
            at = hi
        history.producer.append(rows.end(of, count))
        order = list(range(count))
        for _ in range(rng.randint(0, 4)):
            at, to = rng.randrange(count), rng.randrange(count)
            order.insert(to, order.pop(at))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(count)
            order[at + rng.randint(0, 5) : 0] = order[at : at + rng.randint(1, 9)]
        home = rng.randrange(2)
        for seq in order:
            if rng.random() > 0.05:
                copies[home if rng.random() > 0.02 else 1 - home].append((of, seq))
    placed = []
    for partition, messages in copies.items():
        for offset, (of, seq) in enumerate(messages):
            shown = (Finding(0), Finding.ALTERED_KEY, Finding.CORRUPTED)
            findings = rng.choices(shown, (30, 1, 1))
            placed.append((of, seq, partition, offset, int(findings[0])))
    written = [seen(of, q, q + 1, at, partition=p, findings=f) for of, q, p, at, f in placed]
    again = rng.sample(written, len(written) // 5)
    history.consumers = [[], []]
    for row in written + again:
        rng.choice(history.consumers).append(row)
    for partition in range(2):
        history.reads(len(copies[partition]), partition=partition)
    return history, facts, placed


def brute_force(history, facts, placed):
    """The judgement by its definitions, a message at a time."""
    ids = defaultdict(set)
    at = defaultdict(list)
    for of, seq, partition, offset, findings in placed:
        at[of, seq].append((partition, offset))
        for finding in (Finding.ALTERED_KEY, Finding.CORRUPTED):
            if findings & finding:
                ids[finding.label].add((of.lane, seq))
    firsts = defaultdict(dict)
    for (of, seq), where in at.items():
        for partition, offset in where:
            known = firsts[of, partition].get(seq, offset)
            firsts[of, partition][seq] = min(known, offset)
        if len(where) > 1:
            ids["duplicated"].add((of.lane, seq))
    for (of, _), first in firsts.items():
        ids["reordered"] |= {
            (of.lane, seq)
            for seq, offset in first.items()
            if any(later > seq and its < offset for later, its in first.items())
        }
    for of in {of for of, _ in at}:
        held = {p: len(first) for (s, p), first in firsts.items() if s == of}
        home = min(held, key=lambda p: (-held[p], p))
        if history.policy == "any":
            ids["misrouted"] |= {(of.lane, seq) for p in held if p != home for seq in firsts[of, p]}
    for (of, seq), outcome in facts.items():
        if outcome is Outcome.ACKED and not at[of, seq]:
            ids["lost"].add((of.lane, seq))
        if outcome is Outcome.FAILED and at[of, seq]:
            ids["phantom"].add((of.lane, seq))
    return {name: found for name, found in ids.items() if found}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history_is_judged_as_by_its_definitions(spark, tmp_path, seed):
    """Sweep lines, a message-at-a-time oracle, and a plain full outer join of messages agree."""
    history, facts, placed = random_history(seed)
    summary = judged(spark, history, tmp_path)
    ids = defaultdict(set)
    for row in table(tmp_path, "findings"):
        ids[row["finding"]] |= {(row["lane"], q) for q in range(row["seq_lo"], row["seq_hi"])}
    assert dict(ids) == brute_force(history, facts, placed)

    spark.createDataFrame(
        [(of.lane, seq, int(outcome)) for (of, seq), outcome in facts.items()],
        "lane long, seq long, outcome int",
    ).createOrReplaceTempView("messages_sent")
    spark.createDataFrame(
        [(of.lane, seq, partition, offset) for of, seq, partition, offset, _ in placed],
        "lane long, seq long, partition int, offset long",
    ).createOrReplaceTempView("messages_seen")
    joined = spark.sql("""
        SELECT count_if(outcome = 1 AND copies IS NULL) AS lost,
            count_if(outcome = 1 AND copies > 0) AS delivered,
            count_if(copies > 1) AS duplicated, sum(copies - 1) AS surplus,
            count_if(copies > 0 AND (outcome = 2 OR outcome IS NULL)) AS phantom,
            count_if(outcome = 3) AS unknown
        FROM messages_sent FULL OUTER JOIN (
            SELECT lane, seq, count(*) AS copies FROM messages_seen GROUP BY lane, seq
        ) USING (lane, seq)
    """).first()
    assert {name: summary.counts[name] for name in joined.asDict()} == joined.asDict()
