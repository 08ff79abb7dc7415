"""`mirrortest produce`: send numbered, timed messages to the source of a mirror."""

from __future__ import annotations

import secrets
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
    LoadOutput,
    Progress,
    ResultFormat,
    Workers,
    begin_csv_file,
    check_distinct,
    check_log_places,
    given,
    named_after_host,
)
from mirrortest.cli.parameters import from_models
from mirrortest.config.java_properties import parse_assignments
from mirrortest.config.option_file import (
    document_of,
    parse_document,
    schema_of,
    texts_of,
    toml_of,
    value_of,
)
from mirrortest.config.run_naming import run_id
from mirrortest.doctor.options import DoctorOptions
from mirrortest.errors import UsageError
from mirrortest.host.user_files import read_text
from mirrortest.produce.new_topics import NewTopics
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
from mirrortest.produce.workload import Sending, WholeWorkload
from mirrortest.wire.form import Form
from mirrortest.wire.stream import checked_name, checked_run

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from mirrortest.produce.produce_report import ProduceReport
    from mirrortest.results.windows import Windows
    from mirrortest.workers.worker_pool import PoolReport

EXAMPLES = """
Examples:

  Two topics, 1000 messages/s of 1 kB each, for an hour, from the first of several producers:

    mirrortest produce --bootstrap-server dc1:9092 --run n20261127 --id p1 --topics orders,clicks --throughput 1000 --message-size 1000 --duration 1h

  As fast as it goes: a million messages, of which the first 50000 are warm-up, zstd, a new topic:

    mirrortest produce --bootstrap-server dc1:9092 --topics load --num-records 1000000 --warmup-records 50000 --compression zstd --create-topics --partitions 8 --replication-factor 3 --json

  A rate that rises for five minutes and then stays; other shapes are in docs/reference/load-shapes.md:

    mirrortest produce --bootstrap-server dc1:9092 --id p1 --topics load --throughput 'ramp(0, 5000, 5m)' --duration 30m

  As fast as four cores go, as the producers p1.1 to p1.4, with one endpoint for their metrics:

    mirrortest produce --bootstrap-server dc1:9092 --id p1 --topics load --duration 10m --workers 4 --metrics-port 9464

  A cluster with TLS and a password, in Kafka's own property names:

    mirrortest produce --bootstrap-server dc1:9093 --command-config client.properties --command-property request.timeout.ms=10000 --topics orders --throughput 100

Exit codes: 0 all messages acknowledged, 1 error or a message failed, 2 usage, 3 none failed, but of some it is unknown whether they were written, or no message was sent.

SIGINT and SIGTERM stop the schedule, wait for what is underway, and write end marks and summary; a second signal ends at once.
"""  # noqa: E501  # a command is one line, to be pasted


_PROPERTIES = f"{__name__}.properties"


def _use_workload(context: typer.Context, path: Path | None) -> Path | None:
    """Use a file's values as the options' defaults."""
    if path is not None:
        where = f"--workload {path}"
        document = parse_document(read_text(path, where), where)
        keys = document.keys() & schema_of(Sending)["properties"].keys()
        # As defaults of their options these would override --command-property.
        sending = value_of({key: document.pop(key) for key in keys}, Sending, where)
        texts = texts_of(document, WholeWorkload, where)
        properties = [*texts.pop("command_property", []), *sending.properties()]
        context.meta[_PROPERTIES] = parse_assignments(properties, option=where)
        context.default_map = texts
    return path


@from_models
def produce(
    context: typer.Context,
    *,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "--broker-list",
            envvar="MIRRORTEST_BOOTSTRAP_SERVER",
            help="The source cluster. Wins over bootstrap.servers in properties.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            envvar="MIRRORTEST_RUN",
            help="The test's id, the same for all its producers and consumers. Default: a new "
            "one, which is printed.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            envvar="MIRRORTEST_ID",
            help="A stable, unique producer name; reuse it after a restart. Default: from host "
            "and process.",
        ),
    ] = None,
    workload: Annotated[  # noqa: ARG001  # its callback gives the other options their values
        Path | None,
        typer.Option(
            "--workload",
            is_eager=True,
            callback=_use_workload,
            metavar="FILE",
            help="Take the workload from this file, TOML or JSON; its keys are the options' names. "
            "Options and environment variables override it.",
        ),
    ] = None,
    print_workload: Annotated[
        bool,
        typer.Option(
            "--print-workload", help="Print what the options mean as a file for --workload; exit."
        ),
    ] = False,
    options: partial[ProduceOptions],
    use_message_headers: Annotated[
        bool, typer.Option("--use-message-headers", help="The same as --form headers.")
    ] = False,
    new_topics: NewTopics,
    workers: Workers,
    sending: Sending,
    connection: Connection,
    output: LoadOutput,
    progress: Progress,
    dry_run: DryRun = False,
) -> None:
    """Send numbered, timed messages to the source of a mirror, and record them in the ledger."""
    display = ProgressDisplay(console.err, progress)
    asked = options.keywords
    if use_message_headers and asked["form"] is not Form.HEADERS and given(context, "form"):
        raise UsageError(
            f"--form {asked['form'].value} and --use-message-headers (the same as --form headers) "
            "contradict each other: leave one of them out"
        )
    client = connection.client(
        # A workload contains no address: any will do to print it.
        bootstrap_server or ("localhost:9092" if print_workload else None),
        more_properties=sending.properties(),
        defaults=PRODUCER_DEFAULTS | context.meta.get(_PROPERTIES, {}),
    )
    console.warn(client.warnings)
    request = options(
        reporting_interval=progress.reporting_interval,
        run=checked_run(run) if run is not None else run_id(secrets.token_bytes(8)),
        name=checked_name(named_after_host() if name is None else name),
        client=client,
        form=Form.HEADERS if use_message_headers else asked["form"],
        create=new_topics,
    )
    if print_workload:
        typer.echo(toml_of(document_of(request.workload)), nl=False)
        raise typer.Exit
    check_log_places(request.log_dir, request.log_spool)
    request = request.resolved()
    if dry_run:
        show_checks(
            DoctorOptions(
                source=client,
                topics=request.topics,
                ledger_topic=request.ledger_topic,
                log_dir=request.log_dir,
                log_spool=request.log_spool,
                creates_topics=new_topics.create_topics,
            ),
            output,
        )
    from mirrortest.workers.producers import split

    parts = split(request, workers.workers)
    check_distinct(
        {"--csv": request.csv, "--status-file": progress.status_file, "--report": output.report}
    )
    begin_csv_file(request.csv)
    console.err.print(f"run {request.run}, producer {request.name}", markup=False)
    for notice in _notices(request, parts):
        console.err.print(notice, markup=False)
    if output.format is ResultFormat.KAFKA:
        display.windows = _windows(progress.reporting_interval)
    together = _run(request, parts, display)
    result = together.report
    view: RenderableType
    if output.format is ResultFormat.KAFKA:
        view = "\n".join(result.perf_test_lines())
    else:
        view = result.result().view(next_commands=[reconcile_next(request)])
    console.show(together.to_json(), view, output)
    if result.error is not None:
        raise result.error
    raise typer.Exit(result.exit_code)


def _notices(request: ProduceOptions, parts: Sequence[ProduceOptions]) -> Iterator[str]:
    """Remarks about the load of all workers' `parts`, to be printed before it is sent."""
    from mirrortest.wire.message import least_proven
    from mirrortest.wire.stream import ProducerId

    size = request.message_size
    least = max(least_proven(len(ProducerId(each.name, each.run, 1).encode())) for each in parts)
    if request.form is Form.BODY and (size if isinstance(size, int) else size.smallest) < least:
        yield (
            f"Messages of less than {least} bytes have no room for their proof: they arrive "
            f"unproven. Use --message-size {least} or more, or --form headers."
        )
    if request.payloads is not None:
        yield f"{request.payloads.shown} were read from {request.payloads.source}."
    if request.warmup_records:
        yield (
            f"The first {request.warmup_records:,} messages of each topic are warm-up: figures "
            "without them follow those of the whole run."
        )


def _windows(seconds: float) -> Windows:
    from mirrortest.produce.produce_report import window_line
    from mirrortest.results.windows import Windows

    return Windows(typer.echo, lambda window, _: window_line(window), seconds)


def _run(
    options: ProduceOptions, parts: list[ProduceOptions], display: ProgressDisplay
) -> PoolReport[ProduceReport]:
    from mirrortest.cli.application import run_application
    from mirrortest.cli.log_output import worker_logging
    from mirrortest.produce.producer import run as run_producer
    from mirrortest.workers.producers import run as run_workers
    from mirrortest.workers.worker_pool import PoolReport

    async def main(stop: asyncio.Event) -> PoolReport[ProduceReport]:
        if len(parts) > 1:
            return await run_workers(
                options, parts, prepare=worker_logging(), stop=stop, on_progress=display.show
            )
        return PoolReport(await run_producer(options, stop=stop, on_progress=display.show))

    with display:
        return run_application(main)


produce.__doc__ = f"{produce.__doc__}\n{EXAMPLES}"
