"""The figures as a table: costs, and their ratios to mirrortest's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench_reconcile.measure import Cost


_NOISE_SECONDS = 0.2


@dataclass(frozen=True)
class Case:
    """One engine's turn on one size, and its start-up: its cost on an almost empty run."""

    messages: int
    detail: str
    engine: str
    turn: int
    cost: Cost
    start: Cost

    @property
    def work(self) -> float:
        """Wall time without start-up, s."""
        return self.cost.wall - self.start.wall


def table(cases: Sequence[Case], ours: str) -> Table:
    """A row for each size and engine: medians, and ratios to mirrortest at the same size."""
    shown = Table(title="same logs, same answers; ratio: how many times ours it takes")
    for name in ("messages", "as", "engine", "wall s", "CPU s", "peak GB", "start s", "work s",
                 "ratio", "without start"):  # fmt: skip
        left = name in {"as", "engine"}
        shown.add_column(name, justify="left" if left else "right", no_wrap=name == "messages")
    sizes = dict.fromkeys((case.messages, case.detail) for case in cases)
    for size in sizes:
        rows = [case for case in cases if (case.messages, case.detail) == size]
        base = _median([case for case in rows if case.engine == ours])
        for engine in dict.fromkeys(case.engine for case in rows):
            turns = [case for case in rows if case.engine == engine]
            case = _median(turns)
            what = (f"{size[0]:,}", size[1])
            if case is None:
                shown.add_row(*what, engine, str(turns[0].cost.failed))
                continue
            cost = case.cost
            shown.add_row(
                *what,
                engine,
                f"{cost.wall:.1f}",
                f"{cost.cpu:.1f}",
                f"{cost.peak / 1e9:.1f}",
                f"{case.start.wall:.1f}",
                f"{case.work:.1f}",
                _ratio(cost.wall, base.cost.wall if base else None),
                _ratio(case.work, base.work if base else None),
            )
        shown.add_section()
    return shown


def _ratio(theirs: float, ours: float | None) -> str:
    """The ratio to `ours`; a dash if either is too short to stand out from noise."""
    if ours is None or min(theirs, ours) < _NOISE_SECONDS:
        return "-"
    return f"{theirs / ours:.2f}"


def _median(turns: Sequence[Case]) -> Case | None:
    """The turn with the median wall time; None if a turn failed or there are no turns."""
    if not turns or any(case.cost.failed for case in turns):
        return None
    return sorted(turns, key=lambda case: case.cost.wall)[len(turns) // 2]
