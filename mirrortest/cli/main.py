"""The command line: one file a verb; here they meet, and errors become exit codes."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

import mirrortest
from mirrortest.cli import compiled, console
from mirrortest.config.visible import visible
from mirrortest.errors import MirrortestError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="mirrortest",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Test a Kafka mirror: does the copy lose, repeat, reorder or alter messages, "
        "and how late is it?"
    ),
    epilog=(
        "Exit codes: 0 passed, 1 error, 2 usage, 3 inconclusive, "
        "99 a threshold or a correctness check failed; "
        "128 + a signal's number: the signal ended it at once."
    ),
)

_VERBS = (
    "produce",
    "consume",
    "reconcile",
    "report",
    "doctor",
    "salvage",
    "demo",
    "lab",
    "sabotage",
    "calibrate",
    "synth",
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"mirrortest {mirrortest.__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log what the libraries do.")
    ] = False,
    version: Annotated[  # noqa: ARG001  # typer calls its callback
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Set up logging before any verb runs."""
    console.configure_logging(verbose=verbose)


def _register(arguments: Sequence[str]) -> None:
    """Import the verb that is asked for, and nothing that it does not need; all for `--help`."""
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for verb in [asked] if asked in _VERBS else _VERBS:
        module = importlib.import_module(f"mirrortest.cli.{verb}")
        if verb == "lab":
            app.add_typer(module.lab_app, name=verb)
        else:
            app.command(verb)(getattr(module, verb))


def run() -> None:
    """The entry point: a user's mistake prints one line, never a traceback."""
    try:
        try:
            _register(sys.argv[1:])
        except ImportError as error:
            if compiled.is_missing(error):
                raise compiled.missing() from error
            raise
        compiled.check()
        gc.enable()  # `start` had left it out
        app()
    except MirrortestError as error:
        console.err.print(f"[bold red]error:[/] {escape(visible(str(error)))}")
        sys.exit(error.exit_code)
