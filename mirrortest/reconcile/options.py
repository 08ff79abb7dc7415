"""The defaults of a reconciliation."""

from __future__ import annotations

DEFAULT_MASTER = "local[*]"
DEFAULT_MEMORY = "2g"
MOST_OFFSETS = 10_000_000
"""The most offsets that a look-up in the destination reads."""
