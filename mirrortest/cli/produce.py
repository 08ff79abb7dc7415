"""`mirrortest produce`: send numbered, timed messages to the source of a mirror."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.cli.options import (
    MOST_WORKERS,
    AsJson,
    CommandConfig,
    CommandProperty,
    LogDetail,
    LogDir,
    LogSpool,
    MetricsAddress,
    MetricsPort,
    Portable,
    Report,
    check_log_places,
    given,
    named_after_host,
)
from mirrortest.config.client import ClientConfig, Compression
from mirrortest.config.run import checked_topic, checked_topics, run_id
from mirrortest.config.units import parse_duration, parse_size
from mirrortest.errors import UsageError
from mirrortest.produce.options import PRODUCER_DEFAULTS, NewTopics, ProduceOptions
from mirrortest.produce.produce_report import ProduceProgress, ProduceReport
from mirrortest.produce.producer import run as run_producer
from mirrortest.seqlog.batches import Detail
from mirrortest.wire.message import Form
from mirrortest.wire.stream import checked_name, checked_run
from mirrortest.workers.producing import run as run_workers
from mirrortest.workers.together import Together

EXAMPLES = """
[bold]Examples[/]

  Two topics, 1000 messages/s of 1 kB each, for an hour, from the first of several producers:

    mirrortest produce --bootstrap-server dc1:9092 --run nightly --id p1 --topics orders,clicks --throughput 1000 --message-size 1000 --duration 1h

  As fast as it goes: a million messages, of which the first 50000 are warm-up, zstd, a new topic:

    mirrortest produce --bootstrap-server dc1:9092 --topics load --num-records 1000000 --warmup-records 50000 --compression zstd --create-topics --partitions 8 --replication-factor 3 --json

  As fast as four cores go, as the producers p1.1 to p1.4, with one endpoint for their metrics:

    mirrortest produce --bootstrap-server dc1:9092 --id p1 --topics load --duration 10m --workers 4 --metrics-port 9464

  A cluster with TLS and a password, in Kafka's own property names:

    mirrortest produce --bootstrap-server dc1:9093 --command-config client.properties --command-property request.timeout.ms=10000 --topics orders --throughput 100

Exit codes: 0 all messages acknowledged, 1 error or a message failed, 2 usage, 3 none failed, but of some it is unknown whether they were written.

SIGINT and SIGTERM stop the schedule, wait for what is underway, and write end marks and summary; a second signal ends at once.
"""  # noqa: E501  # commands are pasted whole

_TERMINAL_SECONDS = 0.5
_QUIET_SECONDS = 5.0
_UNLIMITED = -1
_SLOWEST, _FASTEST = 1e-6, 1e9
"""Messages/s: one in eleven days, and one in each nanosecond, than which no time is finer."""


def produce(
    context: typer.Context,
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
    log_dir: LogDir = "mirrortest-logs",
    log_spool: LogSpool = "mirrortest-spool",
    log_detail: LogDetail = Detail.INTERVALS,
    metrics_port: MetricsPort = 0,
    metrics_address: MetricsAddress = "127.0.0.1",
    workers: Annotated[
        int,
        typer.Option(
            envvar="MIRRORTEST_WORKERS",
            min=1,
            max=MOST_WORKERS,
            help="Share the work among so many processes: producers NAME.1, NAME.2 and so on.",
        ),
    ] = 1,
    drain_timeout: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_DRAIN_TIMEOUT",
            help="After a signal, how long to wait for acknowledgements, and then for the ledger.",
        ),
    ] = "30s",
    command_config: CommandConfig = None,
    command_property: CommandProperty = None,
    portable: Portable = False,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Send numbered, timed messages to the source of a mirror, and vouch for them."""
    if not create_topics and (partitions, replication_factor, retention) != (None, None, None):
        raise UsageError(
            "--partitions, --replication-factor and --retention say how --create-topics makes "
            "topics: add it"
        )
    if use_message_headers and form is not Form.HEADERS and given(context, "form"):
        raise UsageError(
            f"--form {form.value} and --use-message-headers, which is --form headers, contradict "
            "each other: leave one of them out"
        )
    if not 0 < throughput < math.inf and throughput != _UNLIMITED:
        raise UsageError("--throughput is a positive number of messages/s; -1 is unlimited")
    if throughput != _UNLIMITED and not _SLOWEST <= throughput <= _FASTEST:
        raise UsageError(
            f"--throughput {throughput:g}: it lies between {_SLOWEST:g} and {_FASTEST:g} "
            "messages/s; -1 is unlimited"
        )
    check_log_places(log_dir, log_spool)
    client = ClientConfig.load(
        bootstrap_server=bootstrap_server,
        config_file=command_config,
        # A flag wins over a property.
        command_properties=(
            *(command_property or ()),
            *_flags(("acks", acks), ("compression.type", compression), ("linger.ms", linger_ms)),
        ),
        defaults=PRODUCER_DEFAULTS,
        portable=portable,
    )
    console.warn(client.warnings)
    options = ProduceOptions(
        run=checked_run(run) if run is not None else run_id(secrets.token_bytes(8)),
        name=checked_name(named_after_host() if name is None else name),
        client=client,
        topics=checked_topics(topics, option="--topics"),
        throughput=None if throughput == _UNLIMITED else throughput,
        num_records=num_records,
        duration_ns=None if duration is None else parse_duration(duration, option="--duration"),
        warmup_records=warmup_records,
        message_size=parse_size(message_size, option="--message-size"),
        form=Form.HEADERS if use_message_headers else form,
        destination_partitions=destination_partitions,
        create=_new_topics(partitions, replication_factor, retention) if create_topics else None,
        ledger_topic=checked_topic(ledger_topic, option="--ledger-topic"),
        log_dir=log_dir,
        log_spool=log_spool,
        log_detail=log_detail,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        drain_timeout=parse_duration(drain_timeout, option="--drain-timeout") / 1e9,
    )
    console.err.print(f"run {options.run}, producer {options.name}", markup=False)
    together = _run(options, workers)
    result, summary = together.report, json.dumps(together.to_json())
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


def _run(options: ProduceOptions, workers: int) -> Together[ProduceReport]:
    terminal = console.err.is_terminal
    with LiveLines(console.err) as live:

        def show(progress: ProduceProgress) -> None:
            if terminal:
                live.show(progress)
            else:
                console.err.print(str(progress), markup=False)

        seconds = _TERMINAL_SECONDS if terminal else _QUIET_SECONDS

        async def main(stop: asyncio.Event) -> Together[ProduceReport]:
            if workers > 1:
                return await run_workers(
                    options,
                    workers,
                    prepare=console.worker_logging(),
                    stop=stop,
                    on_progress=show,
                    progress_seconds=seconds,
                )
            return Together(
                await run_producer(options, stop=stop, on_progress=show, progress_seconds=seconds)
            )

        return console.run_application(main)


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
