"""`mirrortest consume`: judge a mirror's copy while it arrives."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.checks import DryRun, show_checks
from mirrortest.cli.live import ProgressDisplay
from mirrortest.cli.next_commands import reconcile_next
from mirrortest.cli.options import (
    Connection,
    Details,
    LoadOutput,
    MirrorNames,
    Progress,
    ResultFormat,
    Workers,
    begin_csv_file,
    check_distinct,
    check_log_places,
    named_after_host,
)
from mirrortest.cli.parameters import from_models
from mirrortest.config.client_config import ClientConfig, IsolationLevel
from mirrortest.config.option import option
from mirrortest.config.threshold import thresholds as read_thresholds
from mirrortest.consume.options import CONSUMER_DEFAULTS, READ_COMMITTED, ConsumeOptions
from mirrortest.doctor.options import DoctorOptions
from mirrortest.errors import ClusterError, UsageError
from mirrortest.seqlog.options import Role
from mirrortest.wire.stream import checked_name

if TYPE_CHECKING:
    import asyncio

    from rich.console import RenderableType

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.results.windows import Windows
    from mirrortest.workers.worker_pool import PoolReport

EXAMPLES = """
Examples:

  Judge two topics that MirrorMaker 2 copies from the cluster it calls A:

    mirrortest consume --bootstrap-server dc2:9092 --run n20261127 --topics A.orders,A.clicks.eu --source-alias A

  The second of five pods with fixed shares, exactly-once expected, at most 5 minutes to arrive:

    mirrortest consume --bootstrap-server dc2:9092 --run n20261127 --topic-pattern 'A[.].*' --source-alias A --shard 2/5 --exactly-once --deadline 5m

  Four processes that share all partitions, and give one verdict:

    mirrortest consume --bootstrap-server dc2:9092 --run n20261127 --topics A.orders --source-alias A --workers 4

  Observe the source as well, to see later whether source or mirror lost a message:

    mirrortest consume --role source --bootstrap-server dc1:9092 --run n20261127 --topics orders,clicks.eu

Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive, 99 a threshold or a correctness check failed.
"""  # noqa: E501  # a command is one line, to be pasted


@dataclass(frozen=True, kw_only=True)
class LedgerConnection:
    """The connection to the source's brokers, for a mirror that does not copy the ledger."""

    ledger_bootstrap_server: str | None = option(
        None, "Read the ledger from the source's brokers, not from its copy."
    )
    ledger_command_config: Path | None = option(None, "Client properties for the source's brokers.")

    def client(self, connection: Connection) -> ClientConfig | None:
        """The client's configuration; None if the consumer reads the ledger's copy."""
        if self.ledger_bootstrap_server is None and self.ledger_command_config is None:
            return None
        if self.ledger_command_config is not None:
            connection = Connection(
                command_config=self.ledger_command_config,
                portable=connection.portable,
                config_option="--ledger-command-config",
            )
        return connection.client(self.ledger_bootstrap_server)


@dataclass(frozen=True, kw_only=True)
class ConsumeOutput(LoadOutput):
    """Where a consumer's summary goes, and in which format."""

    show_detailed_stats: bool = option(
        False,
        "With --format kafka: print a line at each --reporting-interval, in place of the last one.",
    )
    hide_header: bool = option(False, "With --format kafka: print no line of column names.")

    def __post_init__(self) -> None:
        """Refuse options of the other format."""
        super().__post_init__()
        if self.format is ResultFormat.KAFKA:
            return
        for asked, name in (
            (self.show_detailed_stats, "--show-detailed-stats"),
            (self.hide_header, "--hide-header"),
        ):
            if asked:
                raise UsageError(
                    f"{name} is about kafka-consumer-perf-test's lines: add --format kafka"
                )


@from_models
def consume(  # noqa: D103  # its help is below, with examples
    *,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "--broker-list",
            envvar="MIRRORTEST_BOOTSTRAP_SERVER",
            help="The destination's brokers; with --role source, the source's.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--id", envvar="MIRRORTEST_ID", help="This consumer's name in logs."),
    ] = None,
    options: partial[ConsumeOptions],
    names: MirrorNames,
    workers: Workers,
    threshold: Annotated[
        list[str] | None,
        typer.Option(help="For example 'lost==0' or 'p(99)<2s'."),
    ] = None,
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once",
            help="Duplicates and reorders also fail the run; only committed messages are read.",
        ),
    ] = False,
    use_message_headers: Annotated[  # noqa: ARG001  # as kafka-mirror-tester's consumer has it
        bool,
        typer.Option(
            "--use-message-headers", hidden=True, help="Has no effect: both forms are read."
        ),
    ] = False,
    connection: Connection,
    ledger_connection: LedgerConnection,
    output: ConsumeOutput,
    progress: Progress,
    details: Details = False,
    dry_run: DryRun = False,
) -> None:
    display = ProgressDisplay(console.err, progress)
    asked = options.keywords
    check_log_places(asked["log_dir"], asked["log_spool"])
    client = connection.client(
        bootstrap_server, defaults=CONSUMER_DEFAULTS | (READ_COMMITTED if exactly_once else {})
    )
    if exactly_once and client.isolation_level is not IsolationLevel.READ_COMMITTED:
        raise UsageError(
            "--exactly-once reads committed messages only: leave out isolation.level="
            f"{client.isolation_level.value}"
        )
    ledger_client = ledger_connection.client(connection)
    console.warn([*client.warnings, *(ledger_client.warnings if ledger_client else ())])
    request = options(
        reporting_interval=progress.reporting_interval,
        name=checked_name(named_after_host(f"{asked['role']}-") if name is None else name),
        client=client,
        mapping=names.mapping(),
        thresholds=read_thresholds(tuple(threshold or ()), exactly_once=exactly_once),
        ledger_client=ledger_client,
    )
    _refuse_own_topics(request)
    if dry_run:
        show_checks(_doctor_options(request, find_names=not names.given), output)
    check_distinct(
        {"--csv": request.csv, "--status-file": progress.status_file, "--report": output.report}
    )
    begin_csv_file(request.csv)
    if output.show_detailed_stats:
        display.windows = _windows(progress.reporting_interval)
    if output.format is ResultFormat.KAFKA and not output.hide_header:
        typer.echo(_header(detailed=output.show_detailed_stats))
    together = _run(request, workers.workers, display, find_names=not names.given)
    result = together.report
    view: RenderableType | None = None
    if output.format is ResultFormat.KAFKA and not output.show_detailed_stats:
        view = result.reading.perf_test_line()
    elif output.format is ResultFormat.TEXT:
        view = result.result().view(details=details, next_commands=[reconcile_next(request)])
    console.show(together.to_json(), view, output)
    raise typer.Exit(result.exit_code)


def _header(*, detailed: bool) -> str:
    from mirrortest.consume.statistics import DETAILED_COLUMNS, PERF_TEST_COLUMNS

    return ", ".join(DETAILED_COLUMNS if detailed else PERF_TEST_COLUMNS)


def _windows(seconds: float) -> Windows:
    from mirrortest.consume.statistics import detailed_line
    from mirrortest.results.windows import Windows

    return Windows(
        typer.echo, lambda window, total: detailed_line(window, total, time.time_ns()), seconds
    )


def _run(
    options: ConsumeOptions, workers: int, display: ProgressDisplay, *, find_names: bool
) -> PoolReport[ConsumeReport]:
    from mirrortest.cli.application import run_application
    from mirrortest.cli.log_output import worker_logging
    from mirrortest.consume.consumer import run as run_consumer
    from mirrortest.consume.source_names import with_alias
    from mirrortest.workers.consumers import run as run_workers
    from mirrortest.workers.consumers import useful_workers
    from mirrortest.workers.worker_pool import PoolReport

    async def main(stop: asyncio.Event) -> PoolReport[ConsumeReport]:
        named = options
        if find_names and options.role is Role.CONSUMER:
            named = await with_alias(options)
            _refuse_own_topics(named)
        count = workers
        if count > 1 and (most := await useful_workers(named, count)) < count:
            console.err.print(f"--workers {count}: there are partitions for {most}: {most} run")
            count = most
        if count > 1:
            return await run_workers(
                named, count, prepare=worker_logging(), stop=stop, on_progress=display.show
            )
        return PoolReport(await run_consumer(named, stop=stop, on_progress=display.show))

    with display:
        return run_application(main)


def _doctor_options(request: ConsumeOptions, *, find_names: bool) -> DoctorOptions:
    """The request to check the cluster that this consumer reads."""
    from mirrortest.cli.application import run_application
    from mirrortest.consume.source_names import with_alias

    mapping = request.mapping
    if find_names and request.role is Role.CONSUMER:
        with contextlib.suppress(ClusterError):  # the doctor's first check reports it
            mapping = run_application(lambda _: with_alias(request), writes=False).mapping
    return DoctorOptions(
        source=request.ledger_client,
        destination=request.client,
        mapping=mapping,
        topics=tuple(mapping.sources_of(request.topics).values()),
        ledger_topic=request.ledger_topic,
        state_topic=request.state_topic,
        log_dir=request.log_dir,
        log_spool=request.log_spool,
        reads_ledger_at_source=request.ledger_client is not None,
    )


def _refuse_own_topics(options: ConsumeOptions) -> None:
    """Refuse mirrortest's own topics in --topics, and one topic for both ledger and states."""
    ledger = options.mapping.destination_of(options.ledger_topic)
    if options.state_topic == ledger:
        raise UsageError(f"--state-topic: {ledger!r} is the ledger's topic")
    for topic, owner in ((ledger, "ledger's"), (options.state_topic, "states'")):
        if topic in options.topics:
            raise UsageError(f"--topics: {topic!r} is the {owner} topic")


consume.__doc__ = f"Judge a mirror's copy while it arrives.\n{EXAMPLES}"
