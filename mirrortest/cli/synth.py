"""`mirrortest synth`: sequence logs of a run that never was, with its truth."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from decimal import Decimal
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.options import LogDetail, can_be_filled
from mirrortest.config.run import checked_topics
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import KINDS, RUN_LENGTH, SynthOptions, spread
from mirrortest.seqlog.batches import Detail
from mirrortest.wire.digits import SEQ_LIMIT

EXAMPLES = """
[bold]Examples[/]

    mirrortest synth --log-dir logs --run big --messages 1e9 --anomalies 1000
    mirrortest synth --log-dir logs --run each --messages 1e8 --log-detail messages
    mirrortest synth --log-dir logs --run wide --messages 1e8 --producers 100 --lanes 100
    mirrortest synth --log-dir logs --run gone --messages 1e9 --lost 1e8
    mirrortest reconcile logs --run big
"""

_MOST_STREAMS = 100_000
"""More of anything that stands for itself than one machine writes in a day."""
_MOST_LANES = (1 << 16) - 1
_NUMBER = re.compile(r"[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?")


def _whole(text: str, option: str, least: int = 0) -> int:
    """Read a count: `1000000`, `1_000_000` or `1e6`."""
    number = Decimal(text) if _NUMBER.fullmatch(text) else Decimal(-1)
    if number < 0 or number != int(number):
        raise UsageError(f"{option} {text!r}: write a whole number, such as 5000 or 1e6")
    if not least <= number <= SEQ_LIMIT:
        raise UsageError(f"{option} {text!r}: it lies between {least} and {SEQ_LIMIT:.0e}")
    return int(number)


def synth(
    *,
    log_dir: Annotated[Path, typer.Option(help="Where the logs go; a local directory.")],
    run: Annotated[str, typer.Option(help="The run's id; it must not be there yet.")],
    messages: Annotated[str, typer.Option(help="Messages sent in all: 1000000 or 1e6.")] = "1e6",
    topics: Annotated[str, typer.Option(help="Topics, comma-separated.")] = "synth",
    producers: Annotated[
        int, typer.Option(min=1, max=_MOST_STREAMS, help="They share the messages.")
    ] = 8,
    incarnations: Annotated[
        int, typer.Option(min=1, max=_MOST_STREAMS, help="Of each producer, in turn.")
    ] = 1,
    lanes: Annotated[
        int, typer.Option(min=1, max=_MOST_LANES, help="Lanes, and partitions, of each topic.")
    ] = 12,
    consumers: Annotated[
        int, typer.Option(min=1, max=_MOST_LANES, help="They share the partitions.")
    ] = 2,
    log_detail: LogDetail = Detail.INTERVALS,
    anomalies: Annotated[
        str,
        typer.Option(
            help="Messages with an anomaly, spread over "
            + ", ".join(kind.label for kind in KINDS)
            + "."
        ),
    ] = "0",
    lost: Annotated[
        str | None, typer.Option(help="Messages lost, instead of their share of --anomalies.")
    ] = None,
    lost_run: Annotated[
        int, typer.Option(min=1, max=SEQ_LIMIT, help="Consecutive ids of each loss.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed, the same logs.")] = 0,
    run_length: Annotated[
        int,
        typer.Option(
            min=1,
            max=SEQ_LIMIT,
            help="Messages of a row on average. The default is what three producers that send as "
            "fast as they can make through MirrorMaker 2 (240,000 messages, 2,138 rows). "
            "Producers at a low fixed rate make shorter rows, down to the few messages of a "
            "linger time; a single producer makes longer ones.",
        ),
    ] = RUN_LENGTH,
    batch: Annotated[
        int,
        typer.Option(
            min=1,
            max=SEQ_LIMIT,
            help="Messages that share an intended time, as a producer's without a rate do; 1 for a "
            "fixed rate, where each has its own: then a row's latency histogram is longer.",
        ),
    ] = 50,
    throughput: Annotated[
        str,
        typer.Option(
            help="Messages a second, of all producers. Numbers are reserved for two seconds each: "
            "of thousands of streams at a low rate, reservations are most rows."
        ),
    ] = "200000",
    skew: Annotated[bool, typer.Option("--skew", help="One stream has 90 % of all rows.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Threads. [as many as there are CPUs]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write sequence logs of both sides for a run that never was, and the truth of it."""
    if re.match(r"[A-Za-z0-9+.-]+:/", str(log_dir)):
        raise UsageError(f"--log-dir {log_dir}: say a local directory: no URI is written to")
    can_be_filled(log_dir, "--log-dir")
    options = SynthOptions(
        log_dir=log_dir,
        run=run,
        messages=_whole(messages, "--messages", least=1),
        topics=checked_topics(topics, option="--topics"),
        producers=producers,
        incarnations=incarnations,
        lanes=lanes,
        consumers=consumers,
        detail=log_detail,
        seed=seed,
        anomalies=spread(
            _whole(anomalies, "--anomalies"), None if lost is None else _whole(lost, "--lost")
        ),
        lost_run=lost_run,
        run_length=run_length,
        batch=batch,
        rate=_whole(throughput, "--throughput", least=1),
        skew=skew,
        jobs=jobs or os.cpu_count() or 1,
    )
    try:
        written = synthesize(options)
    except OSError as error:
        raise MirrortestError(f"--log-dir {log_dir}: {error.strerror or error}") from error
    if json:
        typer.echo(dumps(asdict(written), indent=1))
        return
    console.out.print(
        f"run {written.run}: {written.messages:,} messages as {written.rows:,} rows in "
        f"{written.files:,} files of {written.sessions:,} sessions, {written.size / 1e6:,.1f} MB"
    )
    for label, count in written.findings.items():
        console.out.print(f"{label}: {count:,}")
    console.out.print(f"truth: {written.truth}", markup=False)


synth.__doc__ = f"""{synth.__doc__}

The files are those that `produce` and `consume` write, row for row; what is wrong with which
message stands beside them in truth.parquet (producer, incarnation, topic, lane, seq, finding).
{EXAMPLES}"""
