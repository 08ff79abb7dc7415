"""What states and ledger say: who took what, what was saved when, and what is missing there."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.verify.ledger_parts import ENDED
from mirrortest.verify.ledger_record import CLOSED

from .cluster import NEVER_NS
from .plan import LEDGER, RUN, STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .batch import Record
    from .cluster import Cluster, Topic
    from .history import Session, Stage

_UNSEEN_NS = 500_000_000
"""For so long a producer that ends need not see what became of its ledger."""
_SEALS_NS = 4_000_000_000
"""And for so long it may seal a log whose disk is slow, once it has closed the ledger."""
_SILENT_NS = 10_000_000_000
"""A fixed share that gave no sign of life for so long may be taken by another consumer."""


def taken_from(session: Session, stage: Stage) -> bool:
    """Whether another process has taken what was this session's, rightly.

    Of a producer: its name, by a later registration. Of a consumer, a partition by a claim: another
    of the same name was given the same share; one of another name may take what is read no more. A
    partition's signs of life are its claims and states.
    """
    if session.application == "produce":
        logs = [log for log in stage.world.logs if log.session.name == session.name]
        last = max(log.session.incarnation or 0 for log in logs if log.process is session.process)
        return any((log.session.incarnation or 0) > last for log in logs)
    names = {log.session.session: log.session.name for log in stage.world.logs}
    mine = {log.session.session for log in stage.world.logs if log.process is session.process}
    owners: dict[tuple[str, int, int], str] = {}
    """(topic, partition, generation) -> the session that claimed it last"""
    heard: dict[tuple[str, int], int] = {}
    """Partition of ours -> its last sign of life"""
    for kind, at, generation, by, at_ns, _ in chain.from_iterable(
        map(_records, _state_topics(stage))
    ):
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


class Saved(NamedTuple):
    """A state that is left: when it was saved, and from when on it is there for others."""

    at_ns: int
    there_ns: int


def saved_states(stage: Stage) -> dict[tuple[str, int], list[Saved]]:
    """The states of each partition that did not go with their topic; in virtual ns.

    What a deleted topic held, or an unclean election took, counts only once its owner has saved the
    partition again: that owner's later states hold what it had read before.
    """
    saved: dict[tuple[str, int], list[Saved]] = {}
    before: dict[tuple[str, int], set[str]] = {}
    """Partition -> the sessions that claimed it in the topic before"""
    for topic in _state_topics(stage):
        claimed: dict[tuple[str, int], dict[int, str]] = {}
        kept: dict[tuple[str, int], list[Saved]] = {}
        cut: dict[tuple[str, int, str], list[Saved]] = {}
        for kind, at, generation, by, at_ns, taken in _records(topic):
            owner = claimed.get(at, {}).get(generation, "")
            if kind == "claim":
                claimed.setdefault(at, {})[generation] = by
            elif kind == "commit" and taken:
                cut.setdefault((*at, owner), []).append(Saved(at_ns, at_ns))
            elif kind == "commit":
                again = cut.pop((*at, owner), [])
                if at not in kept and owner in before.get(at, ()):
                    again += saved.get(at, [])
                each = [state._replace(there_ns=at_ns) for state in again]
                kept.setdefault(at, []).extend([*each, Saved(at_ns, at_ns)])
        saved, before = kept, {at: {*owners.values()} for at, owners in claimed.items()}
    lives = not (topics := _state_topics(stage)) or topics[-1].deleted_ns is None
    return saved if lives else {}


def ledger_lacks(stage: Stage) -> bool:
    """Whether the ledger that consumers read lacks what nobody was left to write again.

    What a producer wrote at all, of it or its copy, is missing there: it went with a topic, or by
    an unclean election. Of the source that counts if the producer had ended before it could see it.
    """
    world, read = stage.world, stage.ledger_cluster
    there = {record.key for _, record in _ledger_records(read) if record.removed_ns is None}
    ended = {
        session.name: session.ended_ns or 0
        for session in stage.outcome.sessions
        if session.application == "produce" and session.report is not None
    }
    gone: dict[bytes, int] = {}
    """Key -> when the last record of it went"""
    for cluster in {id(each): each for each in (read, world.source)}.values():
        for topic, record in _ledger_records(cluster):
            key = record.key
            if key and key not in there and json.loads(key)[1] == RUN:
                at_ns = record.removed_ns if record.removed_by == "truncation" else None
                at_ns = topic.deleted_ns if at_ns is None else at_ns
                gone[key] = max(gone.get(key, 0), at_ns or 0)
    source = {r.key for _, r in _ledger_records(world.source) if r.removed_ns is None}
    slow = any(strike.kind == "log_slow" for strike in stage.plan.strikes)
    unseen_ns = _UNSEEN_NS + slow * _SEALS_NS
    return any(
        key in source or ended.get(json.loads(key)[2], NEVER_NS) <= at_ns + unseen_ns
        for key, at_ns in gone.items()
    )


def first_ended(stage: Stage) -> dict[str, int]:
    """Producer -> its first incarnation whose end marks are all in the ledger.

    It had done all that it was to do: consumers may have ended by when another one began, because
    it was killed before it ended, or a process of its name had been cut off.
    """
    ended: dict[tuple[str, int], dict[tuple[str, int], bool]] = {}
    """Incarnation -> each lane, and whether it has its end mark."""
    for _, record in _ledger_records(stage.world.source):
        kind, run, name, incarnation, *rest = json.loads(record.key or b"")
        if kind == "lane" and run == RUN:
            topic, lane, part = (*rest, 0)[:3]
            lanes = ended.setdefault((name, incarnation), {})
            lanes[topic, lane] = lanes.get((topic, lane), False) or ENDED <= part < CLOSED
    found: dict[str, int] = {}
    for (name, incarnation), lanes in ended.items():
        if all(lanes.values()):
            found[name] = min(incarnation, found.get(name, incarnation))
    return found


def forgotten(stage: Stage) -> dict[str, tuple[int, int]]:
    """Producer -> the incarnation whose end went with the ledger last, and when.

    A process of an earlier one that was cut off until then finds nothing of it, and goes on: nobody
    is left who knows that consumers may have ended.
    """
    return {
        name: (incarnation, topic.deleted_ns)
        for topic, record in _ledger_records(stage.world.source)
        if topic.deleted_ns is not None
        for kind, run, name, incarnation, *lane in [json.loads(record.key or b"")]
        if kind == "lane" and run == RUN and ENDED <= (*lane, 0)[2] < CLOSED
    }


def _ledger_records(cluster: Cluster) -> Iterator[tuple[Topic, Record]]:
    for topic in cluster.all_topics:
        if topic.name == LEDGER:
            for record in topic.partitions[0].history:
                if record.key is not None and record.key.startswith(b"["):
                    yield topic, record


def _state_topics(stage: Stage) -> list[Topic]:
    return [topic for topic in stage.read_cluster.all_topics if topic.name == STATES]


def _records(state_topic: Topic) -> Iterator[tuple[str, tuple[str, int], int, str, int, bool]]:
    """Kind, partition, generation, who claims it, when, and whether an unclean election took it.

    Of claims and states, in order.
    """
    for record in state_topic.partitions[0].history:
        if record.once_more or record.key is None or not record.key.startswith(b"["):
            continue
        kind, *rest = json.loads(record.key)
        if kind in {"claim", "chunk", "commit"}:
            topic, partition, generation, *by = rest[4:]
            taken = record.removed_by == "truncation"
            yield kind, (topic, partition), generation, by[0] if by else "", record.born_ns, taken
