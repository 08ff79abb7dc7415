"""A sweep line over arrays: spans by key in, the segments between their bounds out.

A span [lo, hi) adds its weight at `lo` and takes it back at `hi`; between two neighbouring bounds
of a key nothing changes. One sort judges everything, whatever the spans' number and overlaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_EMPTY = np.zeros(0, dtype=np.int64)


class Spans(NamedTuple):
    """Numbers [lo, hi) of a key (a stream, or a stream in a partition), which is its code."""

    key: Longs
    lo: Longs
    hi: Longs

    @classmethod
    def none(cls) -> Spans:
        """No numbers."""
        return cls(_EMPTY, _EMPTY, _EMPTY)

    @property
    def lengths(self) -> Longs:
        """How many each has."""
        return self.hi - self.lo

    def take(self, which: Flags | Longs) -> Spans:
        """Some of them."""
        return Spans(self.key[which], self.lo[which], self.hi[which])


class Sweep:
    """The `segments` of spans, by key and number."""

    def __init__(self, **spans: Spans) -> None:
        """Each argument is a group of spans, by whose name `sum` asks for them."""
        key = np.concatenate([each.key for each in spans.values() for _ in range(2)])
        at = np.concatenate([bound for each in spans.values() for bound in each[1:]])
        order = np.lexsort((at, key))
        key, at = key[order], at[order]
        new = np.ones(len(at), dtype=bool)
        new[1:] = (at[1:] != at[:-1]) | (key[1:] != key[:-1])
        point = np.empty(len(at), dtype=np.int64)
        point[order] = np.cumsum(new) - 1
        key, at = key[new], at[new]
        self._bounds: dict[str, tuple[Longs, Longs]] = {}
        first = 0
        for name, each in spans.items():
            size = len(each.key)
            self._bounds[name] = point[first : first + size], point[first + size : first + 2 * size]
            first += 2 * size
        self._points = len(at)
        self._inside = np.flatnonzero(key[1:] == key[:-1])
        self.segments = Spans(key[self._inside], at[self._inside], at[self._inside + 1])

    def sum(self, name: str, weight: Longs | Flags | int = 1) -> Longs:
        """The sum of the weights of a group's spans over each segment."""
        begins, ends = self._bounds[name]
        if not isinstance(weight, int):
            # Most findings are of few spans, or of none.
            some = np.flatnonzero(weight)
            if not len(some):
                return np.zeros(len(self._inside), dtype=np.int64)
            begins, ends, weight = begins[some], ends[some], weight[some]
        change = np.zeros(self._points, dtype=np.int64)
        np.add.at(change, begins, weight)
        np.subtract.at(change, ends, weight)
        running: Longs = np.cumsum(change)
        return running[self._inside]

    def spans(self, which: Flags) -> Spans:
        """Some of the segments, those that touch as one."""
        return joined(self.segments.take(which))[0]


def runs(begins: Flags) -> tuple[Longs, Longs]:
    """The first and the last places of runs, by the flags of where one begins: the first does."""
    starts = np.flatnonzero(begins)
    return starts, np.append(starts[1:], len(begins))[: len(starts)] - 1


def joined(spans: Spans, *alike: Longs) -> tuple[Spans, Longs]:
    """Disjoint spans in order, those that touch and are `alike` as one; where each begins."""
    key, lo, hi = spans
    begins = np.ones(len(key), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | (lo[1:] != hi[:-1])
    for values in alike:
        begins[1:] |= values[1:] != values[:-1]
    starts, ends = runs(begins)
    return Spans(key[starts], lo[starts], hi[ends]), starts


def highest_before(key: Longs, values: Longs) -> Longs:
    """The highest of the values before each one of its key, which come together; else 0."""
    found = np.zeros(len(values), dtype=np.int64)
    if len(values) > 1:
        # Keys lie apart where ranks of values are counted on from key to key.
        distinct, rank = np.unique(values, return_inverse=True)
        group = np.cumsum(np.append(0, key[1:] != key[:-1]))
        reached = np.maximum.accumulate(group * len(distinct) + rank)
        same = key[1:] == key[:-1]
        found[1:][same] = distinct[reached[:-1][same] % len(distinct)]
    return found


def united(key: Longs, lo: Longs, hi: Longs) -> tuple[Longs, Longs, Longs]:
    """Spans of each key that overlap or touch, as one: the place of its first, and its bounds."""
    order = np.lexsort((lo, key))
    key, lo, hi = key[order], lo[order], hi[order]
    reached = highest_before(key, hi)
    begins = np.ones(len(lo), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | (lo[1:] > reached[1:])
    starts = np.flatnonzero(begins)
    ends = np.maximum.reduceat(hi, starts) if len(starts) else hi
    return order[starts], lo[starts], ends
