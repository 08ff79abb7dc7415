"""The size of each message of a topic, or the user's payload for it, by the message's index.

Each can be computed without those before it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.config.shape import Choice, Gaussian, SizeFile, Uniform
from mirrortest.timing.draws import Draws
from mirrortest.wire.own_payloads import Payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirrortest.config.shape import SizeShape


class MessageSizes:
    """The requested sizes of a topic's messages; random ones are drawn from `seed` and `topic`."""

    def __init__(self, shape: SizeShape, *, seed: int, topic: str) -> None:
        self._shape = shape
        self._draws = Draws(seed, "message-size", topic)
        self._every = shape.every if isinstance(shape, Gaussian | Uniform) else 1
        if isinstance(shape, SizeFile):
            self._choices = np.array(shape.sizes, np.int64)
        if isinstance(shape, Choice):
            self._choices = np.array([size for size, _ in shape.weighted], np.int64)
            shares = list(accumulate(share for _, share in shape.weighted))
            self._bounds = np.array([float(each / shares[-1]) for each in shares[:-1]])

    @property
    def smallest(self) -> int:
        """A lower bound of the sizes, in bytes."""
        return self._shape.smallest

    def of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sizes of the messages with these indices in the topic; bytes."""
        shape = self._shape
        if isinstance(shape, SizeFile):
            return np.asarray(self._choices[indices % len(self._choices)])
        numbers = indices // self._every
        if isinstance(shape, Gaussian):
            drawn = float(shape.mean) + float(shape.deviation) * self._draws.normal(numbers)
            return np.maximum(np.rint(drawn), 0.0).astype(np.int64)
        uniform = self._draws.uniform(numbers)
        if isinstance(shape, Uniform):
            span = shape.high - shape.low + 1
            return np.asarray(shape.low + (uniform * span).astype(np.int64))
        return np.asarray(self._choices[np.searchsorted(self._bounds, uniform, side="right")])


class DrawnPayloads:
    """The payloads of a topic's messages: for each message, one of the user's is drawn."""

    def __init__(self, payloads: Payloads, *, seed: int, topic: str) -> None:
        self._payloads = payloads
        self._draws = Draws(seed, "payload", topic)
        self.smallest = payloads.smallest

    def of(self, indices: NDArray[np.int64]) -> Payloads:
        """The payloads of the messages with these indices in the topic."""
        rows = (self._draws.uniform(indices) * len(self._payloads)).astype(np.int64)
        return self._payloads.taken(rows)


class LaneSizes:
    """The sizes of one lane's messages: every `of`-th message of the topic, from `index` on.

    With the user's payloads, also the payload of each message.

    `actual` converts requested sizes to sizes of record values, which contain at least a message's
    header (`LaneEncoder.value_sizes`). The records of a batch have at most `batch_bytes`; a message
    takes its value's bytes and at most `framing` more.
    """

    def __init__(
        self,
        sizes: MessageSizes | DrawnPayloads,
        *,
        index: int,
        of: int,
        actual: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        framing: int,
        batch_bytes: int,
    ) -> None:
        self._sizes = sizes
        self._index, self._of = index, of
        self._actual = actual
        self._framing = framing
        self._batch_bytes = batch_bytes

    def fitting(self, position: int, count: int) -> tuple[NDArray[np.int64], Payloads | None]:
        """The sizes of the messages from `position` on that fit: at most `count`, at least one."""
        indices = self._index + np.arange(position, position + count, dtype=np.int64) * self._of
        found = self._sizes.of(indices)
        payloads = found if isinstance(found, Payloads) else None
        sizes = self._actual(found.sizes if isinstance(found, Payloads) else found)
        fit = np.searchsorted(np.cumsum(sizes + self._framing), self._batch_bytes, side="right")
        some = slice(max(1, int(fit)))
        return sizes[some], None if payloads is None else payloads.taken(some)

    @property
    def most(self) -> int:
        """How many messages of the smallest size fit into a batch; at least one."""
        least = int(self._actual(np.array([self._sizes.smallest], np.int64))[0])
        return max(1, self._batch_bytes // (least + self._framing))
