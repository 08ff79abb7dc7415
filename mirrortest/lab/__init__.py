"""Two local Kafka clusters and a mirror between them, as processes, with faults on demand."""

from __future__ import annotations

from mirrortest.lab.cluster import Broker, Cluster
from mirrortest.lab.docker_lab import DockerLab
from mirrortest.lab.faulty_mirror import FaultyMirror, FaultyMirrorSettings
from mirrortest.lab.lab import Lab
from mirrortest.lab.mirror import Mirror
from mirrortest.lab.process import Part, PartState

__all__ = [
    "Broker",
    "Cluster",
    "DockerLab",
    "FaultyMirror",
    "FaultyMirrorSettings",
    "Lab",
    "Mirror",
    "Part",
    "PartState",
]
