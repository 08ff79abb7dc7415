"""What only grows, as of the last seconds: differences of samples that are taken now and then."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.timing.histogram import Histogram, Sparse

if TYPE_CHECKING:
    from collections.abc import Iterable

RECENT_NS = 10_000_000_000
"""How long what happened is recent."""


class Latencies(NamedTuple):
    """A latency's distribution, ns: of all messages so far, and of the recent ones.

    `off_ns` is as in `Histogram`.
    """

    all: Sparse = Sparse()
    recent: Sparse = Sparse()
    off_ns: int = 0

    @classmethod
    def merged(cls, parts: Iterable[Latencies]) -> Latencies:
        """Those of several processes."""
        each = list(parts)
        return cls(
            _merged(part.all for part in each),
            _merged(part.recent for part in each),
            max((part.off_ns for part in each), default=0),
        )


NO_LATENCIES = Latencies()
"""Of no message."""


class Growth(NamedTuple):
    """By how much each count grew in a second, of late, and the latencies."""

    per_second: tuple[float, ...]
    latencies: Latencies


class Recent:
    """Samples of counts and of a histogram, of the last `RECENT_NS` nanoseconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, tuple[int, ...], Histogram]] = deque()

    def sample(self, now_ns: int, counts: tuple[int, ...], histogram: Histogram) -> Growth:
        """Add a sample; what happened since the oldest that is recent.

        `now_ns` is monotonic. The histogram is kept: the caller no longer adds to it.
        """
        samples = self._samples
        samples.append((now_ns, counts, histogram))
        # The oldest one is just not recent any more, so that the span is a whole one.
        while len(samples) > 1 and now_ns - samples[1][0] >= RECENT_NS:
            samples.popleft()
        at_ns, before, earlier = samples[0]
        seconds = (now_ns - at_ns) / 1e9
        return Growth(
            tuple(
                (count - then) / seconds if seconds else 0.0
                for count, then in zip(counts, before, strict=True)
            ),
            Latencies(histogram.sparse(), histogram.since(earlier), histogram.off_ns),
        )


def _merged(parts: Iterable[Sparse]) -> Sparse:
    """The same values; a bucket may come more than once, as `Histogram.of` reads them."""
    each = list(parts)
    return Sparse(
        sum(part.negative for part in each),
        [bucket for part in each for bucket in part.buckets],
        [count for part in each for count in part.counts],
    )
