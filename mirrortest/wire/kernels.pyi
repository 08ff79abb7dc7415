from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Raw: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]

SOURCE: str

def headers(data: Raw) -> list[tuple[int, int, int, int, int, int, int, int]]: ...
def walk(data: Raw, begins: Positions, ends: Positions) -> NDArray[np.int64]: ...
def places(data: Raw, parts: list[memoryview]) -> Positions: ...
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
