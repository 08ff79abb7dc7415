"""The specification of the faults to inject: a seed and a list of acts, from a TOML file.

An act falls on the messages that pass its filters (`topic`: a regular expression of the full
source name, `partition` of the source, `producer`, `run`, `incarnation`, `lane`), are in its
`window`, and are chosen: each with the probability `rate`; exactly `count` in each lane of each
incarnation, spread over the window; those listed in `ids`; or, without these, all of them. The
choice is a function of the seed, the act's index and the message's topic, producer, incarnation,
lane and seq alone: batching, restarts and another run's id do not change it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mirrortest.config.toml_document import parse_toml
from mirrortest.host.user_files import read_text
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.digits import SEQ_LIMIT
from mirrortest.wire.stream import NAME_PATTERN, RUN_PATTERN, ProducerId

if TYPE_CHECKING:
    from pathlib import Path

_IDS = re.compile(r"(?P<id>\S+) (?P<lane>[0-9]{1,10}) (?P<seq>[0-9]{1,12})")

ON_ALL_MESSAGES = frozenset(
    {
        Anomaly.DROP_TAIL,
        Anomaly.DROP_PRODUCER,
        Anomaly.DROP_PARTITION,
        Anomaly.MERGE_PARTITIONS,
        Anomaly.MERGE_TOPICS,
    }
)
"""Kinds that fall on all messages in their filters and window; they take no `rate` or `count`."""

REQUIRED: dict[Anomaly, tuple[str, ...]] = {
    Anomaly.DROP_PRODUCER: ("producer",),
    Anomaly.DROP_PARTITION: ("partition",),
    Anomaly.MERGE_PARTITIONS: ("partition", "to_partition"),
    Anomaly.MERGE_TOPICS: ("topic", "to_topic"),
}
"""The parameters that these kinds require."""

DEFAULTS: dict[Anomaly, dict[str, Any]] = {
    Anomaly.DROP_RUN: {"length": 10},
    Anomaly.DUPLICATE: {"copies": 1},
    Anomaly.DUPLICATE_LATER: {"distance": 100},
    Anomaly.HOLD: {"distance": 10},
    Anomaly.TRUNCATE: {"bytes": 1},
    Anomaly.EXTEND: {"bytes": 1},
    Anomaly.REKEY: {"key": None},
    Anomaly.REROUTE: {"to_partition": None},
    Anomaly.STRIP_HEADER: {"header": "id"},
    Anomaly.ADD_HEADER: {"header": "saboteur", "value": "was here"},
    Anomaly.RENAME_HEADER: {"header": "id", "to_header": None},
    Anomaly.RESTAMP: {"shift_ms": 1},
    Anomaly.DELAY: {"seconds": 5.0},
    Anomaly.REPLAY: {"length": 100},
    Anomaly.MERGE_PARTITIONS: {"to_partition": None},
    Anomaly.MERGE_TOPICS: {"to_topic": None},
    Anomaly.OTHER_RUN: {"other_run": "older", "age": 3600.0},
}
"""The parameters of each kind, with their defaults."""

_PARAMETERS = frozenset(name for taken in DEFAULTS.values() for name in taken)

Positive = Annotated[int, Field(gt=0)]
Number = Annotated[int, Field(ge=0)]
_LONGEST = 10**9
"""Seconds, 31 years: times that are shifted so far still fit into a record."""


class MessageId(NamedTuple):
    """One message, in each topic that the act's filter accepts."""

    id: ProducerId
    lane: int
    seq: int


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Window(_Model):
    """A half-open part of each lane: of its seqs, or as shares of `lane_messages`."""

    seq: tuple[Number, ...] | None = None
    """``[lo, hi]``, or ``[lo]``: from there on."""
    share: tuple[float, ...] | None = None
    """The same as shares of the lane's messages, from 0 to 1."""

    @field_validator("seq", "share", mode="before")
    @classmethod
    def _bounds(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or len(value) not in {1, 2}:
            raise ValueError("use [lo, hi], or [lo] for an open end")
        return tuple(value)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if (self.seq is None) == (self.share is None):
            raise ValueError("use either seq = [lo, hi] or share = [lo, hi]")
        bounds = self.seq or self.share or ()
        if list(bounds) != sorted(set(bounds)):
            raise ValueError("lo must be below hi")
        if self.share is not None and not all(0 <= bound <= 1 for bound in self.share):
            raise ValueError("a share is between 0 and 1")
        return self


class Act(_Model):
    """One kind of fault, and the messages it falls on; see the module's text.

    Parameters, each for the kinds that take it (`DEFAULTS` has the defaults):

    - `length`: messages of the run that is dropped; records that are sent again.
    - `copies`: further copies.
    - `distance`: records of the source partition, by offset, that pass before the message, or its
      copy, is written.
    - `bytes`: how many are cut off, or added to, the value.
    - `key`: the new key; else the decimal of another lane.
    - `to_partition`: where the message goes; else another partition, by the seed.
    - `to_topic`: the source topic in whose copy it goes.
    - `header`, `to_header`, `value`: which header, its new name, its value.
    - `shift_ms`: added to the record's timestamp.
    - `seconds`: how long the message is deferred.
    - `other_run`, `age`: the run of the message that is put in, and how old it is, seconds.
    """

    kind: Anomaly
    topic: str | None = None
    partition: Number | None = None
    producer: str | None = None
    run: str | None = None
    incarnation: Positive | None = None
    lane: Number | None = None
    window: Window | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    count: Positive | None = None
    ids: tuple[str, ...] = ()

    length: Positive | None = None
    copies: Positive | None = None
    distance: Positive | None = None
    bytes: Positive | None = None
    key: str | None = None
    to_partition: Number | None = None
    to_topic: str | None = None
    header: str | None = None
    to_header: str | None = None
    value: str | None = None
    shift_ms: Annotated[int, Field(ge=-_LONGEST * 1000, le=_LONGEST * 1000)] | None = None
    seconds: Annotated[float, Field(gt=0, le=_LONGEST)] | None = None
    other_run: str | None = None
    age: Annotated[float, Field(ge=0, le=_LONGEST)] | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _kind(cls, value: Any) -> Any:
        try:
            return Anomaly(value)
        except ValueError:
            raise ValueError(f"{value!r} is unknown; the kinds are {', '.join(Anomaly)}") from None

    @field_validator("ids", mode="before")
    @classmethod
    def _ids(cls, value: Any) -> Any:
        listed = tuple(value) if isinstance(value, list) else value
        if isinstance(listed, tuple):
            for text in listed:
                message_id(str(text))
        return listed

    @field_validator("topic")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from None
        return value

    @field_validator("run", "other_run")
    @classmethod
    def _run_id(cls, value: str | None) -> str | None:
        if value is not None and RUN_PATTERN.fullmatch(value) is None:
            raise ValueError("a run's id is 1 to 16 lower-case letters and digits")
        return value

    @field_validator("producer")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        if value is not None and NAME_PATTERN.fullmatch(value) is None:
            raise ValueError(f"{value!r} is not a producer's name")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kind = self.kind
        taken = DEFAULTS.get(kind, {})
        needed = REQUIRED.get(kind, ())
        for name in sorted(_PARAMETERS):
            if getattr(self, name) is not None and name not in taken:
                raise ValueError(f"{kind} takes no {name}")
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"{kind} needs {name}")
        chosen = [name for name in ("rate", "count", "ids") if getattr(self, name)]
        if len(chosen) > 1:
            raise ValueError(f"use only one of {' and '.join(chosen)}")
        if self.ids and self.window is not None:
            raise ValueError("ids and window exclude each other")
        if kind in ON_ALL_MESSAGES:
            self._check_all_messages(chosen)
        elif not chosen and self.window is None:
            raise ValueError(f"{kind} needs rate, count, ids or window")
        if self.to_partition is not None and self.to_partition == self.partition:
            raise ValueError("to_partition is the partition itself")
        return self

    def _check_all_messages(self, chosen: list[str]) -> None:
        kind, window = self.kind, self.window
        if kind is Anomaly.DROP_TAIL:
            if chosen not in ([], ["ids"]) or (not chosen and window is None):
                raise ValueError("drop-tail needs window = { seq = [from] } or ids")
            if window is not None and len(window.seq or window.share or ()) > 1:
                raise ValueError("a tail has no end: use window = { seq = [from] }")
        elif chosen:
            raise ValueError(f"{kind} falls on all messages: it takes no {chosen[0]}")

    def parameter(self, name: str) -> Any:
        """A parameter, or its default."""
        given = getattr(self, name)
        return DEFAULTS[self.kind][name] if given is None else given

    def message_ids(self) -> list[MessageId]:
        """The messages listed in `ids`."""
        return [message_id(text) for text in self.ids]

    def seqs(self, lane_messages: int | None) -> tuple[int, int]:
        """The half-open range of seqs in the window; SEQ_LIMIT means no end.

        Without a window, but with a count, it ends at `lane_messages`. Raises ValueError if
        `lane_messages` is needed but not set, or the count exceeds the window.
        """
        lo, hi = 0, SEQ_LIMIT
        if self.window is None:
            if self.count is not None:
                hi = lane_messages or SEQ_LIMIT
        elif self.window.seq is not None:
            lo, hi = (*self.window.seq, SEQ_LIMIT)[:2]
        elif self.window.share is not None:
            if lane_messages is None:
                raise ValueError("a share needs lane_messages at the top of the specification")
            bounds = [math.floor(share * lane_messages) for share in self.window.share]
            lo, hi = (*bounds, SEQ_LIMIT)[:2]
        if self.count is not None:
            if hi == SEQ_LIMIT:
                raise ValueError("a count needs lane_messages, or a window with an end")
            if self.count > hi - lo:
                raise ValueError(f"count is {self.count}, but the window has {hi - lo} messages")
        return lo, hi


class Spec(_Model):
    """The acts of a faulty mirror; without acts it copies without faults.

    `lane_messages` is how many messages each lane will have; shares and counts refer to it. After
    `release_after` seconds without a record in a partition, its deferred messages are written.
    """

    seed: int = 0
    lane_messages: Positive | None = None
    release_after: Annotated[float, Field(gt=0)] = 1.0
    acts: tuple[Act, ...] = ()

    @field_validator("acts", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _resolvable(self) -> Self:
        for index, act in enumerate(self.acts):
            try:
                act.seqs(self.lane_messages)
            except ValueError as error:
                raise ValueError(f"acts.{index} ({act.kind}): {error}") from None
        return self

    @classmethod
    def parse(cls, text: str, where: str = "the specification") -> Spec:
        """Read TOML; raises UsageError that names `where` and the place in it."""
        return parse_toml(text, cls, where)

    def to_json(self) -> dict[str, Any]:
        """The fields that are not defaults, as in the truth and in a specification's file."""
        return self.model_dump(mode="json", exclude_defaults=True)


def read_spec(path: Path) -> Spec:
    """Read a specification's file; raises UsageError in one line."""
    where = f"--spec {path}"
    return Spec.parse(read_text(path, where), where)


def message_id(text: str) -> MessageId:
    """Read ``NAME@RUN.INCARNATION LANE SEQ``; raises ValueError."""
    match = _IDS.fullmatch(text)
    found = ProducerId.parse(match["id"].encode()) if match is not None else None
    if match is None or found is None:
        raise ValueError(f"{text!r}: an id is NAME@RUN.INCARNATION LANE SEQ")
    return MessageId(found, int(match["lane"]), int(match["seq"]))
