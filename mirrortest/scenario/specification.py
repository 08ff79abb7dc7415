"""A scenario's file: TOML, with the clusters, the clients, the faults and the expectation.

Keys are spelled like options, without the leading dashes. A client's table has the options of
`mirrortest produce` or `mirrortest consume`, which check them. The models here check all else.
"""

from __future__ import annotations

import contextlib
import itertools
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mirrortest.config.run_naming import checked_topics
from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.threshold import Threshold
from mirrortest.config.units import parse_seconds
from mirrortest.errors import UsageError
from mirrortest.lab.link.condition import LINKS, NO_LINKS
from mirrortest.lab.mirrors import CommandSettings, worker_names
from mirrortest.lab.part import CONTAINER_FAULTS, REMOVE
from mirrortest.lab.runtime import DEFAULT_HEAP, broker_names
from mirrortest.model.findings import Finding
from mirrortest.model.verdict import Verdict
from mirrortest.scenario.fault import DROP_PAGE_CACHE, Fault, Plan, started_later, suits
from mirrortest.scenario.fields import (
    AFTER_PRODUCERS,
    TOPICS,
    Count,
    Heap,
    Period,
    Scalar,
    Section,
    Table,
    as_list,
    has_topics,
)


class MirrorKind(StrEnum):
    """The mirror between the lab's source and destination."""

    MIRRORMAKER2 = "mirrormaker2"
    SABOTEUR = "saboteur"
    NONE = "none"


_OF_ONE_MIRROR = {
    MirrorKind.MIRRORMAKER2: (
        *("offset_flush_ms", "tasks", "mirror_workers"),
        *("exactly_once", "mirror_properties"),
    ),
    MirrorKind.SABOTEUR: ("faults",),
    "mirror-command": ("mirror_alias",),
}
"""By mirror, the settings of a lab that only this mirror uses."""


class LabSetup(Section):
    """Two clusters and a mirror, started for each point and removed after it.

    With the mirror `none` only the source is started, and consumers read it. Producers' topics get
    `partitions` partitions. `broker` has properties for every broker, `mirror-properties` those of
    MirrorMaker 2. `offset-flush-ms`, `tasks`, `exactly-once`, `mirror-properties` and
    `mirror-workers` (processes: mirror, mirror2 and so on) are for MirrorMaker 2. `faults` is the
    faulty mirror's specification: a file next to the scenario's. `image` runs everything in
    containers. `links` puts `link-source` and `link-destination` between the mirror and the
    clusters; so does a fault of one of them.

    `mirror-command` is any other mirror: the words of a command, with `{source}` and
    `{destination}` for the addresses. `mirror-alias` and a dot are the prefix that it gives topics;
    if empty, it keeps their names.
    """

    brokers: Annotated[int, Field(ge=1, le=9)] = 1
    partitions: Count = 4
    mirror: Annotated[MirrorKind, Field(strict=False)] = MirrorKind.MIRRORMAKER2
    mirror_command: list[str] | None = None
    mirror_alias: str = ""
    offset_flush_ms: Count = 1000
    tasks: Count = 1
    mirror_workers: Count = 1
    exactly_once: bool = False
    faults: str | None = None
    links: bool = False
    image: str | None = None
    heap: Heap = DEFAULT_HEAP
    broker: dict[str, Scalar] = Field(default_factory=dict)
    mirror_properties: dict[str, Scalar] = Field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        """The names of the parts that faults can be applied to."""
        links = LINKS if self.image is None and self.mirrors else ()
        return [*self.broker_names, *self.mirrors, *links]

    @property
    def broker_names(self) -> list[str]:
        """The names of its brokers; the first letter is the cluster's alias."""
        aliases = "A" if self.mirror is MirrorKind.NONE else "AB"
        return [name for alias in aliases for name in broker_names(alias, self.brokers)]

    @property
    def mirrors(self) -> list[str]:
        """The names of the mirror's processes."""
        return [] if self.mirror is MirrorKind.NONE else worker_names(self.mirror_workers)

    @property
    def containers(self) -> list[str]:
        """The names of the parts that are containers."""
        if self.image is None:
            return []
        is_java = self.mirror is MirrorKind.MIRRORMAKER2 and self.mirror_command is None
        return [*self.broker_names, *(self.mirrors if is_java else ())]

    @property
    def command(self) -> CommandSettings | None:
        """The mirror's own command, if it has one."""
        if self.mirror_command is None:
            return None
        return CommandSettings(self.mirror_command, self.mirror_alias)

    @model_validator(mode="after")
    def _one_mirror(self) -> Self:
        given, command = self.model_fields_set, self.mirror_command
        if command is not None and "mirror" in given:
            raise ValueError("use either mirror or mirror-command")
        mirror = self.mirror if command is None else "mirror-command"
        for owner, keys in _OF_ONE_MIRROR.items():
            if owner != mirror and (foreign := [key for key in keys if key in given]):
                whose = f'mirror = "{owner}"' if owner in set(MirrorKind) else owner
                raise ValueError(f"{foreign[0].replace('_', '-')} is for {whose}")
        if command is None:
            return self
        try:
            CommandSettings(command)
        except UsageError as error:
            raise ValueError(f"mirror-command: {error}") from None
        return self

    @model_validator(mode="after")
    def _can_have_links(self) -> Self:
        if self.links and self.image is not None:
            raise ValueError(NO_LINKS)
        if self.links and self.mirror is MirrorKind.NONE:
            raise ValueError(
                "links need a mirror: leave out links, or give another mirror than none"
            )
        return self


class Clusters(Section):
    """Existing clusters, with a running mirror from the source to the destination.

    Without a destination, consumers read the source. `source-alias` is the mirror's name for the
    source; if empty, the mirror keeps topics' names.
    """

    source_bootstrap_server: str
    source_command_config: str | None = None
    destination_bootstrap_server: str | None = None
    destination_command_config: str | None = None
    source_alias: str = ""


class KubernetesSetup(Section):
    """Clients as pods, created by kubectl; `[clusters]` must have addresses that pods can reach.

    By default, `context` and `namespace` are kubeconfig's current ones, and `image` is the
    published one of this version. Files that options name are put into the pods; list in `files`
    what those files name in turn, for example a CA. `pod` is merged into the spec of each pod:
    tables by key, lists by their entries' `name`; the client's container is called `client`.
    """

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    files: list[str] = Field(default_factory=list)
    pod: dict[str, Any] = Field(default_factory=dict)


class Expectation(Section):
    """How a point should end; each of `findings` must occur, and is allowed to fail the point."""

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


class Scenario(Section):
    """A whole test.

    `[lab]` starts clusters for it, `[clusters]` names existing ones; with these, `[kubernetes]`
    runs the clients as pods. `timeout` is the longest time of a point, once its clusters work. A
    shell runs the commands `set-up` before each point, and `tear-down` after it. `[observe]` has
    options of `mirrortest observe`, which then observes this machine and the point's processes.
    `[vary]` has the matrix (``produce.acks = ["1", "all"]``), the number of `repeats` of each
    point, and the `seed` of their order.
    """

    description: str = ""
    thresholds: list[str] = Field(default_factory=list)
    exactly_once: bool = False
    expect: Expectation = Expectation()
    timeout: Period | None = None
    lab: LabSetup | None = None
    clusters: Clusters | None = None
    kubernetes: KubernetesSetup | None = None
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
        if self.kubernetes is not None and self.clusters is None:
            raise ValueError("[kubernetes] needs [clusters], with addresses that pods can reach")
        if self.kubernetes is not None and self.timeout is None:
            raise ValueError("[kubernetes] needs timeout: Kubernetes itself ends the pods after it")
        if not self.produce and not self.consume:
            raise ValueError("there is no client: add [[produce]] or [[consume]]")
        for table in self.produce:
            if not {"duration", "num-records", "workload"} & set(table):
                raise ValueError("a producer has no end: add duration or num-records")
        if self.expect.findings and not self.is_reconciled:
            raise ValueError(
                "expect.findings needs [[produce]] and [[consume]]: without both, nothing is "
                "reconciled; leave findings out"
            )
        self._refuse_short_timeout()
        self._refuse_missing_topics()
        ids = [name for name, _ in (*self.producers, *self.consumers)]
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise ValueError(f"two clients have the id {twice[0]}: give each table an id")
        of_lab = [] if self.lab is None else self.lab.parts
        if taken := [name for name in ids if name in of_lab]:
            raise ValueError(f"{taken[0]} is a part of the lab: give the client another id")
        parts = [*of_lab, *ids]
        for part in self._faulted:
            if self.lab is not None and self.lab.image is not None and part in LINKS:
                raise ValueError(f"{part}: {NO_LINKS}")
            if part is not None and part not in parts:
                raise ValueError(f"a fault is done to {part!r}: {did_you_mean(part, parts)}")
        self._refuse_wrong_times()
        self._refuse_impossible_faults()
        return self

    def _refuse_wrong_times(self) -> None:
        """Refuse faults that never begin, or that one before ends."""
        last = False  # whether the fault before ends after all producers
        for index, fault in enumerate(self.fault):
            if index == 0 and fault.after is not None:
                raise ValueError("fault.0: after counts from the fault before: use at")
            last = fault.at == AFTER_PRODUCERS or (fault.after is not None and last)
            if last and fault.part in dict(self.producers):
                raise ValueError(
                    f"fault.{index}: it begins once all producers have ended: {fault.part} is one"
                )
            if fault.every is not None and fault.until is None:
                if last:
                    raise ValueError(
                        f"fault.{index}: every ends with the producers, and the fault begins after "
                        "their end: add until"
                    )
                last = True
        on_links = [(n, each) for n, each in enumerate(self.fault) if each.part in LINKS]
        for (first, one), (second, other) in itertools.combinations(on_links, 2):
            if (one.do, one.part) == (other.do, other.part) and one.overlaps(other):
                raise ValueError(
                    f"fault.{second}: {other.do} of {other.part} overlaps that of fault.{first}, "
                    "and the end of one would end both: let one begin after the other"
                )

    def _refuse_impossible_faults(self) -> None:
        """Refuse faults that their part cannot have."""
        brokers = [] if self.lab is None else self.lab.broker_names
        containers = [] if self.lab is None else self.lab.containers
        for where, do, part in self._actions:
            if do in CONTAINER_FAULTS and part not in containers:
                raise ValueError(
                    f"{where}: {do} is for containers, and {part} is none: those are the brokers "
                    "and MirrorMaker 2 of a [lab] with image"
                )
            if do in {REMOVE, DROP_PAGE_CACHE} and (part not in brokers or part in containers):
                raise ValueError(
                    f"{where}: {do} is for brokers of a [lab] without image, not for {part}"
                )
        removed: set[str | None] = set()
        for index, fault in enumerate(self.fault):
            if self.lab is None and fault.topic is not None:
                raise ValueError(f"fault.{index}: {fault.do} needs [lab]")
            if self.lab is None or fault.do != REMOVE:
                continue
            removed.add(fault.part)
            left = sum(each[:1] == fault.subject[:1] for each in {*brokers} - removed)
            if left <= self.lab.brokers // 2:
                raise ValueError(
                    f"fault.{index}: without {fault.part} {left} of {self.lab.brokers} brokers "
                    "would be left, and the controllers need a majority: add brokers to [lab]"
                )
        if early := self.started_later & {*brokers}:
            raise ValueError(
                f"start of {min(early)}: brokers run from the beginning; kill or terminate it first"
            )

    def _refuse_short_timeout(self) -> None:
        """Refuse a timeout that is shorter than a producer's duration."""
        for name, table in self.producers:
            text = table.get("duration")
            with contextlib.suppress(UsageError):  # the producer's own options refuse it
                seconds = parse_seconds(text, option="") if isinstance(text, str) else 0.0
                if self.timeout is not None and seconds > self.timeout:
                    raise ValueError(
                        f"timeout is shorter than the duration of {name}, {text}: give the point "
                        "some minutes more than that"
                    )

    def _refuse_missing_topics(self) -> None:
        """Refuse a consumer without topics, unless the tables of all producers name topics."""
        without = [name for name, each in self.producers if not set(TOPICS) & set(each)]
        for name, table in self.consumers:
            if has_topics(table):
                continue
            if without:
                raise ValueError(f"{name} needs topics: the table of {without[0]} has none")
            if not self.produce:
                raise ValueError(f"{name} needs topics: there is no producer")

    @property
    def is_reconciled(self) -> bool:
        """Whether there are the logs of both sides, and so they are reconciled."""
        return bool(self.produce and self.consume)

    @property
    def topics(self) -> list[str]:
        """The names of the topics that producers write."""
        given = [each[key] for each in self.produce for key in TOPICS if key in each]
        names = [name for value in given for name in as_list(value)]
        return list(dict.fromkeys(checked_topics(",".join(names), option="topics")))

    @property
    def with_links(self) -> bool:
        """Whether the lab has links: it is set to, or a fault is applied to one."""
        return (self.lab is not None and self.lab.links) or any(
            part in LINKS for part in self._faulted
        )

    @property
    def planned(self) -> list[Fault]:
        """The faults of the plan, in the order of time."""
        return self.plan.faults() if self.plan else []

    @property
    def started_later(self) -> set[str]:
        """The parts that do not run before a fault starts them."""
        return started_later([*self.fault, *self.planned])

    @property
    def _actions(self) -> list[tuple[str, str, str]]:
        """What faults can do to parts: the place in the file, the action, the part."""
        found = [
            (f"fault.{index}", each.do, each.part)
            for index, each in enumerate(self.fault)
            if each.part is not None
        ]
        if plan := self.plan:
            those = itertools.product(plan.do, plan.parts)
            found += [("plan", do, part) for do, part in those if suits(do, part)]
        return found

    @property
    def _faulted(self) -> list[str | None]:
        """The parts that faults are applied to, in the order of the file."""
        return [*(each.part for each in self.fault), *(self.plan.parts if self.plan else ())]

    @property
    def producers(self) -> list[tuple[str, Table]]:
        """The producers' tables by id: their own, or p1, p2 and so on."""
        return [(str(each.get("id", f"p{n}")), each) for n, each in enumerate(self.produce, 1)]

    @property
    def consumers(self) -> list[tuple[str, Table]]:
        """The consumers' tables by id: their own, or c1, c2 and so on."""
        return [(str(each.get("id", f"c{n}")), each) for n, each in enumerate(self.consume, 1)]
