"""What compaction explains: missing, and a later message of its key was seen.

A lane is a key. In a compacted topic a message may be gone once one of the same key stands behind
it: of its own stream; or of any other, this run's or not, behind what was seen of its stream in the
same partition; or of a later incarnation of its producer in a partition where the stream was seen
or belongs; where nothing was seen of it, any but an earlier incarnation's. The last message of a
key stays, so that it is lost if it is missing. What compaction took from the destination left holes
in the offsets that were read; what it took from the source did not. (As
`verify.fragment_index.FragmentIndex.explained_below` has it online.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import Finding
from mirrortest.reconcile.facts import make_table
from mirrortest.reconcile.intervals import STREAM
from mirrortest.reconcile.judge import HELD, settle, view
from mirrortest.seqlog.schema import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirrortest.reconcile.plan import Plan

HIDDEN = (
    "{}: no consumer could see whether the topic is compacted (grant them DescribeConfigs on it): "
    "what a later message of its key could explain is inconclusive, and not lost"
)
_STREAM, _HELD = ", ".join(STREAM), ", ".join(HELD)
_EXPLAINED = int(Finding.LOST | Finding.IN_FLIGHT | Finding.INCONCLUSIVE)

_EXPLAINING = f"""
    SELECT DISTINCT topic, partition FROM intervals JOIN compacted_topics USING (topic)
    WHERE kind IN ('seen', 'read') AND (
        at_source OR (kind = 'read' AND coalesce(findings, {int(Finding.COMPACTED)}) <> 0))
"""  # noqa: S608  # all of it is ours
_COMPACTED = f"""
    WITH streams AS (SELECT DISTINCT {_STREAM} FROM judged JOIN compacted_topics USING (topic)),
    stood AS (
        SELECT {_HELD}, max(seq_hi) AS seen_hi, max(struct(identity, offset_hi)) AS last
        FROM intervals JOIN explaining USING (topic, partition)
        WHERE kind = 'seen' AND lane IS NOT NULL GROUP BY {_HELD}
    ), mine AS (
        SELECT {_HELD} FROM streams JOIN explaining USING (topic)
        LEFT JOIN (SELECT *, 1 AS belongs FROM homes) USING (topic, lane, partition)
        LEFT JOIN (SELECT DISTINCT topic, lane, 1 AS homed FROM homes) USING (topic, lane)
        LEFT JOIN (SELECT DISTINCT {_HELD}, 1 AS here FROM copies) USING ({_HELD})
        LEFT JOIN (SELECT DISTINCT {_STREAM}, 1 AS seen FROM copies) USING ({_STREAM})
        WHERE here = 1 OR belongs = 1 OR (homed IS NULL AND seen IS NULL)
    ), others AS (
        SELECT mine.*, own.last AS own, other.last AS behind,
            other.producer <=> mine.producer AS same, other.incarnation AS other
        FROM mine LEFT JOIN stood AS own USING ({_HELD})
        JOIN stood AS other ON other.topic = mine.topic AND other.partition = mine.partition
            AND other.lane = mine.lane
            AND NOT (other.producer <=> mine.producer AND other.incarnation <=> mine.incarnation)
    ), superseded AS (
        SELECT DISTINCT {_STREAM} FROM others
        WHERE behind > own OR (same AND other > incarnation) OR (own IS NULL AND NOT same)
    ), bounds AS (
        SELECT {_STREAM}, max(seen_hi) AS seen_hi FROM stood WHERE producer IS NOT NULL
        GROUP BY {_STREAM}
    )
    SELECT {_STREAM}, seen_hi, superseded.producer IS NOT NULL AS superseded
    FROM streams LEFT JOIN bounds USING ({_STREAM}) LEFT JOIN superseded USING ({_STREAM})
"""  # noqa: S608  # all of it is ours


def hidden_topics(plan: Plan) -> list[str]:
    """The source topics of whose copies no consumer could see whether they are compacted."""
    told: dict[str, set[bool]] = {}
    for _, session in plan.of(Role.CONSUMER):
        for source, topic in session.topics.items():
            told.setdefault(source, set()).add(topic.policy_hidden and not topic.compacted)
    return sorted(source for source, hidden in told.items() if hidden == {True})


def compacted_topics(plan: Plan) -> dict[str, bool]:
    """The source topics that, or whose copies, were seen to be compacted; True: it was itself."""
    found: dict[str, bool] = {}
    for role in (Role.CONSUMER, Role.PRODUCER):
        for _, session in plan.of(role):
            for source, topic in session.topics.items():
                if topic.compacted:
                    found[source] = found.get(source, False) or role is Role.PRODUCER
    return found


def explain(spark: Any, topics: Mapping[str, bool], hidden: Collection[str]) -> None:
    """Replace the view `judged`: what compaction of these topics explains is `COMPACTED`.

    `topics` as `compacted_topics` has them. What it would explain of the copies of the `hidden`,
    were they compacted, is `INCONCLUSIVE`.
    """
    rows = [(topic, at_source, int(Finding.COMPACTED)) for topic, at_source in topics.items()]
    unsure = (topic for topic in hidden if topic not in topics)
    rows += [(topic, False, int(Finding.INCONCLUSIVE)) for topic in unsure]
    if not rows:
        return
    schema = "topic string, at_source boolean, explained int"
    make_table(spark, "compacted_topics", schema, sorted(rows))
    view(spark, "explaining", _EXPLAINING)
    settle(spark, "compacted_bounds", _COMPACTED)
    columns = ", ".join(name for name in spark.table("judged").columns if name != "findings")
    settle(
        spark,
        "judged",
        f"""
        SELECT {columns}, if(
            is_acked AND NOT seen AND (superseded OR hi <= coalesce(seen_hi, 0)),
            (findings & ~{_EXPLAINED}) | explained, findings
        ) AS findings
        FROM judged LEFT JOIN compacted_bounds USING ({_STREAM})
            LEFT JOIN compacted_topics USING (topic)
        """,  # noqa: S608  # all of it is ours
    )
