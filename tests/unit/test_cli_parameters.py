"""A command's options come from its models: each is declared once."""

from __future__ import annotations

import importlib
from dataclasses import MISSING, dataclass, fields
from functools import partial  # noqa: TC003  # the decorator reads it
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from mirrortest.cli.parameters import from_models
from mirrortest.config.option import REQUIRED, SECONDS, Kind, option
from mirrortest.consume.options import ConsumeOptions
from mirrortest.errors import UsageError
from mirrortest.faults.options import FaultyMirrorOptions
from mirrortest.produce.options import ProduceOptions
from mirrortest.selftest.synthetic_options import SynthOptions


def _upper(text: str, *, option: str) -> str:
    if not text.isalpha():
        raise UsageError(f"{option} {text!r}: letters only")
    return text.upper()


@dataclass(frozen=True, kw_only=True)
class Base:
    pause: float = option(2.0, "How long.", kind=SECONDS, env=True)


@dataclass(frozen=True, kw_only=True)
class Model(Base):
    word: str = option(REQUIRED, "A word.", name="--the-word", kind=Kind(_upper))
    count: int = option(3, "How many.", minimum=1)
    quiet: bool = option(False, "Print less.")
    given_by_the_command: str


def _invoke(*arguments: str, **environment: str) -> Any:
    built: list[Model] = []
    app = typer.Typer()

    @app.command()
    @from_models
    def command(*, extra: int = 0, model: partial[Model]) -> None:
        """A command."""
        built.append(model(given_by_the_command=str(extra)))

    result = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    return built[0] if built else result


def test_a_model_is_built_from_its_options() -> None:
    """Defaults are the model's own; typed values are parsed; the environment may give them."""
    assert _invoke("--the-word", "a") == Model(word="A", given_by_the_command="0")
    more = ("--the-word", "a", "--pause", "1m", "--count", "5", "--quiet", "--extra", "7")
    assert _invoke(*more) == Model(
        word="A", pause=60.0, count=5, quiet=True, given_by_the_command="7"
    )
    assert _invoke("--the-word", "a", MIRRORTEST_PAUSE="5s").pause == 5.0


def test_mistakes_name_the_option() -> None:
    """Our value parsers raise our errors; the others are the command line parser's."""
    with pytest.raises(UsageError, match="--the-word '1': letters only"):
        _invoke("--the-word", "1")
    assert _invoke().exit_code == 2
    with pytest.raises(UsageError, match="--count '0': must be at least 1"):
        _invoke("--the-word", "a", "--count", "0")


def test_the_help_has_defaults_as_they_are_typed() -> None:
    shown = _invoke("--help", COLUMNS="120").output
    assert "[default: 2s]" in shown


@pytest.mark.parametrize(
    ("verb", "model"),
    [
        ("produce", ProduceOptions),
        ("consume", ConsumeOptions),
        ("sabotage", FaultyMirrorOptions),
        ("synth", SynthOptions),
    ],
)
def test_every_default_reads_back_as_the_models(verb: str, model: type[Any]) -> None:
    """A default as the help shows it parses to the model's default."""
    app = typer.Typer()
    app.command()(getattr(importlib.import_module(f"mirrortest.cli.{verb}"), verb))
    parameters = {each.name: each for each in get_command(app).params}
    declared = [each for each in fields(model) if "option" in each.metadata]
    assert declared
    for field in declared:
        kind, typed = field.metadata["option"].kind, parameters[field.name].default
        if field.default is not MISSING and kind is not None and typed is not None:
            assert kind.parse(typed, option="--x") == field.default
