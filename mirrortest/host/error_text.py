"""Why something failed, as the end of a message of one line."""

from __future__ import annotations

import os


def reason_of(error: BaseException) -> str:
    """The system's reason without its number, or a library's first line."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]
