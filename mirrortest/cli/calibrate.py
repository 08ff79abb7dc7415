"""`mirrortest calibrate`: how well our own findings hold, measured against a faulty mirror."""

from __future__ import annotations

import asyncio
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.cli.options import can_be_filled
from mirrortest.cli.spark import spark_session
from mirrortest.config.run import run_id
from mirrortest.config.units import parse_duration
from mirrortest.reconcile.plan import plan
from mirrortest.selftest.judgement import judge
from mirrortest.selftest.matrix import Matrix
from mirrortest.selftest.stage import LOGS, perform, raised
from mirrortest.selftest.view import calibration_view
from mirrortest.wire.message import Form

EXAMPLES = """
[bold]Examples[/]

    mirrortest calibrate
    mirrortest calibrate --messages 5000000 --rate 0.0001 --seed 7
    mirrortest calibrate --again mirrortest-calibrate/r1a2b3c4
"""


class Forms(StrEnum):
    """In which form messages are sent."""

    BODY = "body"
    HEADERS = "headers"
    BOTH = "both"

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms themselves."""
        return tuple(Form) if self is Forms.BOTH else (Form(self.value),)


def calibrate(
    *,
    messages: Annotated[
        int, typer.Option(help="How many messages to the main topics, about.")
    ] = 200_000,
    rate: Annotated[
        float,
        typer.Option(
            help="The rate of each kind of anomaly; from it down by tens to one in a million."
        ),
    ] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="The same seed hurts the same messages.")] = 1,
    consumers: Annotated[int, typer.Option(help="How many share the destination.")] = 3,
    form: Annotated[Forms, typer.Option(help="In which form messages are sent.")] = Forms.BOTH,
    throughput: Annotated[
        float, typer.Option(help="Messages/s; the faulty mirror must keep up.")
    ] = 10_000.0,
    deadline: Annotated[
        str,
        typer.Option(metavar="DURATION", help="After which a missing message is lost."),
    ] = "20s",
    directory: Annotated[
        Path,
        typer.Option(file_okay=False, help="Truth, logs and results go below it, by run."),
    ] = Path("mirrortest-calibrate"),
    again: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Score once more what lies in this run's directory; nothing is run.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure what mirrortest finds against what a faulty mirror did."""
    if again is None:
        console.require("lab", "spark")
        matrix = Matrix(
            run=run_id(secrets.token_bytes(8)),
            messages=messages,
            rate=rate,
            seed=seed,
            forms=form.forms,
            consumers=consumers,
            throughput=throughput,
            deadline=parse_duration(deadline, option="--deadline") / 1e9,
        )
        can_be_filled(directory, "--directory")
        folder = directory / matrix.run
        _run(matrix, folder)
    else:
        folder = again
    result = judge(folder)
    if json:
        typer.echo(result.encode(), nl=False)
    else:
        console.out.print(calibration_view(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _run(matrix: Matrix, folder: Path) -> None:
    """Play the matrix on a lab of its own, and reconcile."""
    with LiveLines(console.err) as live:

        async def play(stop: asyncio.Event) -> None:
            await perform(lab, matrix, folder, stop, live.show)

        with raised(matrix, folder, live.show) as lab:
            console.run_application(play)
        live.show("reconciling the sequence logs of both sides")
        logs = plan([str(folder / LOGS)], matrix.run)
        with spark_session() as spark:
            from mirrortest.reconcile.job import reconcile  # noqa: PLC0415  # see cli/reconcile

            reconcile(spark, logs, (), None)


calibrate.__doc__ = f"""Measure what mirrortest finds against what a faulty mirror did.

Starts two Kafka clusters with a mirror between them that does wrong on purpose and on record, in
every way that docs/findings.md knows; produces, consumes and reconciles; and prints for each kind
of anomaly how many were seeded, found, missed, and told falsely, online and offline.

Exit codes: 0 every figure is exactly 100 %, 1 error, 2 usage, 3 inconclusive (a part died, logs are
not whole, a kind did not occur), 99 something was missed or told falsely.
{EXAMPLES}"""
