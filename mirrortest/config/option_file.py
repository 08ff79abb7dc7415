"""A command's options as a TOML or JSON document; its keys are the options' names without dashes.

A value is written as on the command line, or as a number. If an option takes several values, by
commas or by repetition, it can also be a list. Options that are not given are left out.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import MISSING, Field, fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_origin, get_type_hints

from mirrortest.config.option import Kind, Option, base_type, kind_of
from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import exact_number
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

T = TypeVar("T")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_EXACT = 1 << 53
"""Above it, a reader that has only float64 would read another number."""


class _Key(NamedTuple):
    """An option of a model, as a key of a document."""

    name: str
    field: Field[Any]
    type: Any
    kind: Kind | None

    @property
    def repeated(self) -> bool:
        return get_origin(self.type) is list


def _keys(model: type[Any]) -> Sequence[_Key]:
    return _found_keys(cast("Hashable", model))  # every class is hashable, which mypy does not see


@cache
def _found_keys(model: Any) -> Sequence[_Key]:
    hints = get_type_hints(model)
    keys = []
    for field in fields(model):
        option: Option | None = field.metadata.get("option")
        if option is not None:
            hint = hints[field.name]
            name = option.name_of(field.name).removeprefix("--")
            keys.append(_Key(name, field, base_type(hint), kind_of(option, hint)))
    return keys


TOO_DEEP = "lists or tables are nested too deeply: no setting has more than a few levels"


def parse_document(text: str, where: str) -> dict[str, Any]:
    """Read a document: JSON if it begins with a brace, else TOML.

    Raises UsageError that begins with `where` if it is neither.
    """
    is_json = text.lstrip().startswith("{")
    try:
        return dict(json.loads(text)) if is_json else parse_table(text, where)
    except RecursionError:
        raise UsageError(f"{where}: {TOO_DEEP}") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON at line {error.lineno}") from None


def parse_table(text: str, where: str) -> dict[str, Any]:
    """Read a TOML document as it is; raises UsageError that begins with `where`."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{where}: {TOO_DEEP}") from None
    except tomllib.TOMLDecodeError as error:
        line = _LINE.search(str(error))
        at = f"line {line[1]}" if line is not None else "its end"
        raise UsageError(
            f"{where} is not TOML at {at}: write KEY = VALUE, a text in quotes"
        ) from None


def texts_of(document: Mapping[str, Any], model: type[Any], where: str) -> dict[str, Any]:
    """A document's values by the model's fields, as a user would type them.

    Raises:
        UsageError: there is no such key, or it has a wrong value; `where` is in front.
    """
    return {name: text for name, (text, _) in _read(document, model, where).items()}


def value_of(document: Mapping[str, Any], model: type[T], where: str) -> T:
    """A document as the model. Raises UsageError if it is wrong or lacks a required key."""
    values = {name: value for name, (_, value) in _read(document, model, where).items()}
    for key in _keys(model):
        if key.field.name not in values and key.field.default is MISSING:
            raise UsageError(f"{where}: {key.name} is missing")
    return model(**values)


def _read(document: Mapping[str, Any], model: type[Any], where: str) -> dict[str, tuple[Any, Any]]:
    """A document's values by the model's fields: as a user would type them, and parsed."""
    keys = {key.name: key for key in _keys(model)}
    found = {}
    for name, value in document.items():
        key = keys.get(name)
        if key is None:
            raise UsageError(f"{where}: there is no key {name!r}: {did_you_mean(name, keys)}")
        at = f"{where}: {name}"
        text = _text(key, value, at)
        found[key.field.name] = text, _parsed(key, text, at)
    return found


def _parsed(key: _Key, text: Any, at: str) -> Any:
    if key.kind is None or isinstance(text, bool):
        return text
    if isinstance(text, list):
        return [key.kind.parse(each, option=at) for each in text]
    return key.kind.parse(text, option=at)


def document_of(value: Any, *, defaults: bool = True) -> dict[str, Any]:
    """A model's options as a document, each as a user would type it; None is left out.

    With `defaults=False`, options with their default value are left out, too.
    """
    found: dict[str, Any] = {}
    for key in _keys(type(value)):
        own = getattr(value, key.field.name)
        if not defaults and own == key.field.default:
            continue
        shown = own if key.kind is None or isinstance(own, list) else key.kind.show(own)
        if isinstance(own, int | float) and _NUMBER.fullmatch(str(shown)):
            number = json.loads(shown)
            shown = number if abs(number) <= _EXACT else shown
        if shown is not None and shown != "":
            found[key.name] = shown
    return found


def words_of(document: Mapping[str, Any]) -> list[str]:
    """A document of `document_of` as words of a command line."""
    words: list[str] = []
    for name, value in document.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
            continue
        for text in map(str, value if isinstance(value, list) else [value]):
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return words


def toml_of(document: Mapping[str, Any]) -> str:
    """A document of `document_of` as TOML."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in document.items())


def _toml(value: Any) -> str:
    # JSON's strings are valid in TOML, except for DEL, which JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(key: _Key, value: object, at: str) -> str | bool | list[str]:
    """A value as a user would type it."""
    if key.type is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{at}: must be true or false")
        return value
    several = key.repeated or get_origin(key.type) is tuple
    texts = [
        value_text(each, at) for each in (value if several and isinstance(value, list) else [value])
    ]
    return texts if key.repeated else ",".join(texts)


def value_text(value: object, at: str) -> str:
    """One value as a user would type it; UsageError if it is neither a text nor a number."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return exact_number(value)
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"{at}: must be a text or a number")


def schema_of(model: type[Any]) -> dict[str, Any]:
    """The JSON Schema of such a document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": model.__name__,
        "description": (model.__doc__ or "").split("\n")[0],
        "type": "object",
        "properties": {key.name: _schema(key) for key in _keys(model)},
        "additionalProperties": False,
    }


def _schema(key: _Key) -> dict[str, Any]:
    option: Option = key.field.metadata["option"]
    found: dict[str, Any] = {"description": option.help}
    text = {"type": ["string", "number"]}
    if key.type is bool:
        found["type"] = "boolean"
    elif key.repeated or get_origin(key.type) is tuple:
        found["anyOf"] = [{"type": "string"}, {"type": "array", "items": text}]
    elif key.kind is not None and key.kind.values:
        found["enum"] = list(key.kind.values)
    else:
        found |= text
    return found
