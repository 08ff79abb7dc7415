"""Sets of integers, stored as sorted, disjoint, half-open intervals.

Clean traffic is one interval per stream, however many messages it has. So memory and work grow with
the number of faults, not of messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class IntervalSet:
    """A mutable set of ints as half-open intervals; adjacent intervals are joined.

    The bounds are in one flat ascending list ``[lo, hi, lo, hi, ...]``: a number is in the set if
    an odd number of bounds are at or below it. Adding at the end is O(1) amortised; elsewhere it
    costs a bisection and a list splice. ``|``, ``&`` and ``-`` are linear.
    """

    __slots__ = ("_bounds", "_count")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds: list[int] = []
        self._count = 0
        for lo, hi in intervals:
            self.add(lo, hi)

    @classmethod
    def from_list(cls, deltas: Sequence[int]) -> IntervalSet:
        """Read what `to_list` wrote.

        Raises:
            ValueError: this is not such a list.
        """
        if len(deltas) % 2:
            raise ValueError("an interval list has an even number of entries")
        bounds: list[int] = []
        at = 0
        for index, delta in enumerate(deltas):
            if type(delta) is not int or (index and delta <= 0):
                raise ValueError("an interval list holds a start and then positive steps")
            at += delta
            bounds.append(at)
        return cls._of(bounds)

    @classmethod
    def _of(cls, bounds: list[int]) -> IntervalSet:
        """Wrap bounds that are already in order."""
        interval_set = cls.__new__(cls)
        interval_set._bounds = bounds  # noqa: SLF001  # of this class
        interval_set._count = sum(bounds[1::2]) - sum(bounds[0::2])  # noqa: SLF001  # likewise
        return interval_set

    def to_list(self) -> list[int]:
        """The bounds, each as its distance from the previous one, which is short in JSON."""
        if not self._bounds:
            return []
        return [self._bounds[0], *(after - before for before, after in pairwise(self._bounds))]

    def copy(self) -> IntervalSet:
        """An independent set of the same numbers."""
        return IntervalSet._of(self._bounds.copy())

    def add(self, lo: int, hi: int) -> int:
        """Add the numbers of [lo, hi), which may be empty; return by how much `len` has grown."""
        if lo >= hi:
            return 0
        bounds = self._bounds
        before = len(bounds)
        if not bounds or lo > bounds[-1]:
            bounds += (lo, hi)
            self._count += hi - lo
        elif lo == bounds[-1]:
            bounds[-1] = hi
            self._count += hi - lo
        else:
            self._count += hi - lo - self.count_within(lo, hi)
            # Bounds equal to lo or hi are removed, which joins adjacent intervals.
            left = bisect_left(bounds, lo)
            right = bisect_right(bounds, hi)
            bounds[left:right] = [lo] * (left % 2 == 0) + [hi] * (right % 2 == 0)
        return (len(bounds) - before) // 2

    def update(self, other: IntervalSet) -> int:
        """Add all numbers of another set; return by how much `len` has grown."""
        if len(other) * 8 < len(self) or not self._bounds or other.min >= self._bounds[-1]:
            return sum(starmap(self.add, other.intervals()))
        return self._combine_into(other)

    def _combine_into(self, other: IntervalSet) -> int:
        merged, before = self | other, len(self)
        self._bounds = merged._bounds  # noqa: SLF001  # of the same class
        self._count = merged.count
        return len(self) - before

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return self._combine(other, (False, True, True, True))

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return self._combine(other, (False, False, False, True))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._combine(other, (False, True, False, False))

    def _combine(self, other: IntervalSet, keep: tuple[bool, bool, bool, bool]) -> IntervalSet:
        """Sweep over both; `keep` is indexed by (in self) + 2 * (in other)."""
        mine, theirs = self._bounds, other._bounds
        if not mine or not theirs:
            kept = (keep[1] and mine) or (keep[2] and theirs) or []
            return IntervalSet._of(kept.copy())
        bounds: list[int] = []
        i = j = 0
        inside = False
        while i < len(mine) or j < len(theirs):
            if j == len(theirs) or (i < len(mine) and mine[i] < theirs[j]):
                at = mine[i]
                i += 1
            else:
                at = theirs[j]
                j += 1
                if i < len(mine) and mine[i] == at:
                    i += 1
            if keep[i % 2 + j % 2 * 2] is not inside:
                inside = not inside
                bounds.append(at)
        return IntervalSet._of(bounds)

    def within(self, lo: int, hi: int) -> IntervalSet:
        """The numbers of the set that are in [lo, hi)."""
        if lo >= hi:
            return IntervalSet()
        left = bisect_right(self._bounds, lo)
        right = bisect_left(self._bounds, hi)
        return IntervalSet._of([lo] * (left % 2) + self._bounds[left:right] + [hi] * (right % 2))

    def missing(self, lo: int, hi: int) -> IntervalSet:
        """The numbers of [lo, hi) that are not in the set."""
        if lo >= hi:
            return IntervalSet()
        left = bisect_right(self._bounds, lo)
        right = bisect_left(self._bounds, hi)
        return IntervalSet._of(
            [lo] * (left % 2 == 0) + self._bounds[left:right] + [hi] * (right % 2 == 0)
        )

    def below(self, bound: int) -> IntervalSet:
        """The numbers of the set that are less than `bound`."""
        return self.within(self._bounds[0], bound) if self._bounds else IntervalSet()

    def count_within(self, lo: int, hi: int) -> int:
        """How many numbers of [lo, hi) are in the set."""
        if lo >= hi:
            return 0
        left = bisect_right(self._bounds, lo)
        right = bisect_left(self._bounds, hi)
        inside = self._bounds[left:right]
        starts, ends = (inside[1::2], inside[0::2]) if left % 2 else (inside[0::2], inside[1::2])
        return sum(ends) - sum(starts) + hi * (right % 2) - lo * (left % 2)

    def around(self, number: int) -> tuple[int, int | None]:
        """The gap [lo, hi) that contains a missing number; None: it has no end."""
        at = bisect_right(self._bounds, number)
        lo = self._bounds[at - 1] if at else 0
        return lo, self._bounds[at] if at < len(self._bounds) else None

    @property
    def count(self) -> int:
        """How many numbers are in the set."""
        return self._count

    @property
    def min(self) -> int:
        """The smallest number.

        Raises:
            ValueError: the set is empty.
        """
        if not self._bounds:
            raise ValueError("an empty set has no smallest number")
        return self._bounds[0]

    @property
    def end(self) -> int:
        """The bound above the largest number; 0 for an empty set."""
        return self._bounds[-1] if self._bounds else 0

    def intervals(self) -> Iterator[tuple[int, int]]:
        """The intervals [lo, hi), ascending."""
        return zip(self._bounds[0::2], self._bounds[1::2], strict=True)

    def __contains__(self, number: int) -> bool:
        return bisect_right(self._bounds, number) % 2 == 1

    def __len__(self) -> int:
        """The number of *intervals*, which is the set's cost; `count` counts numbers."""
        return len(self._bounds) // 2

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"IntervalSet([{', '.join(f'({lo}, {hi})' for lo, hi in self.intervals())}])"


class _Nothing(IntervalSet):
    """An immutable empty set, which can be shared: most sets of a verdict are empty."""

    __slots__ = ()

    def add(self, lo: int, hi: int) -> int:
        """Refuse; nothing can be added."""
        if lo < hi:
            self._refuse()
        return 0

    def _combine_into(self, other: IntervalSet) -> int:
        if other:
            self._refuse()
        return 0

    def __hash__(self) -> int:  # type: ignore[override]  # mutable sets have no hash
        return hash(())  # a dataclass field's default must be hashable

    @staticmethod
    def _refuse() -> NoReturn:
        raise TypeError("the empty set that is shared cannot be added to")


NOTHING: Final[IntervalSet] = _Nothing()
"""The shared empty set."""
