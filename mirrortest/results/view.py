"""A run's result on a terminal, the same for all commands.

First the verdict with its reason, then each condition, the findings, why anything could not be
judged, and the command to run next. `--details` adds tables. All of it fits into 80 columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirrortest.config.units import format_seconds
from mirrortest.config.visible import visible
from mirrortest.model.findings import Weight
from mirrortest.results.conditions import condition_result
from mirrortest.results.summary import as_percentage, shorten
from mirrortest.results.tables import Signs, escape, lines, verdict_line
from mirrortest.results.words import FINDINGS, NO_SHARE, meaning_of, readable_name, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from mirrortest.model.verdict import Verdict
    from mirrortest.results.summary import Latency, Threshold

_MARKS = {
    "met": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "undecided": ("?", "?", "yellow"),
}
_BLANK = Text("")
_SENDS = ("failed", "unknown")
"""Outcomes of sends that are listed with the findings."""


class NextCommand(NamedTuple):
    """A command to run next, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a command reports of a run; `subject` names the run and the process that judged it.

    `latency` is that of all topics; `remarks` follow the reasons; `details` are tables; `names` are
    other names of counts. If `why` is empty, nothing was judged.
    """

    subject: str
    verdict: Verdict
    why: str
    counts: Mapping[str, int] = field(default_factory=dict)
    thresholds: Sequence[Threshold] = ()
    inconclusive: Sequence[str] = ()
    latency: Latency | None = None
    remarks: Sequence[str] = ()
    details: Sequence[RenderableType] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def view(
        self, *, details: bool = False, next_commands: Sequence[NextCommand] = ()
    ) -> RenderableType:
        """The complete result; the tables only with `details`."""
        parts: list[RenderableType] = [self.verdict_line()]
        if self.thresholds:
            parts += [_BLANK, _conditions(self.thresholds)]
        if self.counts:
            parts += [_BLANK, *self._totals(), self._findings()]
        parts += [_BLANK] if len(parts) > 1 else []
        if self.latency is not None and self.latency.quantiles:
            values = ", ".join(
                f"{name} {format_seconds(value)}" for name, value in self.latency.quantiles.items()
            )
            parts += lines([f"latency from the intended time: {values}"])
        parts += lines(shorten(self.inconclusive), "inconclusive: ", "yellow")
        parts += lines(filter(None, self.remarks))
        if self.details and details:
            parts += [each for table in self.details for each in (_BLANK, table)]
        elif self.details:
            parts.append(Text("--details shows the tables behind these figures", "dim"))
        parts += [_BLANK] if next_commands else []
        parts += [
            Text.assemble((f"{purpose}: ", "dim"), (visible(command), "bold"))
            for purpose, command in next_commands
        ]
        return Group(*parts)

    def verdict_line(self) -> Text:
        """``SUBJECT: passed. WHY``, the verdict in its colour."""
        why = visible(f". {self.why}") if self.why else ""
        return Text.assemble(verdict_line(self.subject, self.verdict), why)

    def _name(self, name: str) -> str:
        return self.names.get(name, readable_name(name))

    def _totals(self) -> Iterable[Text]:
        known = [name for name in ("sent", "acked", "delivered") if name in self.counts]
        texts = [f"{self.counts[name]:,} {self._name(name)}" for name in known]
        if {"acked", "delivered"} <= set(known) and self.counts["acked"]:
            texts[-1] += f" ({as_percentage(self.counts['delivered'], self.counts['acked'])})"
        return lines([f"messages: {', '.join(texts)}"] if texts else [])

    def _findings(self) -> RenderableType:
        found = [name for name in (*FINDINGS, *_SENDS) if self.counts.get(name)]
        if not found:
            return Text("findings: none")
        failed = {
            row.metric for row in map(condition_result, self.thresholds) if row.ended == "failed"
        }
        acked = self.counts.get("acked", 0)
        result = compact_table(("finding", "messages", "of acked", "meaning"), numbers=(1, 2))
        for name in found:
            count = self.counts[name]
            doubt = weight_of(name) is Weight.DOUBT
            result.add_row(
                escape(self._name(name)),
                f"{count:,}",
                as_percentage(count, acked) if acked and name not in NO_SHARE else "",
                escape(meaning_of(name)),
                style="red" if name in failed else "yellow" if doubt else None,
            )
        return result


def _conditions(thresholds: Sequence[Threshold]) -> Table:
    result = compact_table(("", "condition", "measured", "limit"), numbers=(2,))
    for row in map(condition_result, thresholds):
        name = row.metric or row.expression
        sign, letter, colour = _MARKS[row.ended]
        ended = Signs(f"{sign} {row.ended}", f"{letter} {row.ended}", colour)
        result.add_row(ended, escape(name), escape(row.measured), escape(row.limit))
    return result


def compact_table(
    headings: Sequence[str], *, numbers: Iterable[int] = (), caption: str = ""
) -> Table:
    """A table for narrow terminals: texts are folded, and columns of numbers are never cut."""
    result = Table(
        *headings,
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=caption or None,
        caption_justify="left",
    )
    for column in result.columns:
        column.overflow = "fold"
    for number in numbers:
        result.columns[number].justify = "right"
        result.columns[number].no_wrap = True
    return result
