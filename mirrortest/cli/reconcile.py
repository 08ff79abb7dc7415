"""`mirrortest reconcile`: judge a run from its sequence logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrortest.cli import compiled, console
from mirrortest.cli.next_commands import report_next
from mirrortest.cli.options import (
    Connection,
    Details,
    Observations,
    Portable,
    check_directory,
    check_fillable,
    check_not_empty,
    check_writable,
)
from mirrortest.config.threshold import thresholds
from mirrortest.config.units import checked_heap, number
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.reconcile.options import DEFAULT_MASTER, DEFAULT_MEMORY, MOST_OFFSETS
from mirrortest.wire.stream import checked_run

if TYPE_CHECKING:
    from mirrortest.reconcile.lookup import LookUp

EXAMPLES = """
Examples:

Both sides' logs, with a condition and a report:

    mirrortest reconcile logs-dc1 logs-dc2 --run n20261127 \\
      --threshold 'p(99)<2s' --html nightly.html

The same, with a look into the destination for messages that no consumer read:

    mirrortest reconcile logs-dc1 logs-dc2 --run n20261127 \\
      --bootstrap-server dc2:9092
"""

_MASTER = re.compile(
    r"local(?:\[(?:\*|[1-9][0-9]*)(?:, *[0-9]+)?\])?|local-cluster\[.+\]|yarn|(?:spark|k8s)://.+"
)


def reconcile(  # noqa: D103  # its help is below, with examples
    *,
    logdir: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGDIR...",
            help="Directories with the logs of producers and consumers: paths or URIs.",
        ),
    ],
    run: Annotated[
        str | None, typer.Option("--run", help="The run to judge; needed if there are several.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            help="Directory for summary.json and the tables. [LOGDIR/run=RUN/result]",
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option("--threshold", help="A condition: lost==0, 'p(99)<2s'; repeatable."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Duplicates and reorders also fail the run.")
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            help="The destination's brokers, to look for missing messages that no consumer read.",
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", help="A file of Kafka client properties for them."),
    ] = None,
    command_property: Annotated[
        list[str] | None,
        typer.Option("--command-property", metavar="KEY=VAL", help="One client property."),
    ] = None,
    portable: Portable = False,
    look_up_limit: Annotated[
        int, typer.Option("--look-up-limit", min=1, help="Read at most this many offsets there.")
    ] = MOST_OFFSETS,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    details: Details = False,
    html: Annotated[
        str | None, typer.Option("--html", help="Also write the HTML report to this file.")
    ] = None,
    observations: Observations = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", help=f"Spark's master. [{DEFAULT_MASTER}; under spark-submit, its own]"
        ),
    ] = None,
    driver_memory: Annotated[
        str, typer.Option("--driver-memory", help="The heap of Spark's driver.")
    ] = DEFAULT_MEMORY,
) -> None:
    from mirrortest.cli.spark import spark_session
    from mirrortest.reconcile.plan import plan
    from mirrortest.reconcile.spark_session import given_by_spark_submit
    from mirrortest.report.html import render
    from mirrortest.report.result import read_result, write_text
    from mirrortest.report.terminal import run_result
    from mirrortest.seqlog.location import Location

    conditions = thresholds(threshold or (), exactly_once=exactly_once)
    checked_heap(driver_memory, option="--driver-memory")
    if master is not None and _MASTER.fullmatch(master) is None:
        raise UsageError(f"--master {master!r}: use local[N], spark://HOST:PORT, k8s://URL or yarn")
    if not all(text.strip() for text in logdir):
        raise UsageError("LOGDIR is empty: name the directory of the logs")
    for text in logdir:
        above, _, name = text.rstrip("/").rpartition("/")
        if name.startswith("run="):
            raise UsageError(
                f"{Location.parse(text).shown} has only one run: name the directory above it, "
                f"{Location.parse(above or '.').shown}, with --run {name.removeprefix('run=')}"
            )
    for text in logdir:
        check_directory(text, "LOGDIR")
    if output is not None:
        check_not_empty(output, "--output")
    logs = plan(logdir, checked_run(run) if run is not None else None)
    place = Location.parse(output) if output is not None else logs.default_output
    if place.local:
        check_fillable(Path(place.path), "--output")
    page = Location.parse(html) if html is not None else None
    if observations and page is None:
        raise UsageError("--observations are for the report: add --html FILE")
    for text in observations or ():
        check_directory(text, "--observations", "observations")
    if page is not None and page.local and not Path(page.path).is_relative_to(place.path):
        check_writable(Path(page.path), "--html")
    console.require(*(["report"] if page is not None else []), "spark")
    look_up = None
    connection = Connection(
        command_config=command_config, command_property=command_property, portable=portable
    )
    if bootstrap_server is not None or connection.given:
        client = connection.client(bootstrap_server)
        console.warn(client.warnings)
        look_up = _look_up()(client, logs, look_up_limit)
        look_up.check()
    elif look_up_limit != MOST_OFFSETS:
        raise UsageError("--look-up-limit is for --bootstrap-server: add it")
    if not given_by_spark_submit():  # which started Spark, and puts stderr into the output
        count = number(len(logs.sessions) + len(logs.observers), "log")
        console.err.print(f"[dim]run {logs.run}: {count} found, Spark starts[/]")
    with spark_session(master, driver_memory) as spark:
        # PySpark is an extra: import the module that needs it only once a session runs.
        from mirrortest.reconcile.job import reconcile as judge

        summary = judge(spark, logs, conditions, place, look_up)
        # Before Spark ends: PySpark's server takes up to a second to notice that it should.
        if json:
            typer.echo(summary.encode(), nl=False)
        else:
            following = [] if page is not None else [report_next(place, logs.places, summary.run)]
            console.out.print(run_result(summary).view(details=details, next_commands=following))
    if page is not None:
        observed = [Location.parse(each) for each in observations or ()]
        try:
            write_text(page, render(read_result(place, logs.places, observed)))
        except MirrortestError as error:
            # A page that cannot be created does not hide the verdict: the higher code is the worse.
            error.exit_code = max(error.exit_code, summary.exit_code)
            raise
        console.err.print(page.shown, markup=False)
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


reconcile.__doc__ = f"""Judge a run exactly, after it, from the sequence logs of both sides.

Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive, 99 a threshold or a correctness check
failed.
{EXAMPLES}"""


def _look_up() -> type[LookUp]:
    """Import `LookUp`: Python cannot import its compiled modules from a zip (`spark-submit`)."""
    try:
        from mirrortest.reconcile.lookup import LookUp
    except ImportError as error:
        if not compiled.is_missing(error):
            raise
        raise UsageError(
            "--bootstrap-server: a cluster is read by compiled code, which Python cannot import "
            "from a zip: install mirrortest where Spark's driver runs"
        ) from error
    compiled.check()
    return LookUp
