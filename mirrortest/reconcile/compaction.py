"""What the destination's compaction explains: missing, and a later message of its key was seen.

A lane is a key. In a compacted topic a message may be gone once one of the same key stands behind
it: of its own stream, or of another one in the same partition, or of a later incarnation of its
producer. The last message of a key stays, so that it is lost if it is missing. (As
`check.judge.superseded` has it online.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.facts import make_table
from mirrortest.reconcile.intervals import STREAM
from mirrortest.reconcile.judge import HELD, settle
from mirrortest.seqlog.schema import Role

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.reconcile.plan import Plan

HIDDEN = (
    "{}: no consumer could see whether the topic is compacted (grant them DescribeConfigs on it): "
    "what a later message of its key could explain is inconclusive, and not lost"
)
_STREAM, _HELD = ", ".join(STREAM), ", ".join(HELD)
_EXPLAINED = int(Finding.LOST | Finding.IN_FLIGHT | Finding.INCONCLUSIVE)

_COMPACTED = f"""
    WITH streams AS (SELECT DISTINCT {_STREAM} FROM judged JOIN compacted_topics USING (topic)),
    stood AS (
        SELECT {_HELD}, max(seq_hi) AS seen_hi, max(struct(identity, offset_hi)) AS last
        FROM intervals JOIN compacted_topics USING (topic)
        WHERE kind = 'seen' AND seq_lo IS NOT NULL GROUP BY {_HELD}
    ), compared AS (
        SELECT {_STREAM}, seen_hi,
            max(last) OVER (PARTITION BY topic, lane, partition) > last AS overtaken
        FROM stood
    ), bounds AS (
        SELECT {_STREAM}, max(seen_hi) AS seen_hi, coalesce(bool_or(overtaken), false) AS overtaken
        FROM streams LEFT JOIN compared USING ({_STREAM}) GROUP BY {_STREAM}
    )
    SELECT {_STREAM}, seen_hi, overtaken OR coalesce(max(if(seen_hi IS NULL, NULL, incarnation))
        OVER (PARTITION BY topic, producer, lane) > incarnation, false) AS superseded
    FROM bounds
"""  # noqa: S608  # all of it is ours


def hidden_topics(plan: Plan) -> list[str]:
    """The source topics of whose copies no consumer could see whether they are compacted."""
    told: dict[str, set[bool]] = {}
    for _, session in plan.of(Role.CONSUMER):
        for source, topic in session.topics.items():
            told.setdefault(source, set()).add(topic.policy_hidden and not topic.compacted)
    return sorted(source for source, hidden in told.items() if hidden == {True})


def compacted_topics(plan: Plan) -> list[str]:
    """The source topics whose copies some consumer has seen to be compacted."""
    return sorted(
        {
            source
            for _, session in plan.of(Role.CONSUMER)
            for source, topic in session.topics.items()
            if topic.compacted
        }
    )


def explain(spark: Any, topics: Collection[str], hidden: Collection[str]) -> None:
    """Replace the view `judged`: what compaction of these topics explains is `COMPACTED`.

    And what it would explain of the `hidden`, were they compacted, is `INCONCLUSIVE`.
    """
    found = [(topic, int(Finding.INCONCLUSIVE)) for topic in hidden]
    found += [(topic, int(Finding.COMPACTED)) for topic in topics]
    if not found:
        return
    make_table(spark, "compacted_topics", "topic string, explained int", found)
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
