"""`mirrortest lab`: two local Kafka clusters and a mirror between them, and faults on demand."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.errors import LabError, UsageError
from mirrortest.lab import control
from mirrortest.lab.lab import Lab
from mirrortest.lab.mirror import MirrorSettings
from mirrortest.lab.probe import Probe
from mirrortest.lab.process import PartState

lab_app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Two local Kafka clusters with MirrorMaker 2 between them, as processes of this machine. "
        "Needs nothing but Python: what is missing is downloaded once."
    ),
)
fault_app = typer.Typer(no_args_is_help=True, help="Hurt a part of the lab, and heal it.")
lab_app.add_typer(fault_app, name="fault")

Name = Annotated[
    str,
    typer.Option(
        "--name", envvar="MIRRORTEST_LAB", help="The lab's name, where there are several."
    ),
]
PartName = Annotated[str, typer.Argument(help="A1, B1, ... or mirror: see `lab status`.")]

_COLOURS = {
    PartState.RUNNING: "green",
    PartState.STOPPED: "yellow",
    PartState.DOWN: "dim",
    PartState.DEAD: "red",
}


@lab_app.command()
def up(
    *,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is up; end it by `lab down`.")
    ] = False,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of each cluster.")] = 1,
    mirror: Annotated[
        bool, typer.Option(help="Start the mirror; else later by `lab fault start mirror`.")
    ] = True,
    topics: Annotated[
        str, typer.Option(help="What is mirrored: regular expressions, separated by commas.")
    ] = ".*",
    exclude: Annotated[
        str | None, typer.Option(help="What is not mirrored, likewise.", show_default="its own")
    ] = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="The mirror writes in transactions.")
    ] = False,
    offset_flush_ms: Annotated[
        int,
        typer.Option(
            min=1,
            help="How often the mirror stores its position: what a kill makes it repeat. "
            "Its own default is 60000.",
        ),
    ] = 1000,
    mirror_property: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Further mirror properties.")
    ] = None,
    broker_property: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Further broker properties.")
    ] = None,
    source_alias: Annotated[str, typer.Option(help="The mirror's name of the source.")] = "A",
    destination_alias: Annotated[
        str, typer.Option(help="The mirror's name of the destination.")
    ] = "B",
    directory: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Keep data, logs and ports here, and go on from what is there.",
            show_default="a temporary one",
        ),
    ] = None,
    heap: Annotated[str, typer.Option(help="The largest heap of each Java process.")] = "512m",
    jvm_option: Annotated[
        list[str] | None,
        typer.Option(
            help="A further option of each. -XX:TieredStopAtLevel=4 starts slower, runs faster."
        ),
    ] = None,
    name: Name = "default",
) -> None:
    """Start two clusters and a mirror; they run until Ctrl-C, or until `lab down`."""
    path = control.socket_path(name)
    if control.is_up(path):
        raise LabError(f"lab {name} is up already: see `mirrortest lab status`")
    if detach:
        _up_detached(path)
        return
    lab = Lab(
        directory,
        brokers=brokers,
        source_alias=source_alias,
        destination_alias=destination_alias,
        mirror=MirrorSettings(
            topics=topics,
            exclude=exclude,
            exactly_once=exactly_once,
            offset_flush_ms=offset_flush_ms,
            properties=_pairs(mirror_property),
        ),
        start_mirror=mirror,
        broker_properties=_pairs(broker_property),
        heap=heap,
        jvm_options=jvm_option or (),
        tell=lambda line: console.err.print(f"[dim]{escape(line)}[/]"),
    )
    # SIGTERM ends a lab that is still starting the way Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with lab:
        _show_use(lab.describe(), name)  # first: whoever waits for the socket has read it then
        with control.Control(lab, path) as served:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: served.ending.set())
            _watch(lab, served.ending)
            console.err.print("[dim]ending[/]")
            lab.down()  # before the socket goes: `lab down` waits for that


@lab_app.command()
def down(*, name: Name = "default") -> None:
    """End the lab and everything in it."""
    control.bring_down(control.socket_path(name))
    console.err.print("[dim]the lab is down[/]")


@lab_app.command()
def status(
    *,
    name: Name = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show addresses and what each part is doing."""
    told = control.ask(control.socket_path(name), "status")
    if as_json:
        console.out.print_json(json.dumps(told))
        return
    for role in ("source", "destination"):
        cluster = told[role]
        console.out.print(
            f"{role:<12} {escape(cluster['alias'])}  {cluster['bootstrap_servers']}  "
            f"(cluster id {cluster['cluster_id']})"
        )
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "state", "pid", "log"):
        table.add_column(heading, overflow="fold")
    for part, facts in told["parts"].items():
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
        for known in [part] if part else parts:
            log = Path(parts[known]["log"])
            if log.exists():
                readers[known] = stack.enter_context(log.open(errors="replace"))
        width = max(map(len, readers), default=0)
        for known, reader in readers.items():
            for line in reader.read().splitlines()[-lines if lines else sys.maxsize :]:
                _print_log(line, known, width, alone=part is not None)
        begun = dict.fromkeys(readers, "")
        while follow and control.is_up(path):
            for known, reader in readers.items():
                *whole, begun[known] = (begun[known] + reader.read()).split("\n")
                for line in whole:
                    _print_log(line, known, width, alone=part is not None)
            time.sleep(0.3)


@lab_app.command("create-topic")
def create_topic(
    topic: Annotated[str, typer.Argument()],
    *,
    partitions: Annotated[int, typer.Option(min=1)] = 4,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="The topic's configuration.")
    ] = None,
    destination: Annotated[
        bool, typer.Option("--destination", help="In the destination, not in the source.")
    ] = False,
    name: Name = "default",
) -> None:
    """Create a topic on the source; the mirror takes it up by itself."""
    made = _probe(name, destination=destination).create_topic(topic, partitions, _pairs(config))
    if not made:
        console.err.print(f"[yellow]{escape(topic)} was there already[/]")


def _fault(verb: str, part: str, name: str) -> None:
    answer = control.ask(control.socket_path(name), verb, part=part)
    console.out.print(f"{escape(part)} {answer['state']}")


@fault_app.command()
def kill(part: PartName, *, name: Name = "default") -> None:
    """End a part at once (SIGKILL)."""
    _fault("kill", part, name)


@fault_app.command()
def terminate(part: PartName, *, name: Name = "default") -> None:
    """End a part in order (SIGTERM)."""
    _fault("terminate", part, name)


@fault_app.command()
def stop(part: PartName, *, name: Name = "default") -> None:
    """Freeze a part (SIGSTOP): it keeps its connections and answers nothing."""
    _fault("stop", part, name)


@fault_app.command("continue")
def continue_(part: PartName, *, name: Name = "default") -> None:
    """Let a frozen part go on."""
    _fault("continue", part, name)


@fault_app.command()
def start(part: PartName, *, name: Name = "default") -> None:
    """Start a part that is not running, on its old port and data."""
    _fault("start", part, name)


@fault_app.command()
def restart(part: PartName, *, name: Name = "default") -> None:
    """End a part in order and start it again."""
    _fault("restart", part, name)


@fault_app.command("delete-records")
def delete_records(
    topic: Annotated[str, typer.Argument()],
    *,
    before: Annotated[int, typer.Option(min=-1, help="The first offset to keep; -1: the end.")],
    partition: Annotated[
        int | None, typer.Option(min=0, help="Of this partition.", show_default="all")
    ] = None,
    destination: Annotated[
        bool, typer.Option("--destination", help="In the destination, not in the source.")
    ] = False,
    name: Name = "default",
) -> None:
    """Delete a topic's records below an offset, as retention would."""
    probe = _probe(name, destination=destination)
    numbers = range(probe.partitions(topic)) if partition is None else [partition]
    if not numbers:
        raise UsageError(f"there is no topic {topic} there")
    probe.delete_records(topic, dict.fromkeys(numbers, before))


def _probe(name: str, *, destination: bool) -> Probe:
    told = control.ask(control.socket_path(name), "status")
    return Probe(told["destination" if destination else "source"]["bootstrap_servers"])


def _pairs(texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{text!r} is not of the form KEY=VALUE")
        pairs[key] = value
    return pairs


def _show_use(told: dict[str, Any], name: str) -> None:
    source, destination = told["source"], told["destination"]
    a, b = source["bootstrap_servers"], destination["bootstrap_servers"]
    option = "" if name == "default" else f" --name {name}"
    prefix = source["alias"]
    console.out.print(f"""\
[bold]source[/]       {escape(prefix)}  {a}
[bold]destination[/]  {escape(destination["alias"])}  {b}

Try it:
  mirrortest lab create-topic orders --partitions 4{option}
  mirrortest produce --bootstrap-server {a} --run first --topics orders --num-records 10000
  mirrortest consume --bootstrap-server {b} --run first --topics {prefix}.orders \
--source-alias {prefix}
  mirrortest lab fault kill mirror{option}
  mirrortest lab down{option}
""")


def _watch(lab: Lab, ending: threading.Event) -> None:
    """Wait for the end; tell once of each part that dies by itself."""
    dead: set[str] = set()
    while not ending.wait(0.5):
        now = {name for name, part in lab.parts.items() if part.state is PartState.DEAD}
        for name in now - dead:
            with contextlib.suppress(KeyError):
                console.err.print(f"[red]{escape(str(lab.part(name).failure('died')))}[/]")
        dead = now


def _up_detached(path: Path) -> None:
    """Run the same command again without --detach, on its own, and wait until it is up."""
    again = [word for word in sys.argv[1:] if word not in {"--detach", "-d"}]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".log").open("w+") as told:
        owner = subprocess.Popen(
            [sys.executable, "-m", "mirrortest", *again],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with path.with_suffix(".log").open() as told:
        for line in _lines_until_up(told, owner, path):
            console.out.print(escape(line))
        if owner.poll() is not None:
            raise typer.Exit(owner.returncode)


def _lines_until_up(told: Any, owner: subprocess.Popen[bytes], path: Path) -> Iterator[str]:
    while True:
        ended = control.is_up(path) or owner.poll() is not None
        yield from told.read().splitlines()
        if ended:
            return
        time.sleep(0.1)


def _print_log(line: str, part: str, width: int, *, alone: bool) -> None:
    text = escape(line)
    console.out.print(text if alone else f"[cyan]{part:<{width}}[/] {text}")
