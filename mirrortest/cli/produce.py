"""`mirrortest produce`: send numbered, timed messages to the source of a mirror."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.config.client import ClientConfig, Compression
from mirrortest.config.run import run_id
from mirrortest.config.units import parse_duration, parse_size
from mirrortest.errors import UsageError
from mirrortest.produce.options import PRODUCER_DEFAULTS, NewTopics, ProduceOptions
from mirrortest.produce.producer import run as run_producer
from mirrortest.produce.report import ProduceProgress, ProduceReport
from mirrortest.seqlog.batches import Detail
from mirrortest.wire.message import Form
from mirrortest.wire.stream import checked_name, checked_run

EXAMPLES = """
[bold]Examples[/]

  Two topics, 1000 messages/s of 1 kB each, for an hour, from the first of several producers:

    mirrortest produce --bootstrap-server dc1:9092 --run nightly --id p1 --topics orders,clicks --throughput 1000 --message-size 1000 --duration 1h

  As fast as it goes: a million messages, of which the first 50000 are warm-up, zstd, a new topic:

    mirrortest produce --bootstrap-server dc1:9092 --topics load --num-records 1000000 --warmup-records 50000 --compression zstd --create-topics --partitions 8 --replication-factor 3 --json

  A cluster with TLS and a password, in Kafka's own property names:

    mirrortest produce --bootstrap-server dc1:9093 --command-config client.properties --command-property request.timeout.ms=10000 --topics orders --throughput 100

Exit codes: 0 all messages acknowledged, 1 error or a message failed, 2 usage, 3 none failed, but of some it is unknown whether they were written.

SIGINT and SIGTERM stop the schedule, wait for what is underway, and write end marks and summary; a second signal ends at once.
"""  # noqa: E501  # commands are pasted whole

_TERMINAL_SECONDS = 0.5
_QUIET_SECONDS = 5.0
_UNLIMITED = -1


def produce(
    *,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,...]",
            help="The source cluster. Wins over bootstrap.servers in properties.",
        ),
    ] = None,
    topics: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_TOPICS", metavar="NAME[,...]", help="The topics to write to."
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_RUN",
            help="The test's id, the same for all its producers and consumers; "
            "made up and printed if not given.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            envvar="MIRRORTEST_ID",
            metavar="NAME",
            help="This producer's name: the same when it starts again, another for each other "
            "one. Default: from host and process.",
        ),
    ] = None,
    throughput: Annotated[
        float,
        typer.Option(
            envvar="MIRRORTEST_THROUGHPUT",
            help="Messages/s for each topic, never exceeded; -1: as fast as it goes.",
        ),
    ] = _UNLIMITED,
    num_records: Annotated[
        int | None,
        typer.Option(
            envvar="MIRRORTEST_NUM_RECORDS", help="End after so many messages to each topic."
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_DURATION",
            help="End after so long: 30s, 10m, 1h30m. Without this and --num-records: on a signal.",
        ),
    ] = None,
    warmup_records: Annotated[
        int,
        typer.Option(
            envvar="MIRRORTEST_WARMUP_RECORDS",
            help="Leave each topic's first messages out of the steady-state summary. They are "
            "judged like all others.",
        ),
    ] = 0,
    message_size: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_MESSAGE_SIZE",
            metavar="BYTES",
            help="Size of a message's value, its header included: 900, 64KiB.",
        ),
    ] = "1000",
    form: Annotated[
        Form,
        typer.Option(
            envvar="MIRRORTEST_FORM",
            help="Where a message carries its id: in its body or in Kafka headers.",
        ),
    ] = Form.BODY,
    use_message_headers: Annotated[
        bool, typer.Option("--use-message-headers", help="The same as --form headers.")
    ] = False,
    destination_partitions: Annotated[
        int | None,
        typer.Option(
            envvar="MIRRORTEST_DESTINATION_PARTITIONS",
            help="Partitions of the destination's topics: one record key is used for each. "
            "Default: as many as the source topic has.",
        ),
    ] = None,
    create_topics: Annotated[
        bool,
        typer.Option(
            "--create-topics",
            envvar="MIRRORTEST_CREATE_TOPICS",
            help="Make topics that do not exist.",
        ),
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            envvar="MIRRORTEST_PARTITIONS",
            help="Partitions of topics made by --create-topics; one that exists must have as many.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            envvar="MIRRORTEST_REPLICATION_FACTOR",
            help="Replicas of topics made by --create-topics. Default: the brokers'.",
        ),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_RETENTION",
            help="retention.ms of topics made by --create-topics, as 30m. Default: the brokers'.",
        ),
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_ACKS",
            metavar="all|1|0",
            help="Default all, idempotent. With 0 every message's fate stays unknown.",
        ),
    ] = None,
    compression: Annotated[
        Compression | None,
        typer.Option(envvar="MIRRORTEST_COMPRESSION", help="Of record batches. Default none."),
    ] = None,
    linger_ms: Annotated[
        int | None,
        typer.Option(
            envvar="MIRRORTEST_LINGER_MS",
            min=0,
            help="Wait so long for a batch to fill up. Default 5.",
        ),
    ] = None,
    ledger_topic: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_LEDGER_TOPIC",
            help="Compacted topic where producers vouch for what they sent; made if missing.",
        ),
    ] = "mirrortest.ledger",
    log_dir: Annotated[
        str, typer.Option(envvar="MIRRORTEST_LOG_DIR", help="Sequence logs: a folder or a URI.")
    ] = "mirrortest-logs",
    log_spool: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_LOG_SPOOL",
            help="Local folder for logs not finished yet, where --log-dir is a URI.",
        ),
    ] = "mirrortest-spool",
    log_detail: Annotated[
        Detail,
        typer.Option(
            envvar="MIRRORTEST_LOG_DETAIL", help="Log a row for each interval or each message."
        ),
    ] = Detail.INTERVALS,
    metrics_port: Annotated[
        int,
        typer.Option(
            envvar="MIRRORTEST_METRICS_PORT",
            min=0,
            max=65535,
            help="Serve Prometheus metrics here; 0 is off.",
        ),
    ] = 0,
    metrics_address: Annotated[
        str,
        typer.Option(envvar="MIRRORTEST_METRICS_ADDRESS", help="The address to serve them on."),
    ] = "127.0.0.1",
    drain_timeout: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_DRAIN_TIMEOUT",
            help="After a signal, how long to wait for acknowledgements, and then for the ledger.",
        ),
    ] = "30s",
    command_config: Annotated[
        Path | None,
        typer.Option(
            envvar="MIRRORTEST_COMMAND_CONFIG",
            metavar="FILE",
            help="Kafka client properties, as Kafka's own tools take them.",
        ),
    ] = None,
    command_property: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="One client property; wins over the file."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write the JSON summary to this file, too; it is also beside the log."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.")
    ] = False,
) -> None:
    """Send numbered, timed messages to the source of a mirror, and vouch for them."""
    if not create_topics and (partitions, replication_factor, retention) != (None, None, None):
        raise UsageError(
            "--partitions, --replication-factor and --retention say how --create-topics makes "
            "topics: add it"
        )
    if throughput <= 0 and throughput != _UNLIMITED:
        raise UsageError("--throughput is a positive number of messages/s; -1 is unlimited")
    client = ClientConfig.load(
        bootstrap_server=bootstrap_server,
        config_file=command_config,
        # A flag wins over a property.
        command_properties=(
            *(command_property or ()),
            *_flags(("acks", acks), ("compression.type", compression), ("linger.ms", linger_ms)),
        ),
        defaults=PRODUCER_DEFAULTS,
    )
    for warning in client.warnings:
        console.err.print(f"[yellow]warning:[/] {escape(warning)}")
    options = ProduceOptions(
        run=checked_run(run) if run is not None else run_id(secrets.token_bytes(8)),
        name=checked_name(name or f"{os.uname().nodename.split('.')[0]}-{os.getpid()}"),
        client=client,
        topics=tuple(topic.strip() for topic in topics.split(",") if topic.strip()),
        throughput=None if throughput == _UNLIMITED else throughput,
        num_records=num_records,
        duration_ns=None if duration is None else parse_duration(duration, option="--duration"),
        warmup_records=warmup_records,
        message_size=parse_size(message_size, option="--message-size"),
        form=Form.HEADERS if use_message_headers else form,
        destination_partitions=destination_partitions,
        create=_new_topics(partitions, replication_factor, retention) if create_topics else None,
        ledger_topic=ledger_topic,
        log_dir=log_dir,
        log_spool=log_spool,
        log_detail=log_detail,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        drain_timeout=parse_duration(drain_timeout, option="--drain-timeout") / 1e9,
    )
    console.err.print(f"run {options.run}, producer {options.name}", markup=False)
    result = _run(options)
    summary = json.dumps(result.to_json())
    if report is not None:
        console.write_report(report, summary)
    if as_json:
        typer.echo(summary)
    else:
        for line in result.lines():
            console.out.print(line, markup=False)
    if result.error is not None:
        raise result.error
    raise typer.Exit(result.exit_code)


def _run(options: ProduceOptions) -> ProduceReport:
    terminal = console.err.is_terminal
    with LiveLines(console.err) as live:

        def show(progress: ProduceProgress) -> None:
            if terminal:
                live.show(progress)
            else:
                console.err.print(str(progress), markup=False)

        return console.run_application(
            lambda stop: run_producer(
                options,
                stop=stop,
                on_progress=show,
                progress_seconds=_TERMINAL_SECONDS if terminal else _QUIET_SECONDS,
            )
        )


def _flags(*given: tuple[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in given if value is not None]


def _new_topics(
    partitions: int | None, replication_factor: int | None, retention: str | None
) -> NewTopics:
    retention_ms = None
    if retention is not None:
        retention_ms = parse_duration(retention, option="--retention") // 1_000_000
    return NewTopics(
        partitions=partitions,
        replication_factor=replication_factor,
        retention_ms=retention_ms,
    )


produce.__doc__ = f"{produce.__doc__}\n{EXAMPLES}"
