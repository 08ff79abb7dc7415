"""`consume --workers` in a history: each worker is a simulated process, the command another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from mirrortest.workers import consumers
from mirrortest.workers.worker_pool import WorkerPool

from .substitution import substituted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.options import ConsumeOptions

    from .history import Stage
    from .loop import Process


async def consumed_by_workers(stage: Stage, options: ConsumeOptions, workers: int) -> ConsumeReport:
    """The merged report of this many workers, which end by the options' conditions."""

    def pool(*args: Any, **changes: Any) -> _Pool:
        return _Pool(stage, *args, **changes)

    with substituted([(WorkerPool, pool)]):
        command = stage.world.process(options.name)
        found = await command.start(
            consumers.run(
                options,
                workers,
                prepare=lambda: None,
                stop=asyncio.Event(),
                on_progress=lambda _: None,
            )
        )
    report: ConsumeReport = found.report
    return report


class _Worker:
    """A worker as the command sees it; replaces `workers.worker_pool.Worker`."""

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.progress: Any = None
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._process = process
        self._stop = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self.ended.done()

    def start(self, job: Any, options: Any, on_progress: Callable[[Any], None]) -> None:
        def take(progress: Any) -> None:
            self.progress = progress
            on_progress(self)

        main = self._process.start(job(options, stop=self._stop, on_progress=take))
        main.add_done_callback(self._end)

    def stop(self) -> None:
        self._stop.set()

    def kill(self) -> None:
        self._process.kill()

    def _end(self, main: asyncio.Task[Any]) -> None:
        if (error := main.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(main.result())


class _Pool:
    """Replaces `workers.worker_pool.WorkerPool`."""

    def __init__(
        self,
        stage: Stage,
        job: Any,
        shares: Sequence[Any],
        *,
        prepare: Callable[[], None],
        on_progress: Callable[[Any], None],
    ) -> None:
        del prepare
        self._job, self._shares, self._on_progress = job, shares, on_progress
        self.workers = [
            _Worker(number, stage.world.process(options.name))
            for number, options in enumerate(shares, 1)
        ]

    async def __aenter__(self) -> Self:
        for worker, options in zip(self.workers, self._shares, strict=True):
            worker.start(self._job, options, self._on_progress)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
