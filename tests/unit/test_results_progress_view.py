"""A run's progress as a screen and as a line, at any width, however much is wrong."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from mirrortest.cli.console import SafeConsole
from tests.unit.statuses import (
    TOPIC,
    consuming,
    consuming_badly,
    producing,
    producing_badly,
)

if TYPE_CHECKING:
    from mirrortest.consume.consume_status import ConsumeStatus
    from mirrortest.produce.produce_status import ProduceStatus
    from mirrortest.results.progress_view import ProgressView

STATUSES: dict[str, ConsumeStatus | ProduceStatus] = {
    "consume, 2 partitions": consuming(),
    "consume, 200 partitions": consuming(200, TOPIC),
    "consume, all is wrong": consuming_badly(),
    "consume, all is wrong in 2 partitions": consuming_badly(2),
    "produce, 2 partitions": producing(),
    "produce, 200 partitions": producing(200, TOPIC),
    "produce, all is wrong": producing_badly(),
}


def screen(view: ProgressView, width: int, height: int) -> list[str]:
    """The lines that a terminal of this size gets."""
    stream = io.StringIO()
    console = SafeConsole(
        file=stream, width=width, height=height, force_terminal=True, color_system=None,
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    console.print(view, end="")
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("name", STATUSES)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (40, 60)])
def test_the_screen_fits_and_nothing_is_cut(name: str, width: int, height: int) -> None:
    """Every figure is shown, folded; as many partitions as fit."""
    view = STATUSES[name].view()
    lines = screen(view, width, height)
    assert len(lines) < height
    assert lines[-1] == ""  # the line of the cursor
    assert max(map(len, lines)) <= width
    assert not any("…" in line or "..." in line for line in lines)
    shown = re.sub(r"[\s─]+", "", "".join(lines))
    for text in (view.subject, view.state, *view.warnings):
        assert re.sub(r"\s+", "", text) in shown
    for label, text in view.figures:
        assert label in "".join(lines)
        for word in text.split():
            assert word in shown


@pytest.mark.parametrize("name", STATUSES)
def test_the_slowest_have_their_whole_names(name: str) -> None:
    """Each has a row of its own; the heading has their number."""
    view = STATUSES[name].view()
    lines = screen(view, 80, 24)
    assert view.slowest is not None
    heading = next(number for number, line in enumerate(lines) if line.startswith("slowest "))
    rows = lines[heading + 2 : -1]
    assert rows
    assert [row.split()[0] for row in rows] == [row[0] for row in view.slowest.rows[: len(rows)]]
    counted = re.match(r"slowest (\d+) of (\d+) partitions", lines[heading])
    if counted is None:
        assert len(rows) == view.slowest.total
    else:
        assert (int(counted[1]), int(counted[2])) == (len(rows), view.slowest.total)


def test_a_terminal_without_room_has_no_table() -> None:
    """The figures come first, in their order, as many as fit."""
    lines = screen(consuming(200).view(), 80, 12)
    assert not any("slowest" in line for line in lines)
    assert lines[-2].startswith("findings")
    assert len(screen(consuming_badly().view(), 40, 12)) == 11


@pytest.mark.parametrize("name", STATUSES)
def test_the_line_has_the_same_figures(name: str) -> None:
    """It has everything on the screen but the subject, and the slowest row only."""
    view = STATUSES[name].view()
    line = view.line()
    assert "\n" not in line
    for text in (view.state, *view.warnings, *(text for _, text in view.figures)):
        assert text in line
    assert view.slowest is not None
    assert view.slowest.rows[0][0] in line
