"""`mirrortest run`: a whole test from one file."""

from __future__ import annotations

import shlex
import signal
import time
import tomllib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.cli.interrupt import end_at_once
from mirrortest.cli.options import Details, can_be_filled
from mirrortest.config.visible import visible
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType

    from mirrortest.scenario.board import Board
    from mirrortest.scenario.outcome import PointOutcome, SeriesOutcome
    from mirrortest.scenario.series import Series

EXAMPLES = """
[bold]Examples[/]

  Two Kafka clusters and MirrorMaker 2 on this machine, which is killed and restarted:

    mirrortest run demo

  The same, shorter; which others there are, `mirrortest scenarios` lists:

    mirrortest run demo --set produce.duration=20s --set fault.at=8s

  A file of your own, with a matrix; once interrupted, the same command goes on at the next point:

    mirrortest run nightly.toml --output results

Exit codes: that of the worst point. A point that ended as its file expects has 0.
"""

_WORDS = {"passed": "green", "failed": "red", "inconclusive": "yellow", "error": "red"}


class _Show:
    """The board on a terminal; elsewhere a line for each change, of clients now and then."""

    def __init__(self) -> None:
        self._live = Live(console=console.err, refresh_per_second=4, transient=True)
        self._shown: dict[str, tuple[str, float]] = {}

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
            for who, line in tuple(board.lines.items()):
                table.add_row(who, escape(visible(line)))
            self._live.update(table)
            return
        now = time.monotonic()
        for who, line in tuple(board.lines.items()):
            before, at = self._shown.get(who, ("", 0.0))
            # Figures follow each other; a word is an event.
            quiet = 10.0 if "/s" in line else 0.0
            if line != before and now - at >= quiet:
                self._shown[who] = (line, now)
                console.err.print(visible(f"{who}: {line}"), markup=False)


def run(
    *,
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML file, a directory of six, or a name that `mirrortest scenarios` lists.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Directory for all results; one that an interrupted run left is continued.",
            show_default="mirrortest-NAME-TIME",
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value of the file, as produce.duration=20s, of all producers.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results of all points as JSON.")
    ] = False,
    details: Details = False,
) -> None:
    """Run a whole test from one file: clusters, clients, faults, the verdict of each point."""
    console.require("lab", "report", "spark")
    from mirrortest.cli.client_tables import arguments
    from mirrortest.scenario import catalogue
    from mirrortest.scenario.board import Board
    from mirrortest.scenario.series import Series

    document = catalogue.find(scenario).changed(dict(map(_change, change or ())))
    if output is None:
        output = Path(f"mirrortest-{document.name}-{datetime.now():%Y%m%d-%H%M%S}")  # noqa: DTZ005  # for people
    can_be_filled(output, "--output")
    series = Series(document, output.absolute(), arguments)
    console.err.print(f"results: {output}", markup=False)
    if len(series.ended) == len(series.points):
        console.err.print("every point has ended before: to run them again, name another --output")
    # SIGTERM ends it the way Ctrl-C does: all that runs is put away.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with _Show() as show:
            outcome = series.run(Board(show.show), _print_point)
    except KeyboardInterrupt:
        changes = [word for each in change or () for word in ("--set", each)]
        again = shlex.join(["mirrortest", "run", scenario, "--output", str(output), *changes])
        console.err.print(f"[yellow]interrupted[/]: to go on at the same point: {escape(again)}")
        raise typer.Exit(128 + signal.SIGINT) from None
    if as_json:
        typer.echo(outcome.model_dump_json(indent=2))
    else:
        _print_results(series, details=details)
    raise typer.Exit(outcome.exit_code)


def _change(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not (path and equals):
        raise UsageError(f"--set {text!r}: write KEY=VALUE, for example produce.duration=20s")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path, value


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, end_at_once)
    raise KeyboardInterrupt


def _print_point(point: PointOutcome) -> None:
    """One line for a point that has ended, and one for each reason why it is not as expected."""
    word = point.result_word
    label = f" ({escape(visible(point.label))})" if point.label else ""
    console.err.print(f"point {point.number}{label}: [{_WORDS[word]}]{word}[/]")
    for reason in point.reasons:
        console.err.print(f"  {visible(reason)}", markup=False)


def _print_results(series: Series, *, details: bool) -> None:
    from mirrortest.report import REPORT_FILE
    from mirrortest.report.result import find_result, read_result
    from mirrortest.report.terminal import run_result
    from mirrortest.scenario.overview import PAGE
    from mirrortest.seqlog.location import Location

    for point in series.ended if len(series.ended) == 1 else ():
        directory = series.directory(point.number)
        for client in point.clients:
            word = "no verdict" if client.verdict is None else client.verdict.value
            console.out.print(f"{client.verb} {client.name}: {word}", markup=False)
        if (directory / REPORT_FILE).exists():
            place = find_result([Location.parse(directory / "logs")], point.run)
            console.out.print(run_result(read_result(place).summary).view(details=details))
            console.out.print(f"report: {escape(str(directory / REPORT_FILE))}")
    if len(series.ended) > 1:
        console.out.print(_table(series.outcome))
        console.out.print(f"page: {escape(str(series.output / PAGE))}")
    console.out.print(f"results: {escape(str(series.output))}")


def _table(outcome: SeriesOutcome) -> Table:
    from mirrortest.scenario.overview import headings, rows

    table = Table(box=None, pad_edge=False)
    for heading in ("point", *headings(outcome), "verdict", "findings"):
        table.add_column(escape(visible(heading)), overflow="fold")
    for row in rows(outcome):
        colour = "green" if row.tone == "good" else _WORDS[row.verdict]
        cells = (escape(visible(cell)) for cell in row.cells)
        table.add_row(str(row.number), *cells, f"[{colour}]{row.verdict}[/]", escape(row.findings))
    return table


run.__doc__ = f"{run.__doc__}\n{EXAMPLES}"
