"""A run's progress for people: as a screen on a terminal, as one line elsewhere, from one view.

The screen fits into the terminal: as many of the slowest rows as there is room for, and nothing is
cut, since texts are folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mirrortest.config.units import format_duration, span
from mirrortest.config.visible import visible
from mirrortest.results.tables import escape, verdict_line
from mirrortest.results.view import compact_table
from mirrortest.timing.histogram import Histogram
from mirrortest.timing.recent import RECENT_NS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from mirrortest.model.verdict import Verdict
    from mirrortest.timing.histogram import Sparse
    from mirrortest.timing.recent import Latencies

MOST_SLOWEST = 50
"""Rows that any terminal has room for."""

_SHOWN_QUANTILES = {"p50": 0.5, "p99": 0.99}


class Slowest(NamedTuple):
    """The slowest of something, the worst first: `total` is how many there are in all.

    A row has a name and a text for each of `columns`.
    """

    what: str
    total: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ProgressView:
    """How a run stands; `verdict` is what it would be if nothing changed, `state` says so.

    `figures` are names and texts, the time first; `warnings` are what is wrong now.
    """

    subject: str
    verdict: Verdict
    state: str
    figures: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    slowest: Slowest | None = None

    def line(self) -> str:
        """The same figures in one line, without the subject; of the slowest rows the first."""
        (_, time), *figures = self.figures
        parts = [time, self.state, *self.warnings, *(f"{name}: {text}" for name, text in figures)]
        if self.slowest is not None and self.slowest.rows:
            name, *texts = self.slowest.rows[0]
            about = zip(self.slowest.columns, texts, strict=True)
            described = ", ".join(f"{column} {text}" for column, text in about)
            parts.append(f"slowest of {self.slowest.total:,}: {name}, {described}")
        return "; ".join(parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The screen, in the size of the terminal."""
        # Whoever prints this may have switched folding off for its own lines.
        options = options.update(no_wrap=False, overflow="fold", height=None)
        head = verdict_line(self.subject, self.verdict, self.state)
        figures = Table.grid(padding=(0, 2, 0, 0))
        figures.add_column(style="dim", no_wrap=True)
        figures.add_column(overflow="fold")
        for name, text in self.figures:
            figures.add_row(escape(name), escape(text))
        warnings = [Text(visible(text), "yellow") for text in self.warnings]
        parts: tuple[Text | Table, ...] = (head, *warnings, figures)
        lines = [line for part in parts for line in console.render_lines(part, options, pad=False)]
        # One line below is the cursor's, so that what comes next there, as ^C or a shell's prompt,
        # is readable. Another one stays free: a line more, and the terminal would scroll.
        most = options.size.height - 2
        table = self._table(console, options, most - len(lines) - 1)
        if table:
            lines += [[], *table]
        for line in (*lines[:most], []):
            yield from line
            yield Segment.line()

    def _table(self, console: Console, options: ConsoleOptions, room: int) -> list[list[Segment]]:
        """The rows that fit into so many lines; nothing where not even one does."""
        slowest = self.slowest
        if slowest is None:
            return []
        for count in range(min(len(slowest.rows), max(room, 0)), 0, -1):
            shown = f"{count:,} of {slowest.total:,} " if count < slowest.total else ""
            made = compact_table(
                (f"slowest {shown}{slowest.what}", *slowest.columns),
                numbers=range(1, len(slowest.columns) + 1),
            )
            for row in slowest.rows[:count]:
                made.add_row(*map(escape, row))
            lines = console.render_lines(made, options, pad=False)
            if len(lines) <= room:
                return lines
        return []


def remaining(
    elapsed_seconds: float,
    duration_seconds: float | None,
    messages: int | None,
    per_second: float,
) -> float | None:
    """Seconds until a duration is over or so many more messages came, whichever is first.

    None where neither is given, or the rate is 0.
    """
    ends = []
    if duration_seconds is not None:
        ends.append(duration_seconds - elapsed_seconds)
    if messages is not None and per_second > 0:
        ends.append(messages / per_second)
    return max(0.0, min(ends)) if ends else None


def time_text(elapsed_seconds: float, remaining_seconds: float | None) -> str:
    """How long it runs, and for how much longer: ``1 min 20 s elapsed, 40 s remaining``."""
    text = f"{span(round(elapsed_seconds) * 10**9)} elapsed"
    if remaining_seconds is not None:
        text += f", {span(round(max(0.0, remaining_seconds)) * 10**9)} remaining"
    return text


def latency_text(latencies: Latencies) -> str:
    """Percentiles since the start and of late."""
    recent = _quantiles(latencies.recent)
    return f"{_quantiles(latencies.all)}; last {span(RECENT_NS)}: {recent}"


def _quantiles(values: Sparse) -> str:
    histogram = Histogram.of(values)
    if not histogram.count:
        return "none"
    return ", ".join(
        f"{name} {format_duration(histogram.quantile(q))}" for name, q in _SHOWN_QUANTILES.items()
    )


def rate_text(per_second: float) -> str:
    """Messages a second."""
    return f"{per_second:,.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.1f}/s"
