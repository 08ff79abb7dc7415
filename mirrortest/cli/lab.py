"""`mirrortest lab`: two local Kafka clusters and a mirror between them, and faults on demand."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.cli.help_layout import Program
from mirrortest.cli.lab_fault import InDestination, Name, client_of, fault_app
from mirrortest.cli.lab_up import up
from mirrortest.cli.streams import has_reader
from mirrortest.config.java_properties import parse_assignments
from mirrortest.config.run_naming import checked_topic
from mirrortest.errors import UsageError
from mirrortest.lab import control
from mirrortest.lab.docker import engine
from mirrortest.lab.runtime import PartState

lab_app = Program(
    no_args_is_help=True,
    help=(
        "Two local Kafka clusters with a mirror between them, as processes of this machine. "
        "Needs nothing but Python: what is missing is downloaded once. "
        "Or in containers: --runtime docker."
    ),
)
lab_app.command()(up)
lab_app.add_typer(fault_app, name="fault")


_COLOURS = {
    PartState.RUNNING: "green",
    PartState.STOPPED: "yellow",
    PartState.DOWN: "dim",
    PartState.DEAD: "red",
}


@lab_app.command()
def down(
    *,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="End every lab of yours, and remove what killed ones left in Docker."
        ),
    ] = False,
    name: Name = "default",
) -> None:
    """End the lab and everything in it."""
    for path in control.sockets() if every else [control.socket_path(name)]:
        control.bring_down(path)
        console.err.print(f"[dim]the lab is down: {escape(path.stem)}[/]")
    if every:
        for left in engine.remove() if engine.engine_answers() else ():
            console.err.print(f"[dim]removed {escape(left)}[/]")


@lab_app.command()
def status(
    *,
    name: Name = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show addresses and what each part is doing."""
    shown = control.ask(control.socket_path(name), "status")
    if as_json:
        console.out.print_json(json.dumps(shown), highlight=False)
        return
    for role in ("source", "destination"):
        cluster = shown[role]
        console.out.print(
            f"{role:<12} {escape(cluster['alias'])}  {cluster['bootstrap_servers']}  "
            f"(cluster id {cluster['cluster_id']})"
        )
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "state", "pid", "log"):
        table.add_column(heading, overflow="fold")
    for part, facts in shown["parts"].items():
        state = f"[{_COLOURS[PartState(facts['state'])]}]{facts['state']}[/]"
        table.add_row(part, state, str(facts["pid"] or ""), escape(facts["log"]))
    console.out.print(table)


@lab_app.command()
def logs(
    part: Annotated[
        str | None, typer.Argument(help="A1, B1, ... or mirror.", show_default="all of them")
    ] = None,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C or the lab's end.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="From the end.")] = 50,
    name: Name = "default",
) -> None:
    """Show the end of the parts' logs."""
    path = control.socket_path(name)
    parts = control.ask(path, "status")["parts"]
    if part is not None and part not in parts:
        raise UsageError(f"no part {part}: there are {', '.join(parts)}")
    with contextlib.ExitStack() as stack:
        readers = {}
        for part_name in [part] if part else parts:
            log = Path(parts[part_name]["log"])
            if log.exists():
                readers[part_name] = stack.enter_context(log.open(errors="replace"))
        width = max(map(len, readers), default=0)
        for part_name, reader in readers.items():
            for line in reader.read().splitlines()[-lines if lines else sys.maxsize :]:
                _print_log(line, part_name, width, alone=part is not None)
        rest = dict.fromkeys(readers, "")
        while follow:
            # Before the read: the lab's last lines are printed, too.
            follow = control.is_up(path) and has_reader()
            for part_name, reader in readers.items():
                *complete, rest[part_name] = (rest[part_name] + reader.read()).split("\n")
                for line in complete:
                    _print_log(line, part_name, width, alone=part is not None)
            if follow:
                time.sleep(0.3)


@lab_app.command("create-topic")
def create_topic(
    topic: Annotated[str, typer.Argument()],
    *,
    partitions: Annotated[int, typer.Option(min=1)] = 4,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VAL", help="The topic's configuration.")
    ] = None,
    destination: InDestination = False,
    name: Name = "default",
) -> None:
    """Create a topic on the source, where the mirror detects it, or on the destination."""
    checked_topic(topic, option="TOPIC")
    settings = parse_assignments(config or (), option="--config")
    created = client_of(name, destination=destination).create_topic(topic, partitions, settings)
    if not created:
        console.err.print(f"[yellow]{escape(topic)} was there already[/]")


def _print_log(line: str, part: str, width: int, *, alone: bool) -> None:
    text = escape(line)
    console.out.print(text if alone else f"[cyan]{part:<{width}}[/] {text}")
