"""The holes of a destination partition: ranges of offsets, and how many are between two places."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.reconcile.stretch import Longs

HoleRange = tuple[int, int, int, int]
"""The incarnation of a partition, offsets [lo, hi), and how many of them are holes."""


class Holes(NamedTuple):
    """The holes of a partition: sorted disjoint ranges of offsets, and how many holes each has.

    Each range has at least `least` and at most `most` holes. If these are fewer than its offsets,
    it is unknown which of its offsets are holes.
    """

    identity: Longs
    lo: Longs
    hi: Longs
    least: Longs
    most: Longs

    @classmethod
    def of(cls, ranges: Iterable[HoleRange]) -> Self:
        """Merge ranges, which may overlap: several sessions may have read the same offsets."""
        found: list[list[int]] = []
        for identity, lo, hi, count in sorted(ranges):
            last = found[-1] if found else [NONE] * 5
            if last[0] != identity or lo >= last[2]:
                found.append([identity, lo, hi, count, count])
                continue
            same = last[1:3] == [lo, hi]  # holes only become more: the later session saw all
            exact = last[3] == last[2] - last[1] and count == hi - lo
            last[2] = max(last[2], hi)
            last[3] = last[2] - last[1] if exact else max(last[3], count)
            last[4] = max(last[4], count) if same else min(last[4] + count, last[2] - last[1])
        return cls(*np.array(found, dtype=np.int64).reshape(-1, 5).T)

    def without(self, seen: Spans) -> Holes:
        """The holes that are at none of these offsets, whose key is the incarnation.

        `seen` has what the sessions that found the holes saw among them, too.
        """
        widths = self.hi - self.lo
        sweep = Sweep(ranges=Spans(self.identity, self.lo, self.hi), seen=seen)
        # The ranges are disjoint: the sum over a segment is the number of its one range, plus one.
        of, times = sweep.sum("ranges", np.arange(1, len(widths) + 1)) - 1, sweep.sum("seen")
        inside = of >= 0
        pieces, of, times = sweep.segments.take(inside), of[inside], times[inside]
        free, views = np.zeros((2, len(widths)), dtype=np.int64)
        np.add.at(free, of, np.where(times == 0, pieces.lengths, 0))
        np.add.at(views, of, times * pieces.lengths)
        certain = self.least == widths
        # Of other ranges it is unknown which offsets are holes: at most those that were seen more
        # often than there are offsets without a hole.
        least = self.least - np.maximum(views - (widths - self.most), 0)
        rest = pieces.take(certain[of] & (times == 0))
        found = Holes(
            np.append(self.identity[~certain], rest.key),
            np.append(self.lo[~certain], rest.lo),
            np.append(self.hi[~certain], rest.hi),
            np.append(np.clip(least, 0, free)[~certain], rest.lengths),
            np.append(np.minimum(self.most, free)[~certain], rest.lengths),
        )
        order = np.lexsort((found.lo, found.identity))
        return Holes(*(values[order] for values in found))

    @property
    def total(self) -> int:
        """How many holes there are at most."""
        return int(self.most.sum())

    def ranks(self, identity: Longs, offset: Longs) -> tuple[Longs, Longs]:
        """How many of the certain holes are before each of these places: at least, at most.

        The holes between two places are certain from the rank at most of the first one up to the
        rank at least of the second one.
        """
        least = self._before(identity, offset, self.least, last=True)
        return least, self._before(identity, offset, self.least)

    def possible(self, identity: Longs, offset: Longs) -> tuple[Longs, Longs]:
        """The same of all holes that there may be."""
        least = self._before(identity, offset, self.most, last=True)
        return least, self._before(identity, offset, self.most)

    def _before(
        self, identity: Longs, offset: Longs, number: Longs, *, last: bool = False
    ) -> Longs:
        """Holes before places, if each range's `number` of holes are its first or last offsets."""
        sums = np.append(0, np.cumsum(number))
        begins = self.hi - number if last else self.lo
        found = np.zeros(len(offset), dtype=np.int64)
        for each in np.unique(identity).tolist() if len(self.lo) else ():
            mine = identity == each
            begin, end = np.searchsorted(self.identity, [each, each + 1])
            at = begin + np.searchsorted(self.lo[begin:end], offset[mine])
            before = np.maximum(at - 1, 0)
            # Of the range that contains the place, only the offsets before it count.
            inside = np.clip(offset[mine] - begins[before], 0, number[before])
            found[mine] = np.where(at > begin, sums[before] + inside, sums[at])
        return found
