"""Write a client's table of a scenario as arguments of its command."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from typer.main import get_command

from mirrortest.cli.help_layout import Program, aliases_of
from mirrortest.cli.main import ParserError, add_verb, parser_error_text
from mirrortest.config.option_file import value_text
from mirrortest.config.redaction import command_without_secrets
from mirrortest.config.suggestion import did_you_mean
from mirrortest.errors import UsageError

_SET_FOR_CLIENTS = frozenset(
    ("report", "status-file", "csv", "progress", "json", "format", "dry-run", "print-workload")
)
_SET_BY_SCENARIO = {
    "produce": _SET_FOR_CLIENTS,
    "consume": _SET_FOR_CLIENTS,
    "observe": frozenset(("report", "json", "once")),
}
"""By verb, the options that a scenario sets itself, besides those of the point."""


def arguments(verb: str, table: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Write a table and the point's `own` options as arguments, and check them.

    Raises:
        UsageError: an option does not exist, has a wrong value, is set by the scenario, or is a
            client property with a secret, which other users of the machine could read.
    """
    command, where = _commands()[verb], "[observe]" if verb == "observe" else f"[[{verb}]]"
    options = {
        name.removeprefix("--"): option
        for option in command.params
        if option.param_type_name == "option"
        for name in (*option.opts, *aliases_of(option))
    }
    refused = {*_SET_BY_SCENARIO[verb], *own}
    for key in table:
        if key not in options:
            valid = [name for name in options if name not in refused and name != "help"]
            raise UsageError(f"{where} {key}: there is no such option; {did_you_mean(key, valid)}")
        if options[key].opts[0].removeprefix("--") in refused:
            raise UsageError(f"{where} {key}: the scenario sets it: leave it out")
    written: list[str] = []
    for key, value in {**own, **table}.items():
        written += _written(f"{where} {key}", options[key].opts[0], value, options[key])
    try:
        command.make_context(verb, list(written))
    except UsageError as error:
        raise UsageError(f"{where} {str(error).removeprefix('--')}") from None
    except ParserError as error:
        raise UsageError(f"{where} {parser_error_text(error)}") from None
    return written


@functools.cache
def _commands() -> dict[str, Any]:
    app = Program()
    for verb in _SET_BY_SCENARIO:
        add_verb(app, verb)
    found: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    for command in found.values():
        for option in command.params:
            option.envvar = None  # clients do not get the shell's options
    return found


def _written(where: str, name: str, value: Any, option: Any) -> list[str]:
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{where} {value!r}: it must be true or false")
        return [name] if value else []
    values = value if isinstance(value, list | tuple) else [value]
    texts = [value_text(each, where) for each in values]
    if name == "--command-property" and command_without_secrets(texts) != texts:
        raise UsageError(
            f"{where}: process lists would show a secret: put it into the file of command-config"
        )
    return [f"{name}={each}" for each in (texts if option.multiple else [",".join(texts)])]
