"""The loop of an observation: in each interval everything is read and written."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import structlog

from mirrortest.config.redaction import without_secrets
from mirrortest.host.user_files import read_properties
from mirrortest.host.waiting import cancel_and_wait, set_within
from mirrortest.metrics.endpoint import serve_metrics
from mirrortest.model.observed import BROKER, GC, LOG, MIRROR, PARTITION, PROCESS, REQUEST
from mirrortest.observe.cluster_configuration import ClusterConfigurations
from mirrortest.observe.drift_watch import DriftWatch
from mirrortest.observe.logs import GcLogs, KafkaLogs
from mirrortest.observe.machine import Machine
from mirrortest.observe.machine_profile import read_profile
from mirrortest.observe.observe_report import ObserveReport
from mirrortest.observe.observer_metrics import ObserverMetrics
from mirrortest.observe.processes import Processes
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.observe.scraping import Scraper
from mirrortest.seqlog.observation import Observation, Recording, finish_killed
from mirrortest.seqlog.session import new_session_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.observe.machine import Tables
    from mirrortest.observe.machine_profile import Profile
    from mirrortest.observe.options import ObserveOptions

_log = structlog.get_logger()

_LAST_SECONDS = 2.0
"""How long endpoints and clusters have for their last answer, after the end of the duration."""


class Observer:
    """All that is observed; each call of `rows` returns the rows since the previous one."""

    def __init__(self, options: ObserveOptions, files: ReadableFiles) -> None:
        self._files = files
        self._machine = Machine(files, os.sysconf("SC_PAGE_SIZE"))
        self.processes = Processes(
            files,
            pids=options.pids,
            matches=options.matches,
            tick_seconds=1 / os.sysconf("SC_CLK_TCK"),
            page_bytes=os.sysconf("SC_PAGE_SIZE"),
        )
        self._scrapers = [
            Scraper(each, options.scrape_interval, by_partition=options.by_partition)
            for each in options.endpoints
        ]
        self.gc_logs = GcLogs(files, options.gc_logs)
        self.kafka_logs = KafkaLogs(files, options.logs)
        self.clusters = ClusterConfigurations(options.clusters)
        self._scraped: set[str] = set()

    def profile(self) -> Profile:
        """The machine's profile, with the processes of the last reading and the clusters."""
        profile = read_profile(self._files, self.processes.chosen)
        if self.clusters.latest:
            profile["clusters"] = dict(self.clusters.latest)  # a copy, to compare with later ones
        return profile

    def rows(self) -> Tables:
        """Rows by table; rows without times are of the interval since the last call."""
        return {
            **self._machine.rows(),
            PROCESS: self.processes.rows(),
            **self.log_rows(),
            **self.endpoint_rows(),
        }

    def endpoint_rows(self) -> Tables:
        """Rows of the endpoints alone, since the last call; tables may have none."""
        found: Tables = {BROKER: [], REQUEST: [], PARTITION: [], MIRROR: []}
        self._scraped = {scraper.name for scraper in self._scrapers if scraper.fresh}
        for scraper in self._scrapers:
            for table, row in scraper.take():
                found[table].append(row)
        return found

    async def scrape(self) -> None:
        """Scrape the endpoints until it is cancelled."""
        await asyncio.gather(*(scraper.run() for scraper in self._scrapers))

    async def finish(self) -> None:
        """Scrape the endpoints, and ask the clusters, a last time."""
        await asyncio.gather(
            self.clusters.ask(_LAST_SECONDS),
            *(scraper.finish(_LAST_SECONDS) for scraper in self._scrapers),
        )

    @property
    def outdated(self) -> set[str]:
        """The endpoints of which only the last rows are true: scraped for them, or unreachable."""
        return self._scraped | {each.name for each in self._scrapers if each.failing}

    @property
    def left_out(self) -> dict[str, str]:
        """Everything that cannot be observed now, or an endpoint that once could not -> why."""
        found = dict(self._files.left_out)
        for scraper in self._scrapers:
            found |= scraper.left_out
        return found | self.clusters.left_out

    def log_rows(self, *, last: bool = False) -> Tables:
        """Rows of the logs alone; with `last` including the last entry of each log."""
        return {GC: self.gc_logs.rows(), LOG: self.kafka_logs.rows(last=last)}


async def run(
    options: ObserveOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[ObserveReport], object] = lambda _: None,
) -> ObserveReport:
    """Observe until `stop` is set, or the duration is over. Raises SequenceLogError."""
    finished, wrong = finish_killed(options.output)
    for path in finished:
        _log.info("finished an observation that was killed", path=str(path))
    for text in wrong:
        _log.warning(text)
    files = ReadableFiles()
    observer = Observer(options, files)
    started_ns, began = time.time_ns(), time.monotonic()
    if not options.once:
        observer.gc_logs.skip()
        observer.kafka_logs.skip()
        observer.rows()
    observation = Observation(
        session=new_session_id(started_ns),
        name=options.name,
        run=options.run,
        started_ns=started_ns,
        interval_seconds=options.interval,
    )
    metrics = ObserverMetrics(name=options.name, run=options.run)
    with (
        Recording(options.output, observation, csv=options.csv) as recording,
        serve_metrics(metrics, address=options.metrics_address, port=options.metrics_port)
        or nullcontext(),
    ):
        report = ObserveReport(recording.path)
        began_ns = started_ns

        def write(ended_ns: int, rows: Tables) -> None:
            nonlocal began_ns
            times = {"started_ns": began_ns, "ended_ns": ended_ns}
            began_ns = ended_ns
            for table, found in rows.items():
                recording.write(table, [times | row for row in found])
            report.add(rows)
            if options.metrics_port:
                metrics.begin_gc(observer.gc_logs.collectors)
                metrics.publish(rows, observer.outdated)

        drift: DriftWatch | None = None
        if not options.once:
            for text in observer.processes.unmatched:
                _log.warning(f"no process matches {text!r} yet")
            for path in (*options.gc_logs, *options.logs):
                if not path.exists():
                    _log.warning(f"{path} does not exist yet")
            metrics.begin_gc(observer.gc_logs.collectors)
            drift = DriftWatch(options, observer.profile)
            profile = drift.first | {"configurations": _configurations(options)}
            if options.clusters:
                profile["clusters"] = observer.clusters.first
            recording.write_profile(profile)

            async def ask() -> None:
                await observer.clusters.ask()
                recording.write_profile(profile)

            asking = asyncio.gather(observer.scrape(), drift.run(ask))
            read_at, ended = 0.0, False
            try:
                while not ended:
                    ended = await set_within(stop, _until(time.monotonic() - began, options))
                    if asking.done():  # it failed
                        asking.result()
                    passed = time.monotonic() - began
                    if ended and report.intervals and passed - read_at < options.interval / 2:
                        break  # too short for rates
                    write(time.time_ns(), observer.rows())
                    read_at = report.seconds = time.monotonic() - began
                    on_progress(report)
                    ended |= options.duration is not None and read_at >= options.duration
            finally:
                await cancel_and_wait(asking)
            await observer.finish()
            drift.compare()
            recording.write_profile(profile)
            report.seconds = time.monotonic() - began
        write(time.time_ns(), {**observer.log_rows(last=True), **observer.endpoint_rows()})
        recording.finish(
            time.time_ns(), left_out=observer.left_out, drift=drift.found if drift else ()
        )
    return report


def _configurations(options: ObserveOptions) -> dict[str, dict[str, str]]:
    return {str(path): without_secrets(read_properties(path)) for path in options.configurations}


def _until(passed: float, options: ObserveOptions) -> float:
    """Seconds to the next reading, `passed` seconds after the first.

    It is at a multiple of the interval, half an interval away or more: rates of a shorter time
    would be the highest of all. The last one is at the end of the duration.
    """
    following = (round(passed / options.interval) + 1) * options.interval
    if options.duration is not None and following + options.interval / 2 > options.duration:
        following = options.duration
    return following - passed
