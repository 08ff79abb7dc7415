"""The reconciliation on Spark, case by case; `test_reconcile_oracle` has the random histories."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from tests.spark.scenes import Result, scene
from tests.spark.spark_history import RUN, History, found, lost, seen, sent, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def judged(spark: SparkSession, history: History, logdir: Path) -> Result:
    """Write a history's logs, and reconcile them."""
    history.write(logdir)
    return Result(logdir, reconcile(spark, plan([str(logdir)], None), thresholds(())))


def test_a_clean_run_passes(spark: SparkSession, tmp_path: Path) -> None:
    """A run passes if each acked message was seen once, in order, and all was read to the end."""
    history = History()
    history.producer = [
        rows.reserved(stream(), 0, 1000),
        sent(stream(), 0, 600),
        sent(stream(), 600, 1000),
        rows.end(stream(), 1000),
    ]
    history.consumers[0] += [seen(stream(), 0, 600, 0), seen(stream(), 600, 1000, 600)]
    history.reads(1000)
    result = judged(spark, history, tmp_path)
    summary = result.summary
    assert (summary.verdict, summary.inconclusive) == ("passed", [])
    assert summary.counts["delivered"] == summary.counts["acked"] == 1000
    assert summary.latency_seconds["t"].count == 1000
    assert summary.online is not None
    assert not summary.online.disagreements
    stored = json.loads((tmp_path / f"run={RUN}" / "result" / "summary.json").read_text())
    assert stored["version"] == 1
    assert stored["exit_code"] == 0
    assert sum(row["delivered"] for row in result.rows("by_minute")) == 1000
    assert len(result.rows("by_minute")) == 2


def test_a_consumer_of_a_mistaken_name_leaves_no_doubt(spark: SparkSession, tmp_path: Path) -> None:
    """Its log has the end of a topic to which no producer wrote; the run still passes."""
    history = History()
    history.sends(stream(), 100)
    history.consumers[0].append(seen(stream(), 0, 100, 0))
    history.reads(100)
    history.consumers.append([rows.tail("A.t", 0, 100, topic_identity="0")])
    summary = judged(spark, history, tmp_path).summary
    assert (summary.verdict, summary.inconclusive) == ("passed", [])


def test_latencies_are_the_copys_and_not_those_of_acknowledgements(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Producers log latencies, too, and large files store sums: only consumers' count."""
    history = History()
    history.producer.append(rows.reserved(stream(), 0, 1000))
    for lo in range(0, 1000, 5):
        history.producer.append(sent(stream(), lo, lo + 5))
        history.consumers[0].append(seen(stream(), lo, lo + 5, lo))
    history.producer.append(rows.end(stream(), 1000))
    history.reads(1000)
    result = judged(spark, history, tmp_path)
    found = result.summary.latency_seconds["t"]
    assert (found.count, result.summary.counts["seen"]) == (1000, 1000)
    (bucket,) = {n for row in result.rows("latency") for n in row["latency_bucket"]}
    assert bucket == 2000
    assert sum(row["latencies"] for row in result.rows("by_minute")) == 1000


@pytest.mark.parametrize("names", [("all",), ("t",), ("t", "u")])
def test_latencies_of_all_topics_stand_beside_each_topics(
    spark: SparkSession, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """A single topic has only its own entry, even if it is named `all`, like the total."""
    history = History(dict.fromkeys(names, 1))
    for name in names:
        history.sends(stream(topic=name), 100)
        history.consumers[0].append(seen(stream(topic=name), 0, 100, 0))
        history.reads(100, topic=name)
    summary = judged(spark, history, tmp_path).summary
    counts = {topic: latency.count for topic, latency in summary.latency_seconds.items()}
    together = {"all": 200} if len(names) > 1 else {}
    assert counts == {**dict.fromkeys(names, 100), **together}
    assert summary.overall_latency is not None
    assert summary.overall_latency.count == summary.counts["seen"] == 100 * len(names)


@scene
def _one_of_each() -> History:
    history = History({"t": 2})
    a, b, c = stream(0), stream(1), stream(2)
    history.sends(a, 100)
    history.producer += [rows.reserved(b, 0, 100), sent(b, 0, 100, partition=1), rows.end(b, 100)]
    # c: the producer died; 0-49 acknowledged, 50-59 failed, 60-69 unknown, 70-99 only reserved.
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
        # 99 arrives in the other partition, and a copy of 5 does, too.
        seen(b, 99, 100, 109, findings=Finding.MISROUTED),
        seen(b, 5, 6, 110, findings=Finding.MISROUTED),
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
        found(b, 5, 6, Finding.MISROUTED, 164),
        found(b, 5, 6, Finding.REORDERED, 164),
        found(b, 98, 99, Finding.CORRUPTED, 99, 1),
        found(b, 98, 99, Finding.ALTERED_KEY, 99, 1),
    ]
    return history


def test_every_finding_is_told_by_its_ids(together: Result) -> None:
    """Eight findings in one history: the ids of each are exact, and the run fails."""
    ids = defaultdict(list)
    for row in together.rows("findings", "t"):
        ids[row["finding"]].append((row["lane"], row["seq_lo"], row["seq_hi"]))
    assert dict(ids) == {
        "lost": [(0, 10, 15)],
        "late": [(0, 15, 16)],
        "duplicated": [(0, 20, 25), (1, 5, 6)],
        "reordered": [(0, 15, 20), (1, 5, 6)],
        "corrupted": [(1, 98, 99)],
        "altered_key": [(1, 98, 99)],
        "misrouted": [(1, 5, 6), (1, 99, 100)],
        "phantom": [(2, 55, 56), (2, 120, 121)],
    }
    undelivered = {
        (row["verdict"], row["lane"], row["seq_lo"], row["seq_hi"])
        for row in together.rows("undelivered", "t")
    }
    assert undelivered == {
        ("lost", 0, 10, 15),
        ("failed", 2, 50, 55),
        ("failed", 2, 56, 60),
        ("unknown", 2, 60, 65),
        ("unknown", 2, 66, 100),
    }
    assert together.summary.verdict == "failed"
    counts = {
        name: together.count(name, "t")
        for name in ("foreign", "other_run", "corrupted_unknown_id", "corrupted")
    }
    assert counts == {"foreign": 3, "other_run": 4, "corrupted_unknown_id": 2, "corrupted": 1}
    assert [together.count(name, "t") for name in ("acked", "unknown", "unknown_seen")] == [
        250, 40, 1,
    ]  # fmt: skip
    assert together.disagreements("t") == []


@scene
def _read_again() -> History:
    a, b = stream(0, topic="again"), stream(1, topic="again")
    history = History({"again": 1})
    for each in (a, b):
        history.sends(each, 100)
    history.consumers = [[], [], []]
    first, second, third = history.consumers
    first += [seen(a, 0, 50, 0), seen(b, 0, 50, 50), seen(a, 50, 100, 100)]
    second += [seen(a, 50, 100, 100), seen(b, 50, 100, 150)]
    third += [seen(a, 3, 8, 200)]
    first.append(rows.read("again", 0, 0, 150, topic_identity="0"))
    second.append(rows.read("again", 0, 100, 200, topic_identity="0"))
    second.append(rows.tail("again", 0, 200, topic_identity="0"))
    third.append(rows.read("again", 0, 200, 205, topic_identity="0"))
    return history


def test_what_is_read_again_counts_once_and_what_nobody_judged_is_no_disagreement(
    together: Result,
) -> None:
    """A restart causes no false copies or latencies; what a killed consumer saw last is found.

    Two interleaved streams are read again from the middle. Then copies follow, whose reader dies
    before it reports: they are no disagreement.
    """
    counts = {
        name: together.count(name, "again")
        for name in ("seen", "surplus", "duplicated", "reordered")
    }
    assert counts == {"seen": 200, "surplus": 5, "duplicated": 5, "reordered": 0}
    assert together.disagreements("again") == []
    assert together.summary.latency_seconds["again"].count == 205


def test_the_runs_counts_are_the_sums_of_its_parts(together: Result) -> None:
    """They are the sums over streams, over partitions, over minutes, and over ranges of ids."""
    counts, streams = together.summary.counts, together.rows("by_stream")
    named = (counts.keys() & streams[0].keys()) - {"corrupted"}
    assert named >= {"acked", "delivered", "lost", "duplicated", "reordered", "misrouted", "seen"}
    for name in named:
        assert sum(row[name] for row in streams) == counts[name]
    for name in ("foreign", "other_run", "corrupted_unknown_id"):
        assert sum(each.counts[name] for each in together.summary.partitions) == counts[name]
    known = sum(row["corrupted"] for row in streams)
    assert counts["corrupted"] == known + counts["corrupted_unknown_id"]
    minutes = together.rows("by_minute")
    assert together.summary.minutes_total == len(minutes)
    for name in ("acked", "delivered", "duplicated"):
        assert sum(row[name] for row in minutes) == counts[name]
    undelivered = together.rows("undelivered")
    for name in ("lost", "compacted"):
        numbers = (row["seq_hi"] - row["seq_lo"] for row in undelivered if row["verdict"] == name)
        assert sum(numbers) == counts[name]


CASES = {
    "unread": ("inconclusive", "unread-0: offsets 40 to 49 were not read"),
    "gap": ("inconclusive", "gap-0: no log covers offsets 40 to 49"),
    "tail": ("in_flight", "tail-0: not read to its end: offsets 90 to 99 are missing"),
    "open": ("in_flight", "open-0: read up to offset 90; no log records the partition's end"),
    "absent": ("inconclusive", "absent-1: no consumer's log covers this partition"),
    "early": ("in_flight", "acknowledged messages were still under way"),
}


def test_what_was_not_read_or_not_logged_is_never_lost_nor_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Messages missing in unread offsets, or not yet due, make a run inconclusive, with reasons.

    So do a producer that is in the ledger and has no log, and a wrong online verdict.
    """
    history = History({"t": 1} | {topic: 2 if topic == "absent" else 1 for topic in CASES})
    log = history.consumers[0]
    for topic in CASES:
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
    of, ghost = stream(), stream(producer="ghost")
    history.sends(of, 100)
    log += [
        seen(of, 0, 100, 0),
        seen(ghost, 0, 5, 100),
        rows.vouched(ghost, 0, 10, Outcome.ACKED),
        rows.vouched(of, 0, 100, Outcome.ACKED),
        seen(stream(producer="stranger"), 0, 7, 105),
        found(of, 3, 5, Finding.DUPLICATED, 112),
    ]
    history.reads(112)
    result = judged(spark, history, tmp_path)
    summary = result.summary
    assert (summary.verdict, summary.counts["lost"], summary.counts["phantom"]) == (
        "inconclusive", 0, 0,
    )  # fmt: skip
    reasons = "\n".join(summary.inconclusive)
    for topic, (finding, reason) in CASES.items():
        assert result.count(finding, topic) == (100 if topic == "absent" else 10)
        assert reason in reasons
    assert "the log of producer ghost.1 is missing" in reasons
    assert "7 messages were read whose producers' logs are missing" in reasons
    assert "t-0: duplicated: 2 messages only online" in reasons


def test_a_damaged_log_proves_nothing_lost(spark: SparkSession, tmp_path: Path) -> None:
    """If a file is truncated, nothing that it may have shown is lost, and the run cannot pass."""
    history = History()
    history.sends(stream(), 100)
    history.consumers[0].append(seen(stream(), 0, 90, 0))
    history.reads(90)
    history.write(tmp_path)
    file = next(tmp_path.glob("run=*/role=consumer/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-40])
    summary = reconcile(spark, plan([str(tmp_path)], RUN), thresholds(()))
    assert (summary.verdict, summary.counts["lost"]) == ("inconclusive", 0)
    assert any("log damaged" in reason for reason in summary.inconclusive)


def _slow(logdir: Path) -> Path:
    """Write a run whose messages took 1.7 s; return its consumer's file, which stores sums."""
    history = History()
    history.producer.append(rows.reserved(stream(), 0, 1000))
    for lo in range(0, 1000, 5):
        history.producer.append(sent(stream(), lo, lo + 5))
        row = seen(stream(), lo, lo + 5, lo)
        history.consumers[0].append(row._replace(latency_bucket=(3912,)))
    history.producer.append(rows.end(stream(), 1000))
    history.reads(1000)
    history.write(logdir)
    return next(logdir.glob("run=*/role=consumer/*/*.parquet"))


def test_a_flipped_bit_turns_no_failed_run_into_one_that_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The flip makes the footer's sums 0.95 s for 1.7 s, which passed; the file is named."""
    file = _slow(tmp_path)
    limits = thresholds(["p(99)<1.5s"])
    assert reconcile(spark, plan([str(tmp_path)], RUN), limits).exit_code == 99
    original = file.read_bytes()
    at = original.index(b"[3912]") + 2
    assert chr(original[at] ^ 1) == "8"
    file.write_bytes(original[:at] + b"8" + original[at + 1 :])
    summary = reconcile(spark, plan([str(tmp_path)], RUN), limits)
    assert summary.exit_code not in {0, 99}
    (reason,) = (reason for reason in summary.inconclusive if "log damaged" in reason)
    assert str(file) in reason
    assert "changed: the file changed after it was written" in reason


def test_more_latencies_than_messages_are_damage(spark: SparkSession, tmp_path: Path) -> None:
    """Even if the file's digest is correct, a run with such sums does not pass."""
    history = History()
    history.sends(stream(), 100)
    row = seen(stream(), 0, 100, 0)
    history.consumers[0].append(row._replace(latency_count=(101,)))
    history.reads(100)
    history.write(tmp_path)
    summary = reconcile(spark, plan([str(tmp_path)], RUN), thresholds(()))
    assert summary.verdict == "inconclusive"
    assert "a log is damaged: 101 latencies of 100 messages that were seen" in summary.inconclusive


def test_logs_of_the_version_before_are_judged_with_one_note(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Real logs of 0.1.0, without digests, pass as before; a note says what may go unnoticed."""
    logs = tmp_path / "logs"
    shutil.copytree(Path(__file__).parents[1] / "logs_of_0_1_0", logs)
    summary = reconcile(spark, plan([str(logs)], "before"), thresholds(()))
    assert (summary.verdict, summary.counts["delivered"]) == ("passed", 2000)
    (note,) = (note for note in summary.notes if "digest" in note)
    assert note.startswith("2 log files have no digest")
