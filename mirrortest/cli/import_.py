"""`mirrortest import`: other programs' descriptions of loads, as workloads."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.help_layout import Program
from mirrortest.cli.options import check_writable
from mirrortest.config.option_file import toml_of
from mirrortest.config.visible import visible
from mirrortest.host.user_files import read_text, replace_text

EXAMPLES = """
Examples:

  What has no counterpart is named on stderr; then the load is sent:

    mirrortest import trogdor bench.json --output bench.toml

    mirrortest produce --bootstrap-server dc1:9092 --workload bench.toml
"""

import_app = Program(
    no_args_is_help=True,
    help="Read other programs' descriptions of loads as workloads.",
)


@import_app.callback()
def _group() -> None:
    """Keep `trogdor` a subcommand although it is the only one: there will be others."""


@import_app.command()
def trogdor(
    specification: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            help="Specification of a ProduceBench, ConfigurableProducer, RoundTripWorkload or "
            "ConsumeBench.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the workload to this file. Default: stdout."),
    ] = None,
) -> None:
    """Write a specification of Trogdor, Apache Kafka's test framework, as a workload."""
    from mirrortest.produce.trogdor import import_trogdor

    if output is not None:
        check_writable(output, "--output")
    where = str(specification)
    found = import_trogdor(read_text(specification, where), where=where, now_ns=time.time_ns())
    for remark in found.remarks:
        console.err.print(f"not in the workload: {visible(remark)}", markup=False, soft_wrap=True)
    text = toml_of(found.document)
    if output is None:
        typer.echo(text, nl=False)
    else:
        replace_text(output, text)


trogdor.__doc__ = f"{trogdor.__doc__}\n{EXAMPLES}"
