"""The command line: registers the verbs, one file each, and turns errors into exit codes."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import re
import sys
from keyword import iskeyword
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.markup import escape

import mirrortest
from mirrortest.cli import compiled, console
from mirrortest.cli.help_layout import Program
from mirrortest.config.suggestion import closest
from mirrortest.config.visible import shortened, visible
from mirrortest.errors import MirrortestError
from mirrortest.model.verdict import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = {"-h", "--help"}

app = Program(
    name="mirrortest",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": sorted(_HELP)},
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

_VERBS = {
    "produce": (
        "Send numbered, timed messages to the source of a mirror, and record them in the ledger."
    ),
    "consume": "Judge a mirror's copy while it arrives.",
    "reconcile": "Judge a run exactly, after it, from the sequence logs of both sides.",
    "report": "Turn a reconciliation into one HTML file that opens without a network.",
    "compare": "Compare runs: what got worse, what got better, and what is inconclusive.",
    "import": "Read other programs' descriptions of loads as workloads.",
    "doctor": "See before a test whether it can work, and what to change.",
    "observe": "Record what a test does to this machine: CPU, memory, disks, network, processes.",
    "salvage": "Finish the sequence logs that killed processes left in their spool.",
    "run": "Run a whole test from one file: clusters, clients, faults, the verdict of each point.",
    "scenarios": "List the scenarios that come with mirrortest, for `mirrortest run`.",
    "lab": "Two local Kafka clusters with a mirror between them, as processes of this machine.",
    "sabotage": "A mirror that injects the faults of a specification, and records each one.",
    "calibrate": "Measure what mirrortest finds against what a faulty mirror did.",
    "synth": "Write the sequence logs of both sides of a synthetic run, and its truth.",
}
"""Each verb with the first sentence of its help: `--help` imports no verb."""


ParserError: Any = typer.BadParameter.__mro__[1]
"""The base class of the command-line parser's errors; typer exports only a subclass."""
_COMPLETING = "_MIRRORTEST_COMPLETE"
_NO_ARGUMENTS = "NoArgsIsHelpError"
_OF_PLACES = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG)
)
"""Errors of places, also of those that no option names, as of a cache in the home directory."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")


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
    if _HELP.isdisjoint(sys.argv):
        from mirrortest.cli.log_output import configure_logging

        configure_logging(verbose=verbose)


def _not_imported() -> None:
    """Placeholder for a verb that is listed, but not imported."""


def _register(arguments: Sequence[str]) -> None:
    """Import and register the verb that is asked for, and no other.

    `--version` and `--help` import no verb. Shell completion, which sets an environment variable,
    imports all of them. Verbs that an earlier call in this process registered are removed.
    """
    app.registered_commands.clear()
    app.registered_groups.clear()
    asked = next((word for word in arguments if not word.startswith("-")), None)
    if asked not in _VERBS and _COMPLETING not in os.environ:
        for verb, summary in _VERBS.items():
            app.command(verb, help=summary)(_not_imported)
        return
    for verb in [asked] if asked in _VERBS else _VERBS:
        add_verb(app, verb)


def add_verb(program: typer.Typer, verb: str) -> None:
    """Import a verb, and add it to a program: as a command, or as a group if it has subcommands."""
    # A module's name must not be a keyword of Python: `import` is in import_.py.
    module = importlib.import_module(f"mirrortest.cli.{verb}{'_' if iskeyword(verb) else ''}")
    group = getattr(module, f"{verb}_app", None)
    if group is None:
        program.command(verb)(getattr(module, verb))
    else:
        program.add_typer(group, name=verb)


def run() -> None:
    """Run the command line: a user's mistake prints one line, never a traceback."""
    try:
        try:
            _register(sys.argv[1:])
            compiled.check()
            gc.enable()  # `start` disabled it
            # `app` returns a command's own exit code, and raises the parser's errors.
            sys.exit(app(standalone_mode=False) or 0)
        except ImportError as error:
            if compiled.is_missing(error):
                raise compiled.missing() from error
            raise
    except ParserError as error:
        if type(error).__name__ == _NO_ARGUMENTS:
            error.show()  # the help
            sys.exit(error.exit_code)
        _fail(parser_error_text(error), error.exit_code)
    except MirrortestError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        if error.errno not in _OF_PLACES:
            raise
        where = f"{error.filename}:" if error.filename else "a file"
        why = os.strerror(error.errno)
        _fail(f"{where} cannot be read or written: {why}", ExitCode.ERROR)


def parser_error_text(error: Any) -> str:
    """Describe a parser error in one line, and name the help to read."""
    text = " ".join(error.format_message().split()).rstrip(".")
    if (unknown := getattr(error, "option_name", None)) and "No such option" in text:
        valid = [name for each in error.ctx.command.params for name in each.opts]
        meant = closest(unknown, [name for name in valid if name.startswith("--")])
        text = f"there is no option {unknown}" + (f"; did you mean {meant}?" if meant else "")
    elif extra := _EXTRA.fullmatch(text):
        text = f"unexpected argument {extra[1]}: lists are written with commas, without spaces"
    asked = next((word for word in sys.argv[1:] if word in _VERBS), None)
    path = " ".join(["mirrortest", *([asked] if asked else [])])
    if error.ctx is not None:
        path = error.ctx.command_path
    return f"{text[:1].lower()}{text[1:]} (see {path} --help)"


def _fail(text: str, exit_code: int) -> NoReturn:
    console.err.print(f"[bold red]error:[/] {escape(shortened(visible(text)))}")
    sys.exit(exit_code)
