"""Validates data that others wrote: JSON of bounded size, names, numbers, sets of numbers.

The ledger, states and shared records are in topics to which others can write, including other
versions of this program. Their readers validate every value with these functions. So each rule is
in one place, and a record can raise `RecordError` only.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mirrortest.model.intervals import IntervalSet
from mirrortest.wire.lanes import MAX_LANE
from mirrortest.wire.stream import (
    MAX_INCARNATION,
    NAME_PATTERN,
    RUN_PATTERN,
    StreamId,
    is_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

NUMBERS_END = 1 << 62
"""Above every seq, offset and time; sums of two still fit the 64 bits of a log's columns."""
COUNTS_END = 1 << 31
"""Above every partition, partition count and incarnation of a topic: 32 bits in Kafka and logs."""
MOST_RECORD_BYTES = 4 << 20
"""The most bytes of a record's uncompressed key or value; brokers accept 1 MB by default."""
_MOST_VALUES = 1 << 24
"""In one document: about 1 GB of Python objects. A state at its memory bound has half as many."""
_MOST_TEXT = 1000

_Value = TypeVar("_Value")
_SESSION = re.compile(r"[!-~]{1,100}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class RecordError(ValueError):
    """A record breaks a rule: it is damaged, forged, or of another version. The text says how."""


def document(raw: bytes, most: int = MOST_RECORD_BYTES) -> Any:
    """Parse JSON of at most `most` bytes whose numbers are all integers.

    Raises:
        RecordError: it is larger, has too many values, is nested too deeply, or is not such JSON.
    """
    if len(raw) > most:
        raise RecordError(f"{len(raw):,} bytes are more than {most:,}")
    if sum(map(raw.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise RecordError(f"more than {_MOST_VALUES:,} values")
    try:
        return _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error!s:.80}") from error


def unpacked(raw: bytes, most: int) -> tuple[bytes, bytes]:
    """Decompress a zlib stream of at most `most` bytes; return its content, and the rest of `raw`.

    Raises:
        RecordError: it is larger, cut off, or not a zlib stream.
    """
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(raw, most + 1)
    except zlib.error as error:
        raise RecordError(f"not a valid zlib stream: {error!s:.80}") from error
    if len(content) > most:
        raise RecordError(f"more than {most:,} bytes when decompressed")
    if not reader.eof:
        raise RecordError("a compressed stream is cut off")
    return content, reader.unused_data


def listed(value: object, length: int | None = None) -> list[Any]:
    """A list, of `length` values if that is given."""
    if type(value) is not list:
        raise RecordError(f"{value!r:.80} is not a list")
    if length is not None and len(value) != length:
        raise RecordError(f"{len(value)} values in place of {length}")
    return value


def mapped(value: object) -> dict[str, Any]:
    """An object, as a dict."""
    if type(value) is not dict:
        raise RecordError(f"{value!r:.80} is not an object")
    return value


def entry(mapping: Mapping[str, _Value], key: str) -> _Value:
    """A value that an object must have, or that a table of allowed keys has."""
    try:
        return mapping[key]
    except KeyError:
        raise RecordError(f"{key!r:.80} is missing or not allowed") from None


def number(value: object, least: int = 0, end: int = NUMBERS_END) -> int:
    """An integer in [least, end); not True or False."""
    if type(value) is not int or not least <= value < end:
        raise RecordError(f"{value!r:.80} is not an integer of [{least}, {end})")
    return value


def flag(value: object) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise RecordError(f"{value!r:.80} is neither true nor false")
    return value


def text(value: object) -> str:
    """A text for the user, of bounded length, that can be encoded as UTF-8."""
    if type(value) is not str or len(value) > _MOST_TEXT:
        raise RecordError(f"{value!r:.80} is not a text of at most {_MOST_TEXT} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RecordError("a text with half of a surrogate pair") from error
    return value


def topic_id(value: object) -> str:
    """A Kafka topic id, in Kafka's base64 form."""
    if type(value) is not str or not _TOPIC_ID.fullmatch(value):
        raise RecordError(f"{value!r:.80} is no topic's id")
    return value


def name(value: object) -> str:
    """A producer's name."""
    return _checked(value, NAME_PATTERN.fullmatch, "the name of a producer")


def run(value: object) -> str:
    """A run's id."""
    return _checked(value, RUN_PATTERN.fullmatch, "the id of a run")


def topic(value: object) -> str:
    """A topic's name."""
    return _checked(value, is_topic, "the name of a topic")


def session(value: object) -> str:
    """A session's id."""
    return _checked(value, _SESSION.fullmatch, "the id of a session")


def incarnation(value: object) -> int:
    """A producer's incarnation, no greater than a message id can contain."""
    return number(value, 1, MAX_INCARNATION + 1)


def lane(value: object) -> int:
    """A lane, no greater than a message can contain."""
    return number(value, 0, MAX_LANE + 1)


def stream(value: object, *, of_topic: str, of_run: str) -> StreamId:
    """A stream, given as a list, that must be of this topic and run."""
    its_topic, its_run, *rest = listed(value, 5)
    if (its_topic, its_run) != (of_topic, of_run):
        raise RecordError(f"a stream of topic {its_topic!r:.80} and run {its_run!r:.80}")
    producer, its_incarnation, its_lane = rest
    return StreamId(of_topic, of_run, name(producer), incarnation(its_incarnation), lane(its_lane))


def counts(value: object, labels: Collection[str]) -> dict[str, int]:
    """Counts by label."""
    found = mapped(value)
    for label, count in found.items():
        if label not in labels:
            raise RecordError(f"{label!r:.80} is not a known count")
        number(count)
    return found


def intervals(value: object, end: int = NUMBERS_END) -> IntervalSet:
    """A set of numbers in [0, end), as `IntervalSet.to_list` writes it."""
    try:
        numbers = IntervalSet.from_list(listed(value))
    except ValueError as error:
        raise RecordError(str(error)) from error
    if numbers and (numbers.min < 0 or numbers.end > end):
        raise RecordError(f"numbers outside [0, {end})")
    return numbers


def _checked(value: object, rule: Callable[[str], object], what: str) -> str:
    if type(value) is not str or not rule(value):
        raise RecordError(f"{value!r:.80} is not {what}")
    return value


def _refuse(literal: str) -> NoReturn:
    raise RecordError(f"{literal:.80} is not an integer")


_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
