"""`mirrortest run`: a whole test from one file."""

from __future__ import annotations

import contextlib
import shlex
import signal
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.cli.interrupt import exit_code_of, interrupt
from mirrortest.cli.live import BoardDisplay
from mirrortest.cli.options import Details, check_fillable
from mirrortest.config.visible import visible
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.model.verdict import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from mirrortest.compare.history import Unjudged
    from mirrortest.scenario.matrix import Document
    from mirrortest.scenario.outcome import PointOutcome, SeriesOutcome
    from mirrortest.scenario.series import Series

EXAMPLES = """
Examples:

  Two Kafka clusters and MirrorMaker 2 on this machine, which is killed and restarted:

    mirrortest run demo

  The same, shorter (`mirrortest scenarios` lists all):

    mirrortest run demo --set produce.duration=20s --set fault.at=8s

  A file of your own, with a matrix; once interrupted, the same command goes on at the next point:

    mirrortest run matrix.toml --output results

  Each night, compared with the night before and the trend of thirty:

    mirrortest run one-pair long.toml --history nights --keep 30

Exit codes: that of the worst point. A point that ended as its file expects has 0. With --history
it is 99 if a figure, a finding or a verdict got worse.
"""

_COLOURS = {"passed": "green", "failed": "red", "inconclusive": "yellow", "error": "red"}


def run(
    *,
    scenario: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO...",
            help="A TOML file, a directory of six, or a name that `mirrortest scenarios` lists; "
            "several are run one after the other.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Directory for all results, with one for each of several scenarios; what an "
            "interrupted run left there is continued.",
            show_default="mirrortest-NAME-TIME",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            file_okay=False,
            help="In place of --output: keep the results as DIR/NAME/TIME, and compare them with "
            "those before; exit code 99 if something got worse.",
            metavar="DIR",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=2, help="With --history: how many results of each scenario are kept.", metavar="N"
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
        bool,
        typer.Option(
            "--json",
            help="Print the results of all points as JSON; of several scenarios, a line for each.",
        ),
    ] = False,
    details: Details = False,
) -> None:
    """Run a whole test from one file: clusters, clients, faults, the verdict of each point."""
    from mirrortest.compare.history import Unjudged
    from mirrortest.scenario import catalogue
    from mirrortest.scenario.outcome import worst

    changes = dict(map(_change, change or ()))
    documents = [catalogue.find(each).changed(changes) for each in scenario]
    lab = any("lab" in each.content for each in documents)
    console.require(*(["lab"] if lab else []), "report", "spark")
    names = [each.name for each in documents]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two scenarios are called {twice[0]}: rename the file of one")
    if history is not None and output is not None:
        raise UsageError("use either --output or --history")
    if keep is not None and history is None:
        raise UsageError("--keep is for --history DIR: add it, or leave out --keep")
    unjudged = None if history is None else Unjudged(history.absolute(), names)
    if unjudged is not None:
        all_series = [_night(each, unjudged) for each in documents]
    else:
        several = len(documents) > 1
        if output is None:
            name = "" if several else names[0]
            now = datetime.now()  # noqa: DTZ005  # local time, for people
            output = Path("-".join(filter(None, ("mirrortest", name, f"{now:%Y%m%d-%H%M%S}"))))
        check_fillable(output, "--output")
        all_series = [
            _series(each, output / each.name if several else output) for each in documents
        ]
    # SIGTERM ends the run the way Ctrl-C does: everything that was started is ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    codes: list[int] = []
    out = console.err if as_json else console.out
    kept = "to run them again, name another --output"
    if history is not None:
        kept = "the night is compared again, because the command was interrupted"
    try:
        if unjudged is not None:
            unjudged.keep(series.output for series in all_series)
        for series in all_series:
            outcome = _play(series, kept)
            codes.append(outcome.exit_code)
            if as_json:
                indent = 2 if len(all_series) == 1 else None
                typer.echo(outcome.model_dump_json(indent=indent))
            else:
                _print_results(series, details=details)
            if unjudged is not None:
                codes.append(_judge(series, out))
        if keep is not None:
            codes += [_prune(series.output, keep, out) for series in all_series]
        # From here on no signal may change the exit code: the nights do not count a second time.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if unjudged is not None:
            unjudged.clear()
    except KeyboardInterrupt as interrupted:
        words = ["--output", str(output)] if history is None else ["--history", str(history)]
        words += [] if keep is None else ["--keep", str(keep)]
        words += [word for each in change or () for word in ("--set", each)]
        words += ["--json"] * as_json + ["--details"] * details
        again = shlex.join(["mirrortest", "run", *scenario, *words])
        console.err.print(f"[yellow]interrupted[/]: to go on at the same point: {escape(again)}")
        raise typer.Exit(exit_code_of(interrupted)) from None
    raise typer.Exit(worst(codes))


def _series(document: Document, output: Path) -> Series:
    """The scenario in its directory of results."""
    from mirrortest.cli.client_tables import arguments
    from mirrortest.scenario.series import Series

    return Series(document, output.absolute(), arguments)


def _night(document: Document, unjudged: Unjudged) -> Series:
    """The scenario in its last night if that is unfinished, else in a new one."""
    from mirrortest.compare.history import TIME, nights

    place = unjudged.history / document.name
    check_fillable(place, "--history")
    begun = unjudged.of(place)
    for last in begun or nights(place)[-1:]:
        with contextlib.suppress(UsageError):  # results of another version of the scenario
            series = _series(document, last)
            if begun or len(series.ended) < len(series.points):
                return series
    return _series(document, place / f"{datetime.now(UTC):{TIME}}")


def _play(series: Series, kept: str) -> SeriesOutcome:
    from mirrortest.scenario.board import Board

    console.err.print(f"results: {series.output}", markup=False)
    if len(series.ended) == len(series.points):
        console.err.print(f"every point has ended before: {kept}")
    with BoardDisplay(console.err) as display:
        return series.run(Board(display.show), _print_point)


def _judge(series: Series, out: Console) -> int:
    """Compare with the last results, and print what got worse."""
    from mirrortest.compare.history import judge

    outcome = series.outcome
    met = sum(point.as_expected for point in outcome.points)
    ended = f"{outcome.name}: {met} of {outcome.planned} as expected"
    try:
        judgement = judge(series.output)
    except MirrortestError as error:  # the other scenarios must still run
        out.print(f"{ended}; not compared: {visible(str(error))}", markup=False)
        return ExitCode.ERROR
    out.print(visible(f"{ended}; {judgement.text}"), markup=False)
    for each in judgement.worse:
        out.print(f"  [red]worse[/]: {escape(visible(each))}")
    return ExitCode.FAILED if judgement.worse else ExitCode.PASSED


def _prune(night: Path, keep: int, out: Console) -> int:
    """Keep only `keep` results of a scenario."""
    from mirrortest.compare.history import prune

    try:
        prune(night, keep)
    except MirrortestError as error:
        out.print(visible(str(error)), markup=False)
        return ExitCode.ERROR
    return ExitCode.PASSED


def _change(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not (path and equals):
        raise UsageError(f"--set {text!r}: write KEY=VALUE, for example produce.duration=20s")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return path, value


def _print_point(point: PointOutcome) -> None:
    """One line for a point that has ended, and one for each of its reasons and notes."""
    word = point.result_word
    label = f" ({escape(visible(point.label))})" if point.label else ""
    console.err.print(f"point {point.number}{label}: [{_COLOURS[word]}]{word}[/]")
    for reason in point.reasons:
        console.err.print(f"  {visible(reason)}", markup=False)
    for note in point.notes:
        console.err.print(f"  note: {visible(note)}", markup=False)


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
        colour = "green" if row.tone == "good" else _COLOURS[row.verdict]
        cells = (escape(visible(cell)) for cell in row.cells)
        table.add_row(str(row.number), *cells, f"[{colour}]{row.verdict}[/]", escape(row.findings))
    return table


run.__doc__ = f"{run.__doc__}\n{EXAMPLES}"
