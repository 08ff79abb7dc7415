"""An event loop in virtual time, and the processes that run in it.

Nothing ever blocks: if no callback is ready, the time jumps to the next timer. Every callback
belongs to the process in whose context it runs, or to the world (brokers, mirror, faults). The
callbacks of a paused process wait until it resumes; those of a killed process are dropped, so that
it has no effect after its death.
"""

from __future__ import annotations

import asyncio
import heapq
import io
import itertools
import math
import sys
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine
    from random import Random

    from .world import World

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The simulated process to which the running callback belongs; None: the world."""

START_NS = 1_000 * 1_000_000_000
"""The monotonic clock at the start of a history."""
_MOST_STEPS = 50_000
"""More turns than this without an idle one, which waits for a timer, are an endless loop."""
_TURN_NS = 20_000
"""The virtual time that a turn of the loop takes."""
_STUBBORN = 20
"""How often a coroutine may await something new while it is being closed."""

_numbers = itertools.count(1)


class HangError(AssertionError):
    """Nothing is ready and nothing ever will be, or the loop never waits for a timer."""


class _Numbered:
    """Its hash does not depend on its address: sets have the same order in each run."""

    _number = 0

    def __hash__(self) -> int:
        self._number = self._number or next(_numbers)
        return self._number


class _Future(_Numbered, asyncio.Future):  # type: ignore[type-arg]
    pass


class _Task(_Numbered, asyncio.Task):  # type: ignore[type-arg]
    pass


class _Handle(asyncio.Handle):
    """A cheap handle: a history creates thousands."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context: Context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None


class Process:
    """One operating-system process: its tasks, its wall clock, its source of random ids.

    `wall_offset_ns` is how far its wall clock is ahead.
    """

    def __init__(self, world: World, name: str, random: Random, *, wall_offset_ns: int = 0) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.wall_offset_ns = wall_offset_ns
        self.alive = True
        self.running = True
        self.main: asyncio.Task[Any] | None = None
        self.on_kill: Callable[[], None] = lambda: None
        self._deferred: list[asyncio.Handle] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run the process's main coroutine."""
        context = Context()
        context.run(PROCESS.set, self)
        loop: SimulationLoop = self.world.loop
        self.main = context.run(loop.create_task, work)
        return self.main

    def pause(self) -> None:
        """SIGSTOP: the world continues without it."""
        self.running = False

    def resume(self) -> None:
        """SIGCONT: callbacks that became ready meanwhile run now, in order."""
        if self.alive and not self.running:
            self.running = True
            deferred, self._deferred = self._deferred, []
            self.world.loop.take_up(deferred)

    def kill(self) -> None:
        """SIGKILL: none of its callbacks ever runs again."""
        if self.alive:
            self.alive = self.running = False
            self._deferred.clear()
            self.on_kill()

    @property
    def waits(self) -> bool:
        """Whether one of its callbacks became ready while it was paused."""
        return bool(self._deferred)

    def defer(self, handle: asyncio.Handle) -> None:
        """Keep a callback until the process resumes."""
        if self.alive:
            self._deferred.append(handle)


class SimulationLoop(asyncio.BaseEventLoop):
    """See the module."""

    # Attributes of `asyncio.BaseEventLoop` that its type stubs lack.
    _ready: deque[Any]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)
        self._now_ns = START_NS
        self._steps = 0
        self._closing = False
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        """A heap of (time in s, number, handle), some of them cancelled."""
        self.failure: BaseException | None = None
        """The first error of the simulated world itself."""
        self._everything: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._new_task)
        self.set_exception_handler(lambda *_: None)

    @property
    def now_ns(self) -> int:
        """Virtual monotonic time."""
        return self._now_ns

    def time(self) -> float:
        """See `asyncio.loop`; virtual seconds."""
        return self._now_ns / 1e9

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.loop`."""
        return _Future(loop=self)

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any
    ) -> asyncio.Task[Any]:
        task = _Task(coroutine, loop=loop, **more)
        # Kept to the end: a killed process's task would run its cleanup when collected.
        self._everything.append(task)
        return task

    def run_in_executor(  # type: ignore[override]  # of any arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do a thread's work in one step, at a later time."""
        done = self.create_future()

        def work() -> None:
            if done.done():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  # as an executor does
                done.set_exception(error)

        self.call_later(0.001, work)
        return done

    async def create_connection(self, *_: Any, **__: Any) -> Any:
        """There is no network: clients reach brokers through `net`."""
        raise ConnectionRefusedError

    def take_up(self, handles: list[asyncio.Handle]) -> None:
        """Run these callbacks next."""
        self._ready.extend(handles)

    def call_soon(  # type: ignore[override]  # of any arguments
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        """See `asyncio.loop`; nothing is scheduled once the history is over."""
        handle = _Handle(callback, args, self, context)
        if not self._closing:
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # of any arguments
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop`."""
        return self.call_at(self._now_ns / 1e9 + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # of any arguments
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop`."""
        handle = _Handle(callback, args, self, context)
        heapq.heappush(self._timers, (when, next(_numbers), handle))
        return handle

    def _write_to_self(self) -> None:
        """The loop never sleeps."""

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Generators end with the tasks that iterate over them."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Likewise."""

    def _run_once(self) -> None:
        if self.failure is not None:
            raise self.failure
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise HangError(f"nothing will ever happen again\n{self.stacks()}")
            self._now_ns = max(self._now_ns, math.ceil(timers[0][0] * 1e9))
            self._steps = 0
        # Turns take time, or a wait shorter than a float's resolution would never end.
        self._now_ns += _TURN_NS
        until = (self._now_ns + 1) / 1e9
        while timers and timers[0][0] < until:
            ready.append(heapq.heappop(timers)[2])
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise HangError(f"an endless loop\n{self.stacks()}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            context = handle._context
            process = context.get(PROCESS)
            if process is not None and not process.running:
                process.defer(handle)
                continue
            try:
                context.run(handle._callback, *handle._args)
            except Exception:
                # As in asyncio, a process's loop goes on; errors of the world must not be hidden.
                if process is None:
                    raise

    def stacks(self) -> str:
        """Where each task of the world and of live processes waits."""
        text = io.StringIO()
        for task in self._everything:
            process = task.get_context().get(PROCESS) if hasattr(task, "get_context") else None
            if task.done() or (process is not None and not process.alive):
                continue
            task.print_stack(file=text)
        return text.getvalue()

    def put_away(self) -> None:
        """End the remaining tasks without any effect: the history is over."""
        self._closing = True
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        # Cleanups create tasks, which never run. Without this loop they would create a real one.
        asyncio._set_running_loop(self)
        try:
            while self._everything:
                tasks, self._everything = self._everything, []
                self._close_all(tasks)
                tasks.clear()
        finally:
            asyncio._set_running_loop(None)
            sys.unraisablehook = before
        self.close()

    @staticmethod
    def _close_all(tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            for _ in range(_STUBBORN):
                try:
                    coroutine.close()
                except BaseException:  # noqa: BLE001  # it awaits something in its cleanup
                    continue
                break
