"""One numbering of partitions' incarnations for all logs; pure functions.

Consumers count a partition's incarnations from where their group began. A group that began after a
topic was recreated, or whose state was lost, gives number 0 to another topic than the others do.
Numbers of sessions that name the topic's id are matched by it; those of other sessions are kept.
Where the numbers of two groups, or of one group before and after its state was lost, cannot be
matched, the logs of one count (`unmatched`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirrortest.seqlog.session import Incarnation, Session

Place: TypeAlias = tuple[str, int]
"""A source topic, and a partition of its copy."""
Numbers: TypeAlias = "Mapping[Place, Mapping[int, int]]"
"""By partition, the common number for each of a session's own numbers."""


class _Log(NamedTuple):
    """An incarnation of a partition: its topic's id, and how often it had been truncated before."""

    topic_id: str
    cuts: int


class _Met(NamedTuple):
    """An incarnation that a session met: the session's number of it, and since when (ns)."""

    number: int
    log: _Log
    since_ns: int


_MetBySession: TypeAlias = "dict[int, list[_Met]]"


def renumbered(sessions: Sequence[Session]) -> dict[int, Numbers]:
    """By session's index, the numbers of those partitions where some differ from its own."""
    changed: defaultdict[int, dict[Place, dict[int, int]]] = defaultdict(dict)
    for place, by_session in _met(sessions).items():
        logs, _ = _in_order(by_session.values())
        for at, numbers in _numbered(by_session, logs).items():
            if any(own != number for own, number in numbers.items()):
                changed[at][place] = numbers
    return dict(changed)


def unordered(sessions: Sequence[Session]) -> set[Place]:
    """The partitions where only clocks show the order of some incarnations."""
    return {
        place
        for place, by_session in _met(sessions).items()
        if not _in_order(by_session.values())[1]
    }


def unmatched(
    sessions: Sequence[Session],
    newest: Mapping[tuple[int, str], int],
    numbers: Mapping[tuple[int, str], AbstractSet[tuple[int, int]]],
) -> set[int]:
    """The sessions to leave out, as their numbers cannot be matched with the others'.

    There are two cases. A group began after a partition was truncated, or may have been, and does
    not know of it. Or a topic was recreated, and some logs of several groups, or of one group
    whose state was lost, do not name its id (older versions, `--portable`, or a consumer that was
    killed before it did). Only logs of the group that knows of most incarnations stay.

    `newest` is, by session's index and topic, the greatest common number in its rows of the topic;
    `numbers` are the partitions and common numbers of what it read or found unreadable.
    """
    found: set[int] = set()
    changed = renumbered(sessions)
    for topic in sorted({topic for _, topic in newest}):
        read = {at: numbers.get((at, name), set()) for at, name in newest if name == topic}
        unnamed = {
            at for at, its in read.items() if its - _named(sessions[at], topic, changed.get(at, {}))
        }
        by_reader: defaultdict[str, list[int]] = defaultdict(list)
        for at in read:
            if at not in found:
                by_reader[sessions[at].reader].append(at)
        groups = {
            (reader, nth): part
            for reader, members in by_reader.items()
            for nth, part in enumerate(_split(members, sessions, read, unnamed))
        }
        if len(groups) <= 1:
            continue
        cuts: defaultdict[tuple[int, str], Counter[tuple[str, int]]] = defaultdict(Counter)
        ids: set[str] = set()
        for group, members in groups.items():
            for each in (each for at in members for each in _incarnations(sessions[at], topic)):
                ids.add(each.topic_id)
                for partition in each.partitions:
                    known = cuts[partition, each.topic_id]
                    known[group] = max(known[group], each.cuts)
        left_out = {
            group
            for known in cuts.values()
            for group, count in known.items()
            if count < max(known.values())
        }
        greatest = {group: max(newest[at, topic] for at in of) for group, of in groups.items()}
        mixed = not unnamed.isdisjoint(chain(*groups.values())) and (
            len(ids) > 1 or any(greatest.values())
        )
        if mixed or left_out == groups.keys():  # each lacks a cut that another one knows of
            best = {
                group: (greatest[group], unnamed.isdisjoint(of), group)
                for group, of in groups.items()
            }
            left_out = groups.keys() - {max(groups, key=best.__getitem__)}
        found |= {at for group in left_out for at in groups[group]}
    return found


def _split(
    members: Sequence[int],
    sessions: Sequence[Session],
    read: Mapping[int, AbstractSet[tuple[int, int]]],
    unnamed: AbstractSet[int],
) -> list[list[int]]:
    """A group's sessions in parts: a new one where its numbers go back, as its state was lost.

    With its state, a consumer goes on at the number of its predecessor or above. If both name
    their topics, their numbers need not be alike.
    """
    parts: list[list[int]] = [[]]
    for at in sorted(members, key=lambda at: (sessions[at].started_ns, at)):
        highest: dict[int, int] = {}
        for before in parts[-1]:
            ended_ns = sessions[before].ended_ns or 0
            if ended_ns <= sessions[at].started_ns and not unnamed.isdisjoint((before, at)):
                for partition, number in read[before]:
                    highest[partition] = max(number, highest.get(partition, 0))
        if any(number < highest.get(partition, 0) for partition, number in read[at]):
            parts.append([])
        parts[-1].append(at)
    return parts


def _named(session: Session, topic: str, changed: Numbers) -> set[tuple[int, int]]:
    """The partitions and common numbers of which a session names the topic's id."""
    return {
        (partition, changed.get((topic, partition), {}).get(each.number, each.number))
        for each in _incarnations(session, topic)
        for partition in each.partitions
    }


def _incarnations(session: Session, topic: str) -> Sequence[Incarnation]:
    return session.topics[topic].incarnations if topic in session.topics else ()


def _met(sessions: Sequence[Session]) -> dict[Place, _MetBySession]:
    """By partition and session's index, the incarnations that it met, in order of its numbers."""
    met: defaultdict[Place, _MetBySession] = defaultdict(dict)
    for at, session in enumerate(sessions):
        for name in session.topics:
            for each in _incarnations(session, name):
                found = _Met(each.number, _Log(each.topic_id, each.cuts), each.since_ns)
                for partition in each.partitions:
                    met[name, partition].setdefault(at, []).append(found)
    return {
        place: {at: sorted(its) for at, its in by_session.items()}
        for place, by_session in met.items()
    }


def _numbered(by_session: _MetBySession, logs: Iterable[_Log]) -> dict[int, dict[int, int]]:
    """By session, the common number for each of its own; `logs` are all incarnations in order."""
    numbers: dict[_Log, int] = {}
    before = -1
    for log in logs:
        own = (each.number for met in by_session.values() for each in met if each.log == log)
        # A session's number counts the incarnations before, some of which may be in no log.
        before = numbers[log] = max(before + 1, *own)
    return {at: {each.number: numbers[each.log] for each in met} for at, met in by_session.items()}


def _in_order(known: Iterable[Sequence[_Met]]) -> tuple[list[_Log], bool]:
    """All incarnations in order, and whether no clock decided it.

    Each comes after those that a session met before it; else the one first met comes first.
    """
    before: defaultdict[_Log, set[_Log]] = defaultdict(set)
    first_ns: dict[_Log, int] = {}
    for met in known:
        for each in met:
            first_ns[each.log] = min(each.since_ns, first_ns.get(each.log, each.since_ns))
        for earlier, later in pairwise(met):
            before[later.log].add(earlier.log)
    for log in first_ns:
        before[log] |= {_Log(log.topic_id, cuts) for cuts in range(log.cuts)} & first_ns.keys()
        before[log].discard(log)
    left = sorted(first_ns, key=lambda log: (first_ns[log], log))
    found: list[_Log] = []
    sure = True
    while left:
        ready = [log for log in left if before[log].issubset(found)]
        sure &= len(ready) == 1
        # If sessions contradicted each other, which none do, the clocks would decide, too.
        following = ready[0] if ready else left[0]
        left.remove(following)
        found.append(following)
    return found, sure


def applied(rows: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    """A session's rows with the common numbers instead of its own in `topic_identity`."""
    index = rows.schema.get_field_index("topic_identity")
    if index < 0 or not numbers:
        return rows
    topic, partition, identity = (
        np.array(rows[name].to_pylist(), dtype=object)
        for name in ("topic", "partition", "topic_identity")
    )
    renamed = identity.copy()
    for (name, number), by_own in numbers.items():
        here = (topic == name) & (partition == number)
        for own, other in by_own.items():
            renamed[here & (identity == str(own))] = str(other)
    field = pa.field("topic_identity", pa.string())
    return rows.set_column(index, field, pa.array(renamed.tolist(), pa.string()))
