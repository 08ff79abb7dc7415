"""`mirrortest report`: a reconciliation as one HTML file, and as JUnit XML."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.options import Observations, check_directory, check_fillable, check_writable
from mirrortest.errors import UsageError
from mirrortest.report import REPORT_FILE
from mirrortest.wire.stream import checked_run

EXAMPLES = """
Examples:

    mirrortest report mirrortest-logs/run=n20261127/result --open
    mirrortest report --log-dir logs-dc1 --log-dir logs-dc2 --run n20261127
    mirrortest report --log-dir mirrortest-logs --run n20261127 --png charts
"""


def report(
    *,
    result: Annotated[
        str | None,
        typer.Argument(
            metavar="RESULT",
            help="Directory with summary.json and the tables, or the run's directory above it: "
            "a path or a URI.",
        ),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            "--log-dir",
            help="Directory of the run's logs, for its set-up, its events, and a short run by the "
            "second; repeatable. By default the one that contains RESULT.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run in --log-dir; needed if there are several."),
    ] = None,
    observations: Observations = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help=f"The HTML file. [RESULT/{REPORT_FILE}]"),
    ] = None,
    junit: Annotated[
        str | None,
        typer.Option(
            "--junit", help="Also write JUnit XML to this file: a case for each condition."
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png",
            file_okay=False,
            help="Also write each chart as a PNG file into this directory.",
        ),
    ] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Open the file in the default browser.")
    ] = False,
) -> None:
    """Turn a reconciliation into one HTML file that opens without a network."""
    from mirrortest.report.html import render
    from mirrortest.report.junit import junit as as_junit
    from mirrortest.report.png import write_pngs
    from mirrortest.report.result import find_result, read_result, result_at, write_text
    from mirrortest.report.terminal import run_result
    from mirrortest.seqlog.location import Location

    for each in log_dir or ():
        check_directory(each, "--log-dir")
    logs = [Location.parse(place) for place in log_dir or ()]
    for each in observations or ():
        check_directory(each, "--observations", "observations")
    if result is not None:
        if run is not None:
            raise UsageError(
                "RESULT is one run's: leave out --run, or use --log-dir in place of RESULT"
            )
        place = result_at(Location.parse(result))
    elif logs:
        place = find_result(logs, checked_run(run) if run is not None else None)
    else:
        raise UsageError("name the RESULT of a reconciliation, or a --log-dir that contains one")
    target = Location.parse(output) if output is not None else place.child(REPORT_FILE)
    xml = Location.parse(junit) if junit is not None else None
    if xml is not None and xml.filesystem == target.filesystem:
        page_file, xml_file = (Path(each.path).resolve() for each in (target, xml))
        if page_file == xml_file:
            raise UsageError(f"--junit {xml.shown}: the HTML report has this name: give another")
    if open_it and not target.local:
        raise UsageError(f"--open: {target.shown} is not a local file: use --output FILE")
    for document, option in (
        (target if output is not None else None, "--output"),
        (xml, "--junit"),
    ):
        if document is not None and document.local:
            check_writable(Path(document.path), option)
    if png is not None:
        check_fillable(png, "--png")
    if result is not None:
        check_directory(result, "RESULT", "reconciliation")
    found = read_result(place, logs, [Location.parse(each) for each in observations or ()])
    page = render(found)
    write_text(target, page)
    console.err.print(run_result(found.summary).verdict_line())
    console.out.print(target.shown, markup=False)
    if xml is not None:
        write_text(xml, as_junit(found.summary))
        console.out.print(xml.shown, markup=False)
    if png is not None:
        for file in write_pngs(page, png):
            console.out.print(str(file), markup=False)
    if open_it:
        webbrowser.open(Path(target.path).as_uri())


report.__doc__ = f"""{report.__doc__}

The report shows what failed first and when, loss, duplicates and latency over time with the faults
marked, and partitions and ids. The exit code is 0 if the report was written, however the run ended.
{EXAMPLES}"""
