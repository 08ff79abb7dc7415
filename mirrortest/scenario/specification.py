"""A scenario's file: TOML, with the clusters, the clients, the faults and what is expected.

Keys are spelled as options are, without the dashes. A client's table has the options of
`mirrortest produce` or `mirrortest consume`, which check it; the models here have all else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.threshold import Threshold
from mirrortest.config.units import parse_positive_seconds, parse_seconds
from mirrortest.errors import UsageError
from mirrortest.lab.link.condition import FAULTS as LINK_FAULTS
from mirrortest.lab.link.condition import HEAL, LINKS, NO_LINKS, parse_rate
from mirrortest.lab.part import CLEARED_BY, FAULTS
from mirrortest.model.findings import Finding
from mirrortest.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection

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


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=lambda name: name.rstrip("_").replace("_", "-"),
    )


class MirrorKind(StrEnum):
    """What copies from the lab's source to its destination."""

    MIRRORMAKER2 = "mirrormaker2"
    SABOTEUR = "saboteur"
    NONE = "none"


class LabSetup(_Model):
    """Two clusters and a mirror, started for each point and removed after it.

    With the mirror `none` consumers read the source. `partitions` is of the topics that producers
    name. `broker` and `mirror-properties` have properties of every broker and of MirrorMaker 2.
    `offset-flush-ms`, `tasks`, `exactly-once`, `mirror-properties` and `mirror-workers` (processes:
    mirror, mirror2 and so on) are for MirrorMaker 2,
    `faults` is the faulty mirror's specification: a file next to the scenario's. `image` runs all
    of it in containers. `links` puts `link-source` and `link-destination` between the mirror and
    the clusters; so does a fault of one of them.
    """

    brokers: Annotated[int, Field(ge=1, le=9)] = 1
    partitions: Count = 4
    mirror: Annotated[MirrorKind, Field(strict=False)] = MirrorKind.MIRRORMAKER2
    offset_flush_ms: Count = 1000
    tasks: Count = 1
    mirror_workers: Count = 1
    exactly_once: bool = False
    faults: str | None = None
    links: bool = False
    image: str | None = None
    heap: str = "512m"
    broker: dict[str, Scalar] = Field(default_factory=dict)
    mirror_properties: dict[str, Scalar] = Field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The names of what faults can be done to."""
        brokers = [f"{alias}{n}" for alias in "AB" for n in range(1, self.brokers + 1)]
        more = [f"mirror{number}" for number in range(2, self.mirror_workers + 1)]
        if self.mirror is MirrorKind.NONE:
            return brokers
        return [*brokers, "mirror", *more, *(LINKS if self.image is None else ())]

    @model_validator(mode="after")
    def _can_have_links(self) -> Self:
        if self.links and self.image is not None:
            raise ValueError(NO_LINKS)
        if self.links and self.mirror is MirrorKind.NONE:
            raise ValueError("links lead to the mirror: with mirror none there are none")
        return self


class Clusters(_Model):
    """Clusters that exist, with a mirror from the source to the destination that runs.

    Without a destination consumers read the source. `source-alias` is the mirror's name for the
    source; empty: it keeps topics' names.
    """

    source_bootstrap_server: str
    source_command_config: str | None = None
    destination_bootstrap_server: str | None = None
    destination_command_config: str | None = None
    source_alias: str = ""


class TopicChange(StrEnum):
    """What can be done to a topic of the source."""

    ADD_PARTITIONS = "add-partitions"
    CREATE_TOPIC = "create-topic"


COMMAND = "command"
DROP_PAGE_CACHE = "drop-page-cache"
_OF_TOPICS = {change.value: "topic" for change in TopicChange}
_ACTIONS = (*FAULTS, DROP_PAGE_CACHE, *TopicChange, COMMAND)
_OF_LINKS = {*LINK_FAULTS, HEAL}


def suits(do: str, part: str | None) -> bool:
    """Whether a fault can be done to a part: those of links to links alone, and no others."""
    return (do in _OF_LINKS) == (part in LINKS)


class _Measures(_Model):
    """How bad the faults `delay` and `rate` are."""

    delay: Period | None = None
    jitter: Duration | None = None
    rate: Rate | None = None

    def measures(self, do: str) -> dict[str, float]:
        """Those of one fault."""
        names = {"delay": ("delay", "jitter"), "rate": ("rate",)}.get(do, ())
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check_measures(self, faults: Collection[str]) -> None:
        """Raise ValueError unless each of these faults has its measure, and no other has one."""
        for name in ("delay", "rate"):
            if (getattr(self, name) is not None) != (name in faults):
                raise ValueError(
                    f'{name} needs {name}, and no other fault has it: "200ms", "1MB/s"'
                )
        if self.jitter is not None and self.delay is None:
            raise ValueError("jitter is for delay")


class Fault(_Measures):
    """What is done during a point, and when.

    `do` is a verb of `mirrortest lab fault`, done to `part`: a broker (A1, B1, ...), the mirror, or
    a client by its id; or `add-partitions` or `create-topic`, done to `topic`, with `partitions`;
    or `drop-page-cache`, done to a broker, which then reads messages from the disk; or `command`,
    which a shell runs. A part whose first action is `start` is not started before. `link-source`
    and `link-destination` take `delay` (with `delay`, in each direction, and `jitter`), `rate`
    (with `rate`: bytes/s in each direction), `cut`, `reset` and `heal`, which ends all of these.

    `at` counts from when all clients work, or is `produced`: once all producers have ended.
    `after` counts from the end of the fault before. `for` is when the part is started or
    continued again, or the link healed of this fault. `every` repeats it, until `until` or the end
    of the producers.
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
        return self

    @property
    def subject(self) -> str:
        """What it is done to."""
        return self.part or self.topic or self.command or ""


class Plan(_Measures):
    """Faults at random times: the same for the same seed.

    One of `do` is done to one of those `parts` that it suits, after pauses of `every` on average,
    for `for` on average; from `at` until `until`, both from when all clients work. `delay`,
    `jitter` and `rate` are as in a fault.
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
        return self


class Expectation(_Model):
    """How a point is meant to end; of the `findings` there must be some, and they may fail it."""

    verdict: Annotated[Verdict, Field(strict=False)] = Verdict.PASSED
    findings: list[str] = Field(default_factory=list)

    @field_validator("findings")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        labels = [finding.label for finding in Finding]
        for each in value:
            if each not in labels:
                raise ValueError(f"{each!r}: {did_you_mean(each, labels)}")
        return value


class Scenario(_Model):
    """A whole test.

    `[lab]` starts clusters for it, `[clusters]` names some that exist. `timeout` is the longest
    time that the clients of a point may take. `set-up` and `tear-down` are commands that a shell
    runs before and after each point. `[observe]` has options of `mirrortest observe`, which then
    observes this machine and the point's processes. `[vary]` has the matrix
    (``produce.acks = ["1", "all"]``), `repeats` of each of its points, and the `seed` of their
    order.
    """

    description: str = ""
    thresholds: list[str] = Field(default_factory=list)
    exactly_once: bool = False
    expect: Expectation = Expectation()
    timeout: Period | None = None
    lab: LabSetup | None = None
    clusters: Clusters | None = None
    produce: list[Table] = Field(default_factory=list)
    consume: list[Table] = Field(default_factory=list)
    fault: list[Fault] = Field(default_factory=list)
    plan: Plan | None = None
    observe: Table | None = None
    vary: dict[str, Any] = Field(default_factory=dict)
    set_up: list[str] = Field(default_factory=list)
    tear_down: list[str] = Field(default_factory=list)

    @field_validator("thresholds")
    @classmethod
    def _readable(cls, value: list[str]) -> list[str]:
        for each in value:
            try:
                Threshold.parse(each)
            except UsageError as error:
                raise ValueError(str(error).removeprefix("--threshold ")) from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.lab is None) == (self.clusters is None):
            raise ValueError("use either [lab] or [clusters]")
        if not self.produce and not self.consume:
            raise ValueError("there is no client: add [[produce]] or [[consume]]")
        for table in self.produce:
            if not {"duration", "num-records", "workload"} & set(table):
                raise ValueError("a producer has no end: add duration or num-records")
        ids = [name for name, _ in (*self.producers, *self.consumers)]
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise ValueError(f"two clients have the id {twice[0]}: give each table an id")
        parts = [*([] if self.lab is None else self.lab.parts), *ids]
        for part in self._faulted:
            if self.lab is not None and self.lab.image is not None and part in LINKS:
                raise ValueError(f"{part}: {NO_LINKS}")
            if part is not None and part not in parts:
                raise ValueError(f"a fault is done to {part!r}: {did_you_mean(part, parts)}")
        for index, fault in enumerate(self.fault):
            if index == 0 and fault.after is not None:
                raise ValueError("fault.0: after counts from the fault before: use at")
            if fault.at == AFTER_PRODUCERS and fault.part in dict(self.producers):
                raise ValueError(f"fault.{index}: produced is once all producers have ended")
            if self.clusters is not None and fault.topic is not None:
                raise ValueError(f"fault.{index}: {fault.do} needs [lab]")
        return self

    @property
    def with_links(self) -> bool:
        """Whether the lab has links: it says so, or something is done to one."""
        return (self.lab is not None and self.lab.links) or any(
            part in LINKS for part in self._faulted
        )

    @property
    def _faulted(self) -> list[str | None]:
        """What something is done to, in the order of the file."""
        return [*(each.part for each in self.fault), *(self.plan.parts if self.plan else ())]

    @property
    def producers(self) -> list[tuple[str, Table]]:
        """The producers' tables by id: their own, or p1, p2 and so on."""
        return [(str(each.get("id", f"p{n}")), each) for n, each in enumerate(self.produce, 1)]

    @property
    def consumers(self) -> list[tuple[str, Table]]:
        """The consumers' tables by id: their own, or c1, c2 and so on."""
        return [(str(each.get("id", f"c{n}")), each) for n, each in enumerate(self.consume, 1)]
