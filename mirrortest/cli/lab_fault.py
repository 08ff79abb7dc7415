"""`mirrortest lab fault`: inject and clear faults in a running lab."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mirrortest.cli import console
from mirrortest.cli.help_layout import Program
from mirrortest.config.units import parse_positive_seconds, parse_seconds
from mirrortest.errors import UsageError
from mirrortest.lab import control
from mirrortest.lab.link.condition import detail, parse_rate
from mirrortest.wire.stream import checked_run

if TYPE_CHECKING:
    from mirrortest.lab.cluster_client import ClusterClient
    from mirrortest.seqlog.events import EventLog

EXAMPLES = """
Examples:

Kill the mirror, as an event of a run's report, and start it again:

    mirrortest lab fault kill mirror --log-dir mirrortest-logs --run n20261127
    mirrortest lab fault start mirror

Slow the network between the mirror and the source (`lab up --links`), and end that:

    mirrortest lab fault delay link-source 200ms --jitter 50ms
    mirrortest lab fault heal link-source
"""

fault_app = Program(no_args_is_help=True, help=f"Inject and clear faults.\n{EXAMPLES}")

Name = Annotated[
    str,
    typer.Option("--name", envvar="MIRRORTEST_LAB", help="The lab's name, if there are several."),
]
LogDir = Annotated[
    str | None,
    typer.Option(
        "--log-dir", help="Log directory of the run whose report marks the fault: with --run."
    ),
]
Run = Annotated[
    str | None, typer.Option("--run", help="The run that events.jsonl in --log-dir belongs to.")
]
InDestination = Annotated[
    bool, typer.Option("--destination", help="In the destination, not in the source.")
]
PartName = Annotated[str, typer.Argument(help="A1, B1, ..., mirror or a link: see `lab status`.")]
LinkName = Annotated[str, typer.Argument(help="link-source or link-destination.")]


def client_of(name: str, *, destination: bool) -> ClusterClient:
    """A client of a running lab's source or destination."""
    from mirrortest.lab.cluster_client import ClusterClient

    status = control.ask(control.socket_path(name), "status")
    return ClusterClient(status["destination" if destination else "source"]["bootstrap_servers"])


def _events(log_dir: str | None, run: str | None) -> EventLog | None:
    if (log_dir is None) != (run is None):
        raise UsageError("--log-dir and --run go together: use both, or neither")
    if log_dir is None or run is None:
        return None
    from mirrortest.seqlog.events import EventLog

    return EventLog(log_dir, checked_run(run))


_MEANINGS = {
    "kill": "End a part at once (SIGKILL).",
    "terminate": "End a part in order (SIGTERM).",
    "remove": "Move a broker's partitions to the others for good, then end it in order.",
    "stop": "Freeze a part (SIGSTOP): it keeps its connections and answers nothing.",
    "continue": "Continue a frozen part.",
    "start": "Start a part that is not running, on its old port and data.",
    "restart": "End a part in order and start it again.",
    "pause": "Freeze a part's container, by the kernel: with --runtime docker.",
    "unpause": "Continue a paused part.",
    "disconnect": "Cut a part off the network, while it runs on: with --runtime docker.",
    "connect": "Connect a part again that was cut off the network.",
    "cut": "Let nothing pass a link: connections stay open, new ones get no answer.",
    "reset": "Reset a link's connections, and refuse new ones, until it is healed.",
    "heal": "End all faults of a link.",
}


def _inject(
    verb: str, part: str, name: str, log_dir: str | None, run: str | None, **values: float
) -> None:
    events = _events(log_dir, run)
    began = time.time_ns()

    def note() -> None:
        if events is not None:
            events.note(verb, part, detail=detail(verb, values), time_ns=began)

    try:
        answer = control.ask(control.socket_path(name), verb, part=part, values=values)
    except control.NotReadyError:
        note()
        raise
    note()
    if events is not None and verb in {"start", "restart"}:
        events.note("ready", part)
    console.out.print(f"{escape(part)} {answer['state']}")


def _command(verb: str) -> Callable[..., None]:
    def inject(
        part: PartName, *, name: Name = "default", log_dir: LogDir = None, run: Run = None
    ) -> None:
        _inject(verb, part, name, log_dir, run)

    return inject


for _verb, _meaning in _MEANINGS.items():
    fault_app.command(_verb, help=_meaning)(_command(_verb))


@fault_app.command()
def delay(
    link: LinkName,
    length: Annotated[
        str, typer.Argument(metavar="TIME", help="In each direction, for example 200ms.")
    ],
    *,
    jitter: Annotated[
        str, typer.Option(metavar="TIME", help="By how much it varies, up and down.")
    ] = "0",
    name: Name = "default",
    log_dir: LogDir = None,
    run: Run = None,
) -> None:
    """Delay all that passes a link."""
    values = {
        "delay": parse_positive_seconds(length, option="TIME"),
        "jitter": parse_seconds(jitter, option="--jitter"),
    }
    _inject("delay", link, name, log_dir, run, **values)


@fault_app.command()
def rate(
    link: LinkName,
    limit: Annotated[
        str,
        typer.Argument(
            metavar="RATE", help="Bytes per second in each direction, for example 1MB/s."
        ),
    ],
    *,
    name: Name = "default",
    log_dir: LogDir = None,
    run: Run = None,
) -> None:
    """Limit what passes a link, all connections together."""
    _inject("rate", link, name, log_dir, run, rate=parse_rate(limit, option="RATE"))


@fault_app.command("delete-records")
def delete_records(
    topic: Annotated[str, typer.Argument()],
    *,
    before: Annotated[int, typer.Option(min=-1, help="The first offset to keep; -1: the end.")],
    partition: Annotated[
        int | None, typer.Option(min=0, help="Of this partition.", show_default="all")
    ] = None,
    destination: InDestination = False,
    name: Name = "default",
) -> None:
    """Delete a topic's records below an offset, as retention would."""
    client = client_of(name, destination=destination)
    if not client.partitions(topic):
        raise UsageError(f"there is no topic {topic} there")
    client.delete_records(topic, before if partition is None else {partition: before})
