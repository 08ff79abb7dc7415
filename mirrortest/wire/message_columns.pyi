from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mirrortest.wire.batch_decoder import Layout, MessageArrays
from mirrortest.wire.record_batch import RecordArrays

SOURCE: str

def read(
    records: RecordArrays,
    rows: NDArray[np.int64],
    like: int,
    layout: Layout,
    identity: int,
    phase_of: Callable[[int], int],
    block: bytes,
    digests: NDArray[np.uint64] | None,
    index: int,
    messages: MessageArrays,
) -> NDArray[np.int64]: ...
def check_values(
    states: NDArray[np.uint64], intended: NDArray[np.uint64], seqs: NDArray[np.uint64]
) -> NDArray[np.uint64]: ...
