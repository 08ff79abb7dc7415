"""What states and ledger record: claims, when states were saved, and what is missing."""

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
"""How long before its end a producer may miss what happens to its ledger."""
_SLOWER_NS = {"log_slow": 4_000_000_000, "slow_answers": 1_000_000_000}
"""What faults add: the producer seals its log after it has closed the ledger, and an answer shows
the ledger as it was when it was sent."""
_SILENT_NS = 10_000_000_000
"""After this silence of its owner, another consumer may take a partition."""


def taken_from(session: Session, stage: Stage) -> bool:
    """Whether another process has rightly taken over what this session owned.

    From a producer: its name, by a later incarnation. From a consumer: a partition, by a claim. A
    consumer of the same name has the same share; one of another name may take a partition that is
    no longer read. A partition's signs of life are its claims and states.
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
    """This session's partition -> its last sign of life"""
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
    """A surviving state: when it was saved, and from when on others can read it."""

    at_ns: int
    there_ns: int


def saved_states(stage: Stage) -> dict[tuple[str, int], list[Saved]]:
    """The states of each partition that were not deleted with their topic; in virtual ns.

    A state of a deleted topic, or one that an unclean election removed, counts only once its owner
    has saved the partition again: the owner's later states contain what it had read before. Nor can
    a state be read whose claim was deleted with the previous topic, until its owner claims again.
    """
    saved: dict[tuple[str, int], list[Saved]] = {}
    before: dict[tuple[str, int], set[str]] = {}
    """Partition -> the sessions that claimed it in the previous state topic"""
    for topic in _state_topics(stage):
        claimed: dict[tuple[str, int], dict[int, str]] = {}
        kept: dict[tuple[str, int], list[Saved]] = {}
        cut: dict[tuple[str, int, str], list[Saved]] = {}
        for kind, at, generation, by, at_ns, taken in _records(topic):
            owner = claimed.get(at, {}).get(generation, "")
            if kind == "claim":
                claimed.setdefault(at, {})[generation] = by
            elif kind != "commit" or not owner:
                continue
            elif taken:
                cut.setdefault((*at, owner), []).append(Saved(at_ns, at_ns))
            else:
                again = cut.pop((*at, owner), [])
                if at not in kept and owner in before.get(at, ()):
                    again += saved.get(at, [])
                each = [state._replace(there_ns=at_ns) for state in again]
                kept.setdefault(at, []).extend([*each, Saved(at_ns, at_ns)])
        saved, before = kept, {at: {*owners.values()} for at, owners in claimed.items()}
    lives = not (topics := _state_topics(stage)) or topics[-1].deleted_ns is None
    return saved if lives else {}


def ledger_lacks(stage: Stage) -> bool:
    """Whether the ledger that consumers read lacks records that no producer will write again.

    Such a record was once in the ledger or its copy; a topic's deletion or an unclean election
    removed it. If the source lacks it, too, the producer must have ended before it could notice.
    """
    world, read = stage.world, stage.ledger_cluster
    there = {record.key for _, record in _ledger_records(read) if record.removed_ns is None}
    ended = {
        session.name: session.ended_ns or 0
        for session in stage.outcome.sessions
        if session.application == "produce" and session.report is not None
    }
    removed_at_ns: dict[bytes, int] = {}
    """Key -> when its last record was removed"""
    for cluster in {id(each): each for each in (read, world.source)}.values():
        for topic, record in _ledger_records(cluster):
            key = record.key
            if key and key not in there and json.loads(key)[1] == RUN:
                at_ns = record.removed_ns if record.removed_by == "truncation" else None
                at_ns = topic.deleted_ns if at_ns is None else at_ns
                removed_at_ns[key] = max(removed_at_ns.get(key, 0), at_ns or 0)
    source = {r.key for _, r in _ledger_records(world.source) if r.removed_ns is None}
    unseen_ns = _UNSEEN_NS + sum(ns for kind, ns in _SLOWER_NS.items() if kind in stage.plan.faults)
    return any(
        key in source or ended.get(json.loads(key)[2], NEVER_NS) <= at_ns + unseen_ns
        for key, at_ns in removed_at_ns.items()
    )


def first_ended(stage: Stage) -> dict[str, int]:
    """Producer -> its first incarnation whose end marks are all in the ledger.

    It had finished its work, so consumers may have ended when another one begins: because it was
    killed before its process ended, or because another process of its name had been cut off.
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
    """Producer -> the last incarnation whose end marks were deleted with the ledger, and when.

    A process of an earlier incarnation that was cut off until then finds no such mark, and
    continues: nothing shows any more that consumers may have ended.
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
    """Claims and states in order: kind, partition, generation, claimant, time, truncated."""
    for record in state_topic.partitions[0].history:
        if record.once_more or record.key is None or not record.key.startswith(b"["):
            continue
        kind, *rest = json.loads(record.key)
        if kind in {"claim", "chunk", "commit"}:
            topic, partition, generation, *by = rest[4:]
            taken = record.removed_by == "truncation"
            yield kind, (topic, partition), generation, by[0] if by else "", record.born_ns, taken
