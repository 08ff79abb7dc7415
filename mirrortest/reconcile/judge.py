"""The judgement as statements over intervals; each makes a view that the next ones read.

Views given: `intervals` (`compact.INTERVALS`), `blind` (`coverage.Blind`), `horizons` (topic,
horizon_ns: what was acknowledged later is not yet due), `known` (producer, incarnation: those
whose logs are here and whole).

| view | rows |
|---|---|
| copies | a stretch of a stream at offsets of a partition, each (seq, offset) in exactly one |
| firsts | those stretches cut to what stands above all seqs before: first copies in order |
| disorder | reordered seqs, by stream, partition and incarnation of the topic |
| away | copies elsewhere than the most of their stream, where any one partition will do |
| shadows | seqs that may stand in blind offsets |
| held | segments of (stream, partition) with what was found in it |
| judged | segments of a stream with its verdict: the result, from which all tables are sums |
"""

from __future__ import annotations

from typing import Any

from mirrortest.check.verdict import Finding, Outcome
from mirrortest.reconcile.coverage import ENDLESS
from mirrortest.reconcile.sweep import Spans, islands, sweep

STREAM = ("topic", "producer", "incarnation", "lane")
HELD = (*STREAM, "partition")
COPY = (*HELD, "identity", "distance")

SHOWN_BY_ITSELF = (
    Finding.UNPROVEN,
    Finding.CORRUPTED,
    Finding.ALTERED_KEY,
    Finding.ALTERED_HEADERS,
    Finding.ALTERED_TIMESTAMP,
    Finding.MISROUTED,
)
"""What a message of a stream shows by itself."""
IN_PARTITION = (*SHOWN_BY_ITSELF, Finding.DUPLICATED, Finding.REORDERED)
"""What one partition's checker finds, online as here."""
JUDGED = (
    *IN_PARTITION,
    Finding.LOST,
    Finding.IN_FLIGHT,
    Finding.LATE,
    Finding.PHANTOM,
    Finding.INCONCLUSIVE,
)
"""The findings of a `judged` segment; `findings` there is their bitset."""

_MASK = int(sum(SHOWN_BY_ITSELF))
_SEEN = "intervals WHERE kind = 'seen' AND seq_lo IS NOT NULL"


def _using(key: tuple[str, ...]) -> str:
    return ", ".join(key)


def _bits(weight: str = "1") -> dict[str, str]:
    return {
        finding.label: f"CASE WHEN findings & {int(finding)} <> 0 THEN {weight} ELSE 0 END"
        for finding in SHOWN_BY_ITSELF
    }


def _copies(below: str) -> str:
    """Copies at offsets below the partition's `below`: an expression, or nothing for all."""
    source = f"""(SELECT {_using(HELD)}, identity, offset_lo - seq_lo AS distance, seq_lo,
        least(seq_hi, {below} - (offset_lo - seq_lo)) AS seq_hi
        FROM intervals {"LEFT JOIN cuts USING (topic, partition)" if below != str(ENDLESS) else ""}
        WHERE kind = 'seen' AND seq_lo IS NOT NULL AND offset_lo < {below})"""  # noqa: S608
    return islands(COPY, source, "seq_lo", "seq_hi")


_FIRSTS = f"""
    SELECT {_using(HELD)}, identity, greatest(lo, above) AS lo, hi FROM (
        SELECT *, coalesce(max(hi) OVER (
            PARTITION BY {_using(HELD)}, identity ORDER BY lo + distance
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS above FROM copies
    ) WHERE hi > above
"""  # noqa: S608

_AWAY = f"""
    SELECT copies.*, {int(Finding.MISROUTED)} AS findings FROM copies JOIN (
        SELECT {_using(STREAM)}, min_by(partition, rank) AS home FROM (
            SELECT {_using(HELD)}, struct(-sum(hi - lo), partition) AS rank
            FROM copies GROUP BY {_using(HELD)}
        ) GROUP BY {_using(STREAM)}
    ) USING ({_using(STREAM)}) WHERE partition <> home
"""  # noqa: S608

_SHADOWS = f"""
    WITH streams AS (
        SELECT DISTINCT {_using(STREAM)} FROM intervals
        WHERE kind IN ('reserved', 'sent', 'vouched') AND lane IS NOT NULL
    ), home AS (
        SELECT {_using(STREAM)}, max(CASE WHEN findings & {int(Finding.MISROUTED)} = 0
            THEN 1 ELSE 0 END) AS somewhere FROM {_SEEN} GROUP BY {_using(STREAM)}
    ), doubted AS (
        SELECT {_using(STREAM)}, blind.partition, blind.identity, blind.lo, blind.hi,
            blind.finding
        FROM streams JOIN blind USING (topic)
        LEFT JOIN home USING ({_using(STREAM)})
        LEFT JOIN (SELECT DISTINCT {_using(HELD)}, 1 AS here FROM copies) USING ({_using(HELD)})
        WHERE coalesce(home.somewhere, 0) = 0 OR here = 1
    )
    SELECT {_using(STREAM)}, finding, lo, hi FROM (
        SELECT {_using(STREAM)}, doubted.finding,
            coalesce(max(CASE WHEN copies.lo + distance < doubted.lo THEN copies.hi END), 0) AS lo,
            coalesce(min(CASE WHEN copies.lo + distance >= doubted.hi THEN copies.lo END),
                {ENDLESS}L) AS hi
        FROM doubted LEFT JOIN copies USING ({_using(HELD)}, identity)
        GROUP BY {_using(STREAM)}, doubted.partition, doubted.identity, doubted.lo, doubted.hi,
            doubted.finding
    ) WHERE lo < hi
"""  # noqa: S608


def _disorder() -> str:
    segments = sweep(
        (*HELD, "identity"),
        [
            Spans("copies", {"seen": "1"}, "lo", "hi"),
            Spans("firsts", {"in_order": "1"}, "lo", "hi"),
        ],
    )
    return f"SELECT * FROM ({segments}) WHERE seen > 0 AND in_order = 0"  # noqa: S608


def _found_in(cut: str) -> list[Spans]:
    """The spans of what was seen and what it showed by itself."""
    shown = f"""(SELECT {_using(HELD)}, findings, seq_lo AS lo,
        least(seq_hi, {cut} - (offset_lo - seq_lo)) AS hi
        FROM intervals {"LEFT JOIN cuts USING (topic, partition)" if cut != str(ENDLESS) else ""}
        WHERE kind = 'seen' AND seq_lo IS NOT NULL AND findings & {_MASK} <> 0
        AND offset_lo < {cut})"""  # noqa: S608
    return [
        Spans("copies", {"copies": "1"}, "lo", "hi"),
        Spans("disorder", {"reordered": "1"}, "lo", "hi"),
        Spans(shown, _bits(), "lo", "hi"),
    ]


def _with_findings(segments: str) -> str:
    flags = [f"CASE WHEN copies > 1 THEN {int(Finding.DUPLICATED)} ELSE 0 END"] + [
        f"CASE WHEN {finding.label} > 0 THEN {int(finding)} ELSE 0 END"
        for finding in (*SHOWN_BY_ITSELF, Finding.REORDERED)
    ]
    return f"SELECT *, {' | '.join(flags)} AS found FROM ({segments})"  # noqa: S608


def _sides() -> list[Spans]:
    """What producers, ledger and consumers say of a stream's numbers."""
    sent = """(SELECT intervals.*, coalesce(last_ns > horizon_ns, true) AS recent
        FROM intervals LEFT JOIN horizons USING (topic) WHERE kind = 'sent')"""
    minutes = "intervals WHERE kind IN ('sent', 'seen') AND seq_lo IS NOT NULL AND minute >= 0"
    ended = f"""(SELECT {_using(STREAM)}, max(seq_hi) AS lo, {ENDLESS}L AS hi
        FROM intervals WHERE kind = 'end' GROUP BY {_using(STREAM)})"""  # noqa: S608
    outcome = {
        "acked": Outcome.ACKED,
        "failed": Outcome.FAILED,
        "unanswered": Outcome.UNKNOWN,
    }
    return [
        Spans("intervals WHERE kind = 'reserved'", {"reserved": "1"}),
        Spans(
            sent,
            {
                **{
                    name: f"CASE WHEN outcome = {int(value)} THEN 1 ELSE 0 END"
                    for name, value in outcome.items()
                },
                "due": f"CASE WHEN outcome = {int(Outcome.ACKED)} AND NOT recent THEN 1 ELSE 0 END",
                "reserved": "1",
            },
        ),
        Spans(ended, {"unused": "1"}, "lo", "hi"),
        Spans(
            "intervals WHERE kind = 'vouched'",
            {
                "vouched": "1",
                "vouched_acked": f"CASE WHEN outcome = {int(Outcome.ACKED)} THEN 1 ELSE 0 END",
                "vouched_failed": f"CASE WHEN outcome = {int(Outcome.FAILED)} THEN 1 ELSE 0 END",
            },
        ),
        Spans("intervals WHERE kind = 'claimed'", {"claimed": "1"}),
        Spans(minutes, {"minute_count": "1", "minute_sum": "minute"}),
        Spans(
            "shadows",
            {
                "doubtful": f"CASE WHEN finding = {int(Finding.INCONCLUSIVE)} THEN 1 ELSE 0 END",
                "beyond": f"CASE WHEN finding = {int(Finding.IN_FLIGHT)} THEN 1 ELSE 0 END",
            },
            "lo",
            "hi",
        ),
    ]


def _judged(spans: list[Spans]) -> str:
    segments = sweep(STREAM, spans)
    told = f"""
        SELECT swept.*, known.producer IS NOT NULL AS accounted,
            copies > 0 AS seen,
            acked + vouched_acked > 0 AS is_acked,
            acked + vouched_acked = 0 AND unanswered = 0 AND failed + vouched_failed > 0
                AS is_failed,
            (reserved + vouched > 0 AND unused = 0) OR acked + vouched_acked > 0 AS is_sent
        FROM ({_with_findings(segments)}) AS swept
        LEFT JOIN known USING (producer, incarnation)
        WHERE copies + reserved + vouched + claimed > 0
    """  # noqa: S608
    missing = "is_acked AND NOT seen"
    proven = "doubtful = 0 AND beyond = 0"
    flags = {
        Finding.LOST: f"{missing} AND (claimed > 0 OR ({proven} AND due > 0))",
        Finding.INCONCLUSIVE: f"{missing} AND claimed = 0 AND doubtful > 0",
        Finding.IN_FLIGHT: f"{missing} AND claimed + doubtful = 0 AND (beyond > 0 OR due = 0)",
        Finding.LATE: "seen AND claimed > 0",
        Finding.PHANTOM: f"seen AND accounted AND {Finding.UNPROVEN.label} = 0 "
        "AND (is_failed OR NOT is_sent)",
    }
    bits = " | ".join(f"CASE WHEN {test} THEN {int(f)} ELSE 0 END" for f, test in flags.items())
    return f"""
        SELECT {_using(STREAM)}, lo, hi, hi - lo AS messages, copies, seen, is_acked, is_failed,
            is_sent, accounted, is_sent AND NOT is_acked AND NOT is_failed AS is_unknown,
            accounted AND acked = 0 AND vouched_acked > 0 AS unlogged,
            CASE WHEN minute_count > 0 AND minute_sum % minute_count = 0
                THEN minute_sum DIV minute_count END AS minute,
            found | {bits} AS findings
        FROM ({told})
        WHERE seen OR is_sent OR is_failed
    """  # noqa: S608


def view(spark: Any, name: str, statement: str) -> None:
    """Make a view; its statement runs wherever it is read."""
    spark.sql(statement).createOrReplaceTempView(name)


def settle(spark: Any, name: str, statement: str) -> None:
    """Make a view and compute it now; those that read it know nothing of how it came about.

    Without that each statement would carry, and plan, all those before it.
    """
    spark.sql(statement).localCheckpoint().createOrReplaceTempView(name)


def judge(spark: Any, *, any_partition: bool, blind: bool) -> None:
    """Make all the views.

    `any_partition`: `--expect-partition any`, a stream's messages in two partitions are misrouted.
    `blind`: whether the view of that name has rows.
    """
    _settle_copies(spark, str(ENDLESS))
    settle(spark, "held", _with_findings(sweep(HELD, _found_in(str(ENDLESS)))))
    spans = [*_sides(), *_found_in(str(ENDLESS))]
    if any_partition:
        view(spark, "away", _AWAY)
        spans.append(Spans("away", {Finding.MISROUTED.label: "1"}, "lo", "hi"))
    settle(spark, "shadows", _SHADOWS if blind else f"{_SHADOWS} AND false")
    settle(spark, "judged", _judged(spans))


def held_below_cuts(spark: Any) -> None:
    """The view `held_cut`: as `held`, of the offsets below each partition's `cuts.cut` alone.

    Replaces the views copies, firsts and disorder.
    """
    _settle_copies(spark, "cuts.cut")
    settle(spark, "held_cut", _with_findings(sweep(HELD, _found_in("cuts.cut"))))


def _settle_copies(spark: Any, below: str) -> None:
    settle(spark, "copies", _copies(below))
    view(spark, "firsts", _FIRSTS)
    settle(spark, "disorder", _disorder())
