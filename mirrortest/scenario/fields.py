"""What the tables of a scenario's file are made of: values as users write them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from mirrortest.config.units import parse_positive_seconds, parse_seconds
from mirrortest.errors import UsageError
from mirrortest.lab.link.condition import parse_rate

AFTER_PRODUCERS = "produced"
"""The time at which the last producer has ended."""

Scalar: TypeAlias = str | int | float | bool
Table: TypeAlias = dict[str, Scalar | list[Scalar]]
"""A client's options: by name, without the dashes."""


def as_list(value: Scalar | list[Scalar]) -> list[str]:
    """A list of texts, also where they are written as one, with commas."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return [each.strip() for each in str(value).split(",") if each.strip()]


def _seconds(value: Any, *, positive: bool = False) -> float:
    if not isinstance(value, str):
        raise ValueError('write a duration in quotes, with its unit: "30s"')  # noqa: TRY004  # pydantic's
    try:
        return (parse_positive_seconds if positive else parse_seconds)(value, option="")
    except UsageError as error:
        raise ValueError(str(error).strip()) from None


def _rate(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError('write a rate in quotes, with its unit: "1MB/s"')  # noqa: TRY004  # pydantic's
    try:
        return parse_rate(value, option="")
    except UsageError as error:
        raise ValueError(str(error).strip()) from None


def _moment(value: Any) -> float | str:
    return AFTER_PRODUCERS if value == AFTER_PRODUCERS else _seconds(value)


_AS_TEXT = WithJsonSchema({"type": "string", "examples": ["30s", "5m"]})
Duration = Annotated[float, BeforeValidator(_seconds), _AS_TEXT]
Period = Annotated[float, BeforeValidator(lambda value: _seconds(value, positive=True)), _AS_TEXT]
Moment = Annotated[
    float | Literal["produced"],
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "examples": ["30s", AFTER_PRODUCERS]}),
]
Rate = Annotated[
    int, BeforeValidator(_rate), WithJsonSchema({"type": "string", "examples": ["1MB/s"]})
]
Count = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A table of the file: only keys that are known, spelled with dashes."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
    )
