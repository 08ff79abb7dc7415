from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Raw: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]

SOURCE: str

def headers(data: Raw) -> list[tuple[int, int, int, int, int, int, int, int]]: ...
def walk(data: Raw, begins: Positions, ends: Positions) -> NDArray[np.int64]: ...
def places(data: Raw, parts: list[memoryview]) -> Positions: ...
def keep_equal(
    data: Raw, starts: Positions, offset: int, expected: Raw, kept: NDArray[np.uint8]
) -> None: ...
def numbers(
    data: Raw, starts: Positions, offset: int, width: int, kept: NDArray[np.uint8]
) -> NDArray[np.uint64]: ...
def words(data: Raw, starts: Positions, offset: int, count: int) -> NDArray[np.uint64]: ...
def differing(
    data: Raw, starts: Positions, expected: Raw, expected_starts: Positions, size: int
) -> NDArray[np.bool_]: ...
def write_records(
    out: Raw,
    position: int,
    first: int,
    count: int,
    row: Raw,
    delta_at: int,
    delta_width: int,
    window_at: int,
    block: Raw,
    window_start: int,
    window_size: int,
    columns: list[tuple[int, int, NDArray[np.uint64]]],
) -> None: ...
