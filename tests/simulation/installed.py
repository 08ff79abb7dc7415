"""Which real parts the simulation replaces inside `mirrortest`."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirrortest.host import allocator, interpreter, usage
from mirrortest.kafka import library
from mirrortest.kafka.sender import _Pending
from mirrortest.produce.lane import Flight, Lane
from mirrortest.seqlog.files import last_incarnation
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.writer import SequenceLog

from . import clients, sequence_log
from .loop import PROCESS
from .sequence_log import Nowhere, SimulatedLog
from .substitution import substituted
from .virtual_time import VIRTUAL_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@contextmanager
def installed() -> Iterator[None]:
    """Until the context ends, the applications run in virtual time on simulated clusters."""
    with _replaced(), _steady_order():
        yield


@contextmanager
def _steady_order() -> Iterator[None]:
    """Hash these by value: their sets have the same order in each run, at any address."""
    hashes: dict[Any, Callable[[Any], int]] = {
        Lane: lambda lane: hash(lane.stream),
        Flight: lambda flight: hash((flight.seq_lo, flight.sent)),
        _Pending: lambda pending: hash(pending.where),
    }
    before = {kind: kind.__hash__ for kind in hashes}
    for kind, function in hashes.items():
        kind.__hash__ = function
    try:
        yield
    finally:
        for kind, original in before.items():
            kind.__hash__ = original


def _replaced() -> AbstractContextManager[None]:
    return substituted(
        [
            (time, VIRTUAL_TIME),
            (time.monotonic_ns, VIRTUAL_TIME.monotonic_ns),
            (time.monotonic, VIRTUAL_TIME.monotonic),
            (time.time_ns, VIRTUAL_TIME.time_ns),
            (time.time, VIRTUAL_TIME.time),
            (secrets, SimpleNamespace(token_hex=_token)),
            (library.library, lambda _: clients),
            (SequenceLog, SimulatedLog),
            (last_incarnation, sequence_log.last_incarnation),
            (Location, Nowhere),
            # One process plays thousands of histories: this tuning would keep all their garbage.
            (interpreter.tune_for_event_loop, _nothing),
            (allocator.keep_large_buffers, _nothing),
            (allocator.release_free_memory, _nothing),
            (usage.cpu_seconds, lambda: 0.0),
            (usage.resident_bytes, _nothing),
        ]
    )


def _token(size: int) -> str:
    process = PROCESS.get()
    assert process is not None
    return process.random.randbytes(size).hex()


def _nothing(*_: Any) -> None:
    """Replaces functions that tune or measure the machine."""
