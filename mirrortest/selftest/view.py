"""The figures for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirrortest.config.visible import visible
from mirrortest.report.summary import Verdict, as_percentage, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from mirrortest.selftest.calibration import Calibration, Figures, KindFigures

_COLOURS = {Verdict.PASSED: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.FAILED: "red"}


def calibration_view(calibration: Calibration) -> RenderableType:
    """Verdict, a line for each kind, what went wrong, and where all of it lies."""
    colour = _COLOURS[calibration.verdict]
    head = Text.assemble(
        f"run {calibration.run}: {calibration.messages:,} messages, {calibration.seeded:,} "
        f"anomalies at rates of {', '.join(f'{rate:g}' for rate in calibration.rates)}, "
        f"seed {calibration.seed}, {calibration.consumers} consumers, "
        f"{' and '.join(calibration.forms)} form: ",
        (calibration.verdict.value, f"bold {colour}"),
    )
    parts: list[RenderableType] = [head, _table(calibration)]
    for what, colour, lines in (
        ("differs", "red", shorten(calibration.differences)),
        ("wrong", "red", calibration.examples),
        ("inconclusive", "yellow", shorten(calibration.inconclusive)),
    ):
        parts += [Text(visible(f"{what}: {each}"), colour) for each in lines]
    parts.append(Text(f"truth, logs and tables lie in {calibration.directory}"))
    return Group(*parts)


def _table(calibration: Calibration) -> Table:
    names = ("anomaly", "seeded", "way", "found", "missed", "false", "recall", "precision")
    table = Table(*names, box=SIMPLE, pad_edge=False, collapse_padding=True)
    for column in table.columns[1:]:
        column.justify = "right"
    table.columns[0].no_wrap = True
    table.columns[2].justify = "left"
    by_kind: dict[str, list[KindFigures]] = {}
    for each in calibration.kinds:
        by_kind.setdefault(each.kind, []).append(each)
    for kind, told in by_kind.items():
        _add(table, kind, told)
    table.add_section()
    _add(table, "all", calibration.kinds)
    return table


def _add(table: Table, name: str, told: list[KindFigures]) -> None:
    """A row for both ways if they say the same, else one for each."""
    seeded = sum(each.seeded for each in told)
    ways = {"online": [each.online for each in told], "offline": [each.offline for each in told]}
    cells = {way: _cells(seeded, figures) for way, figures in ways.items()}
    if cells["online"] == cells["offline"]:
        cells = {"both": cells["online"]}
    wrong = any(each.missed or each.false for figures in ways.values() for each in figures)
    for way, shown in cells.items():
        table.add_row(name, f"{seeded:,}", way, *shown, style="red" if wrong else None)


def _cells(seeded: int, figures: Sequence[Figures]) -> tuple[str, ...]:
    found = sum(each.found for each in figures)
    missed = sum(each.missed for each in figures)
    false = sum(each.false for each in figures)
    shares = (as_percentage(found, seeded), as_percentage(found, found + false))
    return (f"{found:,}", f"{missed:,}", f"{false:,}", *shares)
