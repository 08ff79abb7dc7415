"""The judgement as a plain full outer join of messages, in Spark's SQL: the third opinion.

It reads one row a message sent and one a message seen, and knows nothing of intervals.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from mirrortest.check.routing import ExpectPartition
from mirrortest.check.verdict import STREAM_FINDINGS, Finding
from mirrortest.wire.stream import StreamId

from .truth import RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .reference import Answer, Reference

_STREAM = "topic string, producer string, incarnation int, lane long"
_SENT = f"{_STREAM}, seq long, acked boolean, failed boolean, sent boolean, due boolean, home int"
_SEEN = f"{_STREAM}, seq long, partition int, offset long, findings int"
_CLAIMED = f"{_STREAM}, seq long"
_BLIND = "topic string, partition int, from_offset long, to_offset long"
_TOPICS = "topic string, open int, compact boolean, any boolean"
_KNOWN = "topic string, producer string, incarnation int"

_QUERY = f"""
WITH firsts AS (
    SELECT topic, producer, incarnation, lane, partition, seq, min(offset) AS offset
    FROM oracle_seen GROUP BY ALL
), late_firsts AS (
    SELECT *, max(seq) OVER (
        PARTITION BY topic, producer, incarnation, lane, partition ORDER BY offset
    ) > seq AS after_a_later FROM firsts
), places AS (
    SELECT topic, producer, incarnation, lane, partition, count(*) AS messages,
        max(offset) AS last FROM (
            SELECT topic, producer, incarnation, lane, partition, seq, max(offset) AS offset
            FROM oracle_seen GROUP BY ALL
        ) GROUP BY topic, producer, incarnation, lane, partition
), most AS (
    SELECT topic, producer, incarnation, lane, min_by(partition, struct(-messages, partition)) AS at
    FROM places GROUP BY topic, producer, incarnation, lane
), streams AS (
    SELECT topic, producer, incarnation, lane, max(home) AS home FROM (
        SELECT topic, producer, incarnation, lane, home FROM oracle_sent
        UNION ALL SELECT topic, producer, incarnation, lane, NULL FROM oracle_seen
    ) GROUP BY ALL
), begun AS (
    SELECT s.*, b.partition, b.from_offset, b.to_offset,
        coalesce((SELECT max(m.seq) FROM oracle_seen m WHERE m.topic = s.topic
            AND m.producer = s.producer AND m.incarnation = s.incarnation AND m.lane = s.lane
            AND m.partition = b.partition AND m.offset < b.from_offset), -1) + 1 AS lo
    FROM streams s JOIN oracle_blind b USING (topic)
), doubts AS (
    SELECT begun.topic, begun.producer, begun.incarnation, begun.lane, begun.partition,
        any_value(begun.home) AS home, begun.lo, min_by(m.seq, m.offset) AS hi
    FROM begun LEFT JOIN oracle_seen m ON m.topic = begun.topic AND m.producer = begun.producer
        AND m.incarnation = begun.incarnation AND m.lane = begun.lane
        AND m.partition = begun.partition AND m.offset >= begun.to_offset AND m.seq >= begun.lo
        AND NOT EXISTS (SELECT 1 FROM oracle_blind b WHERE b.topic = m.topic
            AND b.partition = m.partition AND m.offset >= b.from_offset AND m.offset < b.to_offset)
    GROUP BY begun.topic, begun.producer, begun.incarnation, begun.lane, begun.partition,
        begun.from_offset, begun.lo
), missing_doubts AS (
    SELECT doubts.* FROM doubts
    LEFT JOIN places USING (topic, producer, incarnation, lane, partition)
    LEFT JOIN most USING (topic, producer, incarnation, lane)
    WHERE places.messages IS NOT NULL OR home = partition OR (home IS NULL AND most.at IS NULL)
), disorder AS (
    SELECT DISTINCT topic, producer, incarnation, lane, seq FROM late_firsts f
    WHERE after_a_later AND NOT EXISTS (
        SELECT 1 FROM doubts d WHERE d.topic = f.topic AND d.producer = f.producer
        AND d.incarnation = f.incarnation AND d.lane = f.lane AND d.partition = f.partition
        AND f.seq >= d.lo AND (d.hi IS NULL OR f.seq < d.hi))
), overtaken AS (
    SELECT DISTINCT m.topic, m.producer, m.incarnation, m.lane FROM streams m
    JOIN places o ON o.topic = m.topic AND o.lane = m.lane
    LEFT JOIN places p ON p.topic = m.topic AND p.producer = m.producer
        AND p.incarnation = m.incarnation AND p.lane = m.lane AND p.partition = o.partition
    WHERE o.last > p.last OR (o.producer = m.producer AND o.incarnation > m.incarnation)
), seen AS (
    SELECT topic, producer, incarnation, lane, seq, count(*) AS copies, bit_or(findings) AS shown,
        max(partition <> most.at) AS away, max(max(seq)) OVER (
            PARTITION BY topic, producer, incarnation, lane) AS highest
    FROM oracle_seen JOIN most USING (topic, producer, incarnation, lane)
    GROUP BY topic, producer, incarnation, lane, seq
), tops AS (SELECT DISTINCT topic, producer, incarnation, lane, highest FROM seen
), joined AS (
    SELECT topic, producer, incarnation, lane, seq,
        coalesce(acked, false) AS acked, coalesce(failed, false) AS failed,
        coalesce(sent, false) AS sent, coalesce(due, false) AS due,
        copies IS NOT NULL AS is_seen, coalesce(copies, 0) AS copies, coalesce(shown, 0) AS shown,
        coalesce(away, false) AS away,
        c.claimed IS NOT NULL AS claimed, k.known IS NOT NULL AS known,
        d.seq IS NOT NULL AS disordered, t.open, t.compact, t.any,
        coalesce(x.highest > seq, false) OR o.lane IS NOT NULL AS explained,
        EXISTS (SELECT 1 FROM missing_doubts m WHERE m.topic = j.topic
            AND m.producer = j.producer AND m.incarnation = j.incarnation AND m.lane = j.lane
            AND j.seq >= m.lo AND (m.hi IS NULL OR j.seq < m.hi)) AS doubtful
    FROM (SELECT * FROM oracle_sent FULL OUTER JOIN seen
        USING (topic, producer, incarnation, lane, seq)) j
    JOIN oracle_topics t USING (topic)
    LEFT JOIN (SELECT DISTINCT *, 1 AS claimed FROM oracle_claimed) c
        USING (topic, producer, incarnation, lane, seq)
    LEFT JOIN (SELECT DISTINCT *, 1 AS known FROM oracle_known) k
        USING (topic, producer, incarnation)
    LEFT JOIN disorder d USING (topic, producer, incarnation, lane, seq)
    LEFT JOIN tops x USING (topic, producer, incarnation, lane)
    LEFT JOIN overtaken o USING (topic, producer, incarnation, lane)
), verdicts AS (
    SELECT *, CASE
        WHEN NOT acked OR is_seen THEN ''
        WHEN compact AND explained THEN 'compacted'
        WHEN claimed THEN 'lost'
        WHEN doubtful OR open & {int(Finding.INCONCLUSIVE)} <> 0 THEN 'inconclusive'
        WHEN due AND open = 0 THEN 'lost'
        ELSE 'in_flight' END AS missing
    FROM joined
)
SELECT topic, producer, incarnation, lane, seq, missing, is_seen AND claimed AS late, shown,
    copies > 1 AS duplicated, disordered AS reordered, any AND away AS misrouted,
    is_seen AND known AND shown & {int(Finding.UNPROVEN)} = 0 AND (failed OR NOT sent) AS phantom
FROM verdicts
"""


def judged(spark: Any, references: Sequence[Reference]) -> Answer:
    """Judge the histories, all of whose logs have ended, by one statement."""
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        name: (schema, [])
        for name, schema in (
            ("sent", _SENT),
            ("seen", _SEEN),
            ("claimed", _CLAIMED),
            ("blind", _BLIND),
            ("topics", _TOPICS),
            ("known", _KNOWN),
        )
    }
    for reference in references:
        _fill({name: rows for name, (_, rows) in tables.items()}, reference)
    for name, (schema, rows) in tables.items():
        spark.createDataFrame(rows, schema).createOrReplaceTempView(f"oracle_{name}")
    answer: Answer = {}
    for row in spark.sql(_QUERY).collect():
        stream = StreamId(row.topic, RUN, row.producer, row.incarnation, row.lane)
        names = [row.missing] if row.missing else []
        names += [n for n in ("late", "duplicated", "reordered", "misrouted", "phantom") if row[n]]
        names += [finding.label for finding in STREAM_FINDINGS if row.shown & finding]
        for name in names:
            answer.setdefault((stream, name), set()).add(row.seq)
    return answer


def _fill(tables: dict[str, list[tuple[Any, ...]]], reference: Reference) -> None:
    """A history's messages as rows."""
    truth, facts = reference.truth, reference.facts
    whole = int(sum(facts.unread))
    any_place = truth.policy is ExpectPartition.ANY
    tables["topics"].append((truth.topic, whole, truth.compact, any_place))
    for sent in truth.sent:
        lane, home = sent.lane, truth.home(sent.stream)
        due = lane.acked - sent.recent if facts.looked_at else frozenset()
        tables["known"].append((truth.topic, *sent.stream[2:4]))
        for seq in range(max([lane.end or 0, *(n + 1 for n in sent.outcomes)])):
            tables["sent"].append(
                (
                    *_columns(sent.stream),
                    seq,
                    seq in lane.acked,
                    seq in lane.failed,
                    seq < (lane.end or 0),
                    seq in due,
                    home,
                )
            )
    tables["claimed"] += [(*_columns(stream), seq) for stream, seq in facts.claimed]
    for partition, passed in enumerate(facts.passed):
        for blind, run in itertools.groupby(passed, key=lambda stretch: stretch.blind):
            stretches = list(run)
            if blind:
                first, last = stretches[0], stretches[-1]
                tables["blind"].append((truth.topic, partition, first.lo, last.hi))
        for stretch in passed:
            message = reference.stood[partition].get(stretch.lo)
            if message and message.stream and (stretch.glimpsed or not stretch.blind):
                shown = int(sum(message.findings))
                tables["seen"].append(
                    (*_columns(message.stream), message.seq, partition, stretch.lo, shown)
                )


def _columns(stream: StreamId) -> tuple[str, str, int, int]:
    return (stream.topic, *stream[2:])
