"""`mirrortest reconcile`: judge a run from its sequence logs."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.config.threshold import thresholds
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.session import DEFAULT_MASTER, DEFAULT_MEMORY, spark_session
from mirrortest.report.table import summary_view
from mirrortest.seqlog.location import Location
from mirrortest.wire.stream import checked_run


def reconcile(
    *,
    logdir: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGDIR...",
            help="Where the logs of producers and consumers lie: paths or URIs.",
        ),
    ],
    run: Annotated[
        str | None, typer.Option("--run", help="Which run; may be left out if there is only one.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", help="Where summary.json and the tables go. [LOGDIR/run=RUN/result]"
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option("--threshold", help="What must hold: lost==0, 'p(99)<2s'; repeatable."),
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="No duplicates and no reorders either.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
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
    """Judge a run exactly, after it, from the sequence logs of both sides.

    Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive, 99 a threshold or a correctness check
    failed.
    """
    conditions = thresholds(threshold or (), exactly_once=exactly_once)
    logs = plan(logdir, checked_run(run) if run is not None else None)
    place = Location.parse(output) if output is not None else None
    with spark_session(master, driver_memory, small=logs.small) as spark:
        # PySpark is an extra: the module that needs it is imported once it is known to be there.
        from mirrortest.reconcile.job import reconcile as judge  # noqa: PLC0415

        summary = judge(spark, logs, conditions, place)
    if json:
        typer.echo(summary.encode(), nl=False)
    else:
        console.out.print(summary_view(summary))
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)
