"""Several producers behind one command."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirrortest.errors import MirrortestError
from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import ProduceProgress, ProduceReport
from mirrortest.produce.producer import run as produce
from mirrortest.produce.recording import TopicNumbers
from mirrortest.workers.crew import Crew
from mirrortest.workers.scrape import serving
from mirrortest.workers.shares import producers
from mirrortest.workers.together import Together, common_place

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from mirrortest.produce.options import ProduceOptions
    from mirrortest.workers.crew import Worker


async def run(
    options: ProduceOptions,
    workers: int,
    *,
    prepare: Callable[[], None],
    stop: asyncio.Event,
    on_progress: Callable[[ProduceProgress], None],
    progress_seconds: float,
) -> Together[ProduceReport]:
    """Produce in so many processes; see `produce.producer.run`.

    One that fails ends all, since none of its messages is vouched for to the end any longer: what
    failed is the report's `error`.

    Raises:
        MirrortestError: no worker has a report; the error of the first.
    """
    view = _View(on_progress, progress_seconds)
    job = partial(produce, progress_seconds=progress_seconds / 2)
    async with Crew(
        job, producers(options, workers), prepare=prepare, on_progress=view.hear
    ) as crew:
        with serving(crew, address=options.metrics_address, port=options.metrics_port):
            ends = await crew.ended(stop)
    reports = [end for end in ends if isinstance(end, ProduceReport)]
    errors = [end for end in ends if isinstance(end, MirrortestError)]
    if not reports:
        raise errors[0]
    return Together(
        merged(options, reports, errors),
        [
            {
                "producer": report.name,
                "session": report.session,
                "exit_code": report.exit_code,
                "records": report.whole.records,
                "log": report.log,
            }
            for report in reports
        ],
    )


def merged(
    options: ProduceOptions,
    reports: Sequence[ProduceReport],
    errors: Sequence[MirrortestError] = (),
) -> ProduceReport:
    """What several producers did, as one report under the name that the user gave."""
    numbers: dict[str, TopicNumbers] = {}
    reasons: Counter[str] = Counter()
    behind: dict[str, int] = {}
    for report in reports:
        reasons.update(report.reasons)
        for topic, its in report.numbers.items():
            whole = numbers.setdefault(topic, TopicNumbers(0, 0, its.value_size))
            whole.warmup += its.warmup
            whole.lanes += its.lanes
            whole.wire_bytes += its.wire_bytes
            whole.warm.merge(its.warm)
            whole.steady.merge(its.steady)
        for topic, nanoseconds in report.behind_ns.items():
            behind[topic] = max(behind.get(topic, 0), nanoseconds)
    own = [report.error for report in reports if report.error is not None]
    return ProduceReport(
        run=options.run,
        name=options.name,
        session=",".join(report.session for report in reports),
        log=common_place([report.log for report in reports]),
        numbers=numbers,
        lanes=[lane for report in reports for lane in report.lanes],
        reasons=reasons,
        behind_ns=behind,
        warmup_records=options.warmup_records,
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
        error=next(iter((*errors, *own)), None),
    )


@dataclass
class _Sum:
    """What the workers told since the last line."""

    acked: int = 0
    value_bytes: int = 0
    latency_sum: float = 0.0
    latency_max: int = 0


class _View:
    """One progress line of all workers."""

    def __init__(self, on_progress: Callable[[ProduceProgress], None], seconds: float) -> None:
        self._on_progress = on_progress
        self._seconds = seconds
        self._told = time.monotonic()
        self._sum = _Sum()
        self._latest: dict[int, ProduceProgress] = {}

    def hear(self, worker: Worker) -> None:
        """Take in what a worker told, and tell it on when it is time."""
        progress: ProduceProgress = worker.progress
        self._latest[worker.number] = progress
        total = self._sum
        total.acked += progress.acked
        total.value_bytes += progress.value_bytes
        total.latency_sum += progress.latency_mean * progress.acked
        total.latency_max = max(total.latency_max, progress.latency_max)
        now = time.monotonic()
        if now - self._told < self._seconds:
            return
        latest = self._latest.values()
        line = ProduceProgress(
            acked=total.acked,
            value_bytes=total.value_bytes,
            seconds=now - self._told,
            latency_mean=total.latency_sum / total.acked if total.acked else 0.0,
            latency_max=total.latency_max,
            in_flight=sum(each.in_flight for each in latest),
            behind_ns=max(each.behind_ns for each in latest),
            outcomes={kind: sum(each.outcomes[kind] for each in latest) for kind in Outcome},
        )
        self._told, self._sum = now, _Sum()
        self._on_progress(line)
