"""What one check found, and the report of all of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from mirrortest.config.units import number
from mirrortest.model.verdict import ExitCode
from mirrortest.results.tables import escape

if TYPE_CHECKING:
    from collections.abc import Sequence


class Level(StrEnum):
    """How much one check matters to the test."""

    OK = "ok"
    WARNING = "warning"
    """The test runs, but one of its results is missing or less certain."""
    ERROR = "error"
    """The test cannot run, or its verdict could only be inconclusive or wrong."""


_MARKS = {Level.OK: "[green]✓[/]", Level.WARNING: "[yellow]![/]", Level.ERROR: "[red]✗[/]"}


class Check(NamedTuple):
    """One check.

    Attributes:
        subject: what was checked.
        found: what was found, in one sentence.
        action: what to do; empty if nothing is wrong.
    """

    level: Level
    subject: str
    found: str
    action: str = ""


class DoctorReport(NamedTuple):
    """All checks, in the order in which they ran."""

    checks: Sequence[Check]

    @property
    def exit_code(self) -> int:
        """ERROR if a check has this level, else PASSED."""
        failed = any(check.level is Level.ERROR for check in self.checks)
        return (ExitCode.ERROR if failed else ExitCode.PASSED).value

    def to_json(self) -> dict[str, object]:
        """A versioned dictionary."""
        return {
            "version": 1,
            "exit_code": self.exit_code,
            "checks": [check._asdict() for check in self.checks],
        }

    def table(self) -> Table:
        """A line for each check, and below it what to do."""
        shown = Table.grid(padding=(0, 1))
        for _ in range(3):
            shown.add_column(overflow="fold")
        for check in self.checks:
            text = escape(check.found) + (f"\n→ {escape(check.action)}" if check.action else "")
            shown.add_row(_MARKS[check.level], f"[bold]{escape(check.subject)}[/]", text)
        errors = sum(check.level is Level.ERROR for check in self.checks)
        warnings = sum(check.level is Level.WARNING for check in self.checks)
        shown.add_row()
        shown.add_row("", "[bold]result[/]", _counted(errors, warnings))
        return shown


def _counted(errors: int, warnings: int) -> str:
    if not errors + warnings:
        return "[green]ready for a test[/]"
    found = [number(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n]
    ready = "not ready for a test" if errors else "ready for a test"
    return f"[{'red' if errors else 'yellow'}]{ready}: {', '.join(found)}[/]"
