"""`mirrortest doctor`: see before a test whether it can work."""

from __future__ import annotations

from functools import partial

from mirrortest.cli import console
from mirrortest.cli.checks import show_checks
from mirrortest.cli.options import BothClusters, MirrorNames, Output
from mirrortest.cli.parameters import from_models
from mirrortest.doctor.options import DoctorOptions

EXAMPLES = """
Examples:

  Before a test of MirrorMaker 2, from any machine that reaches both clusters:

    mirrortest doctor --source-bootstrap-server dc1:9092 --destination-bootstrap-server dc2:9092 --topics orders,clicks.eu --source-alias A

  Only what a producer's machine sees:

    mirrortest doctor --source-bootstrap-server dc1:9092 --topics orders

Each line is ✓ (right), ! (a result would be missing or less certain) or ✗ (the test cannot work), with what to do. Nothing is written to any cluster.

Exit codes: 0 nothing is ✗, 1 something is, 2 usage.
"""  # noqa: E501  # a command is one line, to be pasted


@from_models
def doctor(  # noqa: D103  # its help is below, with examples
    *,
    clusters: BothClusters,
    options: partial[DoctorOptions],
    names: MirrorNames,
    output: Output,
) -> None:
    sides = clusters.clients()
    warnings = [line for client in sides.values() if client for line in client.warnings]
    console.warn(warnings)
    request = options(
        source=sides["source"],
        destination=sides["destination"],
        mapping=names.mapping() if names.given else None,
    )
    show_checks(request, output)


doctor.__doc__ = f"See before a test whether it can work, and what to change.\n{EXAMPLES}"
