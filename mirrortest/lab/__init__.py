"""Two local Kafka clusters and a mirror between them, with faults on demand."""

from __future__ import annotations

from mirrortest.lab.cluster import Broker, Cluster
from mirrortest.lab.mirrors import (
    CommandSettings,
    FaultyMirror,
    FaultyMirrorSettings,
    Mirror,
    MirrorSettings,
)
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState
from mirrortest.lab.testbed import Lab

__all__ = [
    "Broker",
    "Cluster",
    "CommandSettings",
    "FaultyMirror",
    "FaultyMirrorSettings",
    "Lab",
    "Mirror",
    "MirrorSettings",
    "Part",
    "PartState",
]
