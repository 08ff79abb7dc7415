"""`mirrortest sabotage`: a faulty mirror that records each fault it injects."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer

from mirrortest.cli import console
from mirrortest.cli.options import BothClusters, Output
from mirrortest.cli.parameters import from_models
from mirrortest.config.run_naming import TopicMapping
from mirrortest.errors import UsageError
from mirrortest.faults.options import CLIENT_DEFAULTS, FaultyMirrorOptions
from mirrortest.faults.spec import DEFAULTS
from mirrortest.verify.anomaly import Anomaly

EXAMPLES = """
  A faithful mirror of all topics, from A to B, until Ctrl-C:

    mirrortest sabotage --source-bootstrap-server dc1:9092 --destination-bootstrap-server dc2:9092 --source-alias A

  One that does to two topics what a specification says, and ends 30 s after the last message:

    mirrortest sabotage --source-bootstrap-server dc1:9092 --destination-bootstrap-server dc2:9092 --source-alias A --topics 'orders,clicks,mirrortest[.]ledger' --spec wrongs.toml --truth truth --idle-timeout 30s
"""  # noqa: E501  # a command is one line, to be pasted

SPECIFICATION = """
    seed = 7                      # the same seed, the same messages
    lane_messages = 100_000       # messages per lane, for shares and counts

    [[acts]]                      # one message in a million is left out
    kind = "drop"
    rate = 1e-6

    [[acts]]                      # two runs of 50 in each lane of ann's
    kind = "drop-run"
    count = 2
    length = 50
    topic = "orders"
    producer = "ann"
    window = { share = [0.25, 0.75] }

    [[acts]]                      # this very message comes 20 messages late
    kind = "hold"
    ids = ["ann@nightly.1 3 1500"]
    distance = 20

  Filters: topic (a regular expression of the source's name), partition, producer, run, incarnation, lane.
  Which messages: rate, count (of each lane), ids ("NAME@RUN.INCARNATION LANE SEQ"), window = { seq = [lo, hi] } or { share = [lo, hi] }.
"""  # noqa: E501  # a paragraph is one line


def _kinds() -> str:
    lines = []
    for kind in Anomaly:
        defaults = ", ".join(
            name if value is None else f"{name} = {json.dumps(value)}"
            for name, value in DEFAULTS.get(kind, {}).items()
        )
        lines.append(f"    {kind:<18} {defaults}".rstrip())
    return "\n".join(lines)


@from_models
def sabotage(  # noqa: D103  # its help is below, with examples
    *,
    clusters: BothClusters,
    source_alias: Annotated[
        str, typer.Option(help="The name of the source: copies are called ALIAS.topic.")
    ] = "A",
    separator: Annotated[str, typer.Option(help="What is between alias and topic.")] = ".",
    options: partial[FaultyMirrorOptions],
    output: Output,
) -> None:
    sides = clusters.clients(CLIENT_DEFAULTS)
    for side, client in sides.items():
        if client is None:
            raise UsageError(f"no address of the {side}: use --{side}-bootstrap-server HOST:PORT")
    source, destination = (client for client in sides.values() if client is not None)
    console.warn([*source.warnings, *destination.warnings])
    mapping = TopicMapping.parse(source_alias=source_alias, separator=separator)
    if not mapping.prefix and {*source.bootstrap_servers} & {*destination.bootstrap_servers}:
        raise UsageError(
            "source and destination are one cluster: without --source-alias topics would be "
            "copied onto themselves"
        )
    request = options(source=source, destination=destination, mapping=mapping)
    from mirrortest.cli.application import run_application
    from mirrortest.cli.live import LiveLines
    from mirrortest.faults.replicator import run as run_faulty_mirror

    with LiveLines(console.err) as live:
        result = run_application(
            lambda stop: run_faulty_mirror(request, stop=stop, on_progress=live.show)
        )
    console.show(result.to_json(), result.table(), output)


sabotage.__doc__ = (
    "A mirror that injects the faults of a specification, and records each one.\n\n"
    f"Examples:\n{EXAMPLES}\n"
    f"A specification, wrongs.toml:\n{SPECIFICATION}\n"
    f"Kinds, and their parameters:\n\n{_kinds()}\n"
)
