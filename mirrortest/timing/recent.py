"""Rates and latencies of the last seconds, as differences between samples of growing counts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Iterable

RECENT_NS = 10_000_000_000
"""How long an event counts as recent."""


class Latencies(NamedTuple):
    """Distributions of a latency, ns: of all messages so far, and of the recent ones.

    `off_ns` and `unmeasured` are as in `Histogram`.
    """

    all: Sparse = Sparse()
    recent: Sparse = Sparse()
    off_ns: int = 0
    unmeasured: int = 0

    @classmethod
    def merged(cls, parts: Iterable[Latencies], running: Iterable[Latencies]) -> Latencies:
        """The latencies of several processes together; of the recent ones, the `running` ones'."""
        each = list(parts)
        return cls(
            _merged(part.all for part in each),
            _merged(part.recent for part in running),
            max((part.off_ns for part in each), default=0),
            sum(part.unmeasured for part in each),
        )


NO_LATENCIES = Latencies()
"""The latencies of no message."""


class Growth(NamedTuple):
    """The recent growth of each count per second, and the latencies."""

    per_second: tuple[float, ...]
    latencies: Latencies


class Recent:
    """Samples of counts and of a histogram, of the last `RECENT_NS` nanoseconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, tuple[int, ...], Histogram]] = deque()

    def sample(self, now_ns: int, counts: tuple[int, ...], histogram: Histogram) -> Growth:
        """Add a sample; return the growth since the newest that is no longer recent, or the first.

        `now_ns` is monotonic. The histogram is kept, so the caller must not add to it any more.
        """
        samples = self._samples
        samples.append((now_ns, counts, histogram))
        # Keep one sample that is no longer recent, so the span is not shorter than `RECENT_NS`.
        while len(samples) > 1 and now_ns - samples[1][0] >= RECENT_NS:
            samples.popleft()
        at_ns, before, earlier = samples[0]
        seconds = (now_ns - at_ns) / 1e9
        return Growth(
            tuple(
                (count - then) / seconds if seconds else 0.0
                for count, then in zip(counts, before, strict=True)
            ),
            Latencies(
                histogram.sparse(),
                histogram.since(earlier),
                histogram.off_ns,
                histogram.unmeasured,
            ),
        )


def _merged(parts: Iterable[Sparse]) -> Sparse:
    """The values of all parts; a bucket may occur more than once, as `Histogram.of` allows."""
    each = list(parts)
    return Sparse(
        sum(part.negative for part in each),
        [bucket for part in each for bucket in part.buckets],
        [count for part in each for count in part.counts],
    )
