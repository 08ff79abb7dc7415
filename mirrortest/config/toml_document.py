"""Reads a user's TOML text as a model; an error is one line with the place and a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from mirrortest.config.option_file import parse_table
from mirrortest.config.suggestion import closest
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)

_ERRORS = {
    **dict.fromkeys(("tuple_type", "list_type"), "it must be a list: [...]"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "it must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "it must be a number"),
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"), "it must be a table: {{ ... }}"
    ),
    "bool_type": "it must be true or false",
    "string_type": 'it must be a text: "..."',
    "finite_number": "it must be a finite number",
    "missing": "it is required",
    "extra_forbidden": "there is no such setting",
    "greater_than": "it must be above {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be below {lt}",
    "less_than_equal": "it must be at most {le}",
    **dict.fromkeys(("enum", "literal_error"), "use {expected}"),
}
"""The text for each of pydantic's errors that a document can cause."""


def parse_toml(text: str, model: type[Model], where: str) -> Model:
    """Read a document; raises UsageError with `where` and the place of the first mistake."""
    return checked(parse_table(text, where), model, where)


def checked(document: Any, model: type[Model], where: str) -> Model:
    """The model of a document; raises UsageError with `where` and the first mistake's place."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        problem = _problem(first, model)
        raise UsageError(f"{where}: {at}: {problem}" if at else f"{where}: {problem}") from None


def _problem(error: ErrorDetails, model: type[BaseModel]) -> str:
    """The error in terms of TOML, not of Python's types."""
    kind, details = error["type"], error.get("ctx", {})
    if kind not in _ERRORS:
        return error["msg"].removeprefix("Value error, ")
    text = _ERRORS[kind].format(**details)
    if kind == "extra_forbidden":
        *above, name = error["loc"]
        meant = closest(str(name), _keys(model, above))
        text += f"; did you mean {meant}?" if meant else ""
    return text


def _keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys of the table at `path`."""
    tables: list[type[BaseModel]] = [model]
    for key in (each for each in path if isinstance(each, str)):
        tables = [
            found
            for table in tables
            for name, field in table.model_fields.items()
            if key in {name, field.alias}
            for found in _models(field.annotation)
        ]
    return [field.alias or name for each in tables for name, field in each.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type, for example in ``tuple[Model, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
