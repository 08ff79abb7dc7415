import numpy as np
import numpy.typing as npt

def differing(left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> int: ...
