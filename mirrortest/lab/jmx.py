"""The parts' own metrics: Prometheus's JMX exporter as an agent in each Java process.

Its configuration, `jmx_exporter.yaml`, keeps what says something of a mirror: MirrorMaker 2's
source connector, Connect's tasks, the clients' lag and rates, the brokers' traffic and health.
"""

from __future__ import annotations

import importlib.resources
from typing import TYPE_CHECKING

from mirrortest.host.cache import cache_directory
from mirrortest.lab import jars
from mirrortest.lab.ports import ADDRESS

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "jmx.lock"
COORDINATES = ("io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",)


def agent(cache: Path | None = None) -> Path:
    """The agent's jar; downloaded where it is missing. Raises LabError."""
    text = importlib.resources.files("mirrortest.lab").joinpath(LOCK).read_text()
    (jar,) = jars.fetch(jars.read_lock(text), (cache or cache_directory()) / "jars")
    return jar


def option(jar: Path, port: int) -> str:
    """Java's option that has a process serve its metrics on a port of this machine."""
    config = importlib.resources.files("mirrortest.lab").joinpath("jmx_exporter.yaml")
    return f"-javaagent:{jar}={ADDRESS}:{port}:{config}"
