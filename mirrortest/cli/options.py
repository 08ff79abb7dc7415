"""Options that producing and consuming share, so that they are the same on both sides."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mirrortest.errors import UsageError
from mirrortest.seqlog.batches import Detail

MOST_WORKERS = 1024
"""More processes than any machine has cores."""


_HOST_SIGNS = 40
"""Of a host's name, which may have 63: a name has 64 at most, and workers add to it."""


def named_after_host(what: str = "") -> str:
    """A name that no other process takes, for who gives none: the machine's, and our own number."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", os.uname().nodename.partition(".")[0])
    return f"{what}{host[:_HOST_SIGNS].lstrip('-_') or 'host'}-{os.getpid()}"


def given(context: typer.Context, name: str) -> bool:
    """Whether a parameter was said on the command line: no default, no environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def can_be_written(path: Path, option: str) -> None:
    """Refuse now a file that could not be written once the work is done."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: that is a directory: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: you may not write there")


def can_be_filled(directory: Path, option: str) -> None:
    """Refuse now a directory that could not be made, or not be written to, later."""
    found = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not found.is_dir():
        raise UsageError(f"{option} {directory}: {found} is no directory")
    if not os.access(found, os.W_OK):
        raise UsageError(f"{option} {directory}: you may not write to {found}")


def check_log_places(log_dir: str, log_spool: str) -> None:
    """Refuse local places where no log can be kept before any broker is asked."""
    if "://" not in log_dir:
        can_be_filled(Path(log_dir).expanduser(), "--log-dir")
    elif not log_dir.startswith("file://"):
        can_be_filled(Path(log_spool).expanduser(), "--log-spool")


def report_place(report: Path | None) -> Path | None:
    """Refuse now what `--report` could not be written to once the run is over."""
    if report is not None:
        can_be_written(report, "--report")
    return report


LogDir: TypeAlias = Annotated[
    str, typer.Option(envvar="MIRRORTEST_LOG_DIR", help="Sequence logs: a directory or a URI.")
]
LogSpool: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="MIRRORTEST_LOG_SPOOL",
        help="Local directory for logs not finished yet, where --log-dir is a URI.",
    ),
]
LogDetail: TypeAlias = Annotated[
    Detail,
    typer.Option(
        envvar="MIRRORTEST_LOG_DETAIL",
        metavar="intervals|messages",
        help="Log a row for each interval or each message.",
    ),
]
MetricsPort: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="MIRRORTEST_METRICS_PORT",
        min=0,
        max=65535,
        help="Serve Prometheus metrics here; 0 is off.",
    ),
]
MetricsAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="MIRRORTEST_METRICS_ADDRESS",
        help="The address to serve them on: 0.0.0.0 for all of this machine's.",
    ),
]
CommandConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="MIRRORTEST_COMMAND_CONFIG",
        metavar="FILE",
        help="Kafka client properties, as Kafka's own tools take them.",
    ),
]
CommandProperty: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="One client property; wins over the file."),
]
Portable: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--portable",
        envvar="MIRRORTEST_PORTABLE",
        help="Go by aiokafka's public calls alone, for a version that mirrortest does not know: "
        "ten times the CPU, the same judgement; what was sent without an answer is never failed.",
    ),
]
Report: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Write the JSON summary to this file, too; it is also beside the log.",
        callback=report_place,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the summary as JSON on stdout.")
]
