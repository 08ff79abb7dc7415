# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The loops over records that are compiled."""


def differing(const unsigned char[::1] left, const unsigned char[::1] right) -> int:
    """How many of the bytes of two arrays of one length differ."""
    cdef Py_ssize_t at
    cdef Py_ssize_t found = 0
    if left.shape[0] != right.shape[0]:
        raise ValueError("arrays of different lengths")
    for at in range(left.shape[0]):
        found += left[at] != right[at]
    return found
