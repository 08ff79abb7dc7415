"""The help of each command, as a terminal of 80 columns shows it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from docs import generated
from mirrortest.cli.help_layout import BY_ENVIRONMENT, _joined
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


COMMANDS = dict(_commands(generated.program()))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_name_is_cut_and_no_line_is_too_long(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of options, their values and examples can be copied from a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    generated.program()([*path, "--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert not re.search(r"<\w+>", shown), "a type of the parser's"
    assert max(map(len, shown.splitlines())) <= 80
    for line, following in pairwise(shown.splitlines()):
        if line.rstrip().endswith("\\"):
            assert following.startswith(" " * 6 + "--")


@pytest.mark.parametrize(
    "path",
    [path for path in COMMANDS if len(path) == 1 and path != ("scenarios",)],
    ids=" ".join,
)
def test_help_has_examples(path: tuple[str, ...]) -> None:
    """Each verb or one of its subcommands has some; `scenarios` only takes a name that it lists."""
    below = [path, *(each for each in COMMANDS if each[: len(path)] == path)]
    assert any("Examples:\n" in (COMMANDS[each].help or "") for each in below)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_flags_have_no_type_and_values_have_one_name(path: tuple[str, ...]) -> None:
    """The help names an option's value in words, not by a Python type."""
    for option in COMMANDS[path].params:
        if option.param_type_name == "option":
            assert (option.metavar is None) is option.is_flag or not path, option.opts


def test_what_the_environment_can_give_is_marked() -> None:
    """The sentence that explains the mark is below the options."""
    for command in COMMANDS.values():
        given = [each for each in command.params if getattr(each, "envvar", None)]
        assert all(option.help.endswith(BY_ENVIRONMENT) for option in given)
        assert all(
            option.envvar == "MIRRORTEST_" + option.opts[0][2:].upper().replace("-", "_")
            for option in given
            if option.opts[0] != "--name"
        )
        assert bool(given) is ("[env]" in (command.epilog or ""))


@pytest.mark.parametrize("typed", [["--broker-list", "h"], ["--broker-list=h"]])
def test_kafkas_names_are_accepted_though_not_shown(typed: list[str]) -> None:
    """They are aliases of the options that are shown."""
    program = generated.program()
    with pytest.raises(UsageError, match="use HOST:PORT"):
        program(["produce", *typed, "--topic", "t"], standalone_mode=False)


def test_an_alias_of_one_command_is_no_option_of_another() -> None:
    """`--group` is an alias of `--consumer-group` only in consume."""
    with pytest.raises(Exception, match="No such option"):
        generated.program()(["doctor", "--group", "g"], standalone_mode=False)


def test_a_paragraph_fills_its_lines() -> None:
    """Line ends in the source do not break a paragraph; examples keep theirs."""
    text = "a\nb\n\nExamples:\n\n  c:\n\n    d\n    e"
    assert _joined(text) == ["a b", "", "Examples:", "", "  c:", "", "    d", "    e"]
