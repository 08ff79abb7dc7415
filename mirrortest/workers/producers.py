"""Several producers of one command."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrortest.config.option_file import document_of
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.produce.options import Share
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.produce_status import merged as merged_status
from mirrortest.produce.producer import run as produce
from mirrortest.produce.recording import TopicNumbers
from mirrortest.workers.worker_metrics import serving
from mirrortest.workers.worker_pool import PoolReport, WorkerPool, common_directory, worker_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.produce_status import ProduceStatus
    from mirrortest.workers.worker_pool import Worker


async def run(
    options: ProduceOptions,
    parts: Sequence[ProduceOptions],
    *,
    prepare: Callable[[], None],
    stop: asyncio.Event,
    on_progress: Callable[[ProduceStatus], None],
) -> PoolReport[ProduceReport]:
    """Produce in several processes, one for each of `split`'s parts; see `produce.producer.run`.

    If one fails, all are stopped, since the ledger of its messages stays incomplete; its error is
    the report's `error`.

    Raises:
        MirrortestError: no worker has a report; the error of the first.
    """
    view = _View(options, on_progress)
    async with WorkerPool(produce, parts, prepare=prepare, on_progress=view.update) as pool:
        with serving(pool, view.status, address=options.metrics_address, port=options.metrics_port):
            ends = await pool.ended(stop)
    reports = [end for end in ends if isinstance(end, ProduceReport)]
    errors = [end for end in ends if isinstance(end, MirrortestError)]
    if not reports:
        raise errors[0]
    return PoolReport(
        merged(options, reports, errors, interrupted=stop.is_set()),
        [
            {
                "producer": report.name,
                "session": report.session,
                "exit_code": report.exit_code,
                "records": report.overall.records,
                "log": report.log,
            }
            for report in reports
        ],
    )


def split(options: ProduceOptions, workers: int) -> list[ProduceOptions]:
    """The options of producers NAME.1 to NAME.N, each with its share of the messages.

    Raises:
        UsageError: there are fewer messages than workers, or a name becomes too long.
    """
    if workers == 1:
        return [options]
    if options.num_records is not None and options.num_records < workers:
        raise UsageError(
            f"--workers {workers}: --num-records {options.num_records} must be at least as many"
        )
    return [
        replace(options, name=worker_name(options.name, index), share=Share(index, workers))
        for index in range(workers)
    ]


def merged(
    options: ProduceOptions,
    reports: Sequence[ProduceReport],
    errors: Sequence[MirrortestError] = (),
    *,
    interrupted: bool = False,
) -> ProduceReport:
    """The reports of several producers as one, under the name that the user gave.

    `interrupted`: a signal ended them.
    """
    numbers: dict[str, TopicNumbers] = {}
    reasons: Counter[str] = Counter()
    behind: dict[str, int] = {}
    for report in reports:
        reasons.update(report.reasons)
        for topic, its in report.numbers.items():
            total = numbers.setdefault(topic, TopicNumbers(its.value_size))
            total.wire_bytes += its.wire_bytes
            total.batches += its.batches
            total.warm.merge(its.warm)
            total.steady.merge(its.steady)
        for topic, nanoseconds in report.behind_ns.items():
            behind[topic] = max(behind.get(topic, 0), nanoseconds)
    own = [report.error for report in reports if report.error is not None]
    return ProduceReport(
        run=options.run,
        name=options.name,
        session=",".join(report.session for report in reports),
        log=common_directory([report.log for report in reports]),
        numbers=numbers,
        lanes=[lane for report in reports for lane in report.lanes],
        reasons=reasons,
        behind_ns=behind,
        warmup_records=options.warmup_records,
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
        error=next(iter((*errors, *own)), None),
        settings=options.settings,
        workload=document_of(options.workload),
        due=not interrupted,
        late_ns=max(report.late_ns for report in reports),
        skipped=sum(report.skipped for report in reports),
    )


class _View:
    """One status for all workers."""

    def __init__(
        self, options: ProduceOptions, on_progress: Callable[[ProduceStatus], None]
    ) -> None:
        self._options = options
        self._on_progress = on_progress
        self._workers: dict[int, Worker] = {}

    def update(self, worker: Worker) -> None:
        """Note a worker's new status, and show that of all."""
        self._workers[worker.number] = worker
        if (status := self.status()) is not None:
            self._on_progress(status)

    def status(self) -> ProduceStatus | None:
        """The status of all; None before any worker has one."""
        each = [
            replace(worker.progress, ended=worker.has_ended)
            for worker in list(self._workers.values())
        ]
        return merged_status(self._options.name, each) if each else None
