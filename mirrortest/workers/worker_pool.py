"""Starts the worker processes of a command, receives their messages, and ends them with it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing import resource_tracker
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import structlog

from mirrortest.errors import WorkerError
from mirrortest.metrics.snapshot import LatestSnapshot, Snapshot
from mirrortest.wire.stream import checked_name
from mirrortest.workers.worker_process import Ended, Progress, Stop, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from mirrortest.workers.worker_process import Job

_log = structlog.get_logger()


class _Summary(Protocol):
    def to_json(self) -> Mapping[str, Any]: ...


Report = TypeVar("Report", bound=_Summary)


@dataclass(frozen=True)
class PoolReport(Generic[Report]):
    """One report of all workers, and a few facts of each if there are several."""

    report: Report
    workers: Sequence[dict[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        """The versioned summary, with the facts of each worker."""
        summary = self.report.to_json()
        return {**summary, **({"workers": list(self.workers)} if self.workers else {})}


def common_directory(logs: Sequence[str]) -> str:
    """The directory, or URI, that contains all logs."""
    parts = [log.split("/") for log in logs]
    common = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return "/".join(common)


def worker_name(name: str, index: int) -> str:
    """The name of a worker's producer or consumer; `index` from 0.

    Raises:
        UsageError: the name becomes too long.
    """
    return checked_name(f"{name}.{index + 1}")


class Worker:
    """One worker process, as the command sees it; `number` counts from 1.

    `ended` is its report, or raises the error that ended it: its own, or WorkerError if it died.
    `progress` is the latest that it sent, and `published` its metrics and probes. Once it
    `has_ended`, it sends nothing more.
    """

    def __init__(self, number: int, process: SpawnProcess, connection: Connection) -> None:
        self.number = number
        self.progress: Any = None
        self.published = LatestSnapshot()
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Callers that wait for several workers do not retrieve all exceptions.
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._connection = connection
        self.has_ended = False
        self._listener: Thread | None = None

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    def listen(self, on_progress: Callable[[Worker], None]) -> None:
        """Start to receive its messages."""
        self._listener = Thread(
            target=self._listen, args=(on_progress,), name=f"worker {self.number}", daemon=True
        )
        self._listener.start()

    def stop(self) -> None:
        """Ask it to drain and end."""
        with contextlib.suppress(OSError):
            self._connection.send(Stop())

    def kill(self) -> None:
        """Kill it if it still runs; return once it has ended."""
        self._process.kill()
        self._process.join()
        if self._listener is not None:
            self._listener.join()
        self._connection.close()

    def _listen(self, on_progress: Callable[[Worker], None]) -> None:
        last: Ended | None = None
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, Snapshot):
                    self.published.take(message)
                elif isinstance(message, Progress):
                    self._loop.call_soon_threadsafe(self._take, message.progress, on_progress)
                elif isinstance(message, Ended):
                    last = message
        except (EOFError, OSError):
            pass
        except Exception:  # noqa: BLE001  # whatever the error, `ended` must be set
            _log.exception("a worker's message cannot be read: the worker is ended")
            self._process.kill()
        self.has_ended = True
        self._process.join()
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._end, last)

    def _take(self, progress: Any, on_progress: Callable[[Worker], None]) -> None:
        self.progress = progress
        on_progress(self)

    def _end(self, last: Ended | None) -> None:
        if self.ended.done():
            return
        if last is None:
            how = _end_of(self._process.exitcode)
            _log.error("a worker died", worker=self.number, pid=self.pid, how=how)
            self.ended.set_exception(WorkerError(f"worker {self.number} died: {how}"))
        elif last.error is not None:
            self.ended.set_exception(last.error)
        else:
            self.ended.set_result(last.report)


class WorkerPool:
    """The workers of a command, one for each of `shares`, as an async context manager.

    Its exit kills those that still run. `prepare` is called first in each process, `on_progress` on
    the event loop.
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
            # A context manager that fails to enter is not exited.
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
        # A spawned process inherits no lock and no socket.
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

    async def ended(self, stop: asyncio.Event) -> list[Any]:
        """Wait for all workers; return the report of each, or the error that ended it.

        All are asked to end once `stop` is set, or when one has failed: without its share there is
        no verdict.
        """
        stopping = asyncio.ensure_future(stop.wait())
        waited: set[asyncio.Future[Any]] = {stopping, *(worker.ended for worker in self.workers)}
        try:
            while not all(worker.ended.done() for worker in self.workers):
                done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done or any(map(_failed, done)):
                    for worker in self.workers:
                        worker.stop()
        finally:
            stopping.cancel()
        return [worker.ended.exception() or worker.ended.result() for worker in self.workers]


def _failed(ended: asyncio.Future[Any]) -> bool:
    """Whether a worker that has `ended` failed."""
    if ended.exception() is not None:
        return True
    return getattr(ended.result(), "error", None) is not None


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM, also in processes that are started within the context."""
    # Starting the resource tracker would unblock them.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_of(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"ended by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}, and no report"
