"""Field types for the tables of a scenario's file: values as users write them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from mirrortest.config.units import checked_heap, parse_positive_seconds, parse_seconds
from mirrortest.errors import UsageError
from mirrortest.lab.link.condition import parse_rate
from mirrortest.lab.runtime import DEFAULT_HEAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AFTER_PRODUCERS = "produced"
"""The time at which the last producer has ended."""
TOPICS = ("topics", "topic")
"""The names of a client's option for its topics."""
_SHAPE = re.compile(r"\w+\((?P<path>.+)\)")
"""A value that names a file, as in `replay(FILE)`."""

Scalar: TypeAlias = str | int | float | bool
Table: TypeAlias = dict[str, Scalar | list[Scalar]]
"""A client's options: by name, without the dashes."""


def as_list(value: Scalar | list[Scalar]) -> list[str]:
    """A list of texts, from a list or from one text with commas."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return [each.strip() for each in str(value).split(",") if each.strip()]


def has_topics(consumer: Table) -> bool:
    """Whether a consumer's table itself has its topics."""
    return bool({*TOPICS, "topic-pattern"} & set(consumer))


def named_files(value: object, home: Path) -> Iterator[str]:
    """The names in a value, or in its values, of files that exist; they are relative to `home`."""
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from named_files(each, home)
    elif isinstance(value, str):
        for text in as_list(value):
            shape = _SHAPE.fullmatch(text)
            name = shape["path"] if shape else text
            with contextlib.suppress(OSError):  # a text that is too long for a name
                if (home / name).is_file():
                    yield name


def _read(parse: Callable[..., Any], what: str, example: str) -> BeforeValidator:
    """A validator that parses a text with a unit; for other types, its error shows an example."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f'write a {what} in quotes, with its unit: "{example}"')  # noqa: TRY004  # pydantic's
        try:
            return parse(value, option="")
        except UsageError as error:
            raise ValueError(str(error).strip()) from None

    return BeforeValidator(read)


def _moment(text: str, *, option: str) -> float | str:
    return text if text == AFTER_PRODUCERS else parse_seconds(text, option=option)


_AS_TEXT = WithJsonSchema({"type": "string", "examples": ["30s", "5m"]})
Duration = Annotated[float, _read(parse_seconds, "duration", "30s"), _AS_TEXT]
Period = Annotated[float, _read(parse_positive_seconds, "duration", "30s"), _AS_TEXT]
Moment = Annotated[
    float | Literal["produced"],
    _read(_moment, "duration", "30s"),
    WithJsonSchema({"type": "string", "examples": ["30s", AFTER_PRODUCERS]}),
]
Rate = Annotated[
    int,
    _read(parse_rate, "rate", "1MB/s"),
    WithJsonSchema({"type": "string", "examples": ["1MB/s"]}),
]
Heap = Annotated[str, _read(checked_heap, "heap", DEFAULT_HEAP)]
Count = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A table of the file: only defined keys, spelled with dashes."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
    )
