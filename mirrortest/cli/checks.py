"""The doctor's checks as a result: of `doctor`, and of `--dry-run` in other commands."""

from __future__ import annotations

from typing import Annotated, NoReturn, TypeAlias

import typer

from mirrortest.cli import console
from mirrortest.cli.options import Output
from mirrortest.doctor.options import DoctorOptions

DryRun: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check only, as `mirrortest doctor` does, whether this can work; write nothing.",
    ),
]


def show_checks(request: DoctorOptions, output: Output) -> NoReturn:
    """Run the checks, show what they found, and exit: 1 if one is an error, else 0."""
    from mirrortest.cli.application import run_application
    from mirrortest.doctor.examination import examine

    report = run_application(lambda _: examine(request), writes=False)
    console.show(report.to_json(), report.table(), output)
    raise typer.Exit(report.exit_code)
