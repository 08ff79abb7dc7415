"""`mirrortest lab up`: start a lab, and run it until the user ends it."""

from __future__ import annotations

import contextlib
import fcntl
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from mirrortest.cli import console
from mirrortest.cli.interrupt import interruptible
from mirrortest.cli.lab_fault import Name
from mirrortest.cli.options import check_fillable, given
from mirrortest.config.java_properties import parse_assignments
from mirrortest.config.units import checked_heap
from mirrortest.errors import LabError, UsageError
from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.lab import control
from mirrortest.lab.docker.engine import KAFKA_IMAGE
from mirrortest.lab.free_ports import ADDRESS
from mirrortest.lab.link.condition import NO_LINKS
from mirrortest.lab.runtime import DEFAULT_HEAP, PartState

if TYPE_CHECKING:
    from mirrortest.lab.mirrors import AnySettings
    from mirrortest.lab.testbed import Lab


class MirrorKind(StrEnum):
    """The mirror between the clusters."""

    MIRRORMAKER2 = "mirrormaker2"
    SABOTEUR = "saboteur"


class RuntimeKind(StrEnum):
    """What the parts run in."""

    JVM = "jvm"
    DOCKER = "docker"


_OFFSET_FLUSH_MS = 1000
EXAMPLES = """
Examples:

Two clusters of a broker each, and MirrorMaker 2:

    mirrortest lab up

With a network between mirror and clusters that can degrade (`lab fault delay`, ...):

    mirrortest lab up --links

With an observer of this machine and the brokers:

    mirrortest lab up --observe observations
"""


@interruptible()  # of a lab that is still starting, all that was started ends
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
    mirror_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Any other mirror: a command, with {source} and {destination} for the addresses. "
            "It keeps topics' names, or puts --source-alias before them.",
        ),
    ] = None,
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
    heap: Annotated[
        str, typer.Option(help="The largest heap of each Java process.")
    ] = DEFAULT_HEAP,
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
        RuntimeKind, typer.Option(help="Processes of this machine, or containers.")
    ] = RuntimeKind.JVM,
    kafka_image: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_KAFKA_IMAGE",
            help="Kafka image for the containers, with the layout of apache/kafka.",
            show_default=KAFKA_IMAGE,
        ),
    ] = None,
    name: Name = "default",
) -> None:
    """Start two clusters and a mirror; they run until Ctrl-C, or until `lab down`."""
    from mirrortest.faults.spec import read_spec
    from mirrortest.lab.mirrors import CommandSettings, FaultyMirrorSettings, MirrorSettings
    from mirrortest.lab.observing import observed
    from mirrortest.lab.testbed import Lab, part_metrics
    from mirrortest.metrics.endpoint import serve_metrics

    command = None
    if mirror_command is not None:
        for option in ("mirror", "topics", "exclude"):
            if given(context, option):
                raise UsageError(f"--{option} and --mirror-command: use one of them")
        alias = source_alias if given(context, "source_alias") else ""
        command = CommandSettings(_words(mirror_command), alias)
    _check_mirror(
        mirror if command is None else None,
        {"--spec": spec, "--truth": truth},
        {
            "--exactly-once": exactly_once,
            "--mirror-property": mirror_property,
            "--offset-flush-ms": offset_flush_ms != _OFFSET_FLUSH_MS,
        },
    )
    if runtime is RuntimeKind.JVM and given(context, "kafka_image"):
        raise UsageError("--kafka-image is for --runtime docker")
    checked_heap(heap, option="--heap")
    for option, place in (("--directory", directory), ("--truth", truth)):
        if place is not None:
            check_fillable(place, option)
    mirror_properties = parse_assignments(mirror_property or (), option="--mirror-property")
    broker_properties = parse_assignments(broker_property or (), option="--broker-property")
    path = control.socket_path(name)
    if control.is_up(path):
        raise LabError(f"lab {name} is up already: see `mirrortest lab status{_name_option(name)}`")
    if detach:
        _up_detached(path, name)
        return
    settings: AnySettings
    if command is not None:
        settings = command
    elif mirror is MirrorKind.SABOTEUR:
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
    if runtime is RuntimeKind.DOCKER and metrics_port:
        raise UsageError("--metrics-port is for --runtime jvm")
    if runtime is RuntimeKind.DOCKER and links:
        raise UsageError(NO_LINKS)
    if observe is not None:
        if runtime is RuntimeKind.DOCKER:
            raise UsageError("--observe is for --runtime jvm")
        check_fillable(observe, "--observe")
    lab = Lab(
        directory,
        image=(kafka_image or KAFKA_IMAGE) if runtime is RuntimeKind.DOCKER else None,
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
    with lab, contextlib.ExitStack() as ended:
        exported = serve_metrics(part_metrics(lab), address=ADDRESS, port=metrics_port)
        ended.enter_context(exported or contextlib.nullcontext())
        _show_use(lab.describe(), name)  # before the socket: --detach prints the output until then
        with control.Control(lab, path) as served:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: served.ending.set())
            with observed(lab, observe, metrics=bool(metrics_port)):
                _watch(lab, served.ending)
            console.err.print("[dim]ending[/]")
            lab.down()  # before the socket is removed: `lab down` waits for that


up.__doc__ = f"{up.__doc__}\n{EXAMPLES}"


def _check_mirror(
    mirror: MirrorKind | None,
    of_faulty_mirror: Mapping[str, object],
    of_mirrormaker: Mapping[str, object],
) -> None:
    """Refuse options that this mirror would ignore: those of other mirrors."""
    options = {MirrorKind.SABOTEUR: of_faulty_mirror, MirrorKind.MIRRORMAKER2: of_mirrormaker}
    for other, foreign in options.items():
        for option, value in foreign.items():
            if value and other is not mirror:
                raise UsageError(f"{option} is for --mirror {other.value}")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        raise UsageError(f"--mirror-command {command!r}: a quotation mark is missing") from None


def _name_option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"


def _show_use(shown: dict[str, Any], name: str) -> None:
    source, destination = shown["source"], shown["destination"]
    a, b = source["bootstrap_servers"], destination["bootstrap_servers"]
    option = _name_option(name)
    alias = shown["alias"]
    copy = f"{alias}.orders --source-alias {alias}" if alias else "orders"
    console.out.print(f"""\
[bold]source[/]       {escape(source["alias"])}  {a}
[bold]destination[/]  {escape(destination["alias"])}  {b}

Try it:
  mirrortest lab create-topic orders --partitions 4{option}
  mirrortest produce --bootstrap-server {a} --run first --topics orders --num-records 10000
  mirrortest consume --bootstrap-server {b} --run first --topics {copy}
  mirrortest lab fault kill mirror{option}
  mirrortest lab down{option}
""")


def _watch(lab: Lab, ending: threading.Event) -> None:
    """Wait for the end; report each part that dies by itself, once."""
    dead: set[str] = set()
    while not ending.wait(0.5):
        now = {name for name, part in lab.parts.items() if part.state is PartState.DEAD}
        for name in now - dead:
            console.err.print(f"[red]{escape(str(lab.parts[name].failure('died')))}[/]")
        dead = now


def _up_detached(path: Path, name: str) -> None:
    """Run the same command without --detach in a new session, and wait until the lab is up."""
    again = [word for word in sys.argv[1:] if word not in {"--detach", "-d"}]
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_suffix(".log")
    with log.open("a") as starting:
        try:
            fcntl.flock(starting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"lab {name} is starting already: wait until it is up") from None
        with log.open("w") as output:
            owner = subprocess.Popen(
                [*RUN_MODULE, "mirrortest", *again],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            with log.open() as output:
                for line in _lines_until_up(output, owner, path):
                    console.out.print(escape(line))
        except BaseException:
            owner.terminate()
            owner.wait()
            raise
    if owner.poll() is not None:
        raise typer.Exit(owner.returncode)


def _lines_until_up(output: Any, owner: subprocess.Popen[bytes], path: Path) -> Iterator[str]:
    while True:
        ended = _is_up(owner, path) or owner.poll() is not None
        yield from output.read().splitlines()
        if ended:
            return
        time.sleep(0.1)


def _is_up(owner: subprocess.Popen[bytes], path: Path) -> bool:
    """Whether the lab at `path` is this owner's; it could be another one of the same name."""
    with contextlib.suppress(LabError):
        return bool(control.ask(path, "status")["pid"] == owner.pid)
    return False
