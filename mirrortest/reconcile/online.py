"""The comparison with the online verdict: by partition, stream, finding and id.

A partition's `found` rows say what its checker had found at a next offset; the same is judged
here from the rows below that offset, and every id that only one of the two names is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.check.verdict import Finding
from mirrortest.reconcile.coverage import ENDLESS
from mirrortest.reconcile.judge import HELD, IN_PARTITION, STREAM, held_below_cuts, settle, view
from mirrortest.reconcile.sweep import Spans, sweep
from mirrortest.reconcile.tables import rows

if TYPE_CHECKING:
    from collections.abc import Collection

# A partition that was read to its end and shows no `found` row was found clean at that end.
_CUTS = f"""
    SELECT topic, partition, coalesce(max(if(kind = 'found', offset_hi, NULL)), {ENDLESS}) AS cut
    FROM intervals WHERE kind IN ('found', 'tail') AND partition IS NOT NULL
        AND (topic, partition) NOT IN (
            SELECT topic, partition FROM intervals
            WHERE identity > 0 AND partition IS NOT NULL AND topic IS NOT NULL
        )
    GROUP BY topic, partition
"""  # noqa: S608

_BEYOND = """
    SELECT 1 FROM intervals JOIN cuts USING (topic, partition)
    WHERE kind = 'seen' AND offset_hi > cut LIMIT 1
"""


class Disagreement(NamedTuple):
    """Messages with a finding that only one side names; `partition` is None for the union."""

    topic: str
    partition: int | None
    finding: str
    only_online: int
    only_offline: int

    def __str__(self) -> str:
        at = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return (
            f"{at}: {self.finding}: {self.only_online:,} messages were found online alone, "
            f"{self.only_offline:,} offline alone"
        )


class Comparison(NamedTuple):
    """What could be compared, and where the two differ."""

    partitions: int
    disagreements: tuple[Disagreement, ...]


COMPARED = (*IN_PARTITION, Finding.LOST)
"""The findings that both sides must agree on."""


def compare(spark: Any, settled: Collection[str], *, quiet: bool) -> Comparison:
    """Hold the consumers' verdicts against the rows; makes views of its own.

    `settled` are the topics that were read to their end: there, what is lost must be the same.
    `quiet`: neither side found anything, so that they agree wherever they can be compared.
    """
    settle(spark, "cuts", _CUTS)
    partitions = spark.table("cuts").count()
    if quiet:
        return Comparison(partitions, ())
    differing = _by_partition(spark) if partitions else []
    if settled:
        differing += [each for each in _lost(spark) if each.topic in settled]
    return Comparison(partitions, tuple(differing))


def _by_partition(spark: Any) -> list[Disagreement]:
    if spark.sql(_BEYOND).first() is None:
        # The usual case: the consumers' last word is on all that they read.
        view(spark, "held_cut", "SELECT held.* FROM held JOIN cuts USING (topic, partition)")
    else:
        held_below_cuts(spark)

    def weights(column: str, side: str) -> dict[str, str]:
        return {
            f"{side}_{finding.label}": f"if({column} & {int(finding)} <> 0, 1, 0)"
            for finding in IN_PARTITION
        }

    online = """(SELECT * FROM intervals JOIN cuts USING (topic, partition)
        WHERE kind = 'found' AND offset_hi = cut)"""
    segments = sweep(
        HELD,
        [
            Spans("held_cut", weights("found", "off"), "lo", "hi"),
            Spans(online, weights("findings", "on")),
        ],
    )
    sums = ", ".join(
        f"sum(if(on_{name} > 0 AND off_{name} = 0, hi - lo, 0)) AS on_{name}, "
        f"sum(if(off_{name} > 0 AND on_{name} = 0, hi - lo, 0)) AS off_{name}"
        for name in (finding.label for finding in IN_PARTITION)
    )
    statement = f"SELECT topic, partition, {sums} FROM ({segments}) GROUP BY topic, partition"  # noqa: S608
    return [
        Disagreement(row["topic"], row["partition"], name, row[f"on_{name}"], row[f"off_{name}"])
        for row in rows(spark.sql(statement + " ORDER BY topic, partition"))
        for name in (finding.label for finding in IN_PARTITION)
        if row[f"on_{name}"] or row[f"off_{name}"]
    ]


def _lost(spark: Any) -> list[Disagreement]:
    lost = int(Finding.LOST)
    segments = sweep(
        STREAM,
        [
            Spans(
                "judged",
                {"off": f"if(findings & {lost} <> 0, 1, 0)", "seen": "if(seen, 1, 0)"},
                "lo",
                "hi",
            ),
            Spans(
                "intervals WHERE kind = 'claimed' OR (kind = 'found' AND partition IS NULL "
                f"AND findings & {lost} <> 0)",
                {"online": "1"},
            ),
        ],
    )
    statement = f"""
        SELECT topic, sum(if(online > 0 AND off = 0 AND seen = 0, hi - lo, 0)) AS only_online,
            sum(if(off > 0 AND online = 0, hi - lo, 0)) AS only_offline
        FROM ({segments}) GROUP BY topic ORDER BY topic
    """  # noqa: S608
    return [
        Disagreement(
            row["topic"], None, Finding.LOST.label, row["only_online"], row["only_offline"]
        )
        for row in rows(spark.sql(statement))
        if row["only_online"] or row["only_offline"]
    ]
