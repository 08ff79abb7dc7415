"""`mirrortest consume`: judge a mirror's copy while it arrives."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
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
    named_after_host,
)
from mirrortest.config.client import ClientConfig, IsolationLevel
from mirrortest.config.run import TopicMapping, checked_topic, checked_topics
from mirrortest.config.threshold import thresholds as read_thresholds
from mirrortest.config.units import parse_duration
from mirrortest.consume.alias import with_alias
from mirrortest.consume.consume_report import ConsumeReport
from mirrortest.consume.consumer import run as run_consumer
from mirrortest.consume.options import (
    CONSUMER_DEFAULTS,
    READ_COMMITTED,
    ConsumeOptions,
    Shard,
)
from mirrortest.errors import UsageError
from mirrortest.seqlog.batches import Detail
from mirrortest.seqlog.schema import Role
from mirrortest.verify.routing import ExpectPartition
from mirrortest.wire.stream import checked_name, checked_run
from mirrortest.workers.consuming import run as run_workers
from mirrortest.workers.together import Together

EXAMPLES = """
[bold]Examples[/]

  Judge two topics that MirrorMaker 2 copies from the cluster it calls A:

    mirrortest consume --bootstrap-server dc2:9092 --run nightly --topics A.orders,A.clicks.eu --source-alias A

  The second of five pods with fixed shares, exactly-once expected, at most 5 minutes to arrive:

    mirrortest consume --bootstrap-server dc2:9092 --run nightly --topic-pattern 'A[.].*' --source-alias A --shard 2/5 --exactly-once --deadline 5m

  Four processes that share all partitions, and give one verdict:

    mirrortest consume --bootstrap-server dc2:9092 --run nightly --topics A.orders --source-alias A --workers 4

  Observe the source beside the mirror, so that it can be told later whether source or mirror lost a message:

    mirrortest consume --role source --bootstrap-server dc1:9092 --run nightly --topics orders,clicks.eu

Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive, 99 a threshold or a correctness check failed.
"""  # noqa: E501  # commands are pasted whole


def consume(  # noqa: D103  # the help text is an option of its own, with examples
    *,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_BOOTSTRAP_SERVER",
            help="The destination's brokers; with --role source, the source's.",
        ),
    ] = None,
    run: Annotated[
        str, typer.Option(envvar="MIRRORTEST_RUN", help="The run to judge: the producers' --run.")
    ],
    role: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_ROLE",
            metavar="consumer|source",
            help="Judge the mirror's copy, or observe the source, so that the reconciliation can "
            "tell where a message was lost.",
        ),
    ] = Role.CONSUMER.value,
    topics: Annotated[
        str | None,
        typer.Option(envvar="MIRRORTEST_TOPICS", help="Topics to read there, separated by commas."),
    ] = None,
    topic_pattern: Annotated[
        str | None, typer.Option(help="A regular expression over the topics there.")
    ] = None,
    source_alias: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_SOURCE_ALIAS",
            help="The mirror's name for the source: its copies are called ALIAS.topic. By default "
            "that of the ledger's copy; '' if the mirror keeps names.",
        ),
    ] = None,
    separator: Annotated[str, typer.Option(help="What stands between alias and topic.")] = ".",
    topic_map: Annotated[
        list[str] | None,
        typer.Option(metavar="DEST=SOURCE", help="A topic that is renamed otherwise."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--id", envvar="MIRRORTEST_ID", help="This consumer's name in logs."),
    ] = None,
    consumer_group: Annotated[
        str | None,
        typer.Option(help="Share the partitions in a Kafka consumer group."),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="INDEX/OF", help="Take a fixed part of the partitions.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            envvar="MIRRORTEST_WORKERS",
            min=1,
            max=MOST_WORKERS,
            help="Share the partitions among so many processes: of the group, if one is named.",
        ),
    ] = 1,
    ledger_topic: Annotated[
        str,
        typer.Option(
            envvar="MIRRORTEST_LEDGER_TOPIC",
            help="Where producers vouch; its name in the source.",
        ),
    ] = "mirrortest.ledger",
    ledger_bootstrap_server: Annotated[
        str | None,
        typer.Option(help="Read the ledger from the source's brokers, not through the mirror."),
    ] = None,
    ledger_command_config: Annotated[
        Path | None, typer.Option(help="Client properties for the source's brokers.")
    ] = None,
    state_topic: Annotated[
        str, typer.Option(help="Where the checkers' states are kept, in the cluster that is read.")
    ] = "mirrortest.state",
    expect_producers: Annotated[
        str | None, typer.Option(help="Producers that must appear, separated by commas.")
    ] = None,
    expect_partition: Annotated[
        ExpectPartition, typer.Option(help="Where a message belongs in the destination.")
    ] = ExpectPartition.SOURCE,
    deadline: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="After this long, an acknowledged message not seen is lost."
        ),
    ] = "60s",
    until: Annotated[
        str,
        typer.Option(
            metavar="complete|forever",
            help="End when all that the ledger vouches for is judged, or only on a signal.",
        ),
    ] = "complete",
    duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="End after this long.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="End after this long without a message.")
    ] = None,
    settle_time: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Silence to wait for late copies once all is judged."
        ),
    ] = "5s",
    state_interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two saves of the state.")
    ] = "5s",
    include_backlog: Annotated[
        bool,
        typer.Option(
            "--include-backlog",
            help="Measure latencies of messages, too, that were in a partition before this "
            "consumer took it: how long it takes to catch up.",
        ),
    ] = False,
    log_dir: LogDir = "mirrortest-logs",
    log_spool: LogSpool = "mirrortest-spool",
    log_detail: LogDetail = Detail.INTERVALS,
    metrics_port: MetricsPort = 0,
    metrics_address: MetricsAddress = "127.0.0.1",
    threshold: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="For example 'lost==0' or 'p(99)<2s'."),
    ] = None,
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once",
            help="Duplicates and reorders fail the run, too; transactions are read committed.",
        ),
    ] = False,
    command_config: CommandConfig = None,
    command_property: CommandProperty = None,
    portable: Portable = False,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    if until not in {"complete", "forever"}:
        raise UsageError(f"--until {until!r}: say complete or forever")
    if role not in {Role.CONSUMER, Role.SOURCE}:
        raise UsageError(f"--role {role!r}: say consumer or source")
    if topic_pattern is not None:
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise UsageError(f"--topic-pattern {topic_pattern!r}: {error}") from error
    if consumer_group is not None and not consumer_group.strip():
        raise UsageError("--consumer-group is empty: name the group, or leave it out")
    check_log_places(log_dir, log_spool)
    properties = tuple(command_property or ())
    client = ClientConfig.load(
        bootstrap_server=bootstrap_server,
        config_file=command_config,
        command_properties=properties,
        defaults=CONSUMER_DEFAULTS | (READ_COMMITTED if exactly_once else {}),
        portable=portable,
    )
    if exactly_once and client.isolation_level is not IsolationLevel.READ_COMMITTED:
        raise UsageError(
            "--exactly-once reads committed messages only: leave out isolation.level="
            f"{client.isolation_level.value}"
        )
    ledger_client = None
    if ledger_bootstrap_server is not None or ledger_command_config is not None:
        ledger_client = ClientConfig.load(
            bootstrap_server=ledger_bootstrap_server,
            config_file=ledger_command_config or command_config,
            command_properties=() if ledger_command_config else properties,
            portable=portable,
        )
    console.warn(client.warnings)
    options = ConsumeOptions(
        run=checked_run(run),
        role=Role(role),
        name=checked_name(named_after_host(f"{role}-") if name is None else name),
        client=client,
        mapping=TopicMapping.parse(
            source_alias=source_alias or "", separator=separator, topic_map=tuple(topic_map or ())
        ),
        thresholds=read_thresholds(tuple(threshold or ()), exactly_once=exactly_once),
        topics=checked_topics(topics or "", option="--topics"),
        topic_pattern=topic_pattern,
        group=consumer_group,
        shard=None if shard is None else Shard.parse(shard),
        ledger_topic=checked_topic(ledger_topic, option="--ledger-topic"),
        ledger_client=ledger_client,
        state_topic=checked_topic(state_topic, option="--state-topic"),
        expect_producers=_producers(expect_producers),
        expect_partition=expect_partition,
        deadline=_seconds(deadline, "--deadline"),
        duration=_some_time(duration, "--duration"),
        idle_timeout=_some_time(idle_timeout, "--idle-timeout"),
        settle_time=_seconds(settle_time, "--settle-time"),
        until_complete=until == "complete",
        state_interval=_seconds(state_interval, "--state-interval"),
        include_backlog=include_backlog,
        log_dir=log_dir,
        log_spool=log_spool,
        log_detail=log_detail,
        metrics_port=metrics_port,
        metrics_address=metrics_address,
    )
    _refuse_our_own(options)
    with LiveLines(console.err) as live:

        async def main(stop: asyncio.Event) -> Together[ConsumeReport]:
            asked = options
            if source_alias is None and not topic_map and options.role is Role.CONSUMER:
                asked = await with_alias(options)
                _refuse_our_own(asked)
            if workers > 1:
                prepare = console.worker_logging()
                return await run_workers(
                    asked, workers, prepare=prepare, stop=stop, on_progress=live.show
                )
            return Together(await run_consumer(asked, stop=stop, on_progress=live.show))

        together = console.run_application(main)
    result = together.report
    console.show(together.to_json(), result.table(), as_json=as_json, report=report)
    raise typer.Exit(result.exit_code)


def _seconds(text: str, option: str) -> float:
    return parse_duration(text, option=option) / 1e9


def _some_time(text: str | None, option: str) -> float | None:
    seconds = None if text is None else _seconds(text, option)
    if seconds == 0:
        raise UsageError(f"{option} must be longer than 0")
    return seconds


def _producers(names: str | None) -> tuple[str, ...]:
    option = "--expect-producers"
    listed = [name.strip() for name in (names or "").split(",") if name.strip()]
    if names is not None and not listed:
        raise UsageError(f"{option} names nobody: say NAME[,NAME...], or leave it out")
    return tuple(checked_name(name, option=option) for name in listed)


def _refuse_our_own(options: ConsumeOptions) -> None:
    """Refuse topics that hold no messages to be judged, and one for both ledger and states."""
    ledger = options.mapping.destination_of(options.ledger_topic)
    if options.state_topic == ledger:
        raise UsageError(f"--state-topic: {ledger!r} is the ledger's topic")
    for topic, whose in ((ledger, "ledger's"), (options.state_topic, "states'")):
        if topic in options.topics:
            raise UsageError(f"--topics: {topic!r} is the {whose} topic")


consume.__doc__ = f"Judge a mirror's copy while it arrives.\n{EXAMPLES}"
