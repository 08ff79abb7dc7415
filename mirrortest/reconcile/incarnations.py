"""One numbering of partitions' incarnations for all logs; pure.

Consumers count a partition's incarnations from where their group began: one that began after a
topic was recreated, or whose state was lost, gives number 0 to another topic than the others. Where
sessions name the topic's id, numbers are matched by it; those of a session that does not are kept.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.seqlog.session import Session

Place: TypeAlias = tuple[str, int]
"""A source topic, and a partition of its copy."""
Numbers: TypeAlias = "Mapping[Place, Mapping[int, int]]"
"""By partition, the number that each of a session's numbers stands for."""


class _Log(NamedTuple):
    """An incarnation as it stands in the log: of this topic, cut back so often before."""

    topic_id: str
    cuts: int


class _Met(NamedTuple):
    """That a session met an incarnation, under which number of its own, and when (ns)."""

    number: int
    log: _Log
    since_ns: int


def renumbered(sessions: Sequence[Session]) -> dict[int, Numbers]:
    """By session's place: the numbers that are others than its own, as few logs have any."""
    met: defaultdict[Place, dict[int, list[_Met]]] = defaultdict(dict)
    for at, session in enumerate(sessions):
        for name, topic in session.topics.items():
            for each in topic.incarnations:
                found = _Met(each.number, _Log(each.topic_id, each.cuts), each.since_ns)
                for partition in each.partitions:
                    met[name, partition].setdefault(at, []).append(found)
    changed: defaultdict[int, dict[Place, dict[int, int]]] = defaultdict(dict)
    for place, by_session in met.items():
        for at, numbers in _of_partition(by_session).items():
            if any(own != number for own, number in numbers.items()):
                changed[at][place] = numbers
    return dict(changed)


def _of_partition(by_session: Mapping[int, list[_Met]]) -> dict[int, dict[int, int]]:
    """The number of each session's numbers of one partition."""
    known = {at: sorted(met) for at, met in by_session.items()}
    numbers: dict[_Log, int] = {}
    before = -1
    for log in _in_order(known.values()):
        own = (each.number for met in known.values() for each in met if each.log == log)
        # A session's number is how many there were before, of which no log may be here.
        before = numbers[log] = max(before + 1, *own)
    return {at: {each.number: numbers[each.log] for each in met} for at, met in known.items()}


def _in_order(known: Iterable[Sequence[_Met]]) -> list[_Log]:
    """All logs, each behind those that some session met before it; else as they were met first."""
    before: defaultdict[_Log, set[_Log]] = defaultdict(set)
    first_ns: dict[_Log, int] = {}
    for met in known:
        for each in met:
            first_ns[each.log] = min(each.since_ns, first_ns.get(each.log, each.since_ns))
        for earlier, later in pairwise(met):
            before[later.log].add(earlier.log)
    for log in first_ns:
        before[log] |= {_Log(log.topic_id, cuts) for cuts in range(log.cuts)} & first_ns.keys()
    left = sorted(first_ns, key=lambda log: (first_ns[log], log))
    found: list[_Log] = []
    while left:
        # Where sessions contradict each other, which none does, the clocks decide.
        following = next((log for log in left if before[log].issubset(found)), left[0])
        left.remove(following)
        found.append(following)
    return found


def applied(rows: pa.RecordBatch, numbers: Numbers) -> pa.RecordBatch:
    """A session's rows with the numbers that its own stand for, in `topic_identity`."""
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
