"""The command's side: it starts the workers, hears them, and lets none outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
from multiprocessing import resource_tracker
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import structlog

from mirrortest.errors import WorkerError
from mirrortest.metrics.snapshot import LatestSnapshot, Snapshot
from mirrortest.workers.messages import Ended, Progress, Stop
from mirrortest.workers.worker import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from mirrortest.workers.worker import Job

_log = structlog.get_logger()


class Worker:
    """One process, as the command knows it; `number` counts from 1.

    `ended` is its report, or raises what ended it: an error of its own, or WorkerError where it
    died. `progress` is what it told last, and `published` its metrics and probes.
    """

    def __init__(self, number: int, process: SpawnProcess, connection: Connection) -> None:
        self.number = number
        self.progress: Any = None
        self.published = LatestSnapshot()
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Who waits for several of them retrieves only some.
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._connection = connection
        self._silent = False
        self._listener: Thread | None = None

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    @property
    def gone(self) -> bool:
        """Whether it has ended, and tells nothing more."""
        return self._silent

    def listen(self, on_progress: Callable[[Worker], None]) -> None:
        """Hear it from now on."""
        self._listener = Thread(
            target=self._listen, args=(on_progress,), name=f"worker {self.number}", daemon=True
        )
        self._listener.start()

    def stop(self) -> None:
        """Tell it to drain and end; one that has ended does not mind."""
        with contextlib.suppress(OSError):
            self._connection.send(Stop())

    def kill(self) -> None:
        """End it at once, if it has not ended; returns when it is gone."""
        self._process.kill()
        self._process.join()
        if self._listener is not None:
            self._listener.join()
        self._connection.close()

    def _listen(self, on_progress: Callable[[Worker], None]) -> None:
        last: Ended | None = None
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, Snapshot):
                    self.published.take(message)
                elif isinstance(message, Progress):
                    self._loop.call_soon_threadsafe(self._take, message.progress, on_progress)
                elif isinstance(message, Ended):
                    last = message
        self._silent = True
        self._process.join()
        with contextlib.suppress(RuntimeError):  # nobody waits any longer
            self._loop.call_soon_threadsafe(self._end, last)

    def _take(self, progress: Any, on_progress: Callable[[Worker], None]) -> None:
        self.progress = progress
        on_progress(self)

    def _end(self, last: Ended | None) -> None:
        if self.ended.done():
            return
        if last is None:
            how = _how(self._process.exitcode)
            _log.error("a worker died", worker=self.number, pid=self.pid, how=how)
            self.ended.set_exception(WorkerError(f"worker {self.number} died: {how}"))
        elif last.error is not None:
            self.ended.set_exception(last.error)
        else:
            self.ended.set_result(last.report)


class Crew:
    """The workers of a command, one for each of `shares`, as an async context manager.

    Whoever leaves it kills those that still run. `prepare` is called in each process before
    anything else, `on_progress` on the event loop.
    """

    def __init__(
        self,
        job: Job,
        shares: Sequence[Any],
        *,
        prepare: Callable[[], None],
        on_progress: Callable[[Worker], None],
    ) -> None:
        self._job = job
        self._shares = shares
        self._prepare = prepare
        self._on_progress = on_progress
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            # Nobody leaves what was not entered.
            await self.__aexit__()
            if isinstance(error, OSError):
                number = len(self.workers) + 1
                raise WorkerError(f"worker {number} cannot be started: {error}") from error
            raise
        for worker in self.workers:
            worker.listen(self._on_progress)
            _log.info("worker started", worker=worker.number, pid=worker.pid)
        return self

    def _start(self) -> None:
        # A process of its own kind: no lock and no socket of ours is in it.
        context = multiprocessing.get_context("spawn")
        with _signals_blocked():
            for number, options in enumerate(self._shares, 1):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=work,
                    args=(theirs, number, self._prepare, self._job, options),
                    name=f"worker-{number}",
                )
                process.start()
                theirs.close()
                self.workers.append(Worker(number, process, ours))

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()

    def stop(self) -> None:
        """Tell all to drain and end."""
        for worker in self.workers:
            worker.stop()

    async def ended(self, stop: asyncio.Event) -> list[Any]:
        """Wait for all: the report of each, or what ended it.

        All are told to end once `stop` is set, and when one of them has failed: one that gave up
        its share leaves the others nothing to hold a verdict by.
        """
        stopping = asyncio.ensure_future(stop.wait())
        waited: set[asyncio.Future[Any]] = {stopping, *(worker.ended for worker in self.workers)}
        try:
            while not all(worker.ended.done() for worker in self.workers):
                done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done or any(map(failed, done)):
                    self.stop()
        finally:
            stopping.cancel()
        return [worker.ended.exception() or worker.ended.result() for worker in self.workers]


def failed(ended: asyncio.Future[Any]) -> bool:
    """Whether a worker that is `ended` did not do what it was asked to."""
    if ended.exception() is not None:
        return True
    return getattr(ended.result(), "error", None) is not None


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Processes started meanwhile have SIGINT and SIGTERM blocked; ours come when it is over."""
    # Its start unblocks them, so it comes first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}, and no report"
