"""An option of a command as data, on the field that it fills.

``deadline: float = option(60.0, "...", kind=SECONDS)``. The command line derives its parameters
from such fields, so that an option has one name, type, default and help.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.config.units import parse_duration, parse_positive_seconds, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIRED = MISSING
"""The default of an option that must be given."""


def _show(value: object) -> str:
    return "" if value is None else str(value)


def _show_seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g}s"


class Kind(NamedTuple):
    """How an option's text becomes a value, and a default the text that a user would type.

    `parse` takes the text and, by `option=`, the name of the option for its errors. A default for
    which `show` returns nothing is not shown.
    """

    parse: Callable[..., Any]
    show: Callable[[Any], str] = _show
    metavar: str = "<str>"


SECONDS = Kind(parse_seconds, _show_seconds, "DURATION")
POSITIVE_SECONDS = Kind(parse_positive_seconds, metavar="DURATION")
NANOSECONDS = Kind(parse_duration, metavar="DURATION")


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a field is given on the command line.

    `name` is ``--like-this``, by default the field's. With `env` the environment variable
    ``MIRRORTEST_LIKE_THIS`` can give it. Without a `kind`, the field's type reads the text.
    """

    help: str
    name: str = ""
    kind: Kind | None = None
    env: bool = False
    metavar: str | None = None
    minimum: int | None = None
    maximum: int | None = None


def option(default: Any, text: str, **how: Any) -> Any:
    """A dataclass's field that is an option; `text` is its help, `how` the rest of `Option`."""
    return field(default=default, metadata={"option": Option(help=text, **how)})
