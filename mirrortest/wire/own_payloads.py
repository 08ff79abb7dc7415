"""Payloads of the user's: values that no generator makes, and that their digests prove."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrortest.wire.payload import Window

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """Values of the user's, each a stretch of `data`, with its size in bytes and its digest."""

    data: bytes
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    digests: NDArray[np.uint64]
    source: str = ""
    """Where they were read, for people."""

    @classmethod
    def of(
        cls, data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], source: str = ""
    ) -> Payloads:
        """With their digests: all of `data` is read."""
        # With numpy, which the help of a command that has such options must not wait for.
        from mirrortest.wire.digests import digests  # noqa: PLC0415

        return cls(data, starts, sizes, digests(data, starts, sizes), source)

    def __len__(self) -> int:
        return len(self.sizes)

    def taken(self, rows: NDArray[np.int64] | slice) -> Payloads:
        """Those at these places, in their order."""
        return replace(
            self, starts=self.starts[rows], sizes=self.sizes[rows], digests=self.digests[rows]
        )

    @property
    def smallest(self) -> int:
        """Bytes of the smallest."""
        return int(self.sizes.min())

    @property
    def largest(self) -> int:
        """Bytes of the largest."""
        return int(self.sizes.max())

    @property
    def shown(self) -> str:
        """How many there are, and of which sizes."""
        return f"{len(self):,} payloads of {self.smallest:,} to {self.largest:,} bytes"

    def window(self) -> Window:
        """These, as the values of messages."""
        return Window(self.data, self.starts, 0, 0, 0)
