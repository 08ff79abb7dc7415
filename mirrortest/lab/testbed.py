"""The lab: two clusters, a mirror between them, and one directory for all of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mirrortest.errors import LabError, UsageError
from mirrortest.host.endings import Endings
from mirrortest.host.user_files import replace_text
from mirrortest.lab import jars
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.docker.engine import Engine
from mirrortest.lab.docker.runtime import ContainerRuntime
from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.lab.link.condition import LINKS, NO_LINKS
from mirrortest.lab.link.link import Link
from mirrortest.lab.mirrors import (
    CommandMirror,
    CommandSettings,
    FaultyMirror,
    FaultyMirrorSettings,
    Mirror,
    MirrorMaker2,
    MirrorSettings,
    worker_names,
)
from mirrortest.lab.process.runtime import Jvm, gc_log, lab_java
from mirrortest.lab.runtime import DEFAULT_HEAP, PartState, broker_names
from mirrortest.lab.temporary_directories import TemporaryDirectory
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType

    from mirrortest.lab.mirrors import AnySettings
    from mirrortest.lab.part import Part
    from mirrortest.lab.runtime import Runtime

_PREFIX = "mirrortest-lab-"
_ALIAS = re.compile("[A-Za-z0-9_-]+")


class Lab:
    """Two local Kafka clusters with a mirror between them; a context manager.

    ::

        with Lab() as lab:
            lab.source.create_topic("orders", 4)
            lab.mirror.wait_topic("orders")  # -> "A.orders"
            lab.mirror.kill()

    Everything listens on 127.0.0.1 only. No part outlives the process that started the lab, except
    the containers of a killed one: `mirrortest lab down --all` removes those.

    Args:
        directory: for configuration, logs and data. It is kept, and a later lab continues with its
            data and ports. None: a temporary directory, removed at the end.
        image: run in containers of this Kafka image, with the layout of Apache's. Containers can
            also be paused and disconnected from the network. None: run as processes.
        brokers: the number of brokers of each cluster.
        source_alias: the mirror's name for the source, and the prefix of mirrored topics.
        destination_alias: the mirror's name for the destination.
        mirror: its settings: `MirrorSettings` for MirrorMaker 2, `FaultyMirrorSettings` for one
            that injects faults, `CommandSettings` for any command. None: MirrorMaker 2 mirrors
            every topic.
        start_mirror: False: the caller starts it later with `lab.mirror.start()`.
        not_started: the names of the mirror's workers that the caller starts later.
        links: put a part between the mirror and each cluster, `link-source` and
            `link-destination`, that can simulate a bad network.
        source_alone: start neither the destination nor the mirror.
        broker_properties: further properties of every broker.
        heap: the largest heap of each Java process, as -Xmx takes it.
        jvm_options: further options of each Java process; they override the lab's.
        gc_logs: every Java process logs its garbage collections in the directory of its log.
        metrics: every Java process serves its JMX metrics for Prometheus. The addresses are in
            `targets`, and in targets.json in the directory, for Prometheus's `file_sd_configs`.
        on_step: called with one line of text at each step of the start.

    Attributes:
        targets: part -> host:port of its JMX metrics.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        image: str | None = None,
        brokers: int = 1,
        source_alias: str = "A",
        destination_alias: str = "B",
        mirror: AnySettings | None = None,
        start_mirror: bool = True,
        not_started: Collection[str] = (),
        links: bool = False,
        source_alone: bool = False,
        broker_properties: Mapping[str, str] | None = None,
        heap: str = DEFAULT_HEAP,
        jvm_options: Sequence[str] = (),
        metrics: bool = False,
        gc_logs: bool = False,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        if metrics and image is not None:
            raise LabError("containers serve no metrics: use processes (--runtime jvm)")
        if links and image is not None:
            raise LabError(NO_LINKS)
        _check_aliases(source_alias, destination_alias, brokers)
        self._keep = directory is not None
        self._chosen = directory
        self._image = image
        self._brokers = brokers
        self._aliases = (source_alias, destination_alias)
        self._mirror_settings = mirror or MirrorSettings()
        self._start_mirror = start_mirror and not source_alone
        self._source_alone = source_alone
        self._not_started = frozenset(not_started)
        self._with_links = links
        self._broker_properties = dict(broker_properties or {})
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._metrics = metrics
        self._gc_logs = gc_logs
        self._on_step = on_step or (lambda _: None)
        self._endings: Endings | None = None
        self.engine: Engine | None = None
        self.targets: dict[str, str] = {}
        self.directory: Path
        self.source: Cluster
        self.destination: Cluster
        self.links: list[Link] = []
        self.mirror: Mirror
        self.more_workers: list[MirrorMaker2] = []

    @property
    def parts(self) -> dict[str, Part]:
        """Every part by its name: A1, B1, ..., links, mirror."""
        every: list[Part] = [broker for cluster in self.clusters for broker in cluster.brokers]
        if not self._source_alone:
            every += [*self.links, self.mirror, *self.more_workers]
        return {part.name: part for part in every}

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters that are started."""
        return [self.source] if self._source_alone else [self.source, self.destination]

    @property
    def gc_logs(self) -> dict[str, Path]:
        """Each Java part's garbage collection log, by its name; empty if none is written."""
        if not self._gc_logs or self._image is not None:
            return {}
        return {name: gc_log(self.directory / "logs", name) for name in self._java_parts}

    def part(self, name: str) -> Part:
        """A part by its name.

        Raises:
            UsageError: there is no part of that name.
        """
        try:
            return self.parts[name]
        except KeyError:
            raise UsageError(f"no part {name}: there are {', '.join(self.parts)}") from None

    def describe(self) -> dict[str, Any]:
        """The lab as JSON: addresses, and each part's state, pid and log."""
        clusters = {
            role: {
                "alias": cluster.alias,
                "bootstrap_servers": cluster.bootstrap_servers,
                "cluster_id": cluster.cluster_id,
            }
            for role, cluster in (("source", self.source), ("destination", self.destination))
        }
        return {
            "directory": str(self.directory),
            "pid": os.getpid(),
            "alias": self.mirror.alias,
            **clusters,
            "parts": {
                name: {"state": part.state, "pid": part.pid, "log": str(part.log)}
                for name, part in self.parts.items()
            },
        }

    def up(self) -> Self:
        """Start the clusters and, unless the caller does so, the mirror; wait until all are ready.

        Raises:
            LabError: a part did not start; nothing is left running.
            JavaMissingError: there is no Java 17 or newer.
        """
        if self._endings is not None:
            raise LabError("this lab is up already")
        with Endings() as endings:
            self.directory = self._create_directory(endings)
            self._build(self._find_runtime(endings))
            for part in self.parts.values():
                endings.add(part.terminate if self._keep else part.kill)
            self._write_targets()
            for cluster in self.clusters:
                self._on_step(f"cluster {cluster.alias}: starting")
                cluster.spawn()
            for link in self.links:
                link.spawn()
            for cluster in self.clusters:
                cluster.wait_ready()
                self._on_step(f"cluster {cluster.alias}: ready at {cluster.bootstrap_servers}")
            for link in self.links:
                link.wait_ready()
            if self._start_mirror:
                self._on_step("mirror: starting")
                for mirror in (self.mirror, *self.more_workers):
                    if mirror.name not in self._not_started:
                        mirror.start()
                        mirror.wait_ready()
                self._on_step("mirror: ready")
            self._endings = endings.pop_all()
        return self

    def down(self) -> None:
        """End every part, the mirror first; remove a temporary directory and all Docker objects.

        Raises:
            LabError: something could not be ended; everything else was.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        endings, self._endings = self._endings, None
        if endings is not None:
            endings.__exit__(kind, error, trace)

    def _find_runtime(self, endings: Endings) -> Runtime:
        if self._image is not None:
            self._on_step(f"Docker: image {self._image}")
            self.engine = Engine(self._image)
            endings.add(self.engine.close)
            return ContainerRuntime(self.engine, self._heap, self._jvm_options, self._keep)
        java = lab_java()
        self._on_step(f"Java {java.major} from {java.origin}")
        class_path = jars.class_path(self._show_jars)
        ports, agent = {}, None
        if self._metrics:
            parts = self._java_parts
            ports = dict(zip(parts, free_ports(len(parts)), strict=True))
            agent = jars.jmx_agent()
            self.targets = {name: f"{ADDRESS}:{port}" for name, port in ports.items()}
        gc_logs = self.directory / "logs" if self._gc_logs else None
        return Jvm(java, class_path, self._heap, self._jvm_options, agent, ports, gc_logs)

    @property
    def _java_parts(self) -> list[str]:
        """The names of brokers, and of MirrorMaker 2's workers."""
        aliases = self._aliases[:1] if self._source_alone else self._aliases
        brokers = [name for alias in aliases for name in broker_names(alias, self._brokers)]
        return brokers if self._source_alone else [*brokers, *self._worker_names]

    @property
    def _worker_names(self) -> list[str]:
        """The names of MirrorMaker 2's workers; empty for another mirror."""
        if not isinstance(self._mirror_settings, MirrorSettings):
            return []
        return worker_names(self._mirror_settings.workers)

    def _create_directory(self, endings: Endings) -> Path:
        if self._chosen is None:
            return endings.enter(TemporaryDirectory(Path(tempfile.gettempdir()), _PREFIX))
        chosen = self._chosen.absolute()
        chosen.mkdir(parents=True, exist_ok=True)
        return chosen

    def add_target(self, name: str, address: str) -> None:
        """Add the metrics of another program to the targets for Prometheus."""
        self.targets[name] = address
        self._write_targets()

    def _write_targets(self) -> None:
        groups = [
            {"targets": [target], "labels": {"part": part}} for part, target in self.targets.items()
        ]
        replace_text(self.directory / "targets.json", json.dumps(groups, indent=1))

    def _show_jars(self, cached: int, of: int) -> None:
        if cached % 10 == 0 or cached == of:
            self._on_step(f"jars: {cached} of {of}")

    def _build(self, runtime: Runtime) -> None:
        file = self.directory / "lab.json"
        saved = _saved(file)
        self.source, self.destination = clusters = [
            self._cluster(alias, runtime, saved.get(alias, {})) for alias in self._aliases
        ]
        if self._with_links:
            self.links = [
                Link(name, self.directory, cluster.routes)
                for name, cluster in zip(LINKS, clusters, strict=True)
            ]
        settings = self._mirror_settings
        sides = {"source": self.source, "destination": self.destination}
        if isinstance(settings, FaultyMirrorSettings):
            self.mirror = FaultyMirror(self.directory, settings=settings, **sides)
        elif isinstance(settings, CommandSettings):
            self.mirror = CommandMirror(self.directory, settings=settings, **sides)
        else:
            self.mirror, *self.more_workers = [
                MirrorMaker2(runtime, self.directory, settings=settings, name=name, **sides)
                for name in self._worker_names
            ]
        facts = {
            cluster.alias: {
                "cluster_id": cluster.cluster_id,
                "ports": cluster.ports,
                "link_ports": cluster.link_ports,
            }
            for cluster in clusters
        }
        replace_text(file, json.dumps(facts, indent=1))

    def _cluster(self, alias: str, runtime: Runtime, saved: dict[str, Any]) -> Cluster:
        """A cluster, with the id and the ports that an earlier lab saved, or new ones."""
        link_ports: Sequence[int] = ()
        if self._with_links:
            link_ports = saved.get("link_ports") or free_ports(2 * self._brokers)
        return Cluster(
            alias,
            runtime,
            self.directory,
            brokers=self._brokers,
            cluster_id=saved.get("cluster_id"),
            ports=saved.get("ports"),
            link_ports=link_ports,
            properties=self._broker_properties,
        )


def _check_aliases(source: str, destination: str, brokers: int) -> None:
    """Refuse aliases that cannot stand in the names of topics and parts, or would share parts."""
    for option, alias in (("source", source), ("destination", destination)):
        if not _ALIAS.fullmatch(alias):
            raise UsageError(f"--{option}-alias {alias!r}: use letters, digits, _ and -")
    names = broker_names(source, brokers)
    if shared := [name for name in broker_names(destination, brokers) if name in names]:
        raise UsageError(
            f"--source-alias {source} and --destination-alias {destination}: both clusters would "
            f"have a broker {shared[0]}; use another alias"
        )


def _saved(file: Path) -> dict[str, Any]:
    """What an earlier lab saved in its directory; empty if there was none. Raises LabError."""
    if not file.exists():
        return {}
    with contextlib.suppress(ValueError):
        saved = json.loads(file.read_text())
        if isinstance(saved, dict):
            return saved
    raise LabError(
        f"{file} is damaged: use another --directory, or remove this one and the data in it"
    )


def part_metrics(lab: Lab) -> Metrics:
    """Metrics that show which parts of a lab run; each scrape reads the current states."""
    metrics = Metrics()
    for name, part in lab.parts.items():

        def runs(part: Part = part) -> float:
            return float(part.state is PartState.RUNNING)

        metrics.gauge(names.LAB_PART_UP, part=name).read_by(runs)
    return metrics
