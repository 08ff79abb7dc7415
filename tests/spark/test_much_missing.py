"""A run with many missing messages gets the same result if it is packed and in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.model.findings import Finding
from mirrortest.reconcile import holes, missing, source
from mirrortest.reconcile.bundle import SCANNED
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.steps import Spark
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.seqlog.location import Location
from tests.spark.spark_history import History, seen, stream

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.reconcile.holes import Packing

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOST = 3_000
FEW = 500
"""The driver writes tables of up to so many rows: there are more ids, so workers write."""


def _table(place: Path, name: str) -> pa.Table:
    """A result table in an order that does not depend on which process wrote it."""
    table = pq.read_table(place / f"{name}.parquet")
    columns = sorted(table.schema.names)
    scalars = [
        name for name in columns if not str(table.schema.field(name).type).startswith("list")
    ]
    return table.select(columns).sort_by([(name, "ascending") for name in scalars]).combine_chunks()


@pytest.fixture
def packed_holes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """For each scan of the logs: by kind of row, how many holes are packed in what it returns."""
    scan = Spark.scan
    found: list[dict[str, int]] = []

    def watched(engine: Spark, tasks: Any, read: Any) -> Any:
        bundles = scan(engine, tasks, read)
        rows = pa.concat_tables(table for _, table in bundles.tables(SCANNED))
        with_holes = (
            rows.filter(pc.field("holes") > 0).group_by("kind").aggregate([("holes", "sum")])
        )
        found.append({row["kind"]: row["holes_sum"] for row in with_holes.to_pylist()})
        return bundles

    monkeypatch.setattr(Spark, "scan", watched)
    return found


def test_much_that_is_missing_is_judged_as_little_is(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed_holes: list[dict[str, int]],
) -> None:
    """Packed and unpacked losses give the same summary and tables, which match the truth."""
    written = synthesize(
        SynthOptions(
            log_dir=tmp_path,
            run="s",
            messages=20_000,
            anomalies=spread(len(KINDS) * 5, LOST),
            lanes=3,
            producers=2,
            seed=7,
        )
    )

    def judged(name: str, packing: Packing) -> tuple[dict[str, Any], Path]:
        monkeypatch.setattr(holes, "PACKING", packing)
        place = tmp_path / name
        summary = reconcile(
            spark, plan([str(tmp_path)], "s"), thresholds(()), Location.parse(place)
        )
        return summary.model_dump(exclude={"tables"}), place

    usual, rows = judged("rows", holes.NO_PACKING)
    monkeypatch.setattr(missing, "MOST_ROWS", FEW)
    monkeypatch.setattr(source, "_SMALL", 0)
    packed, settled = judged("packed", holes.Packing(0, 0))
    assert packed == usual
    of_usual, of_packed = packed_holes
    assert of_usual == {}
    many = {kind for kind, count in of_packed.items() if count >= LOST}
    assert many == {"seen", "claimed", "found"}
    assert packed["counts"][Finding.LOST.label] == LOST == written.findings[Finding.LOST.label]
    assert packed["online"]["disagreements"] == packed["inconclusive"] == []
    assert len([*(settled / "findings.parquet").iterdir()]) > 1
    names = {place.stem for place in rows.glob("*.parquet")}
    assert (
        names == {place.stem for place in settled.glob("*.parquet")} > {"findings", "undelivered"}
    )
    for name in names:
        assert _table(settled, name).equals(_table(rows, name)), name
    truth = pq.read_table(written.truth)
    ids = pq.read_table(settled / "findings.parquet").to_pylist()
    columns = truth.schema.names[:-2]
    assert {
        (*(row[name] for name in columns), seq, row["finding"])
        for row in ids
        for seq in range(row["seq_lo"], row["seq_hi"])
    } == {tuple(row.values()) for row in truth.to_pylist()}


def test_what_was_packed_and_then_read_again_is_judged(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed_holes: list[dict[str, int]],
) -> None:
    """If two sessions read the same offsets, nothing stays packed, and losses are found."""
    monkeypatch.setattr(holes, "PACKING", holes.Packing(0, 0))
    of = stream()
    history = History()
    history.sends(of, 30)
    read = [seen(of, lo, lo + 9, lo - lo // 10) for lo in (0, 10, 20)]
    history.consumers = [[*read], [*read]]
    history.reads(27)
    history.write(tmp_path)
    summary = reconcile(spark, plan([str(tmp_path)], None), thresholds(()))
    assert packed_holes == [{"seen": 4}, {}]
    assert (summary.counts["lost"], summary.counts["delivered"]) == (3, 27)
    assert summary.counts["duplicated"] == 0
    assert [each.seq_lo for each in summary.undelivered] == [9, 19, 29]


@pytest.mark.parametrize(
    ("packing", "packed"), [(holes.NO_PACKING, {}), (holes.Packing(20, 0), {"seen": 2})]
)
def test_what_is_packed_only_as_it_is_read_again_is_judged(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed_holes: list[dict[str, int]],
    packing: Packing,
    packed: dict[str, int],
) -> None:
    """If a killed reader's successor reads the same again, there are enough rows to be packed.

    Two interleaved streams are one chain each, but many chains together with a second reading. The
    losses are where only one session read.
    """
    monkeypatch.setattr(holes, "PACKING", packing)
    streams = [stream(0), stream(1)]
    history = History({"t": 1})
    for of in streams:
        history.sends(of, 100)
    missing_from = 90
    pieces = [
        seen(of, lo, lo + 5 - (lo >= missing_from), 2 * lo + 5 * of.lane)
        for lo in range(0, 100, 5)
        for of in streams
    ]
    history.consumers = [pieces[:30], [*pieces]]
    history.reads(200)
    history.write(tmp_path)
    summary = reconcile(spark, plan([str(tmp_path)], None), thresholds(()))
    assert packed_holes == [{}, packed]
    counts = {name: summary.counts[name] for name in ("lost", "delivered", "duplicated", "seen")}
    assert counts == {"lost": 4, "delivered": 196, "duplicated": 0, "seen": 196}
