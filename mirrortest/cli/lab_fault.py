"""`mirrortest lab fault`: hurt a part of a running lab, and heal it."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.markup import escape

from mirrortest.cli import console
from mirrortest.errors import UsageError
from mirrortest.lab import control
from mirrortest.lab.probe import Probe
from mirrortest.seqlog.events import EventLog
from mirrortest.wire.stream import checked_run

fault_app = typer.Typer(no_args_is_help=True, help="Hurt a part of the lab, and heal it.")

Name = Annotated[
    str,
    typer.Option(
        "--name", envvar="MIRRORTEST_LAB", help="The lab's name, where there are several."
    ),
]
LogDir = Annotated[
    str | None,
    typer.Option("--log-dir", help="Note it there, for the report of a run: with --run."),
]
Run = Annotated[
    str | None, typer.Option("--run", help="Whose events.jsonl in --log-dir it is noted in.")
]
PartName = Annotated[str, typer.Argument(help="A1, B1, ... or mirror: see `lab status`.")]


def probe_of(name: str, *, destination: bool) -> Probe:
    """What asks a running lab's source or destination."""
    told = control.ask(control.socket_path(name), "status")
    return Probe(told["destination" if destination else "source"]["bootstrap_servers"])


def _fault(verb: str, part: str, name: str, log_dir: str | None, run: str | None) -> None:
    events = _events(log_dir, run)
    began = time.time_ns()
    answer = control.ask(control.socket_path(name), verb, part=part)
    if events is not None:
        events.note(verb, part, time_ns=began)
        if verb in {"start", "restart"}:
            events.note("ready", part)
    console.out.print(f"{escape(part)} {answer['state']}")


def _events(log_dir: str | None, run: str | None) -> EventLog | None:
    if (log_dir is None) != (run is None):
        raise UsageError("--log-dir and --run go together: where, and for which run, to note it")
    return None if log_dir is None or run is None else EventLog(log_dir, checked_run(run))


@fault_app.command()
def kill(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """End a part at once (SIGKILL)."""
    _fault("kill", part, name, log_dir, run)


@fault_app.command()
def terminate(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """End a part in order (SIGTERM)."""
    _fault("terminate", part, name, log_dir, run)


@fault_app.command()
def stop(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Freeze a part (SIGSTOP): it keeps its connections and answers nothing."""
    _fault("stop", part, name, log_dir, run)


@fault_app.command("continue")
def continue_(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Let a frozen part go on."""
    _fault("continue", part, name, log_dir, run)


@fault_app.command()
def start(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Start a part that is not running, on its old port and data."""
    _fault("start", part, name, log_dir, run)


@fault_app.command()
def restart(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """End a part in order and start it again."""
    _fault("restart", part, name, log_dir, run)


@fault_app.command()
def pause(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Freeze a part's container, by the kernel: with --runtime docker."""
    _fault("pause", part, name, log_dir, run)


@fault_app.command()
def unpause(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Let a paused part go on."""
    _fault("unpause", part, name, log_dir, run)


@fault_app.command()
def disconnect(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Cut a part off the network, while it runs on: with --runtime docker."""
    _fault("disconnect", part, name, log_dir, run)


@fault_app.command()
def connect(
    part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
) -> None:
    """Give a part that was cut off its network back."""
    _fault("connect", part, name, log_dir, run)


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
    probe = probe_of(name, destination=destination)
    numbers = range(probe.partitions(topic)) if partition is None else [partition]
    if not numbers:
        raise UsageError(f"there is no topic {topic} there")
    probe.delete_records(topic, dict.fromkeys(numbers, before))
