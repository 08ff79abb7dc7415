"""The mirrors that the lab can run: MirrorMaker 2 and 1, the faulty mirror, any command."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mirrortest.errors import UsageError
from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.lab import jars
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.lab.part import Part
from mirrortest.lab.process.runtime import Jvm, lab_java
from mirrortest.lab.properties_file import write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.cluster import Cluster
    from mirrortest.lab.runtime import Program, Runtime

READY_TIMEOUT = 180.0
NAME = "mirror"
"""The name of a lab's mirror, of any kind."""
SOURCE, DESTINATION = "{source}", "{destination}"
"""The placeholders for the addresses of the clusters in a mirror's command."""


def worker_names(workers: int) -> list[str]:
    """The names of MirrorMaker 2's processes: mirror, mirror2 and so on."""
    return [NAME, *(f"{NAME}{number}" for number in range(2, workers + 1))]


class Mirror(Part):
    """A mirror from one cluster to another.

    Attributes:
        alias: the prefix, without its dot, of the copies' names; empty: it keeps topic names.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        environment: Mapping[str, str] | None = None,
        program: Program | None = None,
        name: str = NAME,
        alias: str | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.alias = source.alias if alias is None else alias
        log = directory / "logs" / f"{name}.log"
        super().__init__(name, command, log, environment=environment, program=program)

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until it has begun to mirror since its last start.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        self.wait_until(self._is_ready, timeout, lambda: "did not begin to mirror")

    def wait_topic(self, topic: str, timeout: float = READY_TIMEOUT) -> str:
        """Wait until the destination has all partitions of a topic's copy; returns its name.

        Raises:
            LabError: it died, or `timeout` seconds have passed.
        """
        wanted = self.source.partitions(topic)
        name = self.copy_of(topic)

        def is_complete() -> bool:
            return self.destination.partitions(name) >= wanted > 0

        self.wait_until(is_complete, timeout, lambda: f"did not create {name}")
        return name

    def copy_of(self, topic: str) -> str:
        """The name in the destination of the copy of a source topic."""
        return f"{self.alias}.{topic}" if self.alias else topic

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it has begun to mirror since its last start."""


@dataclass(frozen=True)
class MirrorSettings:
    """The settings of MirrorMaker 2.

    Attributes:
        topics: the regular expressions of the topics to mirror, separated by commas.
        exclude: those of the topics to leave out; None: MirrorMaker's own default.
        refresh_seconds: how often it looks for new topics and partitions.
        offset_flush_ms: how often it commits its position; after a kill it repeats what it copied
            since the last commit. Its own default is a minute.
        exactly_once: write in transactions. The destination's offsets then have gaps for the
            transaction markers, which are not losses.
        tasks: the maximum number of tasks.
        workers: the number of processes that share the tasks; `worker_names` are theirs.
        properties: further properties; they override the others.
    """

    topics: str = ".*"
    exclude: str | None = None
    refresh_seconds: int = 1
    offset_flush_ms: int = 1000
    exactly_once: bool = False
    tasks: int = 1
    workers: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)


class MirrorMaker2(Mirror):
    """MirrorMaker 2, or one of its workers."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        settings: MirrorSettings,
        name: str = NAME,
    ) -> None:
        self.settings = settings
        self.properties_file = directory / "config" / f"{name}.properties"
        self._rest_port = 0
        command, environment, program = runtime.mirror_maker(
            name, self.properties_file, "--clusters", destination.alias
        )
        super().__init__(
            command,
            directory,
            source=source,
            destination=destination,
            environment=environment,
            program=program,
            name=name,
        )

    def properties(self) -> dict[str, str]:
        """The content of its properties file."""
        settings = self.settings
        a, b = self.source.alias, self.destination.alias
        found = {
            "clusters": f"{a}, {b}",
            f"{a}.bootstrap.servers": self.source.bootstrap_servers_for_parts,
            f"{b}.bootstrap.servers": self.destination.bootstrap_servers_for_parts,
            f"{a}->{b}.enabled": "true",
            f"{a}->{b}.topics": settings.topics,
            f"{b}->{a}.enabled": "false",
            f"{b}->{a}.emit.heartbeats.enabled": "false",
            "plugin.discovery": "service_load",  # a second faster than a scan of all classes
            "tasks.max": str(settings.tasks),
            "refresh.topics.interval.seconds": str(settings.refresh_seconds),
            "refresh.groups.interval.seconds": str(settings.refresh_seconds),
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
            # Properties of the worker need the alias of the cluster that it writes to.
            f"{b}.offset.flush.interval.ms": str(settings.offset_flush_ms),
            # A task that takes longer to shut down repeats what it copied last. Each new topic
            # restarts the task, so on a busy machine a shorter timeout would cause duplicates.
            f"{b}.task.shutdown.graceful.timeout.ms": "20000",
            f"{b}.offset.flush.timeout.ms": "20000",
            # A killed mirror is ready again once its former session has expired.
            f"{b}.session.timeout.ms": "6000",
            f"{b}.heartbeat.interval.ms": "2000",
        }
        if settings.exclude is not None:
            found[f"{a}->{b}.topics.exclude"] = settings.exclude
        if settings.exactly_once:
            found |= {
                f"{b}.exactly.once.source.support": "enabled",
                f"{a}.consumer.isolation.level": "read_committed",
            }
        if settings.workers > 1:
            # How long the tasks of an ended worker wait for its return; the default is 5 minutes.
            found[f"{b}.scheduled.rebalance.max.delay.ms"] = "3000"
        if settings.exactly_once or settings.workers > 1:
            self._rest_port = self._rest_port or free_ports(1)[0]
            found |= {
                "dedicated.mode.enable.internal.rest": "true",
                "listeners": f"http://{ADDRESS}:{self._rest_port}",
            }
        return {**found, **settings.properties}

    def spawn(self) -> None:
        """Write its properties file, start it, and return at once."""
        write_properties(self.properties_file, self.properties())
        super().spawn()

    def _is_ready(self) -> bool:
        # With several workers only one runs the connector, but each of them joins the group.
        is_alone = self.settings.workers == 1
        ready = "Started MirrorSourceConnector with" if is_alone else "Joined group at generation"
        return ready in self.log_since_start()


@dataclass(frozen=True)
class FaultyMirrorSettings:
    """The settings of the faulty mirror.

    Attributes:
        spec: the TOML file of the faults to inject; None: no faults.
        truth: the directory of the ground truth and the mirror's position; None: `truth` in the
            lab's directory.
        topics: the regular expressions of the topics to mirror, separated by commas.
        exclude: those of the topics to leave out; None: the faulty mirror's own default.
        ledger_topic: a topic that is copied without faults, unless an act names it.
    """

    spec: Path | None = None
    truth: Path | None = None
    topics: str = ".*"
    exclude: str | None = None
    ledger_topic: str = "mirrortest.ledger"


class FaultyMirror(Mirror):
    """`mirrortest sabotage` between the lab's clusters; always a process on this machine."""

    def __init__(
        self,
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        settings: FaultyMirrorSettings,
    ) -> None:
        self.settings = settings
        self._directory = directory
        super().__init__((), directory, source=source, destination=destination)

    @property
    def truth(self) -> Path:
        """The directory of its ground truth."""
        return self.settings.truth or self._directory / "truth"

    def spawn(self) -> None:
        """Start it with its current settings, and return at once."""
        settings = self.settings
        self._command = (
            *(*RUN_MODULE, "mirrortest", "sabotage"),
            *("--source-bootstrap-server", self.source.bootstrap_servers_over_link),
            *("--destination-bootstrap-server", self.destination.bootstrap_servers_over_link),
            *("--source-alias", self.source.alias),
            *("--destination-alias", self.destination.alias),
            *("--topics", settings.topics),
            *("--ledger-topic", settings.ledger_topic),
            *("--truth", str(self.truth.absolute())),
            *(("--exclude", settings.exclude) if settings.exclude is not None else ()),
            *(("--spec", str(settings.spec.absolute())) if settings.spec is not None else ()),
        )
        super().spawn()

    def _is_ready(self) -> bool:
        return "the mirror is ready" in self.log_since_start()


@dataclass(frozen=True)
class CommandSettings:
    """The settings of a mirror that is any command.

    Attributes:
        command: its words, with `SOURCE` and `DESTINATION` in place of the clusters' addresses.
            SIGTERM must end it.
        alias: the prefix, without its dot, of the copies' names; empty: it keeps topic names.

    Raises:
        UsageError: the command lacks a placeholder.
    """

    command: Sequence[str]
    alias: str = ""

    def __post_init__(self) -> None:
        for place, which in ((SOURCE, "source"), (DESTINATION, "destination")):
            if not any(place in word for word in self.command):
                raise UsageError(
                    f"the mirror's command lacks {place}: put it where the {which}'s address "
                    "belongs"
                )


class CommandMirror(Mirror):
    """A mirror that is a process on this machine; it is ready as soon as it runs."""

    def __init__(
        self, directory: Path, *, source: Cluster, destination: Cluster, settings: CommandSettings
    ) -> None:
        words = [
            word.replace(SOURCE, source.bootstrap_servers_over_link).replace(
                DESTINATION, destination.bootstrap_servers_over_link
            )
            for word in settings.command
        ]
        super().__init__(
            words, directory, source=source, destination=destination, alias=settings.alias
        )

    def _is_ready(self) -> bool:
        return self.alive


AnySettings: TypeAlias = MirrorSettings | FaultyMirrorSettings | CommandSettings


class MirrorMaker1(Part):
    """MirrorMaker 1, which keeps topic names and partitions each record anew by its key.

    It copies the topics that match `include`, a regular expression, to topics that must exist.
    """

    def __init__(
        self, directory: Path, *, source: Cluster, destination: Cluster, include: str
    ) -> None:
        self._properties = {
            "consumer": {
                "bootstrap.servers": source.bootstrap_servers_over_link,
                "group.id": "mirrormaker1",
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": "1000",
            },
            "producer": {"bootstrap.servers": destination.bootstrap_servers_over_link},
        }
        self._files = {
            client: directory / "config" / f"mirrormaker1-{client}.properties"
            for client in self._properties
        }
        jvm = Jvm(lab_java(), jars.mirror_maker_1_class_path(), "256m")
        super().__init__(
            "mirrormaker1",
            jvm.command(
                "kafka.tools.MirrorMaker",
                *("--consumer.config", str(self._files["consumer"])),
                *("--producer.config", str(self._files["producer"])),
                *("--include", include),
                *("--num.streams", "1"),
                *("--offset.commit.interval.ms", "1000"),
            ),
            directory / "logs" / "mirrormaker1.log",
            environment=jvm.environment,
        )

    def spawn(self) -> None:
        """Write its two properties files, start it, and return at once."""
        for client, properties in self._properties.items():
            write_properties(self._files[client], properties)
        super().spawn()
