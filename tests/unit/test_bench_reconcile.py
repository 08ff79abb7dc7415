"""The peers of `make bench-reconcile` judge correctly; otherwise their speed means nothing."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrortest.model.findings import Finding
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.seqlog.options import Detail
from tests.bench_reconcile.judgement import COLUMNS, answer, difference, our_answer
from tests.bench_reconcile.measure import Cost, run
from tests.bench_reconcile.report import Case, table

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture(scope="module", params=["intervals", "messages", "holes"])
def logs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    """A run's directory, its detail and its truth; `holes`: rows of one distance, with gaps."""
    folder = tmp_path_factory.mktemp("logs")
    holes = request.param == "holes"
    kinds = {Finding.LOST: 40, Finding.DUPLICATED: 40, Finding.REORDERED: 5}
    written = synthesize(
        SynthOptions(
            log_dir=folder,
            run="s",
            messages=6000,
            # With one producer, only losses and copies change the distance from seq to offset.
            producers=1 if holes else 3,
            lanes=3,
            incarnations=2,
            run_length=20,
            seed=5,
            detail=Detail.INTERVALS if request.param == "intervals" else Detail.MESSAGES,
            anomalies=kinds if holes else spread(len(KINDS) * 6, None),
        )
    )
    return folder / "run=s", request.param.replace("holes", "messages"), written.truth


@pytest.mark.parametrize("peer", ["duckdb", "polars"])
def test_a_peer_finds_exactly_the_truth(
    logs: tuple[Path, str, str], tmp_path: Path, peer: str
) -> None:
    """Findings are compared by producer, incarnation, topic, lane, seq and finding."""
    pytest.importorskip(peer, reason="in the dependency group `bench`")
    judge = importlib.import_module(f"tests.bench_reconcile.{peer}_peer").judge
    directory, detail, truth = logs
    target = tmp_path / "answer.parquet"
    judge(str(directory), detail, str(target), "1GB", str(tmp_path))
    assert difference(answer(pq.read_table(truth)), answer(pq.read_table(target))) is None


def test_another_answer_is_told() -> None:
    """A missing finding, a false one and a repeated one are each reported."""
    rows = [dict(zip(COLUMNS, ("p", 1, "t", 0, seq, "lost"), strict=True)) for seq in range(3)]
    truth = answer(pa.Table.from_pylist(rows[:2]))
    assert difference(truth, answer(pa.Table.from_pylist(rows[1::-1]))) is None
    reported = difference(truth, answer(pa.Table.from_pylist([rows[0], rows[0], rows[2]])))
    assert "1 of 2 findings missing, 1 false, 1 told twice" in str(reported)


def test_ours_is_told_by_ranges(tmp_path: Path) -> None:
    """Each seq of a range becomes a message; findings that are not compared are left out."""
    rows = [
        {**dict(zip(COLUMNS[:4], ("p", 1, "t", 0), strict=True)), "finding": finding,
         "seq_lo": lo, "seq_hi": hi}
        for finding, lo, hi in (("lost", 3, 6), ("late", 0, 9), ("phantom", 1, 2))
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    messages = answer(our_answer(tmp_path / "x.parquet")).to_pylist()
    assert [(row["seq"], row["finding"]) for row in messages] == [
        (1, "phantom"), (3, "lost"), (4, "lost"), (5, "lost"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "limit", "seconds", "why"),
    [
        ("x = bytes(64 << 20); print(len(x))", GIB, 60, None),
        ("import time; x = b'1' * (400 << 20); time.sleep(60)", GIB // 4, 60, "out of memory"),
        ("import time; time.sleep(60)", GIB, 0.5, "timed out"),
        ("raise SystemExit('a word')", GIB, 60, "failed (1): a word"),
    ],
)
def test_a_command_is_measured_and_bounded(
    tmp_path: Path, code: str, limit: int, seconds: float, why: str | None
) -> None:
    """Its process tree is measured, and killed when it exceeds a bound."""
    nested = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {code!r}]))"
    command = [sys.executable, "-c", nested]
    cost = run(command, tmp_path, limit=limit, seconds=seconds, spare_disk=0)
    assert cost.failed is None if why is None else why in str(cost.failed)
    assert cost.wall > 0


def test_the_table_tells_ratios_and_failures() -> None:
    """Ratios are to ours of the same size; a failure is shown, and a time within noise is not."""
    start = Cost(2.0, 1.0, 10**8)
    cases = [
        Case(10, "messages", "ours", 0, Cost(4.0, 3.0, 10**9), start),
        Case(10, "messages", "fast", 0, Cost(3.0, 3.0, 10**9), Cost(1.0, 1.0, 0)),
        Case(10, "messages", "big", 0, Cost(9.0, 3.0, 10**9, "out of memory"), start),
        Case(10, "messages", "none", 0, Cost(2.2, 3.0, 10**9), Cost(2.1, 1.0, 0)),
    ]
    shown = table(cases, "ours")
    cells = [list(column.cells) for column in shown.columns]
    assert cells[2] == ["ours", "fast", "big", "none"]
    assert cells[-2:] == [["1.00", "0.75", "", "0.55"], ["1.00", "1.00", "", "-"]]
    assert cells[3][2] == "out of memory"
