"""Fixed-width ASCII decimal numbers: their widths and limits."""

from __future__ import annotations

SEQ_DIGITS = 12
"""The width of a seq."""

TIME_DIGITS = 19
"""The width of a time in nanoseconds since the epoch."""

SEQ_LIMIT = 10**SEQ_DIGITS
"""One above the greatest seq."""

TIME_LIMIT = 1 << 63
"""One above the greatest time, which must fit a signed 64-bit integer; 19 digits can exceed it."""
