"""Random choices read from a tape of bytes, which determine the history.

Zero is always the simplest choice, and past its end a tape reads as zeros. So Hypothesis (or
`shrunk`) simplifies a failing history by simplifying its tape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LENGTH = 320
"""Bytes that a history may use."""
_T = TypeVar("_T")


class Tape:
    """Choices, one byte each."""

    def __init__(self, tape: bytes) -> None:
        self._tape = tape
        self._at = 0

    def below(self, bound: int) -> int:
        """A number in [0, bound); `bound` is at most 256."""
        if bound <= 1:
            return 0
        at = self._at
        self._at += 1
        return self._tape[at] % bound if at < len(self._tape) else 0

    def one_in(self, odds: int) -> bool:
        """True once in `odds` times."""
        return self.below(odds) == odds - 1

    def pick(self, options: Sequence[_T]) -> _T:
        """One of the options, the first being the simplest."""
        return options[self.below(len(options))]


def shrunk(tape: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The simplest tape that still fails, as far as a quick search finds it."""
    before = None
    while tape != before:
        before = tape = tape.rstrip(b"\0")
        # Shorter first, then with zeros, then with smaller bytes.
        for size in (64, 16, 4, 1):
            for at in reversed(range(0, len(tape), size)):
                for part in (b"", bytes(size)):
                    plainer = tape[:at] + part + tape[at + size :]
                    if plainer != tape and fails(plainer):
                        tape = plainer
                        break
        for at in reversed(range(len(tape))):
            for less in (tape[at] // 2, tape[at] - 1):
                plainer = tape[:at] + bytes([max(less, 0)]) + tape[at + 1 :]
                if plainer != tape and fails(plainer):
                    tape = plainer
    return tape
