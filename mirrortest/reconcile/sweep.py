"""A sweep line over arrays: spans by key in, the segments between their bounds out.

A span [lo, hi) adds its weight at `lo` and subtracts it at `hi`; between two neighbouring bounds of
a key nothing changes. One sort is enough, whatever the spans' number and overlaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.reconcile.stretch import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.reconcile.stretch import Flags, Longs

_EMPTY = np.zeros(0, dtype=np.int64)
_HIGHEST = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """Numbers [lo, hi) of a key, which is the code of a stream, or of a stream in a partition."""

    key: Longs
    lo: Longs
    hi: Longs

    @classmethod
    def none(cls) -> Spans:
        """No numbers."""
        return cls(_EMPTY, _EMPTY, _EMPTY)

    @property
    def lengths(self) -> Longs:
        """How many numbers each has."""
        return self.hi - self.lo

    def take(self, which: Flags | Longs) -> Spans:
        """Some of them."""
        return Spans(self.key[which], self.lo[which], self.hi[which])


class Sweep:
    """The `segments` of spans, by key and number."""

    def __init__(self, **spans: Spans) -> None:
        """Each argument is a group of spans, which `sum` takes by its name."""
        key = np.concatenate([each.key for each in spans.values() for _ in range(2)])
        at = np.concatenate([bound for each in spans.values() for bound in each[1:]])
        order = np.lexsort((at, key))
        key, at = key[order], at[order]
        new = changes(key, at)
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
            # Most findings have few spans, or none.
            some = np.flatnonzero(weight)
            if not len(some):
                return np.zeros(len(self._inside), dtype=np.int64)
            begins, ends, weight = begins[some], ends[some], weight[some]
        change = np.zeros(self._points, dtype=np.int64)
        np.add.at(change, begins, weight)
        np.subtract.at(change, ends, weight)
        running: Longs = np.cumsum(change)
        return running[self._inside]

    def lowest(self, name: str, values: Longs, which: Flags) -> Longs:
        """The lowest value of some of a group's spans over each segment, else `NONE`.

        The work is that of all segments of these spans.
        """
        begins, ends = (bounds[which] for bounds in self._bounds[name])
        lengths = ends - begins
        before = np.cumsum(lengths) - lengths
        points = np.repeat(begins - before, lengths) + np.arange(lengths.sum())
        found = np.full(self._points, _HIGHEST, dtype=np.int64)
        np.minimum.at(found, points, np.repeat(values[which], lengths))
        return np.where(found == _HIGHEST, NONE, found)[self._inside]

    def spans(self, which: Flags) -> Spans:
        """Some of the segments; adjacent ones are joined."""
        return joined(self.segments.take(which))[0]


def changes(*columns: NDArray[Any]) -> Flags:
    """Where one of these columns has another value than just before; also the first place."""
    found = np.zeros(len(columns[0]), dtype=bool)
    found[:1] = True
    for values in columns:
        found[1:] |= values[1:] != values[:-1]
    return found


def runs(begins: Flags) -> tuple[Longs, Longs]:
    """The first and the last indices of runs; `begins` flags where one begins, also the first."""
    starts = np.flatnonzero(begins)
    return starts, np.append(starts[1:], len(begins))[: len(starts)] - 1


def joined(spans: Spans, *alike: Longs) -> tuple[Spans, Longs]:
    """Join adjacent spans, disjoint and in order, that are `alike`; also each one's first index."""
    key, lo, hi = spans
    begins = changes(key, *alike)
    begins[1:] |= lo[1:] != hi[:-1]
    starts, ends = runs(begins)
    return Spans(key[starts], lo[starts], hi[ends]), starts


def highest_before(key: Longs, values: Longs) -> Longs:
    """For each value, the highest one before it of its key, else 0; keys must be grouped."""
    found = np.zeros(len(values), dtype=np.int64)
    if len(values) > 1:
        # With ranks of values counted on from key to key, one maximum runs over all keys.
        distinct, rank = np.unique(values, return_inverse=True)
        group = np.cumsum(np.append(0, key[1:] != key[:-1]))
        reached = np.maximum.accumulate(group * len(distinct) + rank)
        same = key[1:] == key[:-1]
        found[1:][same] = distinct[reached[:-1][same] % len(distinct)]
    return found


def united(key: Longs, lo: Longs, hi: Longs) -> tuple[Longs, Longs, Longs]:
    """Join spans of each key that overlap or touch; returns each one's first index and bounds."""
    order = np.lexsort((lo, key))
    key, lo, hi = key[order], lo[order], hi[order]
    reached = highest_before(key, hi)
    begins = changes(key)
    begins[1:] |= lo[1:] > reached[1:]
    starts = np.flatnonzero(begins)
    ends = np.maximum.reduceat(hi, starts) if len(starts) else hi
    return order[starts], lo[starts], ends
