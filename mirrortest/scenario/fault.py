"""The faults of a scenario, at given times or at random times."""

from __future__ import annotations

import math
import random
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from mirrortest.config.suggestion import did_you_mean
from mirrortest.lab.link.condition import FAULTS as LINK_FAULTS
from mirrortest.lab.link.condition import HEAL, LINKS
from mirrortest.lab.part import CLEARED_BY, FAULTS
from mirrortest.scenario.fields import Count, Duration, Moment, Period, Rate, Section

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class TopicChange(StrEnum):
    """Changes of a topic of the source."""

    ADD_PARTITIONS = "add-partitions"
    CREATE_TOPIC = "create-topic"


COMMAND = "command"
DROP_PAGE_CACHE = "drop-page-cache"
_OF_TOPICS = {change.value: "topic" for change in TopicChange}
_ACTIONS = (*FAULTS, DROP_PAGE_CACHE, *TopicChange, COMMAND)
_OF_LINKS = {*LINK_FAULTS, HEAL}
_SPREAD = 0.5
"""A fault of a plan lasts its mean, plus or minus up to this share of it."""
_UNTIL = "until must be later than at"


def suits(do: str, part: str | None) -> bool:
    """Whether a fault suits a part: faults of links suit only links, and links take no others."""
    return (do in _OF_LINKS) == (part in LINKS)


class _Measures(Section):
    """The measures of the faults `delay` and `rate`."""

    delay: Period | None = None
    jitter: Duration | None = None
    rate: Rate | None = None

    def measures(self, do: str) -> dict[str, float]:
        """The measures of one fault."""
        names = {"delay": ("delay", "jitter"), "rate": ("rate",)}.get(do, ())
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check_measures(self, faults: Collection[str]) -> None:
        """Raise ValueError unless `delay` and `rate` are set exactly if these faults need them."""
        for name in ("delay", "rate"):
            if (getattr(self, name) is not None) != (name in faults):
                raise ValueError(
                    f'{name} needs {name}, and no other fault has it: "200ms", "1MB/s"'
                )
        if self.jitter is not None and self.delay is None:
            raise ValueError("jitter is for delay")


class Fault(_Measures):
    """An action during a point, and its time.

    `do` is a verb of `mirrortest lab fault`, applied to `part`: a broker (A1, B1, ...), the mirror,
    or a client by its id. `add-partitions` and `create-topic` apply to `topic`, with `partitions`.
    `drop-page-cache` applies to a broker, which then reads messages from the disk. A shell runs
    `command`. A client or mirror whose first action is `start` is not started before; brokers run
    from the beginning. `link-source` and `link-destination` take `delay` (with `delay`, in each
    direction, and `jitter`), `rate` (with `rate`: bytes/s in each direction), `cut`, `reset` and
    `heal`, which ends all of these. Two faults of one kind on one link must not overlap: the end of
    one is the end of both.

    `at` counts from the time at which all clients run, or is `produced`: the time at which all
    producers have ended. `after` counts from the end of the previous fault. After `for`, the part
    is started or continued again, or the link is healed of this fault. `every` repeats the action,
    until `until` or the end of the producers; a turn that is due while the one before it is not
    over is left out.
    """

    do: str
    part: str | None = None
    topic: str | None = None
    partitions: Count | None = None
    command: str | None = None
    at: Moment | None = None
    after: Duration | None = None
    for_: Period | None = None
    every: Period | None = None
    until: Period | None = None

    @field_validator("do")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in _ACTIONS:
            raise ValueError(f"{value!r}: {did_you_mean(value, _ACTIONS)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needed = {COMMAND: "command", **_OF_TOPICS}.get(self.do, "part")
        for name in ("part", "topic", "command"):
            if (getattr(self, name) is not None) != (name == needed):
                raise ValueError(f"{self.do} needs {needed}, and no other of part, topic, command")
        if (self.partitions is not None) != (self.do in set(TopicChange)):
            raise ValueError("partitions is for add-partitions and create-topic, which need it")
        if self.part is not None and not suits(self.do, self.part):
            names = ", ".join((*LINK_FAULTS, HEAL))
            raise ValueError(f"{self.do} is not for {self.part}: links take {names}, and no others")
        self.check_measures({self.do})
        if (self.at is None) == (self.after is None):
            raise ValueError("use either at or after")
        if self.for_ is not None and self.do not in CLEARED_BY:
            raise ValueError(f"for is for {', '.join(CLEARED_BY)}: what can be undone")
        if self.every is not None and (self.for_ or 0) >= self.every:
            raise ValueError("for must be shorter than every")
        if self.until is not None and self.every is None:
            raise ValueError("until is the end of every: add every, or use for")
        if self.until is not None and isinstance(self.at, float) and self.until <= self.at:
            raise ValueError(_UNTIL)
        return self

    def overlaps(self, other: Fault) -> bool:
        """Whether the first turn of one lasts during a turn of the other.

        False without `for`, or if a time is not known before the point.
        """
        return self._lasts_during(other) or other._lasts_during(self)

    def _lasts_during(self, other: Fault) -> bool:
        """Whether some turn of this fault lasts during the first turn of the other."""
        if not (isinstance(self.at, float) and isinstance(other.at, float)):
            return False
        if self.for_ is None or other.for_ is None:
            return False
        turn = self.at
        if self.every is not None:  # the first turn that ends after the other has begun
            turns = math.floor((other.at - self.at - self.for_) / self.every) + 1
            turn += max(0, turns) * self.every
        ends = min(other.at + other.for_, math.inf if self.until is None else self.until)
        return other.at < turn + self.for_ and turn < ends

    @property
    def subject(self) -> str:
        """What the action applies to: a part, a topic or a command."""
        return self.part or self.topic or self.command or ""


class Plan(_Measures):
    """Faults at random times: the same seed gives the same faults.

    Each fault is one of `do`, applied to one of the `parts` that it suits. It lasts `for` on
    average, and a pause of `every` on average comes before it. Faults begin between `at` and
    `until`, which count from the time at which all clients run; each waits until the part of the
    fault before is ready again. `delay`, `jitter` and `rate` are as in a fault.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    do: Annotated[list[str], Field(min_length=1)]
    parts: Annotated[list[str], Field(min_length=1)]
    every: Period
    for_: Period
    at: Duration = 0.0
    until: Period

    @field_validator("do")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        for each in value:
            if each not in CLEARED_BY:
                raise ValueError(f"{each!r}: {did_you_mean(each, CLEARED_BY)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for do in self.do:
            if not any(suits(do, part) for part in self.parts):
                raise ValueError(f"{do} suits none of the parts {', '.join(self.parts)}")
        self.check_measures(self.do)
        if self.until <= self.at:
            raise ValueError(_UNTIL)
        if not self.faults():
            raise ValueError(
                f"seed {self.seed} draws no fault before until: use another seed, a later until or "
                "a shorter every"
            )
        return self

    def faults(self) -> list[Fault]:
        """The plan's faults in the order of time; their drawn times do not overlap."""
        draw = random.Random(self.seed)
        found: list[Fault] = []
        moment = self.at + draw.expovariate(1 / self.every)
        while moment < self.until:
            lasts = self.for_ * draw.uniform(1 - _SPREAD, 1 + _SPREAD)
            do = draw.choice(self.do)
            part = draw.choice([each for each in self.parts if suits(do, each)])
            times = {"at": round(moment, 3), "for_": round(lasts, 3), "until": self.until}
            values: dict[str, Any] = {"do": do, "part": part, **times, **self.measures(do)}
            found.append(Fault.model_construct(**values))
            moment += lasts + draw.expovariate(1 / self.every)
        return found


def started_later(faults: Sequence[Fault]) -> set[str]:
    """The parts whose first action is `start`: they do not run before it.

    The first is that with the earliest time; `produced` is later than each given time.
    """
    first: dict[str, str] = {}
    for fault in _by_time(faults):
        if fault.part is not None:  # a topic may have a part's name
            first.setdefault(fault.part, fault.do)
    return {part for part, do in first.items() if do == "start"}


def _by_time(faults: Sequence[Fault]) -> list[Fault]:
    moment, timed = 0.0, list[tuple[float, Fault]]()
    for fault in faults:
        if fault.after is not None:
            moment += fault.after
        else:
            moment = fault.at if isinstance(fault.at, float) else math.inf
        timed.append((moment, fault))
        moment += fault.for_ or 0.0
    return [fault for _, fault in sorted(timed, key=itemgetter(0))]
