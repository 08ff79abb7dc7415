"""A latency's distribution as bars on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from mirrortest.results.latency_table import latency_table
from mirrortest.timing.histogram import Histogram

MS = 1_000_000


def shown(values: list[int], encoding: str = "utf-8") -> list[list[str]]:
    """The cells of each row below the head."""
    histogram = Histogram()
    histogram.add(values)
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, width=80, color_system=None)
    console.print(latency_table(histogram))
    out.flush()
    text = out.buffer.getvalue().decode(encoding)
    return [line.split("  ") for line in text.splitlines()[2:]]


def test_each_step_has_its_messages_and_none_between_is_left_out() -> None:
    """The step with most messages has the longest bar, and a single message has a bar, too."""
    rows = [[cell.strip() for cell in row if cell.strip()] for row in shown(
        [2 * MS] * 500 + [900 * MS]
    )]  # fmt: skip
    counts = [int("".join(cell for cell in row if cell.isdigit()) or 0) for row in rows]
    assert len(counts) > 4
    bars = [row[-1].count("█") for row in rows]
    assert (max(bars), bars[0], bars[-1]) == (24, 24, 1)
    assert set(bars[1:-1]) == {0}


def test_below_zero_is_a_step_and_nothing_is_no_row() -> None:
    """Clocks that disagree are visible; a terminal without block characters gets `#`."""
    rows = shown([-5, MS, MS], encoding="ascii")
    assert "below zero" in "".join(rows[0])
    assert any("#" in "".join(row) for row in rows)
    assert shown([]) == []
