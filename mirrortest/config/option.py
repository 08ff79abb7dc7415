"""An option of a command as data, on the field that it fills.

``deadline: float = option(60.0, "...", kind=SECONDS)``. The command line derives its parameters
from such fields, so that an option has one name, type, default and help.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from enum import StrEnum
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import (
    exact_duration,
    exact_seconds,
    parse_count,
    parse_duration,
    parse_positive_seconds,
    parse_seconds,
)
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E", bound=StrEnum)

REQUIRED = MISSING
"""The default of an option that must be given."""


def _show(value: object) -> str:
    return "" if value is None else str(value)


def _show_seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{exact_seconds(seconds)}s"


class Kind(NamedTuple):
    """How an option's text becomes a value, and a default the text that a user would type.

    `parse` takes the text and, by `option=`, the name of the option for its errors. A default for
    which `show` returns an empty text is not shown. `values` are those that a shell completes.
    """

    parse: Callable[..., Any]
    show: Callable[[Any], str] = _show
    metavar: str = "TEXT"
    values: tuple[str, ...] = ()


SECONDS = Kind(parse_seconds, _show_seconds, "DURATION")
POSITIVE_SECONDS = Kind(parse_positive_seconds, _show_seconds, "DURATION")
NANOSECONDS = Kind(
    parse_duration, lambda ns: "" if ns is None else exact_duration(ns), metavar="DURATION"
)


def choice(values: type[E], *only: E) -> Kind:
    """The kind for one of an enumeration's values, or for one of `only` these."""
    valid = tuple(only or values)
    names = tuple(each.value for each in valid)
    return Kind(partial(_chosen, valid), metavar="|".join(names), values=names)


def _chosen(valid: tuple[E, ...], text: str, *, option: str) -> E:
    for each in valid:
        if each.value == text:
            return each
    raise UsageError(f"{option} {text!r}: {did_you_mean(text, [each.value for each in valid])}")


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a field is given on the command line.

    `name` is ``--like-this``, by default the field's. With `env` the environment variable
    ``MIRRORTEST_LIKE_THIS`` can give it; `aliases` are its names in Kafka's own tools. Without a
    `kind`, the field's type determines how the text is parsed.
    """

    help: str
    name: str = ""
    kind: Kind | None = None
    env: bool = False
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    minimum: int | None = None
    maximum: int | None = None

    def name_of(self, field: str) -> str:
        """Its name on the command line, as the option of this field."""
        return self.name or f"--{field.replace('_', '-')}"


def base_type(hint: Any) -> Any:
    """The type of a field without None; the first of several types."""
    if get_origin(hint) in {Union, UnionType}:
        return next(each for each in get_args(hint) if each is not NoneType)
    return hint


def kind_of(option: Option, hint: Any) -> Kind | None:
    """The kind of an option; None: its text stays, or the command line's parser converts it."""
    of = base_type(hint)
    if option.kind is not None:
        return option.kind
    if of is int:
        parse = partial(parse_count, minimum=option.minimum, maximum=option.maximum)
        return Kind(parse, metavar="NUMBER")
    if isinstance(of, type) and issubclass(of, StrEnum):
        return choice(of)
    return None


def option(default: Any, text: str, **how: Any) -> Any:
    """A dataclass field that is an option; `text` is its help, `how` the rest of `Option`."""
    return field(default=default, metadata={"option": Option(help=text, **how)})
