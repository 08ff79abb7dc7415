"""`mirrortest synth`: sequence logs of a synthetic run, with its truth."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from json import dumps
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.interrupt import interruptible
from mirrortest.cli.options import check_fillable
from mirrortest.cli.parameters import from_models
from mirrortest.config.units import parse_count
from mirrortest.errors import MirrortestError
from mirrortest.selftest.synthetic_options import KINDS, SynthOptions, spread
from mirrortest.wire.digits import SEQ_LIMIT

EXAMPLES = """
Examples:

    mirrortest synth --log-dir logs --run big --messages 1e9 --anomalies 1000
    mirrortest synth --log-dir logs --run each --messages 1e8 --log-detail messages
    mirrortest synth --log-dir logs --run wide --messages 1e8 --producers 100 --lanes 100
    mirrortest synth --log-dir logs --run lossy --messages 1e9 --lost 1e8
    mirrortest reconcile logs --run big
"""


@from_models
def synth(
    *,
    options: partial[SynthOptions],
    anomalies: Annotated[
        str,
        typer.Option(
            help="Messages with an anomaly, spread over "
            + ", ".join(kind.label for kind in KINDS)
            + "."
        ),
    ] = "0",
    lost: Annotated[
        str | None, typer.Option(help="Messages lost, instead of their share of --anomalies.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of threads. Default: as many as CPUs.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the sequence logs of both sides of a synthetic run, and its truth."""
    log_dir = options.keywords["log_dir"]
    check_fillable(log_dir, "--log-dir")
    request = options(
        anomalies=spread(
            parse_count(anomalies, option="--anomalies", maximum=SEQ_LIMIT),
            None if lost is None else parse_count(lost, option="--lost", maximum=SEQ_LIMIT),
        ),
        jobs=jobs or os.cpu_count() or 1,
    )
    from mirrortest.selftest.synthesis import synthesize

    try:
        with interruptible():
            written = synthesize(request)
    except OSError as error:
        raise MirrortestError(f"--log-dir {log_dir}: {error.strerror or error}") from error
    if json:
        typer.echo(dumps(asdict(written), indent=1))
        return
    console.out.print(
        f"run {written.run}: {written.messages:,} messages as {written.rows:,} rows in "
        f"{written.files:,} files of {written.sessions:,} sessions, {written.size / 1e6:,.1f} MB"
    )
    for label, count in written.findings.items():
        console.out.print(f"{label}: {count:,}")
    console.out.print(f"truth: {written.truth}", markup=False)


synth.__doc__ = f"""{synth.__doc__}

The files are the same as those of `produce` and `consume`, row by row. truth.parquet lists every
message with a finding (producer, incarnation, topic, lane, seq, finding).
{EXAMPLES}"""
