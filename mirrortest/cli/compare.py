"""`mirrortest compare`: what got worse between runs, what got better, what is inconclusive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.options import Output, check_distinct, file_to_write
from mirrortest.cli.parameters import from_models
from mirrortest.config.option import Kind, option
from mirrortest.errors import UsageError

EXAMPLES = """
Examples:

    mirrortest compare before/ after/
    mirrortest compare before/ after/ --threshold 'p(99)<+10%' --details
    mirrortest compare before/ after/ --html comparison.html
    mirrortest compare monday.json tuesday.json --json
    mirrortest compare --history nightly/ --html trend.html
"""


@dataclass(frozen=True, kw_only=True)
class CompareOutput(Output):
    """Where a comparison is written."""

    html: Path | None = option(
        None,
        "Also write the comparison to this file, as a page with charts.",
        kind=Kind(file_to_write, metavar="FILE"),
    )


@from_models
def compare(  # noqa: D103  # its help is below, with examples
    *,
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE",
            help="What to compare with: a summary as JSON, a result or log directory, or a "
            "directory with one for each repeat; a path or a URI.",
        ),
    ] = None,
    new: Annotated[
        list[str] | None, typer.Argument(metavar="NEW...", help="What to compare, likewise.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="DIR",
            help="In place of BASE and NEW: the trend of all runs in a directory, and where it "
            "changed.",
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            help="By how much NEW may differ: 'p(99)<+10%', 'produce_cpu<+5%', 'lost<=+0'; "
            "repeatable.",
        ),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also show the figures that do not differ.")
    ] = False,
    output: CompareOutput,
) -> None:
    check_distinct({"--report": output.report, "--html": output.html})
    if output.html is not None:
        from mirrortest.report.html import environment_of_templates

        environment_of_templates()  # if Jinja is missing, fail before the work
    if history is not None:
        if base is not None or threshold or details:
            raise UsageError(
                "--history shows a trend: leave out BASE, NEW, --threshold and --details"
            )
        _show_trend(history, output)
        return
    if base is None or not new:
        raise UsageError("name BASE and at least one NEW, or a directory with --history DIR")
    from mirrortest.compare.comparison import compare as compare_sides
    from mirrortest.compare.reading import read_side
    from mirrortest.compare.terminal import view
    from mirrortest.compare.thresholds import DifferenceThreshold

    thresholds = [DifferenceThreshold.parse(text) for text in threshold or ()]
    drawn = output.html is not None
    sides = [read_side(each, with_logs=drawn) for each in (base, *new)]
    found = compare_sides(sides[0], sides[1:], thresholds)
    console.show(found.model_dump(mode="json"), view(found, details=details), output)
    if output.html is not None:
        from mirrortest.compare.page import render

        _write_page(output.html, render(found, sides))
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _show_trend(place: str, output: CompareOutput) -> None:
    from mirrortest.compare.reading import read_side
    from mirrortest.compare.terminal import trend_view
    from mirrortest.compare.trend import trend

    found = trend(read_side(place))
    console.show(found.model_dump(mode="json"), trend_view(found), output)
    if output.html is not None:
        from mirrortest.compare.page import render_trend

        _write_page(output.html, render_trend(found))


def _write_page(path: Path, text: str) -> None:
    from mirrortest.report.result import write_text
    from mirrortest.seqlog.location import Location

    write_text(Location.parse(path), text)


compare.__doc__ = f"""Compare runs: what got worse, what got better, and what is inconclusive.

Give each side at least three repeats of its run, in directories of their own: how
much repeats differ among themselves is what a difference is compared with.

Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive (a threshold or a verdict cannot be decided,
or nothing can be compared), 99 a threshold failed; without thresholds, a finding or a verdict got
worse. With --history it is 0 if the trend is shown.
{EXAMPLES}"""
