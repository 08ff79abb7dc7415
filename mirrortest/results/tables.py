"""Results for a terminal, the same for all commands. Untrusted texts are escaped here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape as escape_markup
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mirrortest.config.visible import visible
from mirrortest.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

_COLOURS = {Verdict.PASSED: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.FAILED: "red"}


def escape(text: str) -> str:
    """Escape an untrusted text for a line of markup."""
    return escape_markup(visible(text))


def verdict_line(subject: str, verdict: Verdict, text: str = "") -> Text:
    """``SUBJECT: passed``, the verdict, or another text for it, in its colour."""
    shown = visible(text or verdict.value)
    return Text.assemble(visible(f"{subject}: "), (shown, f"bold {_COLOURS[verdict]}"))


@dataclass(frozen=True)
class Signs:
    """A text with signs that not every terminal has; ASCII terminals get as many `letters`."""

    signs: str
    letters: str
    colour: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.letters if options.ascii_only else self.signs, self.colour)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(len(self.signs), len(self.signs))


def lines(texts: Iterable[str], label: str = "", colour: str = "") -> list[Text]:
    """A line for each text; the colour is of the label before it, or of a line without one."""
    if not label:
        return [Text(visible(text), colour) for text in texts]
    return [Text.assemble((label, colour), visible(text)) for text in texts]


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    texts: int = 1,
    **styling: Any,
) -> Table:
    """A table whose first `texts` columns are texts; the others are numbers.

    `styling` are arguments of rich's table.
    """
    result = Table(*headings, title_justify="left", **styling)
    for column in result.columns[texts:]:
        column.justify = "right"
    for row in rows:
        result.add_row(*map(escape, row))
    return result
