"""What others wrote, read by its rules: JSON of bounded size, names, numbers, sets of numbers.

Ledger, states and shared records are in topics to which others can write, other versions of this
program among them. Their readers take every value from here, so each rule is in one place, and
`RecordError` is all that a record can raise.
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
"""Above every seq, offset and time: sums of two still fit the 64 bits of a log's columns."""
COUNTS_END = 1 << 31
"""Above every partition, partition count and incarnation of a topic: 32 bits in Kafka and logs."""
MOST_RECORD_BYTES = 4 << 20
"""Of a record's key or value that is not compressed: brokers take 1 MB by default."""
_MOST_VALUES = 1 << 24
"""In one document: about 1 GB of Python's objects. A state at its memory bound has half as many."""
_MOST_TEXT = 1000

_Value = TypeVar("_Value")
_SESSION = re.compile(r"[!-~]{1,100}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class RecordError(ValueError):
    """A record breaks a rule: it is damaged, forged, or another version's; the text says how."""


def document(raw: bytes, most: int = MOST_RECORD_BYTES) -> Any:
    """Read JSON of at most so many bytes; numbers are integers.

    Raises:
        RecordError: it is larger, nested too deeply, or no such JSON.
    """
    if len(raw) > most:
        raise RecordError(f"{len(raw):,} bytes are more than {most:,}")
    if sum(map(raw.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise RecordError(f"more than {_MOST_VALUES:,} values")
    try:
        return _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"no JSON: {error!s:.80}") from error


def unpacked(raw: bytes, most: int) -> tuple[bytes, bytes]:
    """Decompress one zlib stream of at most `most` bytes; it, and what follows it in `raw`.

    Raises:
        RecordError: it is larger, cut off, or no such stream.
    """
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(raw, most + 1)
    except zlib.error as error:
        raise RecordError(f"not compressed as it should be: {error!s:.80}") from error
    if len(content) > most:
        raise RecordError(f"more than {most:,} bytes when decompressed")
    if not reader.eof:
        raise RecordError("a compressed stream is cut off")
    return content, reader.unused_data


def listed(thing: object, length: int | None = None) -> list[Any]:
    """A list, of `length` values where that is given."""
    if type(thing) is not list:
        raise RecordError(f"{thing!r:.80} is not a list")
    if length is not None and len(thing) != length:
        raise RecordError(f"{len(thing)} values in place of {length}")
    return thing


def mapped(thing: object) -> dict[str, Any]:
    """An object, as a dict."""
    if type(thing) is not dict:
        raise RecordError(f"{thing!r:.80} is not an object")
    return thing


def entry(of: Mapping[str, _Value], key: str) -> _Value:
    """A value that an object must have, or a table of what may be."""
    try:
        return of[key]
    except KeyError:
        raise RecordError(f"{key!r:.80} is missing, or is nothing that can be") from None


def number(thing: object, least: int = 0, end: int = NUMBERS_END) -> int:
    """An integer of [least, end); True and False are none."""
    if type(thing) is not int or not least <= thing < end:
        raise RecordError(f"{thing!r:.80} is not an integer of [{least}, {end})")
    return thing


def flag(thing: object) -> bool:
    """True or False."""
    if type(thing) is not bool:
        raise RecordError(f"{thing!r:.80} is neither true nor false")
    return thing


def text(thing: object) -> str:
    """A sentence for the user, of bounded length and of characters that can be encoded."""
    if type(thing) is not str or len(thing) > _MOST_TEXT:
        raise RecordError(f"{thing!r:.80} is not a text of at most {_MOST_TEXT} characters")
    try:
        thing.encode()
    except UnicodeEncodeError as error:
        raise RecordError("a text with half of a surrogate pair") from error
    return thing


def topic_id(thing: object) -> str:
    """Kafka's id of a topic, in Kafka's spelling."""
    if type(thing) is not str or not _TOPIC_ID.fullmatch(thing):
        raise RecordError(f"{thing!r:.80} is no topic's id")
    return thing


def name(thing: object) -> str:
    """A producer's name."""
    return _checked(thing, NAME_PATTERN.fullmatch, "the name of a producer")


def run(thing: object) -> str:
    """A run's id."""
    return _checked(thing, RUN_PATTERN.fullmatch, "the id of a run")


def topic(thing: object) -> str:
    """A topic's name."""
    return _checked(thing, is_topic, "the name of a topic")


def session(thing: object) -> str:
    """A session's id."""
    return _checked(thing, _SESSION.fullmatch, "the id of a session")


def incarnation(thing: object) -> int:
    """A producer's incarnation: the ids of messages have no greater one."""
    return number(thing, 1, MAX_INCARNATION + 1)


def lane(thing: object) -> int:
    """A lane: messages carry no greater one."""
    return number(thing, 0, MAX_LANE + 1)


def stream(thing: object, *, of_topic: str, of_run: str) -> StreamId:
    """A stream, as a list, which has to be of this topic and run."""
    its_topic, its_run, *rest = listed(thing, 5)
    if (its_topic, its_run) != (of_topic, of_run):
        raise RecordError(f"a stream of topic {its_topic!r:.80} and run {its_run!r:.80}")
    producer, its_incarnation, its_lane = rest
    return StreamId(of_topic, of_run, name(producer), incarnation(its_incarnation), lane(its_lane))


def counts(thing: object, labels: Collection[str]) -> dict[str, int]:
    """How many there are, by label."""
    found = mapped(thing)
    for label, count in found.items():
        if label not in labels:
            raise RecordError(f"{label!r:.80} is nothing that is counted")
        number(count)
    return found


def intervals(thing: object, end: int = NUMBERS_END) -> IntervalSet:
    """A set of numbers of [0, end), as `IntervalSet.to_list` writes it."""
    try:
        numbers = IntervalSet.from_list(listed(thing))
    except ValueError as error:
        raise RecordError(str(error)) from error
    if numbers and (numbers.min < 0 or numbers.end > end):
        raise RecordError(f"numbers outside [0, {end})")
    return numbers


def _checked(thing: object, rule: Callable[[str], object], what: str) -> str:
    if type(thing) is not str or not rule(thing):
        raise RecordError(f"{thing!r:.80} is not {what}")
    return thing


def _refuse(literal: str) -> NoReturn:
    raise RecordError(f"{literal:.80} is not an integer")


_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
