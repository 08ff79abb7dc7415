"""A measurement split at the end of its warm-up: the whole run, and the steady state after it.

The first messages pay for connections, metadata and a mirror that has just found the topic. They
are never hidden: the whole stands beside the steady state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Phase:
    """A stretch of a run: batches that came, their sizes in bytes, their latencies in nanoseconds.

    Rates are of what came after the first batch, over the time since it: how long the first batch
    itself took, nobody knows.

    Attributes:
        latency: of every message.
        size: bytes in all.
        first_ns, last_ns: when the first and the last batch came; 0 while nothing has.
    """

    def __init__(self) -> None:
        self.latency = Histogram()
        self.size = 0
        self.first_ns = 0
        self.last_ns = 0
        self._first_messages = 0
        self._first_size = 0

    def add(self, latency_ns: NDArray[np.int64], size: int, at_ns: int) -> None:
        """Count a batch of `size` bytes that came at `at_ns`, of a clock that only rises."""
        if not len(latency_ns):
            return
        if not self.messages:
            self.first_ns = at_ns
            self._first_messages, self._first_size = len(latency_ns), size
        self.latency.add(latency_ns)
        self.size += size
        self.last_ns = at_ns

    @property
    def messages(self) -> int:
        """How many messages came."""
        return self.latency.count

    @property
    def seconds(self) -> float:
        """The time between the first and the last batch."""
        return (self.last_ns - self.first_ns) / 1e9

    @property
    def messages_per_second(self) -> float | None:
        """The rate; None while there is one batch or none."""
        return (self.messages - self._first_messages) / self.seconds if self.seconds else None

    @property
    def bytes_per_second(self) -> float | None:
        """The rate in bytes; None while there is one batch or none."""
        return (self.size - self._first_size) / self.seconds if self.seconds else None


class SteadyState:
    """The first `warm_up` messages belong to the whole alone.

    Attributes:
        whole: everything.
        steady: everything after the warm-up; the same as the whole where there is none.

    Raises:
        ValueError: `warm_up` is below 0.
    """

    def __init__(self, warm_up: int = 0) -> None:
        if warm_up < 0:
            raise ValueError("a warm-up is no negative number of messages")
        self.whole = Phase()
        self.steady = Phase()
        self._left = warm_up

    @property
    def warming(self) -> bool:
        """Whether messages of the warm-up are still to come."""
        return self._left > 0

    def add(self, latency_ns: NDArray[np.int64], size: int, at_ns: int) -> None:
        """Count a batch; where the warm-up ends within it, its bytes are split in proportion."""
        count = len(latency_ns)
        skipped = min(self._left, count)
        self._left -= skipped
        self.whole.add(latency_ns, size, at_ns)
        if skipped < count:
            share = size * (count - skipped) // count
            self.steady.add(latency_ns[skipped:], share, at_ns)
