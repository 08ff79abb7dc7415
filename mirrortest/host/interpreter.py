"""How Python's interpreter shares the time of a process whose event loop must not be held."""

from __future__ import annotations

import gc
import sys

_YOUNG = 2_000
_MIDDLE = 5
_OLD = 1_000
_SWITCH_SECONDS = 0.001


def favour_the_loop() -> None:
    """Let full garbage collections be rare, and threads take short turns, in this process.

    A full collection walks over every stream's state: with 10,000 of them for 0.2 s, and up to four
    times in a judging round. Nearly nothing here needs it, as what is dropped is seldom part of a
    cycle; young cycles, as tasks and exceptions are, are found in steps of a few milliseconds.

    A thread that tells the metrics or writes the log holds the interpreter for a turn each time it
    wants it: of 5 ms, if left alone, by which a message that arrives then is late.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    sys.setswitchinterval(_SWITCH_SECONDS)
