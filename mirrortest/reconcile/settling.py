"""Where much is to be judged: what is plain leaves the intervals before the statements read them.

Of many streams, those that are `whole`; where much is missing, what is `plain`ly lost. Views made
are the counts of what has left, which the tables' sums add: `whole` (stream, partition, messages),
and `plainly_lost` (stream, partition, minute, messages, unnoticed), whose ids stay packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel

from mirrortest.model.findings import Finding
from mirrortest.reconcile.holes import BUCKET_BITS
from mirrortest.reconcile.intervals import INTERVALS, SPARK_SCHEMA, STREAM
from mirrortest.reconcile.judge import HELD, settle, view
from mirrortest.reconcile.plain import GONE, PLAIN, Settling
from mirrortest.reconcile.session import fit
from mirrortest.reconcile.spans import Spans
from mirrortest.reconcile.whole import WHOLE, opening
from mirrortest.reconcile.worker import map_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.reconcile.whole import Joining
    from mirrortest.reconcile.worker import OfBatches

_COLUMNS = ", ".join(f"`{name}`" for name in INTERVALS.names)
_STREAM, _HELD = ", ".join(STREAM), ", ".join(HELD)
_ROW = f"{_HELD}, identity, session, task, offset_lo, seq_lo, seq_hi"
_LOST = int(Finding.LOST)
# What of a stream can tell whether a hole of it is plain.
_CONCERNED = """(kind IN ('seen', 'sent', 'claimed', 'expired')
    OR (kind = 'found' AND partition IS NULL))
    AND topic IS NOT NULL AND producer IS NOT NULL AND incarnation IS NOT NULL
    AND lane IS NOT NULL AND seq_lo IS NOT NULL"""
_CLAIM = f"(kind = 'claimed' OR (kind = 'found' AND findings = {_LOST})) AND holes IS NULL"
# None is left where all that was packed has been read again, side by side with other sessions.
_TOP = f"""SELECT coalesce(max((seq_hi - 1) >> {BUCKET_BITS}), 0)
    FROM holed_intervals WHERE holes > 0"""  # noqa: S608
_ABOVE = f"""
    SELECT {_ROW}, max(above) AS above FROM (
        SELECT {_ROW}, holes, max(seq_hi) OVER (
            PARTITION BY {_HELD}, identity ORDER BY offset_lo
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS above FROM holed_intervals WHERE kind = 'seen' AND seq_lo IS NOT NULL
    ) WHERE holes > 0 AND above > seq_lo GROUP BY {_ROW}
"""  # noqa: S608

# Holes themselves do not pass through the one task that joins chains.
_UNPACKED = ", ".join(
    "if(holes > 0, NULL, packed) AS packed" if name == "packed" else f"`{name}`"
    for name in INTERVALS.names
)
_FEW = 100_000
_IN_ONE = 1_000_000
"""Intervals that one task joins as quickly as they are spread over more."""


def _bucketed(top: int, *, few: bool) -> str:
    """Rows, once for each bucket that they reach into; claims that are not packed are cut.

    `few`: so many chains stood behind greater numbers that all workers can know them.
    """
    hint = "/*+ BROADCAST(stood_above) */ " if few else ""
    first = f"bucket << {BUCKET_BITS}"
    after = f"(bucket + 1) << {BUCKET_BITS}"
    cut = {
        "seq_lo": f"if({_CLAIM}, greatest(seq_lo, {first}), seq_lo)",
        "seq_hi": f"if({_CLAIM} AND bucket < last, least(seq_hi, {after}), seq_hi)",
    }
    # Elsewhere than where it begins, a chain only tells how far it reaches.
    for name in ("holes", "packed"):
        cut[name] = f"if(kind = 'seen' AND bucket <> seq_lo >> {BUCKET_BITS}, NULL, {name})"
    columns = ", ".join(f"{cut.get(name, f'`{name}`')} AS `{name}`" for name in INTERVALS.names)
    return f"""
        SELECT {columns}, bucket, coalesce(above, 0L) AS above FROM (
            SELECT *, explode(sequence(seq_lo >> {BUCKET_BITS}, last)) AS bucket FROM (
                SELECT {hint}holed_intervals.*, above, greatest(
                    seq_lo >> {BUCKET_BITS}, least((seq_hi - 1) >> {BUCKET_BITS}, {top}L)
                ) AS last
                FROM holed_intervals LEFT JOIN stood_above USING ({_ROW}) WHERE {_CONCERNED}
            )
        ) DISTRIBUTE BY {_STREAM}, bucket SORT BY {_STREAM}, bucket
    """  # noqa: S608


@dataclass(frozen=True)
class Gone:
    """Ids that are plainly lost: how many spans, and a DataFrame of them, packed."""

    spans: int
    messages: int
    packed: Any

    def rows(self, run: str, **named: str) -> Any:
        """A DataFrame as `tables.ids` gives it, with columns of given texts; not in order."""
        names = ("topic", "run", "producer", *named)
        texts = ", ".join(f"{name} string" for name in names)
        schema = f"{texts}, incarnation int, lane long, seq_lo long, seq_hi long"
        return map_batches(self.packed, _unpacking(run, named), schema)

    def first(self, count: int, run: str, **named: str) -> list[dict[str, Any]]:
        """The first spans by stream and number."""
        few = self.packed.orderBy(*STREAM, "seq_lo").limit(count)
        found: list[dict[str, Any]] = []
        unpack = _unpacking(run, named)
        for row in few.collect():
            batch = pa.Table.from_pylist([row.asDict()], PACKED).to_batches()
            found += [
                each for rows in unpack(0, batch) for each in rows.slice(0, count).to_pylist()
            ]
        return found[:count]

    def unpacking(self, run: str, named: dict[str, str]) -> OfBatches:
        """What gives the rows of `rows` for batches of `packed`."""
        return _unpacking(run, named)


PACKED = pa.schema([INTERVALS.field(name) for name in (*STREAM, "seq_lo", "holes", "packed")])
"""The columns of `Gone.packed`."""


def _unpacking(run: str, named: dict[str, str]) -> OfBatches:
    def unpack(_: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(batch.num_rows):
                row = batch.slice(at, 1)
                spans = Spans.packed(row)

                def repeated(value: Any, kind: pa.DataType, count: int = len(spans)) -> pa.Array:
                    return pa.repeat(pa.scalar(value, kind), count)

                topic, producer, incarnation, lane = (row[name][0].as_py() for name in STREAM)
                columns = {
                    "topic": repeated(topic, pa.string()),
                    "run": repeated(run, pa.string()),
                    "producer": repeated(producer, pa.string()),
                    **{name: repeated(text, pa.string()) for name, text in named.items()},
                    "incarnation": repeated(incarnation, pa.int32()),
                    "lane": repeated(lane, pa.int64()),
                    "seq_lo": pa.array(spans.lo),
                    "seq_hi": pa.array(spans.hi),
                }
                yield pa.record_batch(list(columns.values()), names=list(columns))

    return unpack


def settle_whole(spark: Any, intervals: Any, joining: Joining, *, count: int, holes: bool) -> Any:
    """The intervals, out of their bundles, with chains joined and without whole streams.

    `count` is how many there are; `holes`: some of them have holes packed.
    """
    intervals.createOrReplaceTempView("bundled_intervals")
    bundles = spark.sql(f"SELECT {_UNPACKED} FROM bundled_intervals")  # noqa: S608
    if count <= _IN_ONE:
        fit(spark, 0, bundled=True)
        apart = bundles.coalesce(1)
    else:
        fit(spark, count, bundled=True)
        every = map_batches(bundles, lambda _, batches: opening(batches), SPARK_SCHEMA)
        every.persist(StorageLevel.DISK_ONLY).count()
        fit(spark, count)
        apart = every.repartition(*STREAM)
    joined = map_batches(
        apart, lambda _, batches: joining.join(batches), f"{SPARK_SCHEMA}, source int"
    )
    joined = joined.localCheckpoint()
    joined.createOrReplaceTempView("joined")
    fit(spark, joined.count())
    view(spark, "whole", f"SELECT {_HELD}, messages, source FROM joined WHERE kind = '{WHOLE}'")  # noqa: S608
    packed = (
        f"UNION ALL SELECT {_COLUMNS} FROM bundled_intervals WHERE holes > 0" if holes else ""  # noqa: S608
    )
    return spark.sql(f"SELECT {_COLUMNS} FROM joined WHERE kind <> '{WHOLE}' {packed}")  # noqa: S608


def settle_holes(spark: Any, intervals: Any, settling: Settling) -> tuple[Any, Gone]:
    """The intervals without holes, and what is plainly lost."""
    intervals.createOrReplaceTempView("holed_intervals")
    top = spark.sql(_TOP).first()[0]
    settle(spark, "stood_above", _ABOVE)
    few = spark.table("stood_above").count() <= _FEW
    settled = map_batches(
        spark.sql(_bucketed(top, few=few)),
        lambda _, batches: settling.settle(batches),
        f"{SPARK_SCHEMA}, unnoticed long",
    ).persist(StorageLevel.DISK_ONLY)
    settled.createOrReplaceTempView("settled")
    settle(
        spark,
        "plainly_lost",
        f"""SELECT {_HELD}, minute, sum(messages) AS messages, sum(unnoticed) AS unnoticed
        FROM settled WHERE kind = '{PLAIN}' GROUP BY {_HELD}, minute""",  # noqa: S608
    )
    rest = spark.sql(
        f"""SELECT {_COLUMNS} FROM settled WHERE kind NOT IN ('{PLAIN}', '{GONE}')
        UNION ALL SELECT {_COLUMNS} FROM holed_intervals WHERE NOT coalesce({_CONCERNED}, false)"""  # noqa: S608
    )
    packed = ", ".join(PACKED.names)
    gone = spark.sql(f"SELECT {packed} FROM settled WHERE kind = '{GONE}'")  # noqa: S608
    spans = spark.sql(f"SELECT sum(holes) FROM settled WHERE kind = '{GONE}'").first()[0]  # noqa: S608
    messages = spark.sql("SELECT sum(messages) FROM plainly_lost").first()[0]
    return rest, Gone(spans or 0, messages or 0, gone)
