import numpy as np
from numpy.typing import NDArray

from mirrortest.wire.kernels import Positions, Raw

SOURCE: str

def digests(data: Raw, starts: Positions, lengths: Positions) -> NDArray[np.uint64]: ...
def digest(data: Raw) -> int: ...
