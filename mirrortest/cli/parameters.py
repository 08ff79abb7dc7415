"""Parameters of commands, derived from dataclasses: no signature repeats their fields.

Typer reads a function's signature, and does not support parameters that are models (its issues 154
and 264). `from_models` gives it a signature with all their options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from mirrortest.config.option import Kind, Option, kind_of


def from_models(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a model by its options (`config.option`).

    A parameter of type ``Model`` gets an instance. One of type ``partial[Model]`` gets a partial:
    the command calls it with the fields that are not options. A field whose option is not given
    has the model's default.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    models: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        model: Any = get_args(hint)[0] if get_origin(hint) is partial else hint
        if not (isinstance(model, type) and is_dataclass(model)):
            parameters.append(parameter.replace(annotation=hint))
            continue
        found = list(_options(model))
        build = partial(partial, model) if model is not hint else hint
        models[parameter.name] = (build, [each.name for each in found])
        parameters += found

    def run(**values: Any) -> None:
        built = {
            name: build(
                **{each: given for each in names if (given := values.pop(each)) is not None}
            )
            for name, (build, names) in models.items()
        }
        command(**values, **built)

    run.__name__, run.__doc__, run.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _options(model: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(model)
    for field in fields(model):
        if "option" in field.metadata:
            yield _parameter(field, hints[field.name])


def _parameter(field: Field[Any], kind: Any) -> inspect.Parameter:
    option: Option = field.metadata["option"]
    name = option.name_of(field.name)
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    parser, metavar = None, option.metavar
    values: tuple[str, ...] = ()
    value_kind = kind_of(option, kind)
    if value_kind is not None:
        kind, metavar, values = str, metavar or value_kind.metavar, value_kind.values
        parser = partial(_parsed, value_kind, name)
        if field.default is not MISSING:
            # As a user would type it: typer parses the default, too.
            default = value_kind.show(field.default) or None
    info = typer.Option(
        name,
        *option.aliases,
        envvar=f"MIRRORTEST{name[1:].replace('-', '_').upper()}" if option.env else None,
        help=option.help,
        metavar=metavar,
        parser=parser,
        autocompletion=_completing(values) if values else None,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


def _completing(values: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function for shell completion: it returns the values that begin with the typed text."""

    def complete(incomplete: str) -> list[str]:
        return [each for each in values if each.startswith(incomplete)]

    return complete


def _parsed(kind: Kind, name: str, text: str) -> Any:
    return kind.parse(text, option=name)
