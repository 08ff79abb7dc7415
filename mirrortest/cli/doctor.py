"""`mirrortest doctor`: see before a test whether it can work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.checks import show_checks
from mirrortest.cli.options import Connection, MirrorNames, Output
from mirrortest.cli.parameters import from_models
from mirrortest.config.client_config import ClientConfig
from mirrortest.doctor.options import DoctorOptions

EXAMPLES = """
[bold]Examples[/]

  Before a test of MirrorMaker 2, from any machine that reaches both clusters:

    mirrortest doctor --source-bootstrap-server dc1:9092 --destination-bootstrap-server dc2:9092 --topics orders,clicks.eu --source-alias A

  Only what a producer's machine sees:

    mirrortest doctor --source-bootstrap-server dc1:9092 --topics orders

Each line is ✓ (right), ! (a result would be missing or less certain) or ✗ (the test cannot work), with what to do. Nothing is written to any cluster.

Exit codes: 0 nothing is ✗, 1 something is, 2 usage.
"""  # noqa: E501  # commands are pasted whole


@from_models
def doctor(  # noqa: D103  # the help text is an option of its own, with examples
    *,
    source_bootstrap_server: Annotated[
        str | None, typer.Option(help="The source's brokers.")
    ] = None,
    destination_bootstrap_server: Annotated[
        str | None, typer.Option(help="The destination's brokers.")
    ] = None,
    options: partial[DoctorOptions],
    names: MirrorNames,
    source_command_config: Annotated[
        Path | None, typer.Option(help="Client properties for the source's brokers.")
    ] = None,
    destination_command_config: Annotated[
        Path | None, typer.Option(help="Client properties for the destination's brokers.")
    ] = None,
    command_property: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="One client property, for both clusters."),
    ] = None,
    output: Output,
) -> None:
    sides = [
        _client(server, Connection(command_config=file, command_property=command_property))
        for server, file in (
            (source_bootstrap_server, source_command_config),
            (destination_bootstrap_server, destination_command_config),
        )
    ]
    warnings = [line for client in sides if client is not None for line in client.warnings]
    console.warn(dict.fromkeys(warnings))
    request = options(
        source=sides[0],
        destination=sides[1],
        mapping=names.mapping() if names.given else None,
    )
    show_checks(request, output)


def _client(server: str | None, connection: Connection) -> ClientConfig | None:
    if server is None and connection.command_config is None:
        return None
    return connection.client(server)


doctor.__doc__ = f"See before a test whether it can work, and what to change.\n{EXAMPLES}"
