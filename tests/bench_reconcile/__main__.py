"""`make bench-reconcile`: mirrortest, naive Spark, DuckDB and Polars on the same logs.

Each engine runs as its own command, on two threads, with 4 GB by its own setting (Spark's heap,
DuckDB's memory_limit; Polars has none). It is killed once its process tree uses half as much again.
Its start-up is the cost of the same command on an almost empty run. A wrong answer ends the bench
before the table is printed. Figures are comparable only within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from rich.console import Console

from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import SynthOptions, spread
from mirrortest.seqlog.options import Detail
from tests.bench_reconcile.judgement import THREADS, answer, difference, our_answer
from tests.bench_reconcile.measure import Cost, run
from tests.bench_reconcile.report import Case, table

OURS = "mirrortest"
ENGINES = (OURS, "naive Spark", "DuckDB", "Polars")
_MODULES = {"naive Spark": "spark_peer", "DuckDB": "duckdb_peer", "Polars": "polars_peer"}
_MEMORY = 4
_FOUND = 99
"""mirrortest's exit code if it finds anomalies."""
_EMPTY = 1000
_ANOMALIES = 1000
_WIDTH = 110
_SPARE_DISK = 20 << 30
err = Console(stderr=True)


@dataclass(frozen=True)
class _Bench:
    folder: Path
    seconds: float

    def logs(self, messages: int, detail: Detail) -> tuple[str, str]:
        """Write the logs of a run; its id, and the path of its truth."""
        name = f"{detail.value[0]}{messages}"
        written = synthesize(
            SynthOptions(
                log_dir=self.folder / "logs",
                run=name,
                messages=messages,
                detail=detail,
                anomalies=spread(min(_ANOMALIES, messages // 100), None),
                seed=7,
                run_length=100 if messages > _EMPTY else 20,
                jobs=os.cpu_count() or 1,
            )
        )
        return name, written.truth

    def measure(self, engine: str, name: str, detail: Detail, truth: str) -> Cost:
        """Run one engine on one run. Ends the bench if its answer differs from the truth."""
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        target = scratch / "answer.parquet"
        # Fill the page cache: otherwise only the first engine would wait for the disk.
        for file in (self.folder / "logs" / f"run={name}").rglob("*.parquet"):
            file.read_bytes()
        cost = run(
            self._command(engine, name, detail, target, scratch),
            scratch,
            limit=_MEMORY * 3 << 29,
            seconds=self.seconds,
            spare_disk=_SPARE_DISK,
            fine=(_FOUND,) if engine == OURS else (0,),
            environment={"POLARS_MAX_THREADS": str(THREADS)},
        )
        if cost.failed is None:
            read = our_answer if engine == OURS else pq.read_table
            wrong = difference(answer(pq.read_table(truth)), answer(read(target)))
            if wrong is not None:
                err.print(f"[bold red]{engine} on {name}[/]: {wrong}; nothing is told of its speed")
                sys.exit(_FOUND)
        shutil.rmtree(scratch)
        return cost

    def _command(
        self, engine: str, name: str, detail: Detail, target: Path, scratch: Path
    ) -> list[str]:
        python = [sys.executable, "-m"]
        logs = self.folder / "logs"
        if engine == OURS:
            result = scratch / "result"
            # `our_answer` reads the ids from here.
            target.symlink_to(result / "findings.parquet")
            return [
                *(*python, "mirrortest", "reconcile", str(logs), "--run", name, "--json"),
                *("--output", str(result), "--master", f"local[{THREADS}]"),
                *("--driver-memory", f"{_MEMORY}g"),
            ]
        return [
            *(*python, f"tests.bench_reconcile.{_MODULES[engine]}", str(logs / f"run={name}")),
            *(detail.value, str(target), f"{_MEMORY}GB", str(scratch)),
        ]


def main() -> None:
    """Write the logs, run everything, print the table and save the figures."""
    options = _options()
    options.output.mkdir(parents=True, exist_ok=True)
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-reconcile-") as place:
        bench = _Bench(Path(place), options.timeout)
        starts: dict[tuple[str, Detail], Cost] = {}
        for messages, detail in options.sizes:
            err.print(f"{messages:,} messages as {detail.value}")
            for engine in options.engines:
                if (engine, detail) not in starts:
                    starts[engine, detail] = _start(bench, engine, detail)
            name, truth = bench.logs(messages, detail)
            for turn in range(options.repeat):
                for engine in options.engines:
                    cost = bench.measure(engine, name, detail, truth)
                    start = starts[engine, detail]
                    cases.append(Case(messages, detail.value, engine, turn, cost, start))
                    err.print(f"  {engine}: {cost.failed or f'{cost.wall:.1f} s'}")
            shutil.rmtree(bench.folder / "logs" / f"run={name}")
    now = datetime.now(UTC)
    # A file or a pipe has no width of its own.
    out = Console(width=None if sys.stdout.isatty() else _WIDTH)
    out.print(table(cases, OURS))
    path = options.output / f"bench-reconcile-{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(_figures(now, cases), indent=1) + "\n")
    out.print(f"{now:%Y-%m-%d}, {_machine()}; figures: {path}", soft_wrap=True)


def _start(bench: _Bench, engine: str, detail: Detail) -> Cost:
    """The cost of an engine on an almost empty run."""
    name, truth = bench.logs(_EMPTY, detail)
    cost = bench.measure(engine, name, detail, truth)
    shutil.rmtree(bench.folder / "logs" / f"run={name}")
    if cost.failed is not None:
        err.print(f"[bold red]{engine} cannot even judge {_EMPTY} messages[/]: {cost.failed}")
        sys.exit(1)
    return cost


def _figures(now: datetime, cases: list[Case]) -> dict[str, object]:
    return {
        "at": now.isoformat(timespec="seconds"),
        "machine": _machine(),
        "memory_gb": _MEMORY,
        "cases": [asdict(case) for case in cases],
    }


def _machine() -> str:
    memory = psutil.virtual_memory().total / 1e9
    return f"{os.cpu_count()} CPUs, {memory:.0f} GB, {platform.system()} {platform.machine()}"


def _size(text: str) -> tuple[int, Detail]:
    messages, _, detail = text.partition(":")
    return int(float(messages)), Detail(detail or "messages")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-reconcile", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=_size,
        nargs="+",
        default=[_size(text) for text in ("1e6", "1e7", "1e8", "1e9:intervals")],
        help="messages, and how they are logged: 1e6 or 1e9:intervals",
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--repeat", type=int, default=1, help="turns of each size")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one engine's turn")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=Path(), help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
