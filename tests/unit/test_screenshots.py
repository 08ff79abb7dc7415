"""The picture of a terminal: coloured text, and nothing that a browser takes for a tag."""

from __future__ import annotations

import re

from rich.text import Text

from docs import screenshots


def test_colours_and_characters_survive() -> None:
    """A green word is green, and what looks like a tag is text."""
    theme = screenshots.THEMES["dark"]
    view = Text.assemble("run r: ", ("passed", "green"), ", p(99)<2s")
    page = screenshots.terminal_page(view, theme)
    assert "p(99)&lt;2s" in page
    green = theme.ansi_colors[2]
    assert re.search(rf"<span [^>]*#{green[0]:02x}{green[1]:02x}{green[2]:02x}[^>]*>passed", page)
    assert theme.background_color.hex in page
