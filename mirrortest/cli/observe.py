"""`mirrortest observe`: figures of the machine around a test."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.cli.options import Connection, Output, check_file_name, check_fillable, machine_name
from mirrortest.cli.parameters import from_models
from mirrortest.errors import UsageError
from mirrortest.observe.options import Endpoint, ObserveOptions
from mirrortest.wire.stream import checked_name, checked_run

EXAMPLES = """
Examples:

  This machine and its brokers, each second, until Ctrl-C, also as CSV:

    mirrortest observe --match kafka.Kafka --output observations --csv

  Ten minutes, every five seconds, of the processes 4711 and 4712:

    mirrortest observe --interval 5s --duration 10m --pid 4711 --pid 4712

  What a broker's log and its log of garbage collections say, after a test:

    mirrortest observe --once --gc-log gc.log --log server.log

  A broker and MirrorMaker 2 by their JMX exporters, with what this machine is and how the broker is configured:

    mirrortest observe --match kafka.Kafka --scrape broker1=http://localhost:9404/metrics --scrape mirror=http://mm2:9404/metrics --config server.properties

Each kind of figure is a Parquet file, such as host, process, gc, log, broker. docs/reference/observations.md lists the columns.
"""  # noqa: E501  # a command is one line, to be pasted


@from_models
def observe(
    *,
    options: partial[ObserveOptions],
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Observe processes whose command line contains this; repeatable.",
        ),
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="PID", help="Observe this process; repeatable."),
    ] = None,
    gc_log: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also read this log of Java's garbage collection (-Xlog:gc*); repeatable.",
        ),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also count exceptions, errors and warnings in this log of Kafka; repeatable.",
        ),
    ] = None,
    scrape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL",
            help="Also read a broker's or a mirror's metrics, as the JMX exporter serves them to "
            "Prometheus; repeatable.",
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Record this properties file with the machine's profile, without its secrets; "
            "repeatable.",
        ),
    ] = None,
    bootstrap_server: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            help="Also record what this cluster's brokers and topics are configured with, without "
            "secrets, and what changes of it; repeatable, for clusters of the same credentials.",
        ),
    ] = None,
    connection: Connection,
    once: Annotated[
        bool,
        typer.Option("--once", help="Only read these logs, from their beginning, and end."),
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Also write each table as a CSV file.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_NAME", help="The observation's name. Default: this machine's."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(envvar="MIRRORTEST_RUN", help="The test that is observed, noted with it."),
    ] = None,
    output: Output,
) -> None:
    """Record what a test does to this machine: CPU, memory, disks, network, processes."""
    if any(not text for text in match or ()):
        raise UsageError("--match '': an empty text matches every process")
    for each in pid or ():
        if not Path(f"/proc/{each}").exists():
            raise UsageError(f"--pid {each}: no such process runs on this machine")
    # The client properties can contain the cluster's address.
    addresses: list[str | None] = [*(bootstrap_server or ())] or [None] * connection.given
    logs = _existing if once else _readable
    request = options(
        name=checked_name(machine_name() if name is None else name, option="--name"),
        run=None if run is None else checked_run(run),
        matches=tuple(match or ()),
        pids=tuple(pid or ()),
        gc_logs=logs(gc_log, "--gc-log"),
        logs=logs(log, "--log"),
        configurations=_existing(config, "--config"),
        endpoints=tuple(map(Endpoint.parse, scrape or ())),
        clusters=tuple(map(connection.client, addresses)),
        csv=csv,
        once=once,
    )
    check_fillable(request.output, "--output")
    console.warn(line for client in request.clusters for line in client.warnings)
    from mirrortest.cli.application import run_application
    from mirrortest.observe.observer import run as run_observer

    with LiveLines(console.err) as live:
        report = run_application(
            lambda stop: run_observer(request, stop=stop, on_progress=live.show)
        )
    console.show(report.to_json(), report.view(), output)


def _readable(paths: list[Path] | None, option: str) -> tuple[Path, ...]:
    """Refuse paths that cannot be read as files; a file that does not exist yet is accepted."""
    for path in paths or ():
        check_file_name(path, option)
        if path.exists() and not os.access(path, os.R_OK):
            raise UsageError(f"{option} {path}: you may not read it")
    return tuple(paths or ())


def _existing(paths: list[Path] | None, option: str) -> tuple[Path, ...]:
    """Refuse files that do not exist."""
    for path in _readable(paths, option):
        if not path.exists():
            raise UsageError(f"{option} {path}: there is no such file")
    return tuple(paths or ())


observe.__doc__ = f"{observe.__doc__}\n{EXAMPLES}"
