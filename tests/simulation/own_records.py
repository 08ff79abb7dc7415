"""What the records of the state topic say: who took which partition, and what was saved when."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING

from .plan import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster import Topic
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
    for kind, at, generation, by, at_ns in chain.from_iterable(map(_records, _state_topics(stage))):
        if kind == "claim":
            owners[*at, generation] = by
        owner = owners.get((*at, generation), "")
        if owner in mine:
            heard[at] = at_ns
        elif kind == "claim" and at in heard:
            silent = at_ns - heard[at] >= _SILENT_NS
            if names.get(owner) == session.name or silent:
                return True
    return False


def saved_states(stage: Stage) -> dict[tuple[str, int], list[int]]:
    """When states of each partition were saved that did not go with their topic, in virtual ns.

    What a deleted topic held counts only if its owner there saved the partition again in the next
    one: that owner's later states hold what it had read before.
    """
    saved: dict[tuple[str, int], list[int]] = {}
    before: dict[tuple[str, int], set[str]] = {}
    """Partition -> the sessions that claimed it in the topic before"""
    for topic in _state_topics(stage):
        claimed: dict[tuple[str, int], dict[int, str]] = {}
        kept: dict[tuple[str, int], list[int]] = {}
        for kind, at, generation, by, at_ns in _records(topic):
            if kind == "claim":
                claimed.setdefault(at, {})[generation] = by
            elif kind == "commit":
                if at not in kept:
                    owner = claimed.get(at, {}).get(generation)
                    kept[at] = saved.get(at, []) if owner in before.get(at, ()) else []
                kept[at].append(at_ns)
        saved, before = kept, {at: {*owners.values()} for at, owners in claimed.items()}
    lives = not (topics := _state_topics(stage)) or topics[-1].deleted_ns is None
    return saved if lives else {}


def _state_topics(stage: Stage) -> list[Topic]:
    return [topic for topic in stage.read_cluster.all_topics if topic.name == STATES]


def _records(state_topic: Topic) -> Iterator[tuple[str, tuple[str, int], int, str, int]]:
    """Kind, partition, generation, who claims it, and when; of claims and states, in order."""
    for record in state_topic.partitions[0].history:
        if record.once_more:
            continue
        kind, *rest = json.loads(record.key or b"[0]")
        if kind in {"claim", "chunk", "commit"}:
            topic, partition, generation, *by = rest[4:]
            yield kind, (topic, partition), generation, by[0] if by else "", record.born_ns
