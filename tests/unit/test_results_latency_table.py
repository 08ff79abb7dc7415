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
    cells = shown([2 * MS] * 500 + [900 * MS])
    rows = [[cell.strip() for cell in row if cell.strip()] for row in cells]
    steps = ["10.0 ms", "20.0 ms", "50.0 ms", "100 ms", "200 ms", "500 ms"]
    assert rows == [
        ["5.00 ms", "500", "99.8004 %", "█" * 24],
        *([step, "0", "0 %"] for step in steps),
        ["1.00 s", "1", "0.1996 %", "█"],
    ]


def test_below_zero_is_a_step_and_nothing_is_no_row() -> None:
    """Clocks that disagree are visible; a terminal without block characters gets `#`."""
    rows = shown([-5, MS, MS], encoding="ascii")
    assert "below zero" in "".join(rows[0])
    assert any("#" in "".join(row) for row in rows)
    assert shown([]) == []
