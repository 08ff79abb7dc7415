"""One life of the faulty mirror, without clusters: when it is over."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirrortest.faults.replicator import Replicator

if TYPE_CHECKING:
    from collections.abc import Iterable

AT = ("t", 0)


class Reader:
    """Of a topic with three records, which come with the third call."""

    def __init__(self, position: SimpleNamespace) -> None:
        self.position = position
        self.calls = 0

    async def next(self, _: float) -> list[Any]:
        self.calls += 1
        if self.calls == 3:
            self.position.next = 3
        return []

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 3)


class Quiet(Replicator):
    """Does nothing with what comes."""

    def __init__(self, idle_timeout: float) -> None:
        never = {"refresh_interval": math.inf, "save_interval": math.inf}
        self._options: Any = SimpleNamespace(idle_timeout=idle_timeout, **never)
        position = SimpleNamespace(next=0)
        self.reader = Reader(position)
        self._reader: Any = self.reader
        self._writers: Any = SimpleNamespace(check=lambda: None)
        self._truth: Any = SimpleNamespace(read=lambda *_: position)
        self._injectors: Any = {AT: None}
        self._changed = False

    async def _inject(self, items: Iterable[Any]) -> None: ...

    async def _tick(self) -> None: ...

    def _show(self) -> None: ...


async def test_what_has_come_is_read_before_silence_ends_it() -> None:
    """A machine that stood still lets the idle timeout pass before anything was fetched."""
    replicator = Quiet(idle_timeout=0)
    await replicator._mirror(asyncio.Event())
    assert replicator.reader.calls == 3
