"""The comparison with the online verdict: by partition, stream, finding and id.

A partition's `found` rows say what its checker had found at a next offset; the same is judged
here from the rows below that offset, and every id that only one of the two names is told. Where
the online judge says that it could not decide, nothing is against it: ids that it had given up, and
what was missing when the last consumer ended before the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.model.findings import IN_PARTITION, Finding
from mirrortest.reconcile.intervals import STREAM
from mirrortest.reconcile.judge import HELD, held_before_cuts, view
from mirrortest.reconcile.sweep import Spans, sweep
from mirrortest.reconcile.tables import rows

if TYPE_CHECKING:
    from collections.abc import Collection


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
    """What could be compared, and where the two differ.

    `decided` are, by topic, the messages that are lost and that the last consumer left undecided.
    """

    partitions: int
    disagreements: tuple[Disagreement, ...]
    decided: tuple[tuple[str, int], ...] = ()


COMPARED = (*IN_PARTITION, Finding.LOST)
"""The findings that both sides must agree on."""


def compare(
    spark: Any,
    topics: Collection[str],
    *,
    partitions: int,
    beyond: bool,
    overlapping: bool,
    quiet: bool,
    beside: bool,
) -> Comparison:
    """Hold the consumers' verdicts against the rows; makes views of its own.

    `topics` are those of which what is lost is compared: of one that was not read as a whole what
    is proven all the same. Empty where nobody told an end.
    `partitions` have a verdict; `beyond`: messages were seen behind one; `overlapping`: some were
    read more than once. `quiet`: neither side found anything, so that they agree wherever they can
    be compared. `beside`: the view `plainly_lost` has what is lost beside `judged`.
    """
    if quiet:
        return Comparison(partitions, ())
    if beyond:
        held_before_cuts(spark, overlapping=overlapping)
    else:
        # The usual case: the consumers' last word is on all that they read.
        view(spark, "held_cut", "SELECT held.* FROM held JOIN cuts USING (topic, partition)")
    differing = _by_partition(spark) if partitions else []
    decided: list[tuple[str, int]] = []
    for row in _lost(spark, beside=beside) if topics else ():
        topic, online, offline = row["topic"], row["only_online"], row["only_offline"]
        if topic in topics and (online or offline):
            differing.append(Disagreement(topic, None, Finding.LOST.label, online, offline))
        if row["decided"]:
            decided.append((topic, row["decided"]))
    return Comparison(partitions, tuple(differing), tuple(decided))


def _by_partition(spark: Any) -> list[Disagreement]:
    given_up = int(Finding.INCONCLUSIVE)

    def weights(column: str, side: str) -> dict[str, str]:
        return {
            f"{side}_{finding.label}": f"if({column} & {int(finding)} <> 0, 1, 0)"
            for finding in IN_PARTITION
        }

    online = """(SELECT intervals.* FROM intervals JOIN cuts USING (topic, partition, identity)
        WHERE kind = 'found' AND offset_hi = cut)"""
    segments = sweep(
        HELD,
        [
            Spans("held_cut", weights("found", "off"), "lo", "hi"),
            Spans(
                online,
                weights("findings", "on") | {"given_up": f"if(findings & {given_up} <> 0, 1, 0)"},
            ),
        ],
    )
    sums = ", ".join(
        f"sum(if(on_{name} > 0 AND off_{name} = 0, hi - lo, 0)) AS on_{name}, "
        f"sum(if(off_{name} > 0 AND on_{name} = 0, hi - lo, 0)) AS off_{name}"
        for name in (finding.label for finding in IN_PARTITION)
    )
    statement = f"""SELECT topic, partition, {sums} FROM ({segments}) WHERE given_up = 0
        GROUP BY topic, partition"""  # noqa: S608
    return [
        Disagreement(row["topic"], row["partition"], name, row[f"on_{name}"], row[f"off_{name}"])
        for row in rows(spark.sql(statement + " ORDER BY topic, partition"))
        for name in (finding.label for finding in IN_PARTITION)
        if row[f"on_{name}"] or row[f"off_{name}"]
    ]


def _lost(spark: Any, *, beside: bool) -> list[dict[str, Any]]:
    """By topic: what only one side says is lost, and what only the logs could decide."""
    lost, explained = int(Finding.LOST), int(Finding.COMPACTED | Finding.INCONCLUSIVE)
    undecided = f"""(SELECT intervals.* FROM intervals JOIN last_words USING (topic, session)
        WHERE kind = 'found' AND partition IS NULL
            AND findings & {int(Finding.IN_FLIGHT | Finding.INCONCLUSIVE)} <> 0)"""  # noqa: S608
    segments = sweep(
        STREAM,
        [
            Spans(
                "judged",
                {
                    "off": f"if(findings & {lost} <> 0, 1, 0)",
                    # A claim that came too early: the message is explained, or may be.
                    "seen": f"if(seen OR findings & {explained} <> 0, 1, 0)",
                },
                "lo",
                "hi",
            ),
            Spans(
                "intervals WHERE kind = 'claimed' OR (kind = 'found' AND partition IS NULL "
                f"AND findings & {lost} <> 0)",
                {"online": "1"},
            ),
            Spans(undecided, {"undecided": "1"}),
        ],
    )
    statement = f"""
        SELECT topic, sum(if(online > 0 AND off = 0 AND seen = 0, hi - lo, 0)) AS only_online,
            sum(if(off > 0 AND online = 0 AND undecided = 0, hi - lo, 0)) AS only_offline,
            sum(if(off > 0 AND online = 0 AND undecided > 0, hi - lo, 0)) AS decided
        FROM ({segments}) GROUP BY topic
    """  # noqa: S608
    if beside:
        statement += (
            " UNION ALL SELECT topic, 0, sum(unnoticed), 0 FROM plainly_lost GROUP BY topic"
        )
    names = ("only_online", "only_offline", "decided")
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    return rows(spark.sql(f"SELECT topic, {sums} FROM ({statement}) GROUP BY topic ORDER BY topic"))  # noqa: S608
