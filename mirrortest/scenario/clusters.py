"""The clusters of a point: a lab that lasts as long as the point, or existing clusters."""

from __future__ import annotations

import contextlib
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.config.java_properties import parse_properties
from mirrortest.config.redaction import without_secrets
from mirrortest.lab.mirrors import FaultyMirrorSettings, MirrorSettings
from mirrortest.lab.properties_file import write_properties
from mirrortest.lab.testbed import Lab
from mirrortest.scenario.specification import LabSetup, MirrorKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirrortest.lab.mirrors import AnySettings
    from mirrortest.scenario.board import Board
    from mirrortest.scenario.specification import Clusters, Scenario


class Sides(NamedTuple):
    """The options by which clients connect to the clusters; consumers read the destination.

    `alias` is the mirror's name for the source, and the prefix of mirrored topics.
    """

    source: Mapping[str, str]
    destination: Mapping[str, str]
    alias: str


@contextmanager
def running_clusters(
    scenario: Scenario, directory: Path, home: Path, later: Collection[str], board: Board
) -> Iterator[tuple[Lab | None, Sides]]:
    """The lab, if the scenario has one, and how clients connect to the clusters.

    On exit, the logs and the configuration of the lab's parts are copied into `directory`, the
    latter without secrets. File names are relative to `home`. The parts in `later` are not started.

    Raises:
        LabError: a part did not start.
    """
    if scenario.clusters is not None:
        yield None, _existing(scenario.clusters)
        return
    setup = scenario.lab or LabSetup()
    with_mirror = setup.mirror is not MirrorKind.NONE
    observed = scenario.observe is not None and setup.image is None
    lab = Lab(
        image=setup.image,
        brokers=setup.brokers,
        mirror=_mirror(setup, directory, home),
        source_alone=not with_mirror,
        not_started=later,
        links=scenario.with_links,
        broker_properties={key: _property(value) for key, value in setup.broker.items()},
        heap=setup.heap,
        metrics=observed,
        gc_logs=observed,
        on_step=partial(board.put, "lab"),
    )
    with lab:
        try:
            source = {"bootstrap-server": lab.source.bootstrap_servers}
            if with_mirror:
                destination = {"bootstrap-server": lab.destination.bootstrap_servers}
                yield lab, Sides(source, destination, lab.mirror.alias)
            else:
                yield lab, Sides(source, source, "")
        finally:
            for name in ("logs", "config"):
                with contextlib.suppress(OSError):
                    shutil.copytree(
                        lab.directory / name, directory / "lab" / name, copy_function=_copy
                    )


def _copy(source: str, copy: str) -> None:
    if not source.endswith(".properties"):
        shutil.copy2(source, copy)
        return
    text = Path(source).read_text(encoding="iso-8859-1")
    write_properties(Path(copy), without_secrets(parse_properties(text)))


def _mirror(setup: LabSetup, directory: Path, home: Path) -> AnySettings:
    if setup.command is not None:
        return setup.command
    if setup.mirror is MirrorKind.SABOTEUR:
        spec = None if setup.faults is None else home / setup.faults
        return FaultyMirrorSettings(spec=spec, truth=directory / "truth")
    return MirrorSettings(
        offset_flush_ms=setup.offset_flush_ms,
        tasks=setup.tasks,
        workers=setup.mirror_workers,
        exactly_once=setup.exactly_once,
        properties={key: _property(value) for key, value in setup.mirror_properties.items()},
    )


def _existing(clusters: Clusters) -> Sides:
    def side(servers: str, config: str | None) -> dict[str, str]:
        found = {"bootstrap-server": servers}
        return found if config is None else {**found, "command-config": config}

    source = side(clusters.source_bootstrap_server, clusters.source_command_config)
    if clusters.destination_bootstrap_server is None:
        return Sides(source, source, "")
    destination = side(clusters.destination_bootstrap_server, clusters.destination_command_config)
    return Sides(source, destination, clusters.source_alias)


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
