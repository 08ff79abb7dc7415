"""Which acts fall on which messages: a function of seed, act and message alone.

What cannot be read as a message (or not any more) is named by its topic, partition and offset
instead. Acts that ask for a producer, lane, seq or count leave it alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.faults.seeded_random import Place, hashes
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
"""Stands for the producer in the place of what cannot be read: no producer is called so."""


class _Planned(NamedTuple):
    """An act that may fall on a partition's messages, and the seqs of its window."""

    number: int
    act: Act
    lo: int
    hi: int
    ids: tuple[MessageId, ...]

    def lets_through(self, producer: ProducerId, lane: int) -> bool:
        """Whether the act may fall on messages of this stream."""
        act = self.act
        return (
            act.producer in {None, producer.name}
            and act.run in {None, producer.run}
            and act.incarnation in {None, producer.incarnation}
            and act.lane in {None, lane}
        )

    @property
    def takes_unreadable(self) -> bool:
        """Whether nothing that it asks for needs a message that can be read."""
        act = self.act
        asked = (act.producer, act.run, act.incarnation, act.lane, act.window, act.count)
        return not act.ids and all(each is None for each in asked)


def place_of(topic: str, partition: int, producer: ProducerId | None, lane: int) -> Place:
    """What a message's number, its seq or else its offset, counts within."""
    if producer is None:
        return Place(topic, UNREADABLE, 0, partition)
    return Place(topic, producer.name, producer.incarnation, lane)


class Selection:
    """The acts that may fall on one source partition.

    `faithful` topics are left alone but by acts whose `topic` is their very name: the ledger must
    be true, and what is compacted is somebody's table.
    """

    def __init__(self, spec: Spec, topic: str, partition: int, *, faithful: bool = False) -> None:
        self._seed = spec.seed
        self._topic = topic
        self._partition = partition
        self._planned = [
            _Planned(index, act, *act.seqs(spec.lane_messages), tuple(act.message_ids()))
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
        """The acts that may fall here."""
        return [planned.act for planned in self._planned]

    def chosen(self, messages: MessageArrays) -> dict[int, list[int]]:
        """The rows on which acts fall, ascending, and the indices of those acts."""
        if not self._planned:
            return {}
        found: dict[int, list[int]] = {}
        for producer, lane, rows in _by_stream(messages):
            place = place_of(self._topic, self._partition, producer, lane)
            for planned in self._planned:
                if producer is None:
                    if not planned.takes_unreadable:
                        continue
                elif not planned.lets_through(producer, lane):
                    continue
                numbers = (messages.offset if producer is None else messages.seq)[rows]
                for row in rows[self._falls(planned, producer, place, numbers)].tolist():
                    found.setdefault(row, []).append(planned.number)
        return {row: sorted(found[row]) for row in sorted(found)}

    def _falls(
        self,
        planned: _Planned,
        producer: ProducerId | None,
        place: Place,
        numbers: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        act = planned.act
        if act.ids:
            wanted = [each.seq for each in planned.ids if each[:2] == (producer, place.lane)]
            if act.kind is Anomaly.DROP_TAIL:
                return numbers >= min(wanted, default=SEQ_LIMIT)
            if act.kind is Anomaly.DROP_RUN:
                length = act.parameter("length")
                wanted = [seq + step for seq in wanted for step in range(length)]
            return np.asarray(np.isin(numbers, wanted))
        if act.kind is Anomaly.DROP_RUN:
            return self._in_a_run(planned, place, numbers, act.parameter("length"))
        return self._starts(planned, place, numbers)

    def _starts(
        self, planned: _Planned, place: Place, numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which numbers the act chooses by its window, rate or count."""
        act, lo, hi = planned.act, planned.lo, planned.hi
        if act.count is not None:
            # One in each of `count` parts of the window, none smaller than another by two.
            size = hi - lo
            part = np.clip(numbers - lo, 0, size - 1) * act.count // size
            begin = -(-part * size // act.count)
            width = -(-(part + 1) * size // act.count) - begin
            drawn = hashes(self._seed, planned.number, place, part) % width.astype(np.uint64)
            chosen: NDArray[np.int64] = lo + begin + drawn.astype(np.int64)
            return np.equal(numbers, chosen, dtype=np.bool_)
        inside = np.ones(len(numbers), np.bool_)
        if place.producer != UNREADABLE:
            inside = (numbers >= lo) & (numbers < hi)
        if act.rate is not None and act.rate < 1:
            limit = np.uint64(int(act.rate * _HASHES))
            inside &= hashes(self._seed, planned.number, place, numbers) < limit
        return inside

    def _in_a_run(
        self, planned: _Planned, place: Place, numbers: NDArray[np.int64], length: int
    ) -> NDArray[np.bool_]:
        """Which numbers lie less than `length` behind a start, or on one."""
        found = np.zeros(len(numbers), np.bool_)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        # Dense stretches are looked at whole, with the starts that may lie before them.
        edges = np.flatnonzero(np.diff(ascending) > length) + 1
        for rows in np.split(order, edges):
            lo, hi = int(numbers[rows[0]]), int(numbers[rows[-1]]) + 1
            every = np.arange(lo - length + 1, hi)
            before = np.concatenate(([0], np.cumsum(self._starts(planned, place, every))))
            at = numbers[rows] - lo
            found[rows] = before[at + length] > before[at]
        return found


def _by_stream(
    messages: MessageArrays,
) -> Iterator[tuple[ProducerId | None, int, NDArray[np.int64]]]:
    """The rows of each stream, in order; those that cannot be read under None."""
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
