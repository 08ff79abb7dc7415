"""`mirrortest scenarios`: the scenarios that come with mirrortest."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from mirrortest.cli import console


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Print this one's file, to copy and change it."),
    ] = None,
) -> None:
    """List the scenarios that come with mirrortest, for `mirrortest run`."""
    from mirrortest.scenario import catalogue

    if name is not None:
        typer.echo(catalogue.text(name), nl=False)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in catalogue.shipped():
        table.add_row(f"[bold]{each.name}[/]", each.content.get("description", ""))
    console.out.print(table)
