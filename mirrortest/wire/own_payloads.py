"""The user's own payloads: values that are not generated, and that their digests prove."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrortest.wire.payload import Window

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """The user's values: each is a part of `data`, with its size in bytes and its digest."""

    data: bytes
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    digests: NDArray[np.uint64]
    source: str = ""
    """Where they were read from, as shown to users."""

    @classmethod
    def of(
        cls, data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], source: str = ""
    ) -> Payloads:
        """Build from `data`, and compute the digests, which reads all of it."""
        # This imports numpy. The help of commands with such options must not wait for that.
        from mirrortest.wire.digests import digests  # noqa: PLC0415

        return cls(data, starts, sizes, digests(data, starts, sizes), source)

    def __len__(self) -> int:
        return len(self.sizes)

    def taken(self, rows: NDArray[np.int64] | slice) -> Payloads:
        """The payloads at these indices, in their order."""
        return replace(
            self, starts=self.starts[rows], sizes=self.sizes[rows], digests=self.digests[rows]
        )

    @property
    def smallest(self) -> int:
        """Bytes of the smallest payload."""
        return int(self.sizes.min())

    @property
    def largest(self) -> int:
        """Bytes of the largest payload."""
        return int(self.sizes.max())

    @property
    def shown(self) -> str:
        """Their number and sizes, as shown to users."""
        return f"{len(self):,} payloads of {self.smallest:,} to {self.largest:,} bytes"

    def window(self) -> Window:
        """The window that makes them the values of messages."""
        return Window(self.data, self.starts, 0, 0, 0)
