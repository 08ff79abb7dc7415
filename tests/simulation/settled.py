"""Which faults every verdict already withstands; the others are for `make simulate` to find."""

from __future__ import annotations

from .faults import KINDS
from .plan import FEATURES

OPEN = frozenset(
    {
        "stale_leader",
        "topic_recreated",
        "topic_recreated_unseen",
        "unclean_election",
        "unclean_election_refilled",
        "unclean_election_resent",
    }
)
"""Faults under which a wrong verdict is known, and not repaired yet."""
SETTLED = (KINDS | FEATURES) - OPEN
