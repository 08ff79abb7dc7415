"""The reason of an error, as the end of a one-line message."""

from __future__ import annotations

import os


def reason_of(error: BaseException) -> str:
    """The system's text of an errno, or the first line of the error's text."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]
