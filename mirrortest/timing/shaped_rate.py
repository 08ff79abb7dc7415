"""The intended time of each message under a rate that varies: an open loop, as in `schedule`.

The number of messages due is a line over time that never falls and is straight between knots. Its
value at a knot is computed without earlier messages: in closed form, or as the sum of windows, each
drawn by its number. It counts fractions of a message (`UNIT`), as integers. Message i is due when
the line leaves the value i: after a pause, not before it. The lines of a ramp and a sine have
thousands of knots, and are less than one message away from the curve.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.config.shape import CLIP, Burst, Gaussian, Ramp, Sine, Steps
from mirrortest.config.units import SECOND_NS
from mirrortest.errors import UsageError
from mirrortest.timing.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from mirrortest.config.shape import RateShape

UNIT = 1 << 20
"""Totals count in fractions of a message; this many are one message."""
_KNOTS = 4096
_FINEST_NS = 1_000_000
_CONSTANT_NS = 3600 * SECOND_NS
_WINDOWS = 4096
"""How many windows a block has; fewer, but at least 16, if it would last over `_LONG_NS`."""
_LONG_NS = 10**13
_MAX_TOTAL = 1 << 62
_MAX_NS = 1 << 63
_MOST_PERIODS = 4096
"""A period has at least a message divided by this: less of it would be lost by rounding."""


class _Curve:
    """The times (ns) and totals (in `UNIT`) of knots, both from 0 and ascending.

    Raises UsageError if the times or totals are too large to be counted.
    """

    __slots__ = ("_ns_per_unit", "_slopes", "_time_array", "_total_array", "times", "totals")

    def __init__(self, times: Sequence[int], totals: Sequence[int]) -> None:
        if totals[-1] >= _MAX_TOTAL:
            raise UsageError(
                f"--throughput: {totals[-1] / UNIT:.3g} messages within "
                f"{times[-1] / SECOND_NS:g} s are more than can be counted: lower the rate or the "
                "duration"
            )
        if times[-1] >= _MAX_NS:
            raise UsageError("--throughput: longer than 292 years in all: shorten the durations")
        self.times, self.totals = list(times), list(totals)
        self._time_array = np.array(times, np.int64)
        self._total_array = np.array(totals, np.int64)
        rises = np.diff(self._total_array).astype(np.float64)
        self._slopes = np.divide(
            np.diff(self._time_array), rises, out=np.zeros_like(rises), where=rises > 0
        )
        self._ns_per_unit: list[float] = self._slopes.tolist()

    def time(self, total: int) -> int:
        """When the line leaves a total, which must be below the last."""
        at = bisect_right(self.totals, total) - 1
        # The same two roundings as in `time_array`; neither of them changes an order.
        after = math.floor(float(total - self.totals[at]) * self._ns_per_unit[at])
        return min(self.times[at] + after, self.times[at + 1])

    def time_array(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        """`time` for many totals."""
        at = np.searchsorted(self._total_array, totals, side="right") - 1
        after = np.floor((totals - self._total_array[at]).astype(np.float64) * self._slopes[at])
        times = self._time_array
        return np.minimum(times[at] + after.astype(np.int64), times[at + 1])

    def total(self, time: int) -> int:
        """The approximate total at a time, which must be before the last."""
        at, rise, span = self._piece(time)
        return self.totals[at] + rise * (time - self.times[at]) // span

    def rate(self, time: int) -> float:
        """Messages/s at a time, which must be before the last."""
        _, rise, span = self._piece(time)
        return rise / UNIT * SECOND_NS / span

    def _piece(self, time: int) -> tuple[int, int, int]:
        at = bisect_right(self.times, time) - 1
        return (
            at,
            self.totals[at + 1] - self.totals[at],
            self.times[at + 1] - self.times[at],
        )


class _Block(NamedTuple):
    """A curve, and the time and total at which it begins."""

    at_ns: int
    before: int
    curve: _Curve


class _Line(ABC):
    """A sequence of curves."""

    end: int | None = None
    """The total at which the line ends; None: it never ends."""

    @abstractmethod
    def at_time(self, time: int) -> _Block | None:
        """The block of a time; None after the end."""

    @abstractmethod
    def at_total(self, total: int) -> _Block | None:
        """The block in which the line leaves a total; None at the end and after it."""


class _Repeated(_Line):
    """One curve, followed by another that repeats; either may be missing."""

    def __init__(self, first: _Curve | None, then: _Curve | None) -> None:
        self._first, self._then = first, then
        self._first_ns, self._first_total = (
            (0, 0) if first is None else (first.times[-1], first.totals[-1])
        )
        if then is None or not then.totals[-1]:
            self._then = None
            self.end = self._first_total

    def at_time(self, time: int) -> _Block | None:
        """See `_Line`."""
        if self._first is not None and time < self._first_ns:
            return _Block(0, 0, self._first)
        return self._nth(lambda then: (time - self._first_ns) // then.times[-1])

    def at_total(self, total: int) -> _Block | None:
        """See `_Line`."""
        if self._first is not None and total < self._first_total:
            return _Block(0, 0, self._first)
        return self._nth(lambda then: (total - self._first_total) // then.totals[-1])

    def _nth(self, number: Callable[[_Curve], int]) -> _Block | None:
        then = self._then
        if then is None:
            return None
        n = number(then)
        return _Block(
            self._first_ns + n * then.times[-1], self._first_total + n * then.totals[-1], then
        )


class _Windows(_Line):
    """Windows of one length, each with a rate drawn by its number; negative draws become 0."""

    def __init__(self, shape: Gaussian, draws: Draws) -> None:
        self._shape = shape
        self._draws = draws
        self._count = max(16, min(_WINDOWS, _LONG_NS // shape.every))
        self._span = self._count * shape.every
        highest = shape.mean + CLIP * shape.deviation
        _Curve((0, self._span), (0, math.ceil(highest * self._span * UNIT / SECOND_NS)))
        self._before = [0]
        self._curve = lru_cache(maxsize=4)(self._drawn)

    def at_time(self, time: int) -> _Block | None:
        """See `_Line`."""
        block = time // self._span
        while len(self._before) <= block:
            self._add()
        return self._block(block)

    def at_total(self, total: int) -> _Block | None:
        """See `_Line`."""
        while self._before[-1] <= total:
            self._add()
        return self._block(bisect_right(self._before, total) - 1)

    def _block(self, number: int) -> _Block:
        return _Block(number * self._span, self._before[number], self._curve(number))

    def _add(self) -> None:
        last = len(self._before) - 1
        self._before.append(self._before[last] + self._curve(last).totals[-1])

    def _drawn(self, block: int) -> _Curve:
        shape = self._shape
        first = block * self._count
        normal = self._draws.normal(np.arange(first, first + self._count, dtype=np.int64))
        rates = np.maximum(float(shape.mean) + float(shape.deviation) * normal, 0.0)
        # Rounded once they are summed: of a single window's messages next to nothing may be left.
        totals = np.rint(np.cumsum(rates * (shape.every / SECOND_NS * UNIT))).astype(np.int64)
        times = range(0, self._span + 1, shape.every)
        return _Curve(times, [0, *totals.tolist()])


class ShapedRate:
    """A schedule from time 0, in ns; `highest` is its approximate highest rate in messages/s.

    `seed` and `topic` determine the random draws. Raises UsageError for more messages than can be
    counted.
    """

    def __init__(self, shape: RateShape, *, seed: int, topic: str) -> None:
        self._line, self.highest = _line(shape, seed, topic)
        end = self._line.end
        self.limit = None if end is None else -(-end // UNIT)
        self._last_due = (-1, 0)
        """A time, and how many messages are due by then."""

    def due(self, now_ns: int) -> int:
        """How many messages are due by now; all lanes of a topic ask for the same moment."""
        if now_ns != self._last_due[0]:
            self._last_due = now_ns, self._count_due(now_ns)
        return self._last_due[1]

    def _count_due(self, now_ns: int) -> int:
        if now_ns < 0:
            return 0
        block = self._line.at_time(now_ns)
        if block is None:
            assert self.limit is not None  # noqa: S101  # only a line that ends has no block
            return self.limit
        about = block.before + block.curve.total(now_ns - block.at_ns)
        count = about // UNIT
        # Correct the estimate by the times themselves, so both agree to the nanosecond.
        while (time := self.next_time(count)) is not None and time <= now_ns:
            count += 1
        while count and (time := self.next_time(count - 1)) is not None and time > now_ns:
            count -= 1
        return count

    def next_time(self, index: int) -> int | None:
        """When message `index` is due; None past the end."""
        block = self._line.at_total(index * UNIT)
        if block is None:
            return None
        return block.at_ns + block.curve.time(index * UNIT - block.before)

    def times(self, first: int, count: int, stride: int) -> NDArray[np.int64]:
        """When the messages first, first + stride, ... are due: `count` of them.

        Raises ValueError if one of them is past the end.
        """
        pieces: list[NDArray[np.int64]] = []
        while count > 0:
            block = self._line.at_total(first * UNIT)
            if block is None:
                raise ValueError(f"message {first} is past the end of the schedule")
            at = first * UNIT - block.before
            step = stride * UNIT
            here = min(count, -(-(block.curve.totals[-1] - at) // step))
            totals = at + step * np.arange(here, dtype=np.int64)
            pieces.append(block.curve.time_array(totals) + block.at_ns)
            first += here * stride
            count -= here
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def rate(self, now_ns: int) -> float:
        """Messages/s at a time; 0 before the start and after the end."""
        block = self._line.at_time(now_ns) if now_ns >= 0 else None
        return 0.0 if block is None else block.curve.rate(now_ns - block.at_ns)


class EveryNth:
    """The messages index, index + of, index + 2 * of, ... of a schedule, renumbered from 0."""

    def __init__(self, full: ShapedRate, *, index: int, of: int) -> None:
        self._full, self._index, self._of = full, index, of
        self.limit = None if full.limit is None else self._count(full.limit)

    def due(self, now_ns: int) -> int:
        """How many messages are due by now."""
        return self._count(self._full.due(now_ns))

    def intended(self, lo: int, hi: int) -> NDArray[np.int64]:
        """The times of messages [lo, hi)."""
        return self._full.times(self._index + lo * self._of, hi - lo, self._of)

    def next_time(self, index: int) -> int | None:
        """When message `index` is due; None past the end."""
        return self._full.next_time(self._index + index * self._of)

    def _count(self, full: int) -> int:
        return max(0, -((self._index - full) // self._of))


def _line(shape: RateShape, seed: int, topic: str) -> tuple[_Line, float]:
    if isinstance(shape, Gaussian):
        draws = Draws(seed, "throughput", topic)
        # Three deviations: higher rates are rare, and the backlog they cause is worked off.
        return _Windows(shape, draws), float(shape.mean + 3 * shape.deviation)
    return _fixed_line(shape)


@lru_cache(maxsize=16)
def _fixed_line(shape: Ramp | Steps | Burst | Sine) -> tuple[_Line, float]:
    """The line of a shape without random draws: it is the same for all topics."""
    match shape:
        case Ramp():
            first = _sampled(shape.duration, lambda ns: _ramp_total(shape, ns))
            return _Repeated(first, _constant(shape.end)), float(max(shape.start, shape.end))
        case Sine():
            curve = _sampled(shape.period, lambda ns: _sine_total(shape, ns))
            return _periodic(curve), float(shape.mean + shape.amplitude)
        case Burst():
            rates = ((shape.peak, shape.lasting), (shape.base, shape.every - shape.lasting))
            return _periodic(_stepped(rates)), float(max(shape.base, shape.peak))
        case Steps():
            highest = float(max(step.rate for step in shape.steps))
            timed = [(rate, ns) for rate, ns in shape.steps if ns is not None]
            last = shape.steps[-1]
            then = _constant(last.rate) if last.duration is None else None
            return _Repeated(_stepped(timed) if timed else None, then), highest


def _periodic(period: _Curve) -> _Line:
    if period.totals[-1] * _MOST_PERIODS < UNIT:
        raise UsageError(
            f"--throughput: less than one message in {_MOST_PERIODS:,} periods: raise the rate or "
            "make the period longer"
        )
    return _Repeated(None, period)


def _units(messages: Fraction) -> int:
    """The nearest number of `UNIT` fractions."""
    return math.floor(messages * UNIT + Fraction(1, 2))


def _constant(rate: Fraction) -> _Curve:
    return _stepped([(rate, _CONSTANT_NS)])


def _stepped(rates: Iterable[tuple[Fraction, int]]) -> _Curve:
    times, sums = [0], [Fraction(0)]
    for rate, duration in rates:
        times.append(times[-1] + duration)
        sums.append(sums[-1] + rate * duration / SECOND_NS)
    return _Curve(times, [_units(each) for each in sums])


def _sampled(duration: int, total: Callable[[int], Fraction]) -> _Curve:
    knots = max(1, min(_KNOTS, duration // _FINEST_NS))
    times = [duration * knot // knots for knot in range(knots + 1)]
    # Rounding must not make the line fall where it is flat.
    return _Curve(times, list(accumulate((_units(total(time)) for time in times), max)))


def _ramp_total(shape: Ramp, ns: int) -> Fraction:
    """How many messages are due by a time in a ramp: the integral of the rate."""
    rise = (shape.end - shape.start) * ns / shape.duration
    return (shape.start + rise / 2) * ns / SECOND_NS


def _sine_total(shape: Sine, ns: int) -> Fraction:
    """How many messages are due by a time in a period; a full one has as many as at the mean."""
    turns = 1 - math.cos(2 * math.pi * (ns / shape.period)) if ns < shape.period else 0.0
    waves = Fraction(turns / (2 * math.pi)) * shape.period
    return (shape.mean * ns + shape.amplitude * waves) / SECOND_NS
