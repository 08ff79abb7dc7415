"""One simulated world: its time, its clusters, its processes, and what has happened in it."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any

from .cluster import Cluster
from .loop import START_NS, Process, SimulationLoop
from .net import Net

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .sequence_log import SimulatedLog


class World:
    """Everything that a history consists of; all randomness in it comes from `seed`."""

    def __init__(self, seed: str) -> None:
        self.loop = SimulationLoop()
        self.random = Random(seed)
        self.source = Cluster("source")
        self.destination = Cluster("destination")
        self.net = Net(self)
        self.processes: list[Process] = []
        self.logs: list[SimulatedLog] = []
        self.faults: Counter[str] = Counter()
        """Injected faults by kind, and those that took effect as `KIND took effect`."""
        self.happened: Counter[str] = Counter()
        """What faults and chance caused."""
        self.events: list[tuple[int, str, tuple[Any, ...]]] = []
        self.log_fails: dict[str, int] = {}
        """process -> how many more syncs of its logs succeed before one fails"""
        self.log_slow = 0.0
        self.context = Context()
        """Work that belongs to no process runs in it."""
        self._worked_ns = 0
        self.coordinators: dict[tuple[str, str], Any] = {}
        """(cluster, group id) -> its coordinator"""
        self._news: dict[tuple[str, str], list[asyncio.Future[None]]] = {}

    @property
    def now_ns(self) -> int:
        """Virtual monotonic time."""
        return self.loop.now_ns

    @property
    def seconds(self) -> float:
        """Virtual seconds since the start."""
        return (self.loop.now_ns - START_NS) / 1e9

    def cluster_at(self, address: str) -> Cluster:
        """The cluster of a bootstrap server."""
        return self.source if address == self.source.address else self.destination

    def process(self, name: str, *, wall_offset_ns: int = 0) -> Process:
        """A new process."""
        process = Process(self, name, Random(self.random.random()), wall_offset_ns=wall_offset_ns)
        self.processes.append(process)
        return process

    def later(self, seconds: float, call: Callable[..., Any], *args: Any) -> asyncio.Handle:
        """Schedule a call in the world, whatever happens to the process that asks for it."""
        when = self.loop.now_ns / 1e9 + seconds
        return self.loop.call_at(when, call, *args, context=self.context)

    def task(self, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine that belongs to no process; an error in it ends the history."""
        task: asyncio.Task[Any] = self.context.copy().run(self.loop.create_task, work)
        task.add_done_callback(self._failed, context=self.context)
        return task

    def _failed(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.failure = self.loop.failure or error

    def worked_ns(self) -> int:
        """The virtual time, plus what the processes' own work seems to have taken."""
        if self.random.random() < 0.05:
            self._worked_ns += 3_000_000  # longer than a slice of `host.time_slice`
        return self.loop.now_ns + self._worked_ns

    # -- news of appended records -----------------------------------------------------------------

    def news(self, cluster: str, topic: str) -> None:
        """Wake the futures that wait for a topic: something was appended."""
        waiting = self._news.pop((cluster, topic), None)
        for future in waiting or ():
            if not future.done():
                self.later(self.net.latency(), _wake, future)

    def watch(self, cluster: str, topic: str, future: asyncio.Future[None]) -> None:
        """Complete a future soon after something is appended."""
        self._news.setdefault((cluster, topic), []).append(future)

    # -- what happened ----------------------------------------------------------------------------

    def note(self, what: str, *about: Any) -> None:
        """Add an event to the trace."""
        self.events.append((self.loop.now_ns, what, about))

    def count(self, fault: str, times: int = 1) -> None:
        """Count a fault, or its effect."""
        self.faults[fault] += times

    def digest(self) -> str:
        """The hash of the whole trace: equal for two runs of one history."""
        found = hashlib.sha256()
        for event in self.events:
            found.update(repr(event).encode())
        return found.hexdigest()[:16]

    def trace(self) -> str:
        """The events, one per line, with virtual seconds."""
        return "\n".join(
            f"{(at - START_NS) / 1e9:10.4f}  {what}  {'  '.join(map(str, about))}"
            for at, what, about in self.events
        )


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
