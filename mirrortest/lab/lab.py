"""The lab: two clusters, a mirror between them, one directory, one life."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mirrortest.errors import LabError, UsageError
from mirrortest.lab import jars, jmx
from mirrortest.lab.cluster import Cluster
from mirrortest.lab.faulty_mirror import FaultyMirror, FaultyMirrorSettings
from mirrortest.lab.jvm import Jvm, lab_java
from mirrortest.lab.leftovers import temporary_directory
from mirrortest.lab.mirror import NAME as MIRROR
from mirrortest.lab.mirror import Mirror, MirrorSettings
from mirrortest.lab.ports import ADDRESS, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from mirrortest.lab.process import Part

_FORM = 1
_PREFIX = "mirrortest-lab-"


class Lab:
    """Two local Kafka clusters with a mirror between them; a context manager.

    ::

        with Lab() as lab:
            lab.source.create_topic("orders", 4)
            lab.mirror.wait_topic("orders")  # -> "A.orders"
            lab.mirror.kill()

    Everything listens on 127.0.0.1 alone. No part outlives the process that started it.

    Args:
        directory: configuration, logs and data; kept, and a lab that was there is taken up again
            on its ports. None: a temporary one, removed at the end.
        brokers: of each cluster.
        source_alias: the mirror's name of the source, and the prefix of mirrored topics.
        destination_alias: the mirror's name of the destination.
        mirror: its settings: `MirrorSettings` for MirrorMaker 2, `FaultyMirrorSettings` for one
            that injects faults; None: MirrorMaker 2 mirrors every topic.
        start_mirror: False leaves it for `lab.mirror.start()`.
        broker_properties: further properties of every broker.
        heap: of each Java process.
        jvm_options: further options of each; they win.
        metrics: every Java process serves its JMX metrics for Prometheus; `targets` tells where,
            and so does targets.json in the directory, as Prometheus's `file_sd_configs` reads it.
        tell: called with one line of text at each step of the start.
    """

    _cluster = Cluster

    def __init__(
        self,
        directory: Path | None = None,
        *,
        brokers: int = 1,
        source_alias: str = "A",
        destination_alias: str = "B",
        mirror: MirrorSettings | FaultyMirrorSettings | None = None,
        start_mirror: bool = True,
        broker_properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = (),
        metrics: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._keep = directory is not None
        self._chosen = directory
        self._brokers = brokers
        self._aliases = (source_alias, destination_alias)
        self._mirror_settings: MirrorSettings | FaultyMirrorSettings = mirror or MirrorSettings()
        self._start_mirror = start_mirror
        self._broker_properties = dict(broker_properties or {})
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._metrics = metrics
        self._tell = tell or (lambda _: None)
        self._up = False
        self.targets: dict[str, str] = {}
        """part -> host:port of its JMX metrics"""
        self.directory: Path
        self.source: Cluster
        self.destination: Cluster
        self.mirror: Mirror | FaultyMirror

    @property
    def parts(self) -> dict[str, Part]:
        """Every part by its name: A1, B1, ..., mirror."""
        every: list[Part] = [*self.source.brokers, *self.destination.brokers, self.mirror]
        return {part.name: part for part in every}

    def part(self, name: str) -> Part:
        """A part by its name.

        Raises:
            UsageError: there is none of that name.
        """
        try:
            return self.parts[name]
        except KeyError:
            raise UsageError(f"no part {name}: there are {', '.join(self.parts)}") from None

    def describe(self) -> dict[str, Any]:
        """The lab as JSON can tell it: addresses, and each part's state, pid and log."""
        return {
            "directory": str(self.directory),
            "pid": os.getpid(),
            "source": _told(self.source),
            "destination": _told(self.destination),
            "parts": {
                name: {"state": part.state, "pid": part.pid, "log": str(part.log)}
                for name, part in self.parts.items()
            },
        }

    def up(self) -> Self:
        """Start both clusters, and the mirror unless left for later; wait until all are ready.

        Raises:
            LabError: a part did not start; nothing is left running.
            JavaMissingError: there is no Java 17 or newer.
        """
        if self._up:
            raise LabError("this lab is up already")
        jvm = self._runtime()
        self.directory = self._make_directory()
        self._up = True
        try:
            self._build(jvm)
            self._write_targets()
            clusters = (self.source, self.destination)
            for cluster in clusters:
                self._tell(f"cluster {cluster.alias}: starting")
                cluster.spawn()
            for cluster in clusters:
                cluster.wait_ready()
                self._tell(f"cluster {cluster.alias}: ready at {cluster.bootstrap_servers}")
            if self._start_mirror:
                self._tell("mirror: starting")
                self.mirror.start()
                self.mirror.wait_ready()
                self._tell("mirror: ready")
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """End every part, the mirror first; a temporary directory is removed."""
        if not self._up:
            return
        self._up = False
        with contextlib.suppress(AttributeError):  # it failed before they were made
            for part in reversed(self.parts.values()):
                if self._keep:
                    part.terminate()
                else:
                    part.kill()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def _runtime(self) -> Jvm:
        """What the parts run on."""
        java = lab_java()
        self._tell(f"Java {java.major} from {java.origin}")
        class_path = jars.class_path(progress=self._tell_jars)
        return self._exported(Jvm(java, class_path, self._heap, self._jvm_options))

    def _make_directory(self) -> Path:
        if self._chosen is not None:
            chosen = self._chosen.absolute()
            chosen.mkdir(parents=True, exist_ok=True)
            return chosen
        return temporary_directory(Path(tempfile.gettempdir()), _PREFIX)

    def _exported(self, jvm: Jvm) -> Jvm:
        if not self._metrics:
            return jvm
        names = [f"{alias}{n + 1}" for alias in self._aliases for n in range(self._brokers)]
        if isinstance(self._mirror_settings, MirrorSettings):
            names.append(MIRROR)
        exported = dict(zip(names, free_ports(len(names)), strict=True))
        self.targets = {name: f"{ADDRESS}:{port}" for name, port in exported.items()}
        return replace(jvm, agent=jmx.agent(), exported=exported)

    def _write_targets(self) -> None:
        groups = [
            {"targets": [target], "labels": {"part": part}} for part, target in self.targets.items()
        ]
        self.directory.joinpath("targets.json").write_text(json.dumps(groups, indent=1))

    def _tell_jars(self, there: int, of: int) -> None:
        if there % 10 == 0 or there == of:
            self._tell(f"jars: {there} of {of}")

    def _build(self, jvm: Jvm) -> None:
        shape = self.directory / "lab.json"
        known: dict[str, Any] = json.loads(shape.read_text()) if shape.exists() else {}
        clusters = []
        for alias in self._aliases:
            former = known.get(alias, {})
            clusters.append(
                self._cluster(
                    alias,
                    jvm,
                    self.directory,
                    brokers=self._brokers,
                    cluster_id=former.get("cluster_id"),
                    ports=former.get("ports"),
                    properties=self._broker_properties,
                )
            )
        self.source, self.destination = clusters
        self.mirror = self._make_mirror(jvm)
        facts = {c.alias: {"cluster_id": c.cluster_id, "ports": c.ports} for c in clusters}
        shape.write_text(json.dumps({"v": _FORM, **facts}, indent=1))

    def _make_mirror(self, jvm: Jvm) -> Mirror | FaultyMirror:
        settings = self._mirror_settings
        if isinstance(settings, FaultyMirrorSettings):
            return FaultyMirror(
                self.directory,
                source=self.source,
                destination=self.destination,
                settings=settings,
            )
        return Mirror(
            jvm,
            self.directory,
            source=self.source,
            destination=self.destination,
            settings=settings,
        )


def _told(cluster: Cluster) -> dict[str, str]:
    return {
        "alias": cluster.alias,
        "bootstrap_servers": cluster.bootstrap_servers,
        "cluster_id": cluster.cluster_id,
    }
