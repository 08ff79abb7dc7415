"""What repeats were set up with, and in which of it two sides differ.

Options are the processes' own words for what was asked for. Properties are Kafka's, of clients,
brokers, topics and mirrors; they are compared only where both sides recorded them, since logs of
older versions, and runs that nobody observed, have none.
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

_OF_ONE_PROCESS = frozenset({"worker", "start"})
"""Settings in which processes of one run differ."""
_ADDRESSES = "bootstrap servers"
_ALSO_PROPERTIES = frozenset(
    {_ADDRESSES, "acks", "idempotence", "compression", "linger", "isolation level"}
)
"""Settings that client properties have under Kafka's names."""
_SHOWN_BY_OTHERS = frozenset(
    {
        "throughput", "seed", "num-records", "duration", "warmup-records", "message-size",
        "payload-file", "payload-compressibility", "batch-messages", "start-at", "form",
        "only-partition", "acks", "compression", "linger-ms", "command-property",
    }
)  # fmt: skip
"""Options of a workload that are among the settings or the client's properties."""
_OF_ONE_BROKER = frozenset({"broker.id", "node.id"})
_HERE = re.compile(r"(127\.[\d.]+|localhost|\[::1\]):\d+")
"""A port of this machine: a lab's are others each time."""
_LAB = re.compile(r"[^,=]*/mirrortest-lab-[\w-]+")
"""The directory of a lab, which is another each time, too."""


class _Cluster(DocumentPart):
    cluster_id: str
    brokers: dict[str, dict[str, str]] = Field(default_factory=dict)
    topics: dict[str, dict[str, str]] = Field(default_factory=dict)


class RecordedConfigurations(DocumentPart):
    """What an observation's profile has of clusters, by address, and of files, by path."""

    clusters: dict[str, _Cluster] = Field(default_factory=dict)
    configurations: dict[str, dict[str, str]] = Field(default_factory=dict)


Settings = dict[str, dict[str, frozenset[str]]]
"""By what they are of, and by key: of several processes or brokers, all values that one has."""
ASKED = ""
"""What options are of: each names its process by itself."""


class _Gathered:
    def __init__(self) -> None:
        self._found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def take(self, of: str, properties: Mapping[str, str], but: Container[str] = ()) -> None:
        for key, value in properties.items():
            if key not in but:
                self._found[of][key].add(_LAB.sub("LAB", _HERE.sub(r"\1", value)))

    @property
    def settings(self) -> Settings:
        return {
            of: {key: frozenset(values) for key, values in each.items()}
            for of, each in self._found.items()
        }


def settings_of(
    sessions: Sequence[Session],
    produced: Iterable[Mapping[str, str]],
    recorded: Iterable[RecordedConfigurations],
) -> Settings:
    """Of one repeat: by its sessions, or without any by its producers' summaries."""
    found = _Gathered()
    asked: list[tuple[Role, Mapping[str, str]]] = [(of.role, of.settings) for of in sessions]
    for role, settings in asked or [(Role.PRODUCER, each) for each in produced]:
        named = {f"{role.value}: {name}": value for name, value in settings.items()}
        found.take(ASKED, named, {f"{role.value}: {name}" for name in _OF_ONE_PROCESS})
    sides: dict[str, str] = {}
    for session in sessions:
        sides |= {cluster: side for side, cluster in session.clusters.items()}
        found.take(ASKED, {"mirrortest": session.mirrortest})
        found.take(session.role.value, session.client)
        workload = {key: _text(value) for key, value in session.workload.items()}
        found.take("workload", workload, _SHOWN_BY_OTHERS)
    for each in recorded:
        _take_recorded(found, each, sides)
    return found.settings


def _take_recorded(
    found: _Gathered, recorded: RecordedConfigurations, sides: Mapping[str, str]
) -> None:
    for address, cluster in recorded.clusters.items():
        name = sides.get(cluster.cluster_id, _HERE.sub(r"\1", address))
        for broker in cluster.brokers.values():
            found.take(f"{name} brokers", broker, _OF_ONE_BROKER)
        for topic, properties in cluster.topics.items():
            found.take(f"{name} topic {topic}", properties)
    for path, properties in recorded.configurations.items():
        # What a broker's file sets, the broker itself has said.
        if not (recorded.clusters and _OF_ONE_BROKER & set(properties)):
            found.take(PurePosixPath(path).name, properties)


def differing(base: Iterable[Settings], new: Iterable[Settings]) -> list[SettingChange]:
    """What differs, between the sides or within one of them, by name."""
    before, after = _joined(base), _joined(new)
    both = before.keys() & after.keys()
    twice = {f"{role.value}: {name}" for role in Role if role in both for name in _ALSO_PROPERTIES}
    changes = []
    for of in {ASKED, *both}:
        old, now = before.get(of, {}), after.get(of, {})
        changes += [
            SettingChange(
                name=f"{of}: {key}" if of else key,
                base=sorted(old.get(key, ())),
                new=sorted(now.get(key, ())),
            )
            for key in {*old, *now}
            if old.get(key) != now.get(key) and not (of == ASKED and key in twice)
        ]
    return sorted(changes, key=lambda each: each.name)


def _joined(repeats: Iterable[Settings]) -> Settings:
    found: Settings = {}
    for repeat in repeats:
        for of, properties in repeat.items():
            known = found.setdefault(of, {})
            for key, values in properties.items():
                known[key] = known.get(key, frozenset()) | values
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
