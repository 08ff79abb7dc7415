"""Whether a consumer was fenced rightly, as the records of the state topic tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .plan import STATES

if TYPE_CHECKING:
    from .history import Session, Stage

_SILENT_NS = 10_000_000_000
"""A fixed share that gave no sign of life for so long may be taken by another consumer."""


def taken_from(session: Session, stage: Stage) -> bool:
    """Whether another consumer has claimed a partition of this session's, rightly.

    Another of the same name was given the same share; one of another name may take what is read no
    more. A partition's signs of life are its claims and states.
    """
    names = {log.session.session: log.session.name for log in stage.world.logs}
    mine = {log.session.session for log in stage.world.logs if log.process is session.process}
    owners: dict[tuple[str, int, int], str] = {}
    """(topic, partition, generation) -> the session that claimed it last"""
    heard: dict[tuple[str, int], int] = {}
    """Partition of ours -> its last sign of life"""
    topics = [topic for topic in stage.read_cluster.all_topics if topic.name == STATES]
    for record in (record for topic in topics for record in topic.partitions[0].history):
        kind, *rest = json.loads(record.key or b"[0]")
        if kind not in {"claim", "chunk", "commit"}:
            continue
        topic, partition, generation, *by = rest[4:]
        at = (topic, partition)
        if kind == "claim":
            owners[*at, generation] = by[0]
        owner = owners.get((*at, generation), "")
        if owner in mine:
            heard[at] = record.born_ns
        elif kind == "claim" and at in heard:
            silent = record.born_ns - heard[at] >= _SILENT_NS
            if names.get(owner) == session.name or silent:
                return True
    return False
