"""Sweep lines in SQL: spans with weights in, elementary segments with running sums out.

A span [lo, hi) adds its weights at `lo` and takes them back at `hi`; between two neighbouring
bounds nothing changes, so that each stretch between them is one segment of the result. One sort
by key and bound judges everything, whatever the spans' number and overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Spans:
    """A SELECT that gives spans: FROM and WHERE, bounds and weights as expressions."""

    source: str
    weights: Mapping[str, str]
    lo: str = "seq_lo"
    hi: str = "seq_hi"


def sweep(key: Sequence[str], spans: Sequence[Spans]) -> str:
    """The statement whose rows are (key, lo, hi, each weight's sum); all-zero ones are left out."""
    names = sorted({name for each in spans for name in each.weights})
    keys = ", ".join(key)
    selects = []
    for each in spans:
        weights = ", ".join(
            f"CAST({each.weights[name]} AS BIGINT) AS {name}"
            if name in each.weights
            else f"0L AS {name}"
            for name in names
        )
        bounds = f"{each.lo} AS lo, {each.hi} AS hi"
        selects.append(f"SELECT {keys}, {bounds}, {weights} FROM {each.source}")  # noqa: S608
    union = "\nUNION ALL\n".join(selects)
    sums = ", ".join(f"sum(sign * {name}) AS {name}" for name in names)
    line = f"PARTITION BY {keys} ORDER BY at"
    running = ", ".join(
        f"sum({name}) OVER ({line} ROWS UNBOUNDED PRECEDING) AS {name}" for name in names
    )
    any_weight = " OR ".join(f"{name} <> 0" for name in names)
    return f"""
        SELECT * FROM (
            SELECT {keys}, at AS lo, lead(at) OVER ({line}) AS hi, {running} FROM (
                SELECT {keys}, if(sign > 0, lo, hi) AS at, {sums} FROM ({union})
                LATERAL VIEW explode(array(1L, -1L)) AS sign
                WHERE lo < hi GROUP BY {keys}, if(sign > 0, lo, hi)
            )
        ) WHERE hi IS NOT NULL AND ({any_weight})
    """  # noqa: S608  # all of it is ours


def islands(key: Sequence[str], source: str, lo: str, hi: str) -> str:
    """The statement that merges what overlaps or touches: rows are (key, lo, hi)."""
    keys = ", ".join(key)
    return f"""
        SELECT {keys}, min(lo) AS lo, max(hi) AS hi FROM (
            SELECT *, sum(begins) OVER (
                PARTITION BY {keys} ORDER BY lo, hi ROWS UNBOUNDED PRECEDING
            ) AS island FROM (
                SELECT {keys}, {lo} AS lo, {hi} AS hi, CASE WHEN {lo} <= max({hi}) OVER (
                    PARTITION BY {keys} ORDER BY {lo}, {hi}
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) THEN 0 ELSE 1 END AS begins FROM {source}
            )
        ) GROUP BY {keys}, island
    """  # noqa: S608  # all of it is ours
