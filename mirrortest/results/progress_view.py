"""A run's progress for users: a screen on a terminal, or one line elsewhere, from one view.

The screen fits into the terminal: it has as many of the slowest rows as there is room for, and
folds texts instead of cutting them.
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
"""The most rows that a terminal is expected to have room for."""

_SHOWN_QUANTILES = {"p50": 0.5, "p99": 0.99}


class Slowest(NamedTuple):
    """The slowest items of a kind, the worst first; `total` is how many items there are in all.

    A row has a name and a text for each of `columns`.
    """

    what: str
    total: int
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ProgressView:
    """A run's progress; `verdict` is what it would be if nothing changed, `state` is its text.

    `figures` are names and texts, the time first; `warnings` are current problems.
    """

    subject: str
    verdict: Verdict
    state: str
    figures: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    slowest: Slowest | None = None

    def line(self) -> str:
        """The figures in one line, without the subject, and with the first of the slowest rows."""
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
        # The caller may have switched folding off for its own lines.
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
        # One line below is for the cursor, so that what is written there next, for example ^C or a
        # shell's prompt, is readable. Another one stays free: without it the terminal would scroll.
        most = options.size.height - 2
        table = self._table(console, options, most - len(lines) - 1)
        if table:
            lines += [[], *table]
        for line in (*lines[:most], []):
            yield from line
            yield Segment.line()

    def _table(self, console: Console, options: ConsoleOptions, room: int) -> list[list[Segment]]:
        """The table, with as many rows as fit into `room` lines; nothing if none does."""
        slowest = self.slowest
        if slowest is None:
            return []
        for count in range(min(len(slowest.rows), max(room, 0)), 0, -1):
            shown = f"{count:,} of {slowest.total:,} " if count < slowest.total else ""
            result = compact_table(
                (f"slowest {shown}{slowest.what}", *slowest.columns),
                numbers=range(1, len(slowest.columns) + 1),
            )
            for row in slowest.rows[:count]:
                result.add_row(*map(escape, row))
            lines = console.render_lines(result, options, pad=False)
            if len(lines) <= room:
                return lines
        return []


def remaining(
    elapsed_seconds: float,
    duration_seconds: float | None,
    messages: int | None,
    per_second: float,
    *,
    waiting: int = 0,
) -> float | None:
    """Seconds until the duration is over or `messages` more have come, whichever is first.

    The duration is not over before `waiting` messages have come. None: neither is given, or
    messages are left and none comes.
    """
    ends = []
    if duration_seconds is not None:
        left = duration_seconds - elapsed_seconds
        if per_second > 0:
            left = max(left, waiting / per_second)
        if left > 0 or not waiting:
            ends.append(left)
    if messages is not None and per_second > 0:
        ends.append(messages / per_second)
    return max(0.0, min(ends)) if ends else None


def time_text(elapsed_seconds: float, remaining_seconds: float | None) -> str:
    """The elapsed and the remaining time: ``1 min 20 s elapsed, 40 s remaining``."""
    text = f"{span(round(elapsed_seconds) * 10**9)} elapsed"
    if remaining_seconds is not None:
        text += f", {span(round(max(0.0, remaining_seconds)) * 10**9)} remaining"
    return text


def latency_text(latencies: Latencies) -> str:
    """Percentiles since the start, and recent ones."""
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
