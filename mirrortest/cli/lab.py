"""`mirrortest lab`: two local Kafka clusters and a mirror between them, and faults on demand."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mirrortest.cli import console
from mirrortest.cli.help_layout import Verbs
from mirrortest.cli.lab_fault import Name, client_of, fault_app
from mirrortest.cli.options import can_be_filled, given
from mirrortest.config.run import checked_topic
from mirrortest.config.units import checked_heap
from mirrortest.errors import LabError, UsageError
from mirrortest.faults.spec import read_spec
from mirrortest.lab import control
from mirrortest.lab.docker import engine
from mirrortest.lab.docker.engine import KAFKA_IMAGE
from mirrortest.lab.free_ports import ADDRESS
from mirrortest.lab.link.condition import NO_LINKS
from mirrortest.lab.mirrors import FaultyMirrorSettings, MirrorSettings
from mirrortest.lab.observing import observed
from mirrortest.lab.runtime import PartState
from mirrortest.lab.testbed import Lab, part_metrics
from mirrortest.metrics.endpoint import serve_metrics

lab_app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    help=(
        "Two local Kafka clusters with a mirror between them, as processes of this machine. "
        "Needs nothing but Python: what is missing is downloaded once. "
        "Or in containers: --runtime docker."
    ),
)
lab_app.add_typer(fault_app, name="fault")


class MirrorKind(StrEnum):
    """Which mirror stands between the clusters."""

    MIRRORMAKER2 = "mirrormaker2"
    SABOTEUR = "saboteur"


class Runtime(StrEnum):
    """What the parts run in."""

    JVM = "jvm"
    DOCKER = "docker"


_OFFSET_FLUSH_MS = 1000

_COLOURS = {
    PartState.RUNNING: "green",
    PartState.STOPPED: "yellow",
    PartState.DOWN: "dim",
    PartState.DEAD: "red",
}


@lab_app.command()
def up(
    context: typer.Context,
    *,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is up; end it by `lab down`.")
    ] = False,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of each cluster.")] = 1,
    mirror: Annotated[
        MirrorKind,
        typer.Option(help="MirrorMaker 2, or a mirror that does wrong on purpose: see --spec."),
    ] = MirrorKind.MIRRORMAKER2,
    no_mirror: Annotated[
        bool,
        typer.Option("--no-mirror", help="Start it later, by `lab fault start mirror`."),
    ] = False,
    links: Annotated[
        bool,
        typer.Option(
            "--links",
            help="Put a link between the mirror and each cluster, for `lab fault delay`, `rate`, "
            "`cut` and `reset`.",
        ),
    ] = False,
    spec: Annotated[
        Path | None,
        typer.Option(
            help="What the faulty mirror does wrong: see `mirrortest sabotage --help`.",
            show_default="nothing",
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Where the faulty mirror writes down what it did.",
            show_default="truth, in the lab's directory",
        ),
    ] = None,
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
    ] = _OFFSET_FLUSH_MS,
    mirror_property: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VAL", help="Further mirror properties.")
    ] = None,
    broker_property: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VAL", help="Further broker properties.")
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
    metrics_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Serve which parts run as Prometheus metrics there; brokers and MirrorMaker 2 "
            "then serve their JMX metrics, on ports that targets.json in the lab's directory "
            "lists. 0: off.",
        ),
    ] = 0,
    observe: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Record what the lab does to this machine, with its logs and its JMX metrics: "
            "see `mirrortest observe --help`.",
        ),
    ] = None,
    runtime: Annotated[
        Runtime, typer.Option(help="Processes of this machine, or containers.")
    ] = Runtime.JVM,
    kafka_image: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_KAFKA_IMAGE",
            help="What containers are made of, laid out as Apache's image.",
            show_default=KAFKA_IMAGE,
        ),
    ] = None,
    name: Name = "default",
) -> None:
    """Start two clusters and a mirror; they run until Ctrl-C, or until `lab down`."""
    _check_mirror(
        mirror,
        {"--spec": spec, "--truth": truth},
        {
            "--exactly-once": exactly_once,
            "--mirror-property": mirror_property,
            "--offset-flush-ms": offset_flush_ms != _OFFSET_FLUSH_MS,
        },
    )
    if runtime is Runtime.JVM and given(context, "kafka_image"):
        raise UsageError("--kafka-image is for --runtime docker")
    checked_heap(heap, option="--heap")
    mirror_properties = _pairs(mirror_property, "--mirror-property")
    broker_properties = _pairs(broker_property, "--broker-property")
    path = control.socket_path(name)
    if control.is_up(path):
        raise LabError(f"lab {name} is up already: see `mirrortest lab status{_name_option(name)}`")
    if detach:
        _up_detached(path)
        return
    settings: MirrorSettings | FaultyMirrorSettings
    if mirror is MirrorKind.SABOTEUR:
        if spec is not None:
            read_spec(spec)  # a mistake is reported before anything is started
        settings = FaultyMirrorSettings(spec=spec, truth=truth, topics=topics, exclude=exclude)
    else:
        settings = MirrorSettings(
            topics=topics,
            exclude=exclude,
            exactly_once=exactly_once,
            offset_flush_ms=offset_flush_ms,
            properties=mirror_properties,
        )
    if runtime is Runtime.DOCKER and metrics_port:
        raise UsageError("--metrics-port is for --runtime jvm")
    if runtime is Runtime.DOCKER and links:
        raise UsageError(NO_LINKS)
    if observe is not None:
        if runtime is Runtime.DOCKER:
            raise UsageError("--observe is for --runtime jvm")
        can_be_filled(observe, "--observe")
    lab = Lab(
        directory,
        image=(kafka_image or KAFKA_IMAGE) if runtime is Runtime.DOCKER else None,
        brokers=brokers,
        source_alias=source_alias,
        destination_alias=destination_alias,
        mirror=settings,
        start_mirror=not no_mirror,
        links=links,
        broker_properties=broker_properties,
        heap=heap,
        jvm_options=jvm_option or (),
        metrics=bool(metrics_port) or observe is not None,
        gc_logs=observe is not None,
        on_step=lambda line: console.err.print(f"[dim]{escape(line)}[/]"),
    )
    # SIGTERM ends a lab that is still starting the way Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with lab, contextlib.ExitStack() as ended:
        exported = serve_metrics(part_metrics(lab), address=ADDRESS, port=metrics_port)
        ended.enter_context(exported or contextlib.nullcontext())
        _show_use(lab.describe(), name)  # first: whoever waits for the socket has read it then
        with control.Control(lab, path) as served:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: served.ending.set())
            with observed(lab, observe):
                _watch(lab, served.ending)
            console.err.print("[dim]ending[/]")
            lab.down()  # before the socket goes: `lab down` waits for that


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
        console.out.print_json(json.dumps(shown))
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
        list[str] | None, typer.Option(metavar="KEY=VAL", help="The topic's configuration.")
    ] = None,
    destination: Annotated[
        bool, typer.Option("--destination", help="In the destination, not in the source.")
    ] = False,
    name: Name = "default",
) -> None:
    """Create a topic on the source; the mirror takes it up by itself."""
    checked_topic(topic, option="TOPIC")
    settings = _pairs(config, "--config")
    made = client_of(name, destination=destination).create_topic(topic, partitions, settings)
    if not made:
        console.err.print(f"[yellow]{escape(topic)} was there already[/]")


def _check_mirror(
    mirror: MirrorKind, of_faulty_mirror: Mapping[str, object], of_mirrormaker: Mapping[str, object]
) -> None:
    """Refuse options that the mirror would not heed; those of the other one must be unset."""
    foreign = of_mirrormaker if mirror is MirrorKind.SABOTEUR else of_faulty_mirror
    for option, value in foreign.items():
        if value:
            other = next(each for each in MirrorKind if each is not mirror)
            raise UsageError(f"{option} is for --mirror {other.value}")


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {text!r}: write it as KEY=VALUE")
        pairs[key] = value
    return pairs


def _name_option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"


def _show_use(shown: dict[str, Any], name: str) -> None:
    source, destination = shown["source"], shown["destination"]
    a, b = source["bootstrap_servers"], destination["bootstrap_servers"]
    option = _name_option(name)
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
    """Wait for the end; report once each part that dies by itself."""
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
    with path.with_suffix(".log").open("w+") as output:
        owner = subprocess.Popen(
            [sys.executable, "-m", "mirrortest", *again],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with path.with_suffix(".log").open() as output:
        for line in _lines_until_up(output, owner, path):
            console.out.print(escape(line))
        if owner.poll() is not None:
            raise typer.Exit(owner.returncode)


def _lines_until_up(output: Any, owner: subprocess.Popen[bytes], path: Path) -> Iterator[str]:
    while True:
        ended = control.is_up(path) or owner.poll() is not None
        yield from output.read().splitlines()
        if ended:
            return
        time.sleep(0.1)


def _print_log(line: str, part: str, width: int, *, alone: bool) -> None:
    text = escape(line)
    console.out.print(text if alone else f"[cyan]{part:<{width}}[/] {text}")
