"""A mirror as a part of the lab: what all have in common, and MirrorMaker 2."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mirrortest.errors import LabError
from mirrortest.lab.ports import ADDRESS, free_ports
from mirrortest.lab.process import Part
from mirrortest.lab.properties import write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.cluster import Cluster
    from mirrortest.lab.jvm import Jvm

READY_TIMEOUT = 120.0
NAME = "mirror"
"""What a lab's mirror is called, whichever it is."""

S = TypeVar("S")


class AnyMirror(Part, ABC, Generic[S]):
    """A mirror from one cluster to another, in a process of its own.

    `S` is the dataclass of its settings.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        settings: S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.settings = settings
        log = directory / "logs" / f"{NAME}.log"
        super().__init__(NAME, command, log, environment=environment)

    def start(self) -> None:
        """Start it and return at once: `wait_ready` waits for it."""
        self.spawn()

    def reconfigure(self, **changes: Any) -> None:
        """Change its settings (the fields of `S`); it is restarted if it runs.

        Raises:
            LabError: there is no such setting.
        """
        try:
            self.settings = replace(self.settings, **changes)  # type: ignore[type-var]  # S is one
        except TypeError:
            known = ", ".join(item.name for item in fields(self.settings))  # type: ignore[arg-type]
            raise LabError(f"the mirror's settings are {known}") from None
        if self.alive:
            self.restart()

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until it mirrors, after the last start.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        self.wait_until(self._runs, timeout, lambda: "did not begin to mirror")

    def wait_topic(self, topic: str, timeout: float = READY_TIMEOUT) -> str:
        """Wait until a topic of the source is in the destination; returns its name there.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        wanted = self.source.partitions(topic)
        name = f"{self.source.alias}.{topic}"

        def there() -> bool:
            return self.destination.partitions(name) >= wanted > 0

        self.wait_until(there, timeout, lambda: f"did not create {name}")
        return name

    @abstractmethod
    def _runs(self) -> bool:
        """Whether it has begun to mirror, after the last start."""


@dataclass(frozen=True)
class MirrorSettings:
    """How MirrorMaker 2 is to mirror.

    Attributes:
        topics: the regular expressions of the topics to mirror, separated by commas.
        exclude: those to leave out; None: MirrorMaker's own default.
        refresh_seconds: how often it looks for new topics and partitions.
        offset_flush_ms: how often it stores how far it got: what a kill makes it repeat. Its own
            default is a minute.
        exactly_once: write in transactions. The destination's offsets then have gaps that are
            transaction markers, no loss.
        tasks: the most tasks that copy.
        properties: further properties; they win.
    """

    topics: str = ".*"
    exclude: str | None = None
    refresh_seconds: int = 1
    offset_flush_ms: int = 1000
    exactly_once: bool = False
    tasks: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)


class Mirror(AnyMirror[MirrorSettings]):
    """MirrorMaker 2."""

    def __init__(
        self,
        jvm: Jvm,
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        settings: MirrorSettings | None = None,
    ) -> None:
        self.properties_file = directory / "config" / "mirror.properties"
        self._rest_port = 0
        super().__init__(
            jvm.command(
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(self.properties_file),
                *("--clusters", destination.alias),
                options=jvm.exporting(NAME),
            ),
            directory,
            source=source,
            destination=destination,
            settings=settings or MirrorSettings(),
            environment=jvm.environment,
        )

    def properties(self) -> dict[str, str]:
        """What its properties file says."""
        wanted = self.settings
        a, b = self.source.alias, self.destination.alias
        found = {
            "clusters": f"{a}, {b}",
            f"{a}.bootstrap.servers": self.source.bootstrap_servers,
            f"{b}.bootstrap.servers": self.destination.bootstrap_servers,
            f"{a}->{b}.enabled": "true",
            f"{a}->{b}.topics": wanted.topics,
            f"{b}->{a}.enabled": "false",
            f"{b}->{a}.emit.heartbeats.enabled": "false",
            "plugin.discovery": "service_load",  # a second sooner than by looking at every class
            "tasks.max": str(wanted.tasks),
            "refresh.topics.interval.seconds": str(wanted.refresh_seconds),
            "refresh.groups.interval.seconds": str(wanted.refresh_seconds),
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "4",
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "1",
            "config.storage.replication.factor": "1",
            # Keys of the worker need the name of the cluster that it writes to.
            f"{b}.offset.flush.interval.ms": str(wanted.offset_flush_ms),
            # A task that is not done within this is cut off, and what it copied last copied again:
            # on a busy machine each new topic, which restarts the task, would repeat something.
            f"{b}.task.shutdown.graceful.timeout.ms": "20000",
            f"{b}.offset.flush.timeout.ms": "20000",
            # A killed mirror comes back once the group has given up its former self.
            f"{b}.session.timeout.ms": "6000",
            f"{b}.heartbeat.interval.ms": "2000",
        }
        if wanted.exclude is not None:
            found[f"{a}->{b}.topics.exclude"] = wanted.exclude
        if wanted.exactly_once:
            self._rest_port = self._rest_port or free_ports(1)[0]
            found |= {
                f"{b}.exactly.once.source.support": "enabled",
                f"{a}.consumer.isolation.level": "read_committed",
                "dedicated.mode.enable.internal.rest": "true",
                "listeners": f"http://{ADDRESS}:{self._rest_port}",
            }
        return {**found, **wanted.properties}

    def spawn(self) -> None:
        """Write its properties file, start it, and return at once."""
        write_properties(self.properties_file, self.properties())
        super().spawn()

    def _runs(self) -> bool:
        return "Started MirrorSourceConnector with" in self.log_since_start()
