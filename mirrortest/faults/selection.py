"""Selects the acts that fall on each message: a function of seed, act and message alone.

A record that cannot be read as a message is identified by topic, partition and offset. Acts with a
producer, run, incarnation, lane, window, count or ids do not select it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.faults.seeded_random import Scope, hashes
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.digits import SEQ_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from mirrortest.faults.spec import Act, MessageId, Spec
    from mirrortest.wire.batch_decoder import MessageArrays
    from mirrortest.wire.stream import ProducerId

_HASHES = 1 << 64
_LANE_BITS = 33
UNREADABLE = "\0unreadable"
"""The producer in the scope of unreadable records; no producer has this name."""


class _ActiveAct(NamedTuple):
    """An act that can select messages of a partition, and the seqs of its window."""

    number: int
    act: Act
    lo: int
    hi: int
    ids: tuple[MessageId, ...]

    def accepts(self, producer: ProducerId, lane: int) -> bool:
        """Whether the act can select messages of this stream."""
        act = self.act
        return (
            act.producer in {None, producer.name}
            and act.run in {None, producer.run}
            and act.incarnation in {None, producer.incarnation}
            and act.lane in {None, lane}
        )

    @property
    def accepts_unreadable(self) -> bool:
        """Whether the act can select unreadable records: none of its filters needs an id."""
        act = self.act
        filters = (act.producer, act.run, act.incarnation, act.lane, act.window, act.count)
        return not act.ids and all(each is None for each in filters)


def scope_of(topic: str, partition: int, producer: ProducerId | None, lane: int) -> Scope:
    """The scope of a message's number: its seq, or the offset of an unreadable record."""
    if producer is None:
        return Scope(topic, UNREADABLE, 0, partition)
    return Scope(topic, producer.name, producer.incarnation, lane)


class Selection:
    """The acts that can fall on one source partition.

    In `faithful` topics (the ledger, and compacted topics) only acts whose `topic` is the exact
    name select messages.
    """

    def __init__(self, spec: Spec, topic: str, partition: int, *, faithful: bool = False) -> None:
        self._seed = spec.seed
        self._topic = topic
        self._partition = partition
        self._active = [
            _ActiveAct(index, act, *act.seqs(spec.lane_messages), tuple(act.message_ids()))
            for index, act in enumerate(spec.acts)
            if act.partition in {None, partition}
            and (
                act.topic == topic
                if faithful
                else act.topic is None or re.fullmatch(act.topic, topic) is not None
            )
        ]

    @property
    def acts(self) -> list[Act]:
        """The acts that can fall on the partition."""
        return [active.act for active in self._active]

    def chosen(self, messages: MessageArrays) -> dict[int, list[int]]:
        """The selected rows, ascending, and the indices of the acts that select them."""
        if not self._active:
            return {}
        found: dict[int, list[int]] = {}
        for producer, lane, rows in _by_stream(messages):
            scope = scope_of(self._topic, self._partition, producer, lane)
            for active in self._active:
                if producer is None:
                    if not active.accepts_unreadable:
                        continue
                elif not active.accepts(producer, lane):
                    continue
                numbers = (messages.offset if producer is None else messages.seq)[rows]
                for row in rows[self._selects(active, producer, scope, numbers)].tolist():
                    found.setdefault(row, []).append(active.number)
        return {row: sorted(found[row]) for row in sorted(found)}

    def _selects(
        self,
        active: _ActiveAct,
        producer: ProducerId | None,
        scope: Scope,
        numbers: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        act = active.act
        if act.ids:
            wanted = [each.seq for each in active.ids if each[:2] == (producer, scope.lane)]
            if act.kind is Anomaly.DROP_TAIL:
                return numbers >= min(wanted, default=SEQ_LIMIT)
            if act.kind is Anomaly.DROP_RUN:
                length = act.parameter("length")
                wanted = [seq + step for seq in wanted for step in range(length)]
            return np.asarray(np.isin(numbers, wanted))
        if act.kind is Anomaly.DROP_RUN:
            return self._in_a_run(active, scope, numbers, act.parameter("length"))
        return self._starts(active, scope, numbers)

    def _starts(
        self, active: _ActiveAct, scope: Scope, numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which numbers the act selects by its window, rate or count."""
        act, lo, hi = active.act, active.lo, active.hi
        if act.count is not None:
            # One in each of `count` parts of the window, whose sizes differ by at most one.
            size = hi - lo
            part = np.clip(numbers - lo, 0, size - 1) * act.count // size
            begin = -(-part * size // act.count)
            width = -(-(part + 1) * size // act.count) - begin
            drawn = hashes(self._seed, active.number, scope, part) % width.astype(np.uint64)
            chosen: NDArray[np.int64] = lo + begin + drawn.astype(np.int64)
            return np.equal(numbers, chosen, dtype=np.bool_)
        inside = np.ones(len(numbers), np.bool_)
        if scope.producer != UNREADABLE:
            inside = (numbers >= lo) & (numbers < hi)
        if act.rate is not None and act.rate < 1:
            limit = np.uint64(int(act.rate * _HASHES))
            inside &= hashes(self._seed, active.number, scope, numbers) < limit
        return inside

    def _in_a_run(
        self, active: _ActiveAct, scope: Scope, numbers: NDArray[np.int64], length: int
    ) -> NDArray[np.bool_]:
        """Which numbers are a start, or less than `length` after one."""
        found = np.zeros(len(numbers), np.bool_)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        # Dense ranges are processed at once, with the starts that can precede them.
        edges = np.flatnonzero(np.diff(ascending) > length) + 1
        for rows in np.split(order, edges):
            lo, hi = int(numbers[rows[0]]), int(numbers[rows[-1]]) + 1
            every = np.arange(lo - length + 1, hi)
            before = np.concatenate(([0], np.cumsum(self._starts(active, scope, every))))
            at = numbers[rows] - lo
            found[rows] = before[at + length] > before[at]
        return found


def _by_stream(
    messages: MessageArrays,
) -> Iterator[tuple[ProducerId | None, int, NDArray[np.int64]]]:
    """The rows of each stream, in order; those of unreadable records under None."""
    if not len(messages):
        return
    codes = (messages.id_index.astype(np.int64) << _LANE_BITS) + messages.lane
    if bool((codes == codes[0]).all()):
        groups = [np.arange(len(codes))]
    else:
        order = np.argsort(codes, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    for rows in groups:
        first = int(rows[0])
        index = int(messages.id_index[first])
        producer = None if index < 0 else messages.ids[index]
        yield producer, int(messages.lane[first]), rows
