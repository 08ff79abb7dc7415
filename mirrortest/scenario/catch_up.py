"""How long a mirror takes to catch up after a fault."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrortest.errors import ClusterError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from mirrortest.lab.testbed import Lab

_POLL = 0.25


def catch_up_seconds(lab: Lab, topics: Iterable[str], ending: threading.Event) -> float | None:
    """Wait until each partition's copy is as long as the partition at the call; return the seconds.

    Messages that were copied twice count twice, so a mirror that repeats some seems a little early.
    None: `ending` was set first.

    Raises:
        ClusterError: the source does not answer.
    """
    began = time.monotonic()
    behind = {topic: lab.source.end_offsets(topic) for topic in topics}
    while behind:
        if ending.wait(_POLL):
            return None
        try:
            behind = {
                topic: ends for topic, ends in behind.items() if not _is_copied(lab, topic, ends)
            }
        except ClusterError:  # a fault of the destination: try again
            continue
    return time.monotonic() - began


def _is_copied(lab: Lab, topic: str, ends: dict[int, int]) -> bool:
    copied = lab.destination.end_offsets(lab.mirror.copy_of(topic))
    return all(copied.get(partition, 0) >= end for partition, end in ends.items())
