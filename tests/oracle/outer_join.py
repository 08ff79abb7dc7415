"""The judgement as a plain full outer join of messages, in Spark's SQL: a third opinion.

It reads one row per message sent and one per message seen, and has no intervals.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import STREAM_FINDINGS, Finding
from mirrortest.wire.stream import StreamId

from .compaction import in_competition
from .judge import minute_of, shows_clock
from .truth import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .reference import Answer, Reference

_STREAM = "topic string, producer string, incarnation int, lane long"
_SENT = (
    f"{_STREAM}, seq long, acked boolean, failed boolean, sent boolean, due boolean, "
    "homes array<int>"
)
_SEEN = f"{_STREAM}, seq long, partition int, offset long, findings int, minute int"
_CLAIMED = f"{_STREAM}, seq long"
_BLIND = "topic string, partition int, from_offset long, to_offset long, minute long"
_TOPICS = "topic string, open int, compact boolean, at_source boolean, many int"
_KEYS = (
    "topic string, partition int, offset long, hole boolean, lane long, producer string, "
    "incarnation int"
)
_ASSIGNED_NAMES = ("topic", "producer", "incarnation", "lane", "seq", "partition", "late")
_ASSIGNED = f"{_STREAM}, seq long, partition int, late boolean, short boolean"
_UNPROVEN = int(Finding.UNPROVEN | Finding.CORRUPTED)
_KNOWN = "topic string, producer string, incarnation int"

_TABLES = f"""
WITH firsts AS (
    SELECT topic, producer, incarnation, lane, partition, seq, min(offset) AS offset,
        min(minute) AS minute FROM oracle_seen GROUP BY ALL
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
), ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY topic, producer, incarnation, lane ORDER BY messages DESC, partition
    ) AS rank FROM places
), most AS (
    SELECT topic, producer, incarnation, lane, min_by(partition, struct(-messages, partition)) AS at
    FROM places GROUP BY topic, producer, incarnation, lane
), streams AS (
    SELECT topic, producer, incarnation, lane, max(homes) AS homes FROM (
        SELECT topic, producer, incarnation, lane, homes FROM oracle_sent
        UNION ALL SELECT topic, producer, incarnation, lane, NULL FROM oracle_seen
    ) GROUP BY ALL
), unread AS (
    SELECT topic, partition, min(from_offset) AS begin, max(to_offset) AS end,
        max(minute) AS minute FROM oracle_blind GROUP BY topic, partition
), certain AS (
    SELECT m.topic, m.producer, m.incarnation, m.lane, m.partition, min(m.seq) AS seq
    FROM oracle_seen m JOIN unread u ON u.topic = m.topic AND u.partition = m.partition
    WHERE m.offset >= u.end AND m.minute > u.minute AND m.findings & {_UNPROVEN} = 0 GROUP BY ALL
), doubts AS (
    SELECT s.*, u.partition, c.seq AS hi FROM streams s JOIN unread u USING (topic)
    LEFT JOIN certain c ON c.topic = s.topic AND c.producer = s.producer
        AND c.incarnation = s.incarnation AND c.lane = s.lane AND c.partition = u.partition
), missing_doubts AS (
    SELECT doubts.* FROM doubts
    LEFT JOIN places USING (topic, producer, incarnation, lane, partition)
    WHERE places.messages IS NOT NULL OR array_contains(homes, partition)
        OR coalesce(size(homes), 0) = 0
), disorder AS (
    SELECT DISTINCT topic, producer, incarnation, lane, seq FROM late_firsts f
    WHERE after_a_later AND NOT (
        EXISTS (SELECT 1 FROM oracle_blind b WHERE b.topic = f.topic
            AND b.partition = f.partition AND b.from_offset <= f.offset)
        AND coalesce((SELECT max(b.minute) FROM oracle_blind b WHERE b.topic = f.topic
            AND b.partition = f.partition AND b.from_offset <= f.offset), -1) >= f.minute
        AND f.seq > coalesce((SELECT max(m.seq) FROM oracle_seen m
            JOIN unread u ON u.topic = m.topic AND u.partition = m.partition
            WHERE m.topic = f.topic AND m.producer = f.producer AND m.incarnation = f.incarnation
            AND m.lane = f.lane AND m.partition = f.partition AND m.offset < u.begin), -1))
), own AS (
    SELECT topic, producer, incarnation, lane, partition, max(offset) AS last, max(seq) AS highest
    FROM oracle_seen GROUP BY ALL
), keys AS (
    SELECT * FROM oracle_keys WHERE NOT hole AND lane IS NOT NULL
), overtaken AS (
    SELECT DISTINCT s.topic, s.producer, s.incarnation, s.lane
    FROM streams s JOIN oracle_topics t ON t.topic = s.topic AND t.at_source
    JOIN keys k ON k.topic = s.topic AND k.lane = s.lane
        AND NOT (k.producer <=> s.producer AND k.incarnation <=> s.incarnation)
    LEFT JOIN own ON own.topic = s.topic AND own.producer = s.producer
        AND own.incarnation = s.incarnation AND own.lane = s.lane AND own.partition = k.partition
    LEFT JOIN most ON most.topic = s.topic AND most.producer = s.producer
        AND most.incarnation = s.incarnation AND most.lane = s.lane
    WHERE (own.last IS NOT NULL OR array_contains(s.homes, k.partition)
            OR (coalesce(size(s.homes), 0) = 0 AND most.at IS NULL))
        AND (k.offset > own.last OR (k.producer <=> s.producer AND k.incarnation > s.incarnation)
            OR (own.last IS NULL AND NOT k.producer <=> s.producer))
), tops AS (
    SELECT topic, producer, incarnation, lane, max(highest) AS highest
    FROM own JOIN oracle_topics USING (topic) WHERE at_source GROUP BY ALL
), seen AS (
    SELECT topic, producer, incarnation, lane, seq, count(*) AS copies, bit_or(findings) AS shown,
        max(rank) AS rank
    FROM oracle_seen JOIN ranked USING (topic, producer, incarnation, lane, partition)
    GROUP BY topic, producer, incarnation, lane, seq
), joined AS (
    SELECT topic, producer, incarnation, lane, seq,
        coalesce(acked, false) AS acked, coalesce(failed, false) AS failed,
        coalesce(sent, false) AS sent, coalesce(due, false) AS due,
        copies IS NOT NULL AS is_seen, coalesce(copies, 0) AS copies, coalesce(shown, 0) AS shown,
        coalesce(rank, 0) AS rank,
        c.claimed IS NOT NULL AS claimed, k.known IS NOT NULL AS known,
        d.seq IS NOT NULL AS disordered, t.open, t.many, t.compact OR t.at_source AS compact,
        coalesce(x.highest > seq, false) OR o.lane IS NOT NULL AS explained,
        EXISTS (SELECT 1 FROM missing_doubts m WHERE m.topic = j.topic
            AND m.producer = j.producer AND m.incarnation = j.incarnation AND m.lane = j.lane
            AND (m.hi IS NULL OR j.seq < m.hi)) AS doubtful
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
), gone AS (
    SELECT topic, producer, incarnation, lane, seq,
        claimed OR doubtful OR open & {int(Finding.INCONCLUSIVE)} <> 0 OR (due AND open = 0) AS late
    FROM joined WHERE acked AND NOT is_seen
), holes AS (
    SELECT topic, partition, offset,
        row_number() OVER (PARTITION BY topic, partition ORDER BY offset) AS nth
    FROM oracle_keys WHERE hole
), totals AS (
    SELECT topic, partition, count(*) AS holes FROM holes GROUP BY ALL
), concerned AS (
    SELECT g.*, p.partition, p.holes FROM gone g JOIN totals p USING (topic)
    JOIN streams s USING (topic, producer, incarnation, lane)
    LEFT JOIN most USING (topic, producer, incarnation, lane)
    LEFT JOIN places h USING (topic, producer, incarnation, lane, partition)
    WHERE h.messages IS NOT NULL OR array_contains(s.homes, p.partition)
        OR (coalesce(size(s.homes), 0) = 0 AND most.at IS NULL)
), neighbours AS (
    SELECT c.*, max(CASE WHEN f.seq < c.seq THEN struct(f.seq AS seq, f.offset AS at) END) AS lower,
        min(CASE WHEN f.seq > c.seq THEN struct(f.seq AS seq, f.offset AS at) END) AS higher
    FROM (SELECT topic, producer, incarnation, lane, seq, late, partition, holes FROM concerned) c
    LEFT JOIN firsts f ON f.topic = c.topic AND f.producer = c.producer
        AND f.incarnation = c.incarnation AND f.lane = c.lane AND f.partition = c.partition
    GROUP BY ALL
), bounds AS (
    SELECT n.*, coalesce(n.lower.at, e.at, 0) AS from_at, coalesce(n.higher.at, k.at, 0) AS to_at
    FROM neighbours n
    LEFT JOIN (SELECT topic, partition, lane, max(offset) AS at FROM keys GROUP BY ALL) k
        USING (topic, partition, lane)
    LEFT JOIN (
        SELECT o.topic, o.producer, o.incarnation, o.lane, o.partition, max(m.last) AS at
        FROM (SELECT DISTINCT topic, producer, incarnation, lane, partition FROM neighbours) o
        JOIN own m ON m.topic = o.topic AND m.producer = o.producer AND m.lane = o.lane
            AND m.partition = o.partition AND m.incarnation < o.incarnation GROUP BY ALL
    ) e USING (topic, producer, incarnation, lane, partition)
    WHERE n.late OR n.higher IS NOT NULL
), gaps AS (
    SELECT b.topic, b.producer, b.incarnation, b.lane, b.seq, b.partition, b.late,
        int(count_if(h.offset < b.from_at)) AS from_hole,
        int(count_if(h.offset < b.to_at)) AS to_hole
    FROM bounds b JOIN holes h USING (topic, partition) GROUP BY ALL
)
"""
_GAPS = f"{_TABLES} SELECT * FROM gaps WHERE from_hole < to_hole"
_QUERY = f"""{_TABLES}, assigned AS (
    SELECT * FROM oracle_assigned
), removed AS (
    SELECT * FROM assigned WHERE NOT short
), only_places AS (
    SELECT topic, producer, incarnation, lane, partitions[0] AS partition FROM (
        SELECT topic, producer, incarnation, lane,
            array_union(coalesce(any_value(homes), array()), collect_set(partition)) AS partitions
        FROM streams LEFT JOIN places USING (topic, producer, incarnation, lane)
        GROUP BY topic, producer, incarnation, lane
    ) WHERE size(partitions) = 1
), taken AS (
    SELECT topic, partition, lane, count(*) AS taken FROM removed
    JOIN only_places USING (topic, producer, incarnation, lane, partition)
    WHERE late GROUP BY ALL
), left_over AS (
    SELECT DISTINCT c.topic, c.producer, c.incarnation, c.lane, c.seq
    FROM concerned c LEFT JOIN taken t USING (topic, partition, lane)
    WHERE coalesce(t.taken, 0) < c.holes
    UNION SELECT topic, producer, incarnation, lane, seq FROM assigned WHERE short
), verdicts AS (
    SELECT j.*, CASE
        WHEN NOT acked OR is_seen THEN ''
        WHEN explained OR r.seq IS NOT NULL
            THEN CASE WHEN compact THEN 'compacted' ELSE 'inconclusive' END
        WHEN claimed AND open & {int(Finding.INCONCLUSIVE)} = 0 THEN 'lost'
        WHEN doubtful OR open & {int(Finding.INCONCLUSIVE)} <> 0 THEN 'inconclusive'
        WHEN due AND open = 0 THEN CASE WHEN l.seq IS NULL THEN 'lost' ELSE 'inconclusive' END
        ELSE 'in_flight' END AS missing
    FROM joined j
    LEFT JOIN (SELECT DISTINCT topic, producer, incarnation, lane, seq FROM removed) r
        USING (topic, producer, incarnation, lane, seq)
    LEFT JOIN left_over l USING (topic, producer, incarnation, lane, seq)
)
SELECT topic, producer, incarnation, lane, seq, missing, is_seen AND claimed AS late, shown,
    copies > 1 AS duplicated, disordered AS reordered, many > 0 AND rank > many AS misrouted,
    is_seen AND known AND shown & {int(Finding.UNPROVEN)} = 0 AND (failed OR NOT sent) AS phantom
FROM verdicts
"""


def judged(spark: Any, references: Sequence[Reference]) -> Answer:
    """Judge histories whose logs have ended: one statement for the gaps, one for the verdicts."""
    tables: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
        name: (schema, [])
        for name, schema in (
            ("sent", _SENT),
            ("seen", _SEEN),
            ("claimed", _CLAIMED),
            ("blind", _BLIND),
            ("topics", _TOPICS),
            ("keys", _KEYS),
            ("known", _KNOWN),
        )
    }
    for reference in references:
        _fill({name: rows for name, (_, rows) in tables.items()}, reference)
    for name, (schema, rows) in tables.items():
        spark.createDataFrame(rows, schema).createOrReplaceTempView(f"oracle_{name}")
    answer: Answer = {}
    with _compiled(spark):
        rows = _assigned(spark.sql(_GAPS).collect())
        spark.createDataFrame(rows, _ASSIGNED).createOrReplaceTempView("oracle_assigned")
        rows = spark.sql(_QUERY).collect()
    for row in rows:
        stream = StreamId(row.topic, RUN, row.producer, row.incarnation, row.lane)
        names = [row.missing] if row.missing else []
        names += [n for n in ("late", "duplicated", "reordered", "misrouted", "phantom") if row[n]]
        names += [finding.label for finding in STREAM_FINDINGS if row.shown & finding]
        for name in names:
            answer.setdefault((stream, name), set()).add(row.seq)
    return answer


def _assigned(gaps: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Whether each message competes for too few holes: SQL is unsuitable for matching."""
    places: dict[tuple[str, int], list[Any]] = {}
    for each in gaps:
        places.setdefault((each.topic, each.partition), []).append(each)
    rows = []
    for here in places.values():
        competing = in_competition(
            {at: range(each.from_hole, each.to_hole) for at, each in enumerate(here)}
        )
        rows += [
            (*(each[name] for name in _ASSIGNED_NAMES), at in competing)
            for at, each in enumerate(here)
        ]
    return rows


@contextlib.contextmanager
def _compiled(spark: Any) -> Iterator[None]:
    """Run statements with Spark's defaults; those of the reconciliation only move bundles."""
    wanted = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
    }
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _fill(tables: dict[str, list[tuple[Any, ...]]], reference: Reference) -> None:
    """Add a history's messages to the tables."""
    truth, facts = reference.truth, reference.facts
    unread_findings = int(sum(facts.unread))
    topic_row = (truth.topic, unread_findings, truth.compact, truth.source_compact, truth.many())
    tables["topics"].append(topic_row)
    for sent in truth.sent:
        lane, homes = sent.lane, sorted(truth.homes(sent.stream))
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
                    homes,
                )
            )
    tables["claimed"] += [(*_columns(stream), seq) for stream, seq in facts.claimed]
    for partition, passed in enumerate(facts.passed):
        by_minute = itertools.groupby(passed, key=lambda stretch: (stretch.blind, stretch.minute))
        for (blind, minute), run in by_minute:
            stretches = list(run)
            if blind:
                first, last = stretches[0], stretches[-1]
                tables["blind"].append((truth.topic, partition, first.lo, last.hi, minute))
        for stretch in passed:
            message = reference.stood[partition].get(stretch.lo)
            key = (None,) * 3
            if message and message.lane >= 0:
                stream = message.stream
                key = (message.lane, *(stream[2:4] if stream else (None, None)))
            if not stretch.blind or (message and stretch.glimpsed):
                hole = message is None and stretch.lo not in truth.markers(partition)
                tables["keys"].append((truth.topic, partition, stretch.lo, hole, *key))
            if message and message.stream and (stretch.glimpsed or not stretch.blind):
                shown = int(sum(message.findings))
                # If a clock is off, no later message was sent too late.
                off = shows_clock(message.stream, reference.stood[partition], passed)
                tables["seen"].append(
                    (
                        *_columns(message.stream),
                        message.seq,
                        partition,
                        stretch.lo,
                        shown,
                        -1 if off else minute_of(message.seq),
                    )
                )


def _columns(stream: StreamId) -> tuple[str, str, int, int]:
    return (stream.topic, *stream[2:])
