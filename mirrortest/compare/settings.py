"""The settings of repeats, and those in which two sides differ.

Options are what the user asked of a process. Properties are Kafka's: of clients, brokers, topics
and mirrors. Both are compared only if both sides recorded some of the same owner: logs of older
versions, and runs without logs or an observation, have none.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pydantic import Field

from mirrortest.compare.document import SettingChange
from mirrortest.config.document import DocumentPart
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from mirrortest.seqlog.session import Session

_PER_PROCESS = frozenset({"worker", "start"})
"""Settings that differ between the processes of one run."""
_ADDRESSES = "bootstrap servers"
_ALSO_PROPERTIES = frozenset(
    {_ADDRESSES, "acks", "idempotence", "compression", "linger", "isolation level"}
)
"""Settings that client properties repeat under Kafka's names."""
_LISTED_ELSEWHERE = frozenset(
    {
        "throughput", "seed", "num-records", "duration", "warmup-records", "message-size",
        "payload-file", "payload-compressibility", "batch-messages", "start-at", "form",
        "only-partition", "acks", "compression", "linger-ms", "command-property",
    }
)  # fmt: skip
"""Options of a workload that settings or client properties list already."""
_PER_BROKER = frozenset({"broker.id", "node.id"})
_LOCAL_ADDRESS = re.compile(r"(127\.[\d.]+|localhost|\[::1\]):\d+")
"""An address on this machine: each lab has other ports."""
_LAB = re.compile(r"[^,=]*/mirrortest-lab-[\w-]+")
"""The directory of a lab: each lab has another."""


class _Cluster(DocumentPart):
    cluster_id: str
    brokers: dict[str, dict[str, str]] = Field(default_factory=dict)
    topics: dict[str, dict[str, str]] = Field(default_factory=dict)


class RecordedConfigurations(DocumentPart):
    """The configurations in an observation's profile: clusters by address, files by path."""

    clusters: dict[str, _Cluster] = Field(default_factory=dict)
    configurations: dict[str, dict[str, str]] = Field(default_factory=dict)


Settings = dict[str, dict[str, frozenset[str]]]
"""By owner, then by key: all values that the owner's processes or brokers have."""
OPTIONS = ""
"""The owner of all options: their keys name the process."""


class _Collector:
    def __init__(self) -> None:
        self._found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def include(
        self, owner: str, properties: Mapping[str, str], without: Container[str] = ()
    ) -> None:
        for key, value in properties.items():
            if key not in without:
                self._found[owner][key].add(_LAB.sub("LAB", _LOCAL_ADDRESS.sub(r"\1", value)))

    @property
    def settings(self) -> Settings:
        return {
            owner: {key: frozenset(values) for key, values in each.items()}
            for owner, each in self._found.items()
        }


def settings_of(
    sessions: Sequence[Session],
    produced: Iterable[Mapping[str, str]],
    recorded: Iterable[RecordedConfigurations],
) -> Settings:
    """The settings of one repeat: from its sessions or, without any, its producers' summaries."""
    found = _Collector()
    options: list[tuple[Role, Mapping[str, str]]] = [(of.role, of.settings) for of in sessions]
    for role, settings in options or [(Role.PRODUCER, each) for each in produced]:
        own = {name: value for name, value in settings.items() if name not in _PER_PROCESS}
        found.include(OPTIONS, {f"{role.value}: {name}": value for name, value in own.items()})
    sides: dict[str, str] = {}
    for session in sessions:
        sides |= {cluster: side for side, cluster in session.clusters.items()}
        found.include(OPTIONS, {"mirrortest": session.mirrortest})
        found.include(session.role.value, session.client)
        workload = {key: _text(value) for key, value in session.workload.items()}
        found.include("workload", workload, _LISTED_ELSEWHERE)
    for each in recorded:
        _include_recorded(found, each, sides)
    return found.settings


def _include_recorded(
    found: _Collector, recorded: RecordedConfigurations, sides: Mapping[str, str]
) -> None:
    for address, cluster in recorded.clusters.items():
        name = sides.get(cluster.cluster_id, _LOCAL_ADDRESS.sub(r"\1", address))
        for broker in cluster.brokers.values():
            found.include(f"{name} brokers", broker, _PER_BROKER)
        for topic, properties in cluster.topics.items():
            found.include(f"{name} topic {topic}", properties)
    for path, properties in recorded.configurations.items():
        # A broker's file adds nothing to the configuration that the broker reported itself.
        if not (recorded.clusters and _PER_BROKER & set(properties)):
            found.include(PurePosixPath(path).name, properties)


def differing(base: Iterable[Settings], new: Iterable[Settings]) -> list[SettingChange]:
    """The settings whose values differ between the sides, sorted by name."""
    before, after = _joined(base), _joined(new)
    both = before.keys() & after.keys()
    twice = {f"{role.value}: {name}" for role in Role if role in both for name in _ALSO_PROPERTIES}
    asked = {_asked(key) for key in before.get(OPTIONS, ())}
    asked &= {_asked(key) for key in after.get(OPTIONS, ())}
    changes = []
    for owner in {OPTIONS, *both}:
        old, now = before.get(owner, {}), after.get(owner, {})
        changes += [
            SettingChange(
                name=f"{owner}: {key}" if owner else key,
                base=sorted(old.get(key, ())),
                new=sorted(now.get(key, ())),
            )
            for key in {*old, *now}
            if old.get(key) != now.get(key)
            and not (owner == OPTIONS and (key in twice or _asked(key) not in asked))
        ]
    return sorted(changes, key=lambda each: each.name)


def _asked(key: str) -> str:
    """Of whom an option was asked: the role before the option's name."""
    return key.partition(": ")[0]


def _joined(repeats: Iterable[Settings]) -> Settings:
    found: Settings = {}
    for repeat in repeats:
        for owner, properties in repeat.items():
            merged = found.setdefault(owner, {})
            for key, values in properties.items():
                merged[key] = merged.get(key, frozenset()) | values
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
