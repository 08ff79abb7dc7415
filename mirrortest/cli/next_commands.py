"""The command to run next, as a user would type it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.results.view import NextCommand
    from mirrortest.seqlog.location import Location


def reconcile_next(options: ProduceOptions | ConsumeOptions) -> NextCommand:
    """The `reconcile` command for the exact verdict, to run once both sides have ended."""
    from mirrortest.results.view import NextCommand
    from mirrortest.seqlog.location import Location

    ours = shlex.quote(Location.parse(options.log_dir).shown)
    if getattr(options, "role", Role.PRODUCER) is Role.PRODUCER:
        places = f"{ours} CONSUMERS-LOG-DIR"
    else:
        places = f"PRODUCERS-LOG-DIR {ours}"
    return NextCommand(
        "next, once all have ended", f"mirrortest reconcile {places} --run {options.run}"
    )


def report_next(place: Location, logs: Sequence[Location], run: str) -> NextCommand:
    """The `report` command for the HTML report of the result in `place`."""
    from mirrortest.report.result import RESULT_FOLDER
    from mirrortest.results.view import NextCommand

    result = [] if place == logs[0].child(f"run={run}", RESULT_FOLDER) else [place.shown]
    chosen = [] if result else ["--run", run]
    dirs = [word for log in logs for word in ("--log-dir", log.shown)]
    command = shlex.join(["mirrortest", "report", *result, *dirs, *chosen, "--open"])
    return NextCommand("next", command)
