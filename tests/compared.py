"""Repeats of runs for comparisons: with random figures of a realistic spread, or recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrortest.compare.repeat import Repeat, Side
from mirrortest.compare.settings import OPTIONS
from mirrortest.model.findings import Outcome
from mirrortest.model.verdict import Verdict
from tests.unit.golden import summaries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

QUANTILES = {"p(50)": 4e-3, "p(90)": 7e-3, "p(99)": 2e-2, "p(99.9)": 5e-2, "max": 9e-2}


def drawn(draws: np.random.Generator, *, slow: float = 1.0, run: str = "r") -> Repeat:
    """A repeat: the latencies of a series share a factor, and the high ones vary more.

    One series in twenty contains a pause of the machine, which shows in its highest latencies.
    `slow` is the factor by which acknowledgements take longer.
    """
    figures: dict[str, float] = {}
    for prefix in ("", "sent_latency.", "ack_latency.", "schedule_lag."):
        common = draws.lognormal(0, 0.08) * (slow if prefix == "ack_latency." else 1)
        pause = draws.exponential(0.5) if draws.random() < 0.05 else 0.0
        for rank, (name, seconds) in enumerate(QUANTILES.items()):
            far = pause if rank > 2 else 0.0
            spread = draws.lognormal(0, 0.03 * (1 + rank) ** 1.5)
            figures[prefix + name] = seconds * common * spread + far
    rate = 1000 * draws.lognormal(0, 0.004)
    figures |= {
        "produce_rate": rate,
        "produce_bytes_rate": rate / 1000,
        "consume_rate": rate * draws.lognormal(0, 0.004),
        "produce_cpu": 2e-5 * draws.lognormal(0, 0.06),
        "consume_cpu": 3e-5 * draws.lognormal(0, 0.06),
        "produce_memory": 9e7 * draws.lognormal(0, 0.01),
        "lag": float(draws.poisson(3)),
        "produce_behind": 0.0,
        "rebalance_seconds": draws.gamma(2.0, 0.01),
    }
    return Repeat(run=run, started_ns=0, figures=figures)


def recorded() -> dict[str, list[Repeat]]:
    """Repeats of a small run on two clusters, on a busy machine of two cores.

    ``base`` has ten runs with ``produce --throughput 1500 --duration 4s --linger-ms 20``. ``slow``
    has four with ``--linger-ms 250``, run among the others in random order. `read_side` read them.
    """
    sides = json.loads(Path(__file__).with_name("real_repeats.json").read_text())
    return {
        name: [Repeat(run="r", started_ns=0, figures=figures) for figures in repeats]
        for name, repeats in sides.items()
    }


def produced(run: str = "run7", *, producer: str = "pa", **tally: float) -> dict[str, Any]:
    """A producer's summary; `tally` has figures of the steady state, ``p99`` from send to ack."""
    document = json.loads(json.dumps(summaries._produced(Outcome.ACKED).to_json()))
    document |= {"run": run, "producer": producer}
    for name, value in tally.items():
        steady = document["steady_state"]
        (steady if name in steady else steady["latency_seconds"]["from_sent"])[name] = value
    return dict(document)


def consumed(run: str = "run7", **changes: Any) -> dict[str, Any]:
    """A consumer's summary with a loss; `changes` replace fields."""
    document = json.loads(json.dumps(summaries._consumed(full=True, doubts=()).to_json()))
    return {**document, "run": run, **changes}


def reconciled(run: str = "run7", **changes: Any) -> dict[str, Any]:
    """A reconciliation's summary with a loss; `changes` replace fields."""
    document = json.loads(summaries._reconciled().encode())
    return {**document, "run": run, "inconclusive": [], **changes}


def scenario_result(labels: Mapping[str, str], name: str = "s", **point: Any) -> dict[str, Any]:
    """A scenario's result: `labels` by run; `point` has further fields of each point."""
    points = [
        {"run": run, "label": label, "settings": {}, "verdict": "passed", **point}
        for run, label in labels.items()
    ]
    return {"kind": "scenario", "version": 1, "name": name, "points": points}


def write(path: Path, document: dict[str, Any]) -> Path:
    """Write a summary, and create the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


LOW, HIGH = (10.0, 10.1, 9.9, 10.05), (12.0, 12.1, 11.9, 12.05)


def side(
    *figures: Mapping[str, float],
    counts: Sequence[Mapping[str, int]] = (),
    verdicts: Sequence[Verdict] = (),
    settings: Mapping[str, str] | None = None,
) -> Side:
    """A side whose repeats have these figures, counts and verdicts, one of each per repeat."""
    size = max(len(figures), len(counts), len(verdicts))
    return Side(
        "side",
        [
            Repeat(
                run=f"r{at}",
                started_ns=at,
                figures=figures[at] if at < len(figures) else {},
                counts=counts[at] if at < len(counts) else {},
                verdicts={"consume": verdicts[at]} if at < len(verdicts) else {},
                settings={
                    OPTIONS: {name: frozenset({text}) for name, text in (settings or {}).items()}
                },
            )
            for at in range(size)
        ],
    )


def of(name: str, *values: float) -> list[dict[str, float]]:
    """For each value of a figure, the figures of a repeat."""
    return [{name: value} for value in values]


def judged_side(letters: str, **more: Any) -> Side:
    """A repeat for each letter: its consumer's verdict (p, f or i), or a space for no verdict."""
    verdicts = {each.value[0]: {"consume": each} for each in Verdict}
    repeats = [
        Repeat(
            run=f"r{at}",
            started_ns=at,
            figures={"produce_rate": LOW[at]} | ({"p(99)": LOW[at]} if letter != " " else {}),
            counts={"acked": 10} | ({"lost": 0, **more} if letter != " " else {}),
            verdicts={"produce": Verdict.PASSED, **verdicts.get(letter, {})},
        )
        for at, letter in enumerate(letters)
    ]
    return Side("side", repeats)
