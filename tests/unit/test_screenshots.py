"""What the pictures of a terminal show: the end of the output, in colour, without paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docs import screenshots

if TYPE_CHECKING:
    from pathlib import Path


def test_the_end_is_shown_and_no_path_of_this_machine(tmp_path: Path) -> None:
    """What is left out above is marked."""
    lines = [f"line {number}: {tmp_path}/logs" for number in range(screenshots.LINES + 1)]
    first, *rest = screenshots.shorten("\n".join(lines), tmp_path).splitlines()
    assert first == "…"
    assert rest[0] == "line 1: mirrortest-demo/logs"
    assert len(rest) == screenshots.LINES


def test_colours_and_characters_of_html_survive() -> None:
    """A green word is green, and what looks like a tag is text."""
    theme = screenshots.THEMES["dark"]
    page = screenshots.terminal_page("run r: \x1b[1;32mpassed\x1b[0m, p(99)<2s", theme)
    assert "p(99)&lt;2s" in page
    green = theme.ansi_colors[2]
    assert re.search(rf"<span [^>]*#{green[0]:02x}{green[1]:02x}{green[2]:02x}[^>]*>passed", page)
    assert theme.background_color.hex in page
