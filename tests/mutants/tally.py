"""Reads one mutant, and counts the outcomes of all."""

from __future__ import annotations

from collections import Counter
from random import Random

from .readers import READERS


def read(kind: str, seed: int, number: int) -> bool:
    """Create and read one mutant; returns whether it was understood. Exceptions propagate."""
    return READERS[kind](Random(f"{seed}/{number}"))


class Tally:
    """How many of each kind were understood, were counted and skipped, or raised."""

    def __init__(self) -> None:
        self._found: Counter[tuple[str, str]] = Counter()
        self.failed = 0

    def add(self, kind: str, *, understood: bool) -> None:
        """Count a mutant that raised nothing."""
        self._found[kind, "understood" if understood else "counted"] += 1

    def fail(self, kind: str, error: Exception) -> None:
        """Count a mutant that raised."""
        self.failed += 1
        self._found[kind, type(error).__name__] += 1

    def of(self, kind: str, outcome: str) -> int:
        """How many mutants of a kind had an outcome."""
        return self._found[kind, outcome]

    def table(self) -> str:
        """A line for each kind and outcome."""
        return "\n".join(
            f"{kind:16} {outcome:16} {count:10,}"
            for (kind, outcome), count in sorted(self._found.items())
        )
