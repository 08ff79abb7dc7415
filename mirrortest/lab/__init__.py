"""Two local Kafka clusters and a mirror between them, with faults on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_MODULES = dict.fromkeys(__all__, "mirrors") | {
    "Broker": "cluster",
    "Cluster": "cluster",
    "Lab": "testbed",
    "Part": "part",
    "PartState": "runtime",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the help of commands needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
