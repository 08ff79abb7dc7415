"""The judgement as statements over intervals; each makes a view that the next ones read.

Views given: `intervals` (`intervals.INTERVALS`), `blind` (`coverage.Blind`), `horizons` (topic,
horizon_ns: what was acknowledged by then is due, beside what logs say has `expired`), `known`
(producer, incarnation: those whose logs are here and whole), `homes` (topic, lane,
partition: where lanes belong, or did), `cuts` (topic, partition, identity, cut: where the online
verdict was given).

| view | rows |
|---|---|
| copies | chains of a stream in a partition, each (seq, offset) in exactly one |
| troubled | those of streams that went back in a partition, each with the greatest seq before it |
| unread | the partitions with blind offsets: their end, the last minute that may stand there |
| pieces | what was seen in these partitions, by minute of intended time |
| certain | from which number on a stream cannot stand in its partition's blind offsets |
| following | seqs seen behind blind offsets; `sure`: they were sent too late to stand there |
| disorder | reordered seqs, by stream and partition; no first copy may stand in blind offsets |
| away | what stands elsewhere than the most of its stream, where any one partition will do |
| doubts | seqs that may stand in blind offsets of partitions where a stream was seen or belongs |
| held | segments of (stream, partition) with what was found in it |
| judged | segments of a stream with its verdict: the result, from which all tables are sums |

What stands in a topic that was made again stands behind all of the topic before it: so do those
who read it see it. Offsets are in order within one incarnation (`identity`).
"""

from __future__ import annotations

from typing import Any

from mirrortest.model.findings import OF_STREAM, STREAM_FINDINGS, Finding, Outcome
from mirrortest.reconcile.intervals import STREAM
from mirrortest.reconcile.sweep import Spans, islands, sweep
from mirrortest.seqlog.schema import ENDLESS

HELD = (*STREAM, "partition")
_COPY = (*HELD, "identity", "distance", "tail")

JUDGED = tuple(finding for finding in OF_STREAM if finding is not Finding.COMPACTED)
"""The findings of a `judged` segment; `findings` there is their bitset."""

_MASK = int(sum(STREAM_FINDINGS))
_SEEN = "intervals WHERE kind = 'seen' AND seq_lo IS NOT NULL"
_SEEN_BEFORE_CUTS = """(
    SELECT intervals.* FROM intervals JOIN cuts USING (topic, partition)
    WHERE kind = 'seen' AND seq_lo IS NOT NULL AND (intervals.identity < cuts.identity
        OR (intervals.identity = cuts.identity AND offset_hi <= cut))
) WHERE true"""
"""What the online verdict was given on: no chain lies on both sides of a cut."""


def _using(key: tuple[str, ...]) -> str:
    return ", ".join(key)


def _bits(weight: str = "1") -> dict[str, str]:
    return {
        finding.label: f"CASE WHEN findings & {int(finding)} <> 0 THEN {weight} ELSE 0 END"
        for finding in STREAM_FINDINGS
    }


def _copies(seen: str, *, overlapping: bool) -> str:
    """Chains as they come, from offset `lo + distance` to before `hi + tail`.

    Where offsets were read more than once seq and offset go side by side (`compact.Zone`), so that
    the same messages at the same offsets are one.
    """
    chains = f"""(
        SELECT *, offset_lo - seq_lo AS distance, offset_hi - seq_hi AS tail FROM {seen}
    )"""  # noqa: S608
    if overlapping:
        return islands(_COPY, chains, "seq_lo", "seq_hi")
    return f"SELECT {_using(_COPY)}, seq_lo AS lo, seq_hi AS hi FROM {chains}"  # noqa: S608


_TROUBLED = f"""
    SELECT * FROM (
        SELECT *, min(lo - above) OVER (PARTITION BY {_using(HELD)}) AS back FROM (
            SELECT *, coalesce(max(hi) OVER (
                PARTITION BY {_using(HELD)} ORDER BY identity, lo + distance
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0) AS above FROM copies
        )
    ) WHERE back < 0
"""  # noqa: S608

_FIRSTS = f"""(
    SELECT {_using(HELD)}, greatest(lo, above) AS lo, hi FROM troubled WHERE hi > above
)"""  # noqa: S608

_AWAY = f"""
    SELECT held.*, {int(Finding.MISROUTED)} AS findings FROM held JOIN (
        SELECT {_using(STREAM)}, min_by(partition, rank) AS home FROM (
            SELECT {_using(HELD)}, struct(-sum(hi - lo), partition) AS rank
            FROM held WHERE copies > 0 GROUP BY {_using(HELD)}
        ) GROUP BY {_using(STREAM)}
    ) USING ({_using(STREAM)}) WHERE copies > 0 AND partition <> home
"""  # noqa: S608

# A chain, cut where its minute changes.
_PIECES = f"""
    SELECT {_using(HELD)}, identity, offset_lo, findings, mark.mark_minute AS minute,
        mark.mark_seq AS lo, coalesce(get(marks, place + 1).mark_seq, seq_hi) AS hi
    FROM (
        SELECT *, arrays_zip(mark_seq, mark_minute) AS marks
        FROM intervals JOIN (SELECT DISTINCT topic, partition FROM unread) USING (topic, partition)
        WHERE kind = 'seen' AND seq_lo IS NOT NULL
    ) LATERAL VIEW posexplode(marks) AS place, mark
"""  # noqa: S608
# In a blind range any missing number may stand that was not sent too late for it: below the least
# number, seen behind all of them, that was. (A log may show what stood where it does not say that
# it read: that proves nothing.)
_UNREAD = f"""
    SELECT topic, partition, max(struct(identity, hi)) AS last, max(minute) AS minute,
        bool_or(lo = 0 AND hi = {ENDLESS}) AS never
    FROM blind WHERE finding = {int(Finding.INCONCLUSIVE)} GROUP BY topic, partition
"""  # noqa: S608
_UNPROVEN = int(Finding.UNPROVEN | Finding.CORRUPTED)
_CERTAIN = f"""
    SELECT {_using(HELD)}, min(lo) AS certain
    FROM pieces JOIN unread USING (topic, partition)
    WHERE pieces.minute > unread.minute AND findings & {_UNPROVEN} = 0
        AND struct(identity, offset_lo) >= last
    GROUP BY {_using(HELD)}
"""  # noqa: S608
# What is missing may stand in any partition that was not read to its end, or not at all. Where
# offsets were passed by unread it may stand only if its stream was seen there, or belongs there; a
# stream that belongs nobody knows where may be anywhere.
_DOUBTS = f"""
    WITH streams AS (
        SELECT {_using(STREAM)} FROM intervals
        WHERE kind IN ('reserved', 'sent', 'vouched') AND lane IS NOT NULL
        UNION SELECT {_using(STREAM)} FROM copies
    )
    SELECT {_using(STREAM)}, {int(Finding.INCONCLUSIVE)} AS finding, 0L AS lo,
        coalesce(certain, {ENDLESS}L) AS hi
    FROM streams JOIN unread USING (topic)
    LEFT JOIN certain USING ({_using(HELD)})
    LEFT JOIN (SELECT *, 1 AS belongs FROM homes) USING (topic, lane, partition)
    LEFT JOIN (SELECT DISTINCT topic, lane, 1 AS homed FROM homes) USING (topic, lane)
    LEFT JOIN (SELECT DISTINCT {_using(HELD)}, 1 AS here FROM copies) USING ({_using(HELD)})
    WHERE here = 1 OR belongs = 1 OR homed IS NULL OR never
    UNION ALL
    SELECT {_using(STREAM)}, finding, 0L, {ENDLESS}L
    FROM streams JOIN blind USING (topic) WHERE finding = {int(Finding.IN_FLIGHT)}
"""  # noqa: S608
# A first copy may have stood in a blind range before. (Where rows of a damaged log are gone, from
# offset -1 on, what is left is judged all the same.)
_FOLLOWING = f"""
    WITH gaps AS (
        SELECT topic, partition, identity, lo, minute FROM blind
        WHERE finding = {int(Finding.INCONCLUSIVE)} AND lo >= 0
    ), begun AS (
        SELECT topic, partition, min(struct(identity, lo)) AS first FROM gaps
        GROUP BY topic, partition
    ), tops AS (
        SELECT {_using(HELD)}, max(hi) AS top FROM pieces JOIN begun USING (topic, partition)
        WHERE struct(identity, offset_lo) < first GROUP BY {_using(HELD)}
    )
    SELECT {_using(HELD)}, greatest(pieces.lo, coalesce(max(top), 0L)) AS lo, hi,
        max(gaps.minute) < pieces.minute AS sure
    FROM pieces JOIN gaps USING (topic, partition) LEFT JOIN tops USING ({_using(HELD)})
    WHERE struct(gaps.identity, gaps.lo) <= struct(pieces.identity, pieces.offset_lo)
    GROUP BY {_using(HELD)}, pieces.identity, pieces.offset_lo, pieces.minute, pieces.lo, hi
    HAVING hi > coalesce(max(top), 0L)
"""  # noqa: S608

_NO_NUMBERS = "SELECT {columns}, 0L AS lo, 0L AS hi FROM copies WHERE false"


def _disorder() -> str:
    segments = sweep(
        HELD,
        [
            Spans("troubled", {"seen": "1"}, "lo", "hi"),
            Spans(_FIRSTS, {"in_order": "1"}, "lo", "hi"),
            Spans("following", {"unread": "1", "sure": "if(sure, 1, 0)"}, "lo", "hi"),
        ],
    )
    return f"""SELECT * FROM ({segments})
        WHERE seen > 0 AND in_order = 0 AND (unread = 0 OR sure > 0)"""  # noqa: S608


def _found_in(seen: str) -> list[Spans]:
    """The spans of what was seen and what it showed by itself."""
    return [
        Spans("copies", {"copies": "1"}, "lo", "hi"),
        Spans("disorder", {"reordered": "1"}, "lo", "hi"),
        Spans(f"{seen} AND findings & {_MASK} <> 0", _bits()),
    ]


def _with_findings(segments: str) -> str:
    flags = [f"CASE WHEN copies > 1 THEN {int(Finding.DUPLICATED)} ELSE 0 END"] + [
        f"CASE WHEN {finding.label} > 0 THEN {int(finding)} ELSE 0 END"
        for finding in (*STREAM_FINDINGS, Finding.REORDERED)
    ]
    return f"SELECT *, {' | '.join(flags)} AS found FROM ({segments})"  # noqa: S608


def _sides() -> list[Spans]:
    """What producers, ledger and consumers say of a stream's numbers."""
    sent = """(SELECT intervals.*, coalesce(last_ns > horizon_ns, true) AS recent
        FROM intervals LEFT JOIN horizons USING (topic) WHERE kind = 'sent')"""
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
        Spans("intervals WHERE kind = 'expired'", {"due": "1"}),
        Spans(
            "doubts",
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
            acked, found | {bits} AS findings
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


def judge(spark: Any, *, any_partition: bool, blind: bool, overlapping: bool) -> None:
    """Make all the views but `held`, which `hold` makes.

    `any_partition`: `--expect-partition any`, a stream's messages in two partitions are misrouted.
    `blind`: whether the view of that name has rows. `overlapping`: whether some offsets were read
    more than once.
    """
    view(spark, "copies", _copies(_SEEN, overlapping=overlapping))
    if blind:
        view(spark, "unread", _UNREAD)
        settle(spark, "pieces", _PIECES)
        settle(spark, "certain", _CERTAIN)
        settle(spark, "following", _FOLLOWING)
        view(spark, "doubts", _DOUBTS)
    else:
        view(spark, "following", _NO_NUMBERS.format(columns=f"{_using(HELD)}, true AS sure"))
        view(spark, "doubts", _NO_NUMBERS.format(columns=f"{_using(STREAM)}, 0 AS finding"))
    _find_disorder(spark)
    spans = [*_sides(), *_found_in(_SEEN)]
    if any_partition:
        hold(spark)
        view(spark, "away", _AWAY)
        spans.append(Spans("away", {Finding.MISROUTED.label: "1"}, "lo", "hi"))
    settle(spark, "judged", _judged(spans))


def hold(spark: Any) -> None:
    """Make the view `held` (which `judge` has made if it is for `any_partition`)."""
    settle(spark, "held", _with_findings(sweep(HELD, _found_in(_SEEN))))


def held_before_cuts(spark: Any, *, overlapping: bool) -> None:
    """The view `held_cut`: as `held`, of the offsets below each partition's `cuts.cut` alone.

    Replaces the views copies, troubled and disorder.
    """
    view(spark, "copies", _copies(_SEEN_BEFORE_CUTS, overlapping=overlapping))
    _find_disorder(spark)
    settle(spark, "held_cut", _with_findings(sweep(HELD, _found_in(_SEEN_BEFORE_CUTS))))


def _find_disorder(spark: Any) -> None:
    settle(spark, "troubled", _TROUBLED)
    if spark.table("troubled").isEmpty():
        view(spark, "disorder", _NO_NUMBERS.format(columns=_using(HELD)))
    else:
        settle(spark, "disorder", _disorder())
