"""`mirrortest salvage`: upload the log files that killed processes left in a spool."""

from __future__ import annotations

from inspect import cleandoc
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from mirrortest.cli import console
from mirrortest.config.units import number
from mirrortest.config.visible import visible
from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.wire.stream import checked_run

if TYPE_CHECKING:
    from mirrortest.seqlog.session import Session

EXAMPLES = """
Examples:

    mirrortest salvage mirrortest-spool --log-dir s3://bucket/logs
    mirrortest salvage /spool --log-dir s3://bucket/logs --run n20261127 --json
"""


def salvage(
    *,
    spool: Annotated[Path, typer.Argument(help="The killed processes' --log-spool.")],
    log_dir: Annotated[str, typer.Option(help="Their --log-dir.")],
    run: Annotated[
        str | None, typer.Option(help="Only the logs of this run. Default: of all runs.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was saved as JSON.")] = False,
) -> None:
    """Finish the sequence logs that killed processes left in their spool.

    If --log-dir is a URI, rows wait in the spool for their upload. Files of running processes are
    not touched, and a second call does no harm. Logs in a local directory do not need this.
    """
    if not spool.is_dir():
        raise UsageError(f"{spool}: no such directory; use the --log-spool of the killed processes")
    if not log_dir:
        raise UsageError("--log-dir is empty: name the --log-dir of the killed processes")
    if run is not None:
        checked_run(run)
    from mirrortest.seqlog.session_directory import salvage as upload_spool
    from mirrortest.seqlog.session_directory import spools_below

    failed: list[SequenceLogError] = []
    saved = [_summary(session) for session in upload_spool(spool, log_dir, run, failed)]
    if not (saved or failed) and (below := spools_below(spool, run)):
        raise UsageError(f"{spool}: not a spool; salvage those below it: {', '.join(below)}")
    if json:
        typer.echo(dumps({"salvaged": saved}))
    for each in [] if json else saved:
        console.out.print(
            escape(visible("{role} {name} of run {run}, session {session}: ".format(**each)))
            + f"{number(each['rows'], 'row')} in {number(each['files'], 'file')}"
        )
        for damage in each["damage"]:
            console.err.print(f"[yellow]damaged:[/] {escape(visible(damage))}")
    if failed:
        raise SequenceLogError(
            f"{number(len(failed), 'session')} not salvaged: {'; '.join(map(str, failed))}"
        )
    if not (saved or json):
        console.out.print(f"nothing to salvage in {escape(str(spool))}")


def _summary(session: Session) -> dict[str, Any]:
    return {
        "run": session.run,
        "role": session.role.value,
        "name": session.name,
        "session": session.session,
        "files": len(session.files),
        "rows": sum(file.rows for file in session.files),
        "damage": [str(each) for each in session.damage],
    }


salvage.__doc__ = f"""{cleandoc(salvage.__doc__ or "")}
{EXAMPLES}"""
