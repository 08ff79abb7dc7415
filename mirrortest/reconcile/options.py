"""What a reconciliation uses unless it is asked for something else."""

from __future__ import annotations

DEFAULT_MASTER = "local[*]"
DEFAULT_MEMORY = "2g"
MOST_OFFSETS = 10_000_000
"""How many offsets a look into the destination itself reads at most."""
