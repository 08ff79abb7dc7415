from array import array
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Raw: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]

SOURCE: str

def headers(data: Raw) -> list[tuple[int, int, int, int, int, int, int, int]]: ...
def walk(data: Raw, begins: Positions, ends: Positions) -> NDArray[np.int64]: ...
def places(data: Raw, parts: list[memoryview]) -> Positions: ...
def encode_records(
    header_size: int,
    key: Raw,
    head: Raw,
    after: Raw,
    sizes: NDArray[np.int64],
    count: int,
    columns: list[tuple[int, int, NDArray[np.uint64]]],
    block: Raw,
    starts: array[int] | Positions,
    step: int,
    period: int,
    compressibility: int,
) -> memoryview: ...
