"""Several consumers of one command.

Each judges the run by the states of all, as a single consumer does. The first one's verdict counts,
so it ends last, after the others have saved their states. No worker ends by itself: when one has
judged the run complete, another may still find something.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrortest.config.threshold import Series, evaluate, undecided
from mirrortest.consume.consume_status import merged as merged_status
from mirrortest.consume.consumer import run as consume
from mirrortest.consume.options import Shard
from mirrortest.consume.statistics import merged as merged_reading
from mirrortest.host.waiting import set_within
from mirrortest.kafka.admin import Admin
from mirrortest.model.findings import IN_PARTITION
from mirrortest.timing.histogram import Histogram
from mirrortest.workers.worker_metrics import serving
from mirrortest.workers.worker_pool import PoolReport, WorkerPool, common_directory, worker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.consume.consume_report import Basis, ConsumeReport
    from mirrortest.consume.consume_status import ConsumeStatus
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.workers.worker_pool import Worker

_POLL_SECONDS = 0.2


async def run(
    options: ConsumeOptions,
    workers: int,
    *,
    prepare: Callable[[], None],
    stop: asyncio.Event,
    on_progress: Callable[[ConsumeStatus], None],
) -> PoolReport[ConsumeReport]:
    """Consume and judge in several processes; see `consume.consumer.run`.

    Raises:
        MirrortestError: a worker failed or died; the others are stopped, and there is no verdict.
    """
    view = _View(options, on_progress)
    async with WorkerPool(
        consume, split(options, workers), prepare=prepare, on_progress=view.update
    ) as pool:
        with serving(pool, view.status, address=options.metrics_address, port=options.metrics_port):
            reports = await _ended(pool, options, view, stop)
    return PoolReport(
        merged(options, reports),
        [
            {
                "consumer": report.name,
                "messages_read": report.reading.messages,
                "reading": report.reading.to_json(),
                "partitions": list(report.partitions),
                "log": report.log,
            }
            for report in reports
        ],
    )


async def _ended(
    pool: WorkerPool, options: ConsumeOptions, view: _View, stop: asyncio.Event
) -> list[ConsumeReport]:
    """Wait until the run is over, then stop the workers, the first one last; return the reports."""
    first, *others = pool.workers
    all_ended = [worker.ended for worker in pool.workers]
    over = asyncio.ensure_future(_wait_until_over(pool, options, view, stop))
    try:
        # Workers end by themselves only when they fail.
        await asyncio.wait({over, *all_ended}, return_when=asyncio.FIRST_COMPLETED)
        if over.done():
            over.result()  # an error is no end of the run
    finally:
        over.cancel()
    for worker in others:
        worker.stop()
    if others:
        await asyncio.wait([worker.ended for worker in others])
    first.stop()
    await asyncio.wait(all_ended)
    return [ended.result() for ended in all_ended]


async def _wait_until_over(
    pool: WorkerPool, options: ConsumeOptions, view: _View, stop: asyncio.Event
) -> None:
    """Wait for a signal, or until the workers together meet an end condition of the options."""
    started = time.monotonic()
    while not stop.is_set():
        now = time.monotonic()
        if options.duration is not None and now - started >= options.duration:
            return
        if options.num_records is not None and view.consumed >= options.num_records:
            return
        if options.idle_timeout is not None and now - view.last_message >= options.idle_timeout:
            return
        statuses = [worker.progress for worker in pool.workers]
        if options.until_complete and all(status and status.settled for status in statuses):
            return
        await set_within(stop, _POLL_SECONDS)


def split(options: ConsumeOptions, workers: int) -> list[ConsumeOptions]:
    """The options of consumers NAME.1 to NAME.N: members of the group, or shards.

    All read until they are stopped.
    """
    return [
        replace(
            options,
            name=worker_name(options.name, index),
            client=_member(options.client, index),
            worker=f"{index + 1} of {workers}",
            asked=options,
            shard=None if options.group else shard_of(options.shard, index, workers),
            until_complete=False,
            duration=None,
            idle_timeout=None,
            num_records=None,
        )
        for index in range(workers)
    ]


def _member(client: ClientConfig, index: int) -> ClientConfig:
    """A worker's client properties: brokers fence the older of two members with one instance id."""
    if client.group_instance_id is None:
        return client
    return replace(client, group_instance_id=f"{client.group_instance_id}.{index + 1}")


async def useful_workers(options: ConsumeOptions, workers: int) -> int:
    """How many of the workers can get partitions; all if more topics may appear.

    Raises:
        ClusterError: the cluster does not answer.
    """
    async with Admin(options.client) as admin:
        counts = await admin.partition_counts(options.topics)
    if options.topic_pattern is not None or len(counts) < len(options.topics):
        return workers
    if options.group is not None:
        return min(sum(counts.values()), workers)
    # A shard is a set of partition numbers, the same in each topic.
    shard = options.shard or Shard(1, 1)
    matching = sum(number in shard for number in range(max(counts.values())))
    return min(max(matching, 1), workers)


def shard_of(shard: Shard | None, index: int, workers: int) -> Shard:
    """A worker's part of a shard, or of all partitions; `index` from 0."""
    parent = shard or Shard(1, 1)
    return Shard(parent.index + parent.of * index, parent.of * workers)


def merged(options: ConsumeOptions, reports: Sequence[ConsumeReport]) -> ConsumeReport:
    """The first worker's report, with the latencies of all, and the findings of all partitions.

    The first one's counts have these findings, too, unless another worker's last state did not
    reach it. The doubts that each worker has about its own reading also count.
    """
    first = reports[0]
    counts = dict(first.counts)
    for name in (finding.label for finding in IN_PARTITION):
        counts[name] = max(report.counts.get(name, 0) for report in reports)
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
    excused = {
        name: max(report.excused.get(name, 0) for report in reports)
        for name in {name for report in reports for name in report.excused}
    }
    counted = [report.outstanding for report in reports if report.outstanding is not None]
    outstanding = max(counted) if len(counted) == len(reports) else None
    results = evaluate(
        options.thresholds,
        {**counts, "negative_latency": intended.negative},
        total=counts.get("acked", 0),
        latencies={Series.LATENCY: intended, Series.SENT_LATENCY: sent},
        excused=excused,
        outstanding=outstanding,
    )
    own_undecided = set(undecided(first.thresholds))
    doubts = [doubt for doubt in first.inconclusive if doubt not in own_undecided]
    doubts += [doubt for report in reports for doubt in report.own_doubts]
    return replace(
        first,
        name=options.name,
        counts=counts,
        excused=excused,
        outstanding=outstanding,
        latency=latency,
        backlog=backlog,
        thresholds=results,
        inconclusive=list(dict.fromkeys((*doubts, *undecided(results)))),
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
        reading=merged_reading([report.reading for report in reports]),
        rests_on=_rests_on(reports),
        log=common_directory([report.log for report in reports]),
        partitions=sorted({place for report in reports for place in report.partitions}),
    )


def _rests_on(reports: Sequence[ConsumeReport]) -> dict[str, Basis]:
    """The basis of each partition's verdict: its reader's, if one of the workers read it."""
    found: dict[str, Basis] = {}
    for report in reports:
        for name, basis in report.rests_on.items():
            found[name] = max(basis, found.get(name, basis))
    return dict(sorted(found.items()))


class _View:
    """One status for all: the first worker's verdict, and what all have read."""

    def __init__(
        self, options: ConsumeOptions, on_progress: Callable[[ConsumeStatus], None]
    ) -> None:
        self._options = options
        self._on_progress = on_progress
        self._workers: dict[int, Worker] = {}
        self.consumed = 0
        self.last_message = time.monotonic()

    def update(self, worker: Worker) -> None:
        """Note a worker's new status; if it is the first worker's, show the status of all."""
        self._workers[worker.number] = worker
        consumed = sum(each.progress.read for each in self._workers.values())
        if consumed > self.consumed:
            self.consumed, self.last_message = consumed, time.monotonic()
        if worker.number == 1 and (status := self.status()) is not None:
            self._on_progress(status)

    def status(self) -> ConsumeStatus | None:
        """The status of all; None before the first worker has one."""
        workers = dict(self._workers)
        if 1 not in workers:
            return None
        each = [
            replace(worker.progress, ended=worker.has_ended)
            for _, worker in sorted(workers.items())
        ]
        options = self._options
        return merged_status(options.name, options.duration, options.num_records, each)
