"""`mirrortest demo`: a complete test on this machine."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.cli.application import run_application
from mirrortest.cli.options import Details, can_be_filled
from mirrortest.cli.spark import spark_session
from mirrortest.config.run import run_id
from mirrortest.config.threshold import thresholds
from mirrortest.config.visible import visible
from mirrortest.demo.scenario import Board, demo_lab, perform
from mirrortest.errors import MirrortestError
from mirrortest.model.verdict import ExitCode
from mirrortest.reconcile.plan import plan
from mirrortest.report.html import render
from mirrortest.report.result import REPORT_FILE, read_result, write_text
from mirrortest.report.terminal import run_result

if TYPE_CHECKING:
    from mirrortest.seqlog.location import Location

ABOUT = (
    "Starts two Kafka clusters and MirrorMaker 2, two producers and two checking consumers; kills "
    "the mirror with SIGKILL and restarts it; reconciles the sequence logs on Spark; prints the "
    "verdicts and the paths of the logs and the HTML report. Needs Python only: Java and the jars "
    "are downloaded once."
)
EXAMPLES = """
[bold]Examples[/]

    mirrortest demo
    mirrortest demo --directory /tmp/first-look --seconds 20
"""


class _Show:
    """The board on a terminal; elsewhere a line for each change of the lab and the mirror."""

    def __init__(self) -> None:
        self._live = Live(console=console.err, refresh_per_second=4, transient=True)
        self._told: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> Self:
        if console.err.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if console.err.is_terminal:
            self._live.stop()

    def show(self, board: Board) -> None:
        """Show what everybody is doing."""
        if console.err.is_terminal:
            table = Table.grid(padding=(0, 2), expand=True)
            table.add_column(style="bold", no_wrap=True)
            # One line each: what is cut off is in the summaries.
            table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
            for who, line in board.lines.items():
                table.add_row(who, escape(visible(line)))
            self._live.update(table)
            return
        now = time.monotonic()
        for who, line in board.lines.items():
            before, at = self._told.get(who, ("", 0.0))
            quiet = 0.0 if who in {"lab", "mirror", "spark"} else 10.0
            if line != before and now - at >= quiet:
                self._told[who] = (line, now)
                console.err.print(visible(f"{who}: {line}"), markup=False)


def demo(
    *,
    directory: Annotated[
        Path,
        typer.Option(file_okay=False, help="Where sequence logs, reports and results go."),
    ] = Path("mirrortest-demo"),
    seconds: Annotated[int, typer.Option(min=5, help="How long the producers send.")] = 40,
    details: Details = False,
) -> None:
    """Test a real mirror between two real clusters on this machine, and kill it during the run."""
    console.require("lab", "report", "spark")
    can_be_filled(directory, "--directory")
    began = time.monotonic()
    run = run_id(secrets.token_bytes(8))
    logs = directory / "logs"
    with _Show() as show:
        board = Board(show.show)
        with demo_lab(board) as lab:
            played = run_application(
                lambda stop: perform(lab, logs, run, board, seconds=seconds, stop=stop)
            )
        board.put("spark", "reconciling the sequence logs of both sides")
        conditions = thresholds((), exactly_once=False)
        logged = plan([str(logs)], run)
        with spark_session() as spark:
            from mirrortest.reconcile.job import reconcile

            summary = reconcile(spark, logged, conditions, None)
    ended = [each.result() for each in played.producers]
    ended += [each.result() for each in played.consumers]
    for result in ended:
        console.out.print(result.verdict_line())
    console.out.print(run_result(summary).view(details=details))
    console.out.print(f"run {run}, {time.monotonic() - began:.0f} s; the mirror was killed once")
    console.out.print(f"logs, summaries and tables: {escape(str(logs / f'run={run}'))}")
    _write_report(logged.default_output)
    codes = {report.exit_code for report in played.consumers}
    codes |= {sent.exit_code for sent in played.producers} | {summary.exit_code}
    worst_first = (ExitCode.FAILED, ExitCode.ERROR, ExitCode.INCONCLUSIVE)
    raise typer.Exit(next((code.value for code in worst_first if code in codes), 0))


def _write_report(place: Location) -> None:
    page = place.child(REPORT_FILE)
    try:
        write_text(page, render(read_result(place)))
    except MirrortestError as error:  # the verdict does not need it
        console.err.print(f"[yellow]no report:[/] {escape(str(error))}")
    else:
        console.out.print(f"report: {escape(page.shown)}")


demo.__doc__ = f"""Test a real mirror between two real clusters on this machine.

{ABOUT}
{EXAMPLES}"""
