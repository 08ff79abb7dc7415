"""Several consumers behind one command.

Each judges the whole run by the states of all, as it would alone. The first one's verdict counts:
so it ends last, when what the others read stands in their saved states.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirrortest.config.threshold import Series, evaluate, undecided
from mirrortest.consume.consumer import run as consume
from mirrortest.timing.histogram import Histogram
from mirrortest.workers.crew import Crew
from mirrortest.workers.scrape import serving
from mirrortest.workers.shares import consumers
from mirrortest.workers.together import Together, common_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.consume.consume_report import Basis, ConsumeProgress, ConsumeReport
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.workers.crew import Worker

_LOOK_SECONDS = 0.2


async def run(
    options: ConsumeOptions,
    workers: int,
    *,
    prepare: Callable[[], None],
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeProgress], None],
) -> Together[ConsumeReport]:
    """Consume and judge in so many processes; see `consume.consumer.run`.

    Raises:
        MirrortestError: a worker failed or died; the others are stopped, and there is no verdict.
    """
    view = _View(on_progress)
    async with Crew(
        consume, consumers(options, workers), prepare=prepare, on_progress=view.hear
    ) as crew:
        with serving(crew, address=options.metrics_address, port=options.metrics_port):
            reports = await _ended(crew, options, view, stop)
    return Together(
        merged(options, reports),
        [
            {
                "consumer": report.name,
                "messages_read": report.messages,
                "partitions": list(report.partitions),
                "log": report.log,
            }
            for report in reports
        ],
    )


async def _ended(
    crew: Crew, options: ConsumeOptions, view: _View, stop: asyncio.Event
) -> list[ConsumeReport]:
    """Wait until it is enough, and end the first one last; all reports."""
    first, *others = crew.workers
    everybody = [worker.ended for worker in crew.workers]
    enough = asyncio.ensure_future(_enough(options, view, stop))
    try:
        # One of the others ends by itself only when it has failed.
        await asyncio.wait({enough, *everybody}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        enough.cancel()
    for worker in others:
        worker.stop()
    if others:
        await asyncio.wait([worker.ended for worker in others])
    first.stop()
    await asyncio.wait(everybody)
    return [ended.result() for ended in everybody]


async def _enough(options: ConsumeOptions, view: _View, stop: asyncio.Event) -> None:
    """Wait for a signal, or for what the options say of time and silence, of all together."""
    started = time.monotonic()
    while not stop.is_set():
        now = time.monotonic()
        if options.duration is not None and now - started >= options.duration:
            return
        if options.idle_timeout is not None and now - view.last_message >= options.idle_timeout:
            return
        try:
            await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
        except TimeoutError:
            continue


def merged(options: ConsumeOptions, reports: Sequence[ConsumeReport]) -> ConsumeReport:
    """The first one's verdict, with the latencies of all that was read."""
    first = reports[0]
    latency: dict[str, tuple[Histogram, Histogram]] = {}
    backlog: Counter[str] = Counter()
    for report in reports:
        backlog.update(report.backlog)
        for topic, pair in report.latency.items():
            for into, histogram in zip(
                latency.setdefault(topic, (Histogram(), Histogram())), pair, strict=True
            ):
                into.merge(histogram)
    intended, sent = Histogram(), Histogram()
    for its_intended, its_sent in latency.values():
        intended.merge(its_intended)
        sent.merge(its_sent)
    results = evaluate(
        options.thresholds,
        {**first.counts, "negative_latency": intended.negative},
        total=first.counts.get("acked", 0),
        latencies={Series.LATENCY: intended, Series.SENT_LATENCY: sent},
    )
    without = set(undecided(first.thresholds))
    doubts = [doubt for doubt in first.inconclusive if doubt not in without]
    return replace(
        first,
        name=options.name,
        latency=latency,
        backlog=backlog,
        thresholds=results,
        inconclusive=[*doubts, *undecided(results)],
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
        messages=sum(report.messages for report in reports),
        rests_on=_rests_on(reports),
        log=common_place([report.log for report in reports]),
        partitions=sorted({place for report in reports for place in report.partitions}),
    )


def _rests_on(reports: Sequence[ConsumeReport]) -> dict[str, Basis]:
    """By partition, what its reader among the workers says: to the others it is a state's word."""
    found: dict[str, Basis] = {}
    for report in reports:
        for name, basis in report.rests_on.items():
            found[name] = max(basis, found.get(name, basis))
    return dict(sorted(found.items()))


class _View:
    """One progress line: the verdict as the first one knows it, the reading of all."""

    def __init__(self, on_progress: Callable[[ConsumeProgress], None]) -> None:
        self._on_progress = on_progress
        self._latest: dict[int, ConsumeProgress] = {}
        self._consumed = 0
        self.last_message = time.monotonic()

    def hear(self, worker: Worker) -> None:
        """Take in what a worker told; the first one's word sets the pace."""
        self._latest[worker.number] = worker.progress
        latest: Any = self._latest.values()
        consumed = sum(progress.consumed for progress in latest)
        if consumed > self._consumed:
            self._consumed, self.last_message = consumed, time.monotonic()
        if worker.number == 1:
            self._on_progress(
                replace(
                    worker.progress,
                    consumed=consumed,
                    per_second=sum(progress.per_second for progress in latest),
                    partitions=sum(progress.partitions for progress in latest),
                )
            )
