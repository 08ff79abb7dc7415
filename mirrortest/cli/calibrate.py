"""`mirrortest calibrate`: recall and precision of findings, measured on a faulty mirror."""

from __future__ import annotations

import secrets
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.interrupt import interruptible
from mirrortest.cli.options import check_fillable
from mirrortest.config.run_naming import run_id
from mirrortest.config.units import parse_duration
from mirrortest.wire.form import Form

if TYPE_CHECKING:
    from mirrortest.selftest.calibration_plan import CalibrationPlan

EXAMPLES = """
Examples:

    mirrortest calibrate
    mirrortest calibrate --messages 5000000 --rate 0.0001 --seed 7
    mirrortest calibrate --again mirrortest-calibrate/r1a2b3c4
"""


class Forms(StrEnum):
    """The forms in which messages are sent."""

    BODY = "body"
    HEADERS = "headers"
    BOTH = "both"

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of messages that this choice means."""
        return tuple(Form) if self is Forms.BOTH else (Form(self.value),)


def calibrate(
    *,
    messages: Annotated[
        int, typer.Option(help="Number of messages to the main topics, about.")
    ] = 200_000,
    rate: Annotated[
        float,
        typer.Option(
            help="Highest rate of each kind; others follow by tens, down to one in a million."
        ),
    ] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="The same seed hits the same messages.")] = 1,
    consumers: Annotated[int, typer.Option(help="Number of consumers.")] = 3,
    form: Annotated[Forms, typer.Option(help="Form of the messages.")] = Forms.BOTH,
    throughput: Annotated[
        float, typer.Option(help="Messages/s; the faulty mirror must keep up.")
    ] = 10_000.0,
    deadline: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Time after which a missing message is lost."),
    ] = "20s",
    directory: Annotated[
        Path,
        typer.Option(file_okay=False, help="Truth, logs and results go here, one folder a run."),
    ] = Path("mirrortest-calibrate"),
    again: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Score this run's folder again; nothing is run.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure what mirrortest finds against what a faulty mirror did."""
    if again is None:
        console.require("lab", "spark")
        from mirrortest.selftest.calibration_plan import CalibrationPlan

        calibration = CalibrationPlan(
            run=run_id(secrets.token_bytes(8)),
            messages=messages,
            rate=rate,
            seed=seed,
            forms=form.forms,
            consumers=consumers,
            throughput=throughput,
            deadline=parse_duration(deadline, option="--deadline") / 1e9,
        )
        check_fillable(directory, "--directory")
        folder = directory / calibration.run
        _run(calibration, folder)
    else:
        folder = again
    from mirrortest.selftest.calibration import calibration_view, judge

    result = judge(folder)
    if json:
        typer.echo(result.encode(), nl=False)
    else:
        console.out.print(calibration_view(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@interruptible()  # of a lab that is starting or ending, nothing remains
def _run(calibration: CalibrationPlan, folder: Path) -> None:
    """Run a calibration on a new lab, and reconcile its logs."""
    from mirrortest.cli.application import run_application
    from mirrortest.cli.live import LiveLines
    from mirrortest.cli.spark import spark_session
    from mirrortest.reconcile.plan import plan
    from mirrortest.selftest.calibration_run import LOGS, lab_with_faulty_mirror, run_calibration

    with LiveLines(console.err) as live:
        with lab_with_faulty_mirror(calibration, folder, live.show) as lab:
            run_application(lambda stop: run_calibration(lab, calibration, folder, stop, live.show))
        live.show("reconciling the sequence logs of both sides")
        logs = plan([str(folder / LOGS)], calibration.run)
        with spark_session() as spark:
            from mirrortest.reconcile.job import reconcile

            reconcile(spark, logs, (), None)


calibrate.__doc__ = f"""{calibrate.__doc__}

Starts two Kafka clusters with a faulty mirror between them: a mirror that injects every anomaly of
docs/reference/findings.md and records each one. Produces, consumes and reconciles. Prints for each
kind of anomaly how many were seeded, found, missed, and reported falsely, online and offline.

Exit codes: 0 every figure is exactly 100 %, 1 error, 2 usage, 3 inconclusive (a part died, logs are
damaged, a kind did not occur), 99 something was missed or reported falsely.
{EXAMPLES}"""
