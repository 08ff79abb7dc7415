"""The judgement on Polars: as on DuckDB, with its streaming engine and lazy frames."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from tests.bench_reconcile.judgement import COLUMNS, CORRUPTED, MISROUTED

STREAM = ["topic", "producer", "incarnation", "lane"]
_ENDLESS = 1 << 62


def judge(run: str, detail: str, target: str, memory: str, scratch: str) -> None:
    """Judge the logs in a run's directory and write the answer; Polars has no memory limit."""
    producer, consumer = (
        pl.scan_parquet(sorted(Path(run).glob(f"role={role}/*/*.parquet")), hive_partitioning=False)
        for role in ("producer", "consumer")
    )
    streams = (
        producer.filter(pl.col("kind").is_in(["reserved", "end"]))
        .select(STREAM)
        .unique()
        .collect(engine="streaming")
        .with_row_index("stream")
    )
    seen = _islands(_runs(consumer, "seen", "partition", detail, streams), "partition")
    sent = _islands(_runs(producer, "sent", "outcome", detail, streams), "outcome", by_seq=True)
    found = pl.concat(
        [
            _compared(producer, seen, sent, streams),
            _reordered(seen),
            _shown(consumer, streams),
        ]
    )
    found.join(streams, on="stream").select(COLUMNS).write_parquet(target)


def _runs(
    log: pl.LazyFrame, kind: str, what: str, detail: str, streams: pl.DataFrame
) -> pl.DataFrame:
    """The logged intervals, or intervals made of messages."""
    rows = log.filter((pl.col("kind") == kind) & pl.col("seq_lo").is_not_null()).select(
        *STREAM,
        what,
        lo="seq_lo",
        hi="seq_hi",
        # A message that was not acknowledged has no offset.
        distance=(pl.col("offset_lo") - pl.col("seq_lo")).fill_null(-_ENDLESS),
    )
    runs = ["stream", what, "lo", "hi", "distance"]
    numbered = streams.lazy()
    if detail == "intervals":
        return rows.join(numbered, on=STREAM).select(runs).collect(engine="streaming")
    groups = (
        rows.group_by(*STREAM, what, "distance")
        .agg(lo=pl.col("lo").min(), hi=pl.col("hi").max(), messages=pl.len())
        .join(numbered, on=STREAM)
        .collect(engine="streaming")
    )
    contiguous = pl.col("messages") == pl.col("hi") - pl.col("lo")
    torn = groups.filter(~contiguous).drop("lo", "hi")
    kept = groups.filter(contiguous).select(runs)
    if torn.is_empty():
        return kept
    again = rows.join(torn.lazy(), on=[*STREAM, what, "distance"]).select(runs).unique()
    return pl.concat([kept, again.collect(engine="streaming")])


def _islands(runs: pl.DataFrame, what: str, *, by_seq: bool = False) -> pl.DataFrame:
    """Adjacent runs, joined; `place` is their order."""
    place = pl.col("lo") if by_seq else pl.col("lo") + pl.col("distance")
    runs = runs.with_columns(place=place).sort("stream", what, "place")
    same = (pl.col("stream") == pl.col("stream").shift(1)) & (pl.col(what) == pl.col(what).shift(1))
    goes_on = (same & (pl.col("lo") == pl.col("hi").shift(1))).fill_null(value=False)
    starts = runs.select((~goes_on).alias("starts"))["starts"]
    begun = runs.filter(starts)
    ended = runs.filter(starts.shift(-1, fill_value=True))
    return begun.with_columns(hi=ended["hi"])


def _exploded(spans: pl.DataFrame, hi: str = "hi") -> pl.DataFrame:
    """A row for each `seq` of the spans."""
    return spans.with_columns(seq=pl.int_ranges("lo", hi)).explode("seq")


def _compared(
    producer: pl.LazyFrame, seen: pl.DataFrame, sent: pl.DataFrame, streams: pl.DataFrame
) -> pl.DataFrame:
    """Lost, duplicated and phantom messages, by comparing both sides for each seq."""
    recorded = {}
    for kind, lo, hi in (
        ("reserved", pl.col("seq_lo"), pl.col("seq_hi")),
        ("end", pl.col("seq_hi"), pl.lit(_ENDLESS)),
    ):
        recorded[kind] = (
            producer.filter(pl.col("kind") == kind)
            .join(streams.lazy(), on=STREAM)
            .select("stream", lo=lo, hi=hi)
            .collect(engine="streaming")
        )
    sides = (
        (seen, "seen"),
        (sent.filter(pl.col("outcome") == 1), "acked"),
        (sent.filter(pl.col("outcome") == 2), "failed"),
        (recorded["end"], "failed"),
        (sent, "reserved"),
        (recorded["reserved"], "reserved"),
    )
    names = ["seen", "acked", "failed", "reserved"]
    segments = (
        pl.concat(
            spans.select(
                "stream",
                place=pl.col(bound),
                **{name: pl.lit(sign * (name == what), pl.Int64) for name in names},
            )
            for spans, what in sides
            for bound, sign in (("lo", 1), ("hi", -1))
        )
        .group_by("stream", "place")
        .sum()
        .sort("stream", "place")
        .with_columns(
            pl.col("place").shift(-1).over("stream").alias("hi"),
            *(pl.col(name).cum_sum().over("stream") for name in names),
        )
        .rename({"place": "lo"})
    )
    seen_there, acked = pl.col("seen") > 0, pl.col("acked") > 0
    never = (pl.col("failed") > 0) | (pl.col("reserved") == 0)
    return pl.concat(
        _exploded(segments.filter(test)).select("stream", "seq", finding=pl.lit(label))
        for label, test in (
            ("lost", acked & ~seen_there),
            ("duplicated", pl.col("seen") > 1),
            ("phantom", seen_there & ~acked & never),
        )
    )


def _reordered(seen: pl.DataFrame) -> pl.DataFrame:
    """First copies that arrived after a higher seq in their partition."""
    above = pl.col("hi").cum_max().shift(1).over("stream", "partition")
    late = seen.with_columns(above=above).filter(pl.col("lo") < pl.col("above"))
    late = _exploded(late.with_columns(to=pl.min_horizontal("hi", "above")), "to")
    late = late.select("stream", "partition", "seq", "place").with_row_index("number")
    earlier = late.join(seen, on=["stream", "partition"], suffix="_other").filter(
        (pl.col("lo") <= pl.col("seq"))
        & (pl.col("seq") < pl.col("hi"))
        & (pl.col("place_other") < pl.col("place"))
    )
    late = late.join(earlier, on="number", how="anti")
    return late.select("stream", "seq", finding=pl.lit("reordered")).unique()


def _shown(consumer: pl.LazyFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """Corrupted and misrouted: findings that a message shows by itself."""
    shown = (
        consumer.filter(
            (pl.col("kind") == "seen") & (pl.col("findings") != 0) & pl.col("seq_lo").is_not_null()
        )
        .join(streams.lazy(), on=STREAM)
        .select("stream", "findings", lo="seq_lo", hi="seq_hi")
        .collect(engine="streaming")
    )
    return pl.concat(
        _exploded(shown.filter((pl.col("findings") & bit) != 0))
        .select("stream", "seq", finding=pl.lit(label))
        .unique()
        for bit, label in ((CORRUPTED, "corrupted"), (MISROUTED, "misrouted"))
    )


if __name__ == "__main__":
    judge(*sys.argv[1:])
