"""The producer: registers an incarnation, runs it, and registers the next if its sender dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from mirrortest.config.option_file import document_of
from mirrortest.errors import ClusterError, MirrortestError, SequenceLogError, UnreachableError
from mirrortest.host.error_text import reason_of
from mirrortest.host.interpreter import tune_for_event_loop
from mirrortest.host.waiting import before_stop, cancel_and_wait, set_within
from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.kafka.sender import Sender
from mirrortest.metrics.kernel_clock import known_clock_error_ns
from mirrortest.metrics.server_process import serve_in_child
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.produce.batch_counts import largest_batch
from mirrortest.produce.context import ProducerContext
from mirrortest.produce.housekeeping import Housekeeping, ProducerMetrics
from mirrortest.produce.incarnation_setup import build_incarnation, check_batches
from mirrortest.produce.ledger_view import LedgerView
from mirrortest.produce.ledger_writer import write_end_marks
from mirrortest.produce.pace import pace_of, topic_rate
from mirrortest.produce.produce_report import ProduceReport, late_start
from mirrortest.produce.recording import TopicNumbers
from mirrortest.produce.registration import publish_closed, record_failure, register
from mirrortest.produce.topic_plan import TopicPlan, find_compacted, plan_topics
from mirrortest.seqlog.files import last_incarnation
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.wire.message import value_size
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirrortest.metrics.endpoint import Serve
    from mirrortest.model.failure import Failure
    from mirrortest.produce.incarnation import Incarnation
    from mirrortest.produce.lane import Lane
    from mirrortest.produce.ledger_writer import LedgerWriter
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.produce_status import ProduceStatus
    from mirrortest.verify.ledger_record import LaneRecord

_log = structlog.get_logger()

SUMMARY_FILE = "summary.json"
_RETRY_SECONDS = 1.0
_MAX_FAILURES = 3
"""The run ends after so many short incarnations with the same end, with no longer one between."""
_SHORT_LIFE_NS = 10_000_000_000
"""An incarnation is short below this, and below half of `delivery.timeout.ms`: no timeout ended it.
"""
_POLICY_SECONDS = 30.0
"""How often the topics are checked for a cleanup policy that became compact."""
_RECORD_FAILURE_SECONDS = 5.0
"""How long it may take to record in the ledger that the run was given up."""


async def run(
    options: ProduceOptions,
    *,
    stop: asyncio.Event,
    on_progress: Callable[[ProduceStatus], None] = lambda _: None,
    serve: Serve = serve_in_child,
) -> ProduceReport:
    """Produce until the workload ends, or `stop` is set; then drain and report.

    An error that ends a run after its beginning is in the report's `error`. Cancelling ends the run
    at once: messages without an outcome are then unknown.

    Raises:
        ClusterError: the source cannot be reached or refuses, a topic is missing or wrong.
        SequenceLogError: the log cannot be created.
        UsageError: the metrics' port is taken, or a batch cannot hold `--batch-messages`.
    """
    tune_for_event_loop()
    return await Producer(options, on_progress, serve).run(stop)


class Producer:
    """A producer; see the module's docstring. `run` is called once."""

    def __init__(
        self,
        options: ProduceOptions,
        on_progress: Callable[[ProduceStatus], None],
        serve: Serve = serve_in_child,
    ) -> None:
        self._options = options
        self._context = ProducerContext(options)
        self._plans: list[TopicPlan] = []
        self._lanes: list[Lane] = []
        """Of the current incarnation, and of those that the ledger has no end marks of yet."""
        self._ended_lanes: list[tuple[LaneRecord, int]] = []
        """The lanes of the other incarnations as in the ledger, and their source partitions."""
        self._ended: list[LedgerWriter] = []
        """Of incarnations whose sender died; end marks follow once the next one has registered."""
        self._metrics = ProducerMetrics(self._context, serve)
        self._housekeeping = Housekeeping(self._context, self._metrics, on_progress)

    async def run(self, stop: asyncio.Event) -> ProduceReport:
        """Set up, produce, close, report."""
        options = self._options
        with self._metrics.serving():
            async with Admin(options.client) as admin:
                cluster = await admin.cluster_id()
                self._plans = await plan_topics(admin, options)
                ledger = CompactedTopic(options.client, options.ledger_topic)
                await ledger.create()
                admin.expect(options.ledger_topic)
                at = TopicPartition(options.ledger_topic, 0)
                begin = (await admin.beginning_offsets([at]))[at]
                end = (await admin.end_offsets([at]))[at]
            self._prepare()
            check_batches(self._context, self._plans)
            session = self._session(cluster)
            log = await SequenceLog.open(
                options.log_dir, session, spool=Path(options.log_spool), csv=options.csv
            )
            self._housekeeping.load.begin(log)
            view = LedgerView(ledger, options.run, options.name)
            tasks = [
                asyncio.create_task(view.follow()),
                asyncio.create_task(self._housekeeping.run()),
                asyncio.create_task(self._watch_policies(log)),
            ]
            for task in tasks:
                task.add_done_callback(_log_failure)
            error: MirrortestError | None = None
            clean = False
            try:
                if end > begin:
                    await before_stop(view.wait_until_read(end - 1), stop, grace_seconds=0)
                await self._run_incarnations(stop, log, view, session.session)
                await self._note_stamped(log)
                clean = True
            except MirrortestError as problem:
                error = problem
            finally:
                await cancel_and_wait(*tasks)
                await ledger.close()
                self._housekeeping.load.end(self._housekeeping.incarnation)
                error = await _closed(log, error, clean=clean)
            report = self._report(log, session.session, error, interrupted=stop.is_set())
            await asyncio.to_thread(self._write_summary, session, report)
        return report

    # -- setting up -----------------------------------------------------------------------------

    def _prepare(self) -> None:
        options = self._options
        probe = ProducerId(options.name, options.run, 1).encode()
        size, _ = value_size(len(probe), options.form, options.largest_size)
        for plan in self._plans:
            count = len(plan.lanes)
            self._context.numbers[plan.topic] = TopicNumbers(size)
            self._context.rates[plan.topic] = rate = topic_rate(options, plan.topic)
            for lane in range(count):
                index, lanes = options.share.lane(lane, count)
                self._context.paces[plan.topic, lane] = pace_of(
                    rate,
                    index=index,
                    lanes=lanes,
                    total=options.num_records,
                    duration_ns=options.duration_ns,
                    batch=largest_batch(options.batch_messages or 1),
                )

    def _session(self, cluster: str) -> Session:
        options = self._options
        now = time.time_ns()
        return Session(
            run=options.run,
            role=Role.PRODUCER,
            name=options.name,
            session=new_session_id(now),
            detail=options.log_detail,
            started_ns=now,
            clock_error_ns=known_clock_error_ns(),
            topics=self._topics(),
            clusters={"source": cluster},
            settings=options.settings,
            client=options.client.recorded,
            workload=document_of(options.workload, defaults=False),
        )

    # -- one incarnation after the other --------------------------------------------------------

    async def _run_incarnations(
        self, stop: asyncio.Event, log: SequenceLog, view: LedgerView, session: str
    ) -> None:
        short_lives: Counter[tuple[str, Failure] | None] = Counter()
        short_ns = min(_SHORT_LIFE_NS, self._options.client.delivery_timeout_ms * 500_000)
        started = False
        while not stop.is_set():
            sender = await self._sender(stop, retry=started)
            if sender is None:
                break
            try:
                registered = await before_stop(
                    self._begin(log, view, sender, session),
                    stop,
                    grace_seconds=self._options.drain_timeout,
                )
                if registered is None:
                    effect = (
                        "consumers will not see this producer's end; its sequence log is complete"
                        if started
                        else "nothing was sent"
                    )
                    raise ClusterError(
                        "could not write the registration to the ledger "
                        f"{self._options.ledger_topic!r}: {effect}"
                    )
                incarnation, launched_ns = registered, self._context.clock.now()
                if not started:
                    started = True
                    self._start(launched_ns)
                self._housekeeping.incarnation = incarnation
                await incarnation.run(stop)
            finally:
                await sender.stop()
            if incarnation.died is None:
                return
            self._ended.append(incarnation.ledger_writer)
            _log.warning("a new incarnation is needed", reason=incarnation.died)
            if self._context.clock.now() - launched_ns >= short_ns:
                short_lives.clear()
                continue
            # Acknowledgements of other topics do not count: this one may be refused for good.
            short_lives[incarnation.ended_by] += 1
            if short_lives[incarnation.ended_by] >= _MAX_FAILURES:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RECORD_FAILURE_SECONDS):
                        await record_failure(view, incarnation.ledger_writer.registration)
                raise ClusterError(
                    f"{incarnation.died}; restarted {_MAX_FAILURES} times, each time with the same "
                    "error"
                )
            await set_within(stop, _RETRY_SECONDS)
        await write_end_marks(self._ended, stop, grace_seconds=self._options.drain_timeout)

    async def _note_stamped(self, log: SequenceLog) -> None:
        """Log which topics' records brokers were found to stamp. Raises SequenceLogError."""
        found = {record.stream.topic for record, _ in self._all_lanes() if record.stamped}
        if found - {plan.topic for plan in self._plans if plan.stamped}:
            await log.revise(_with_topics(found, stamped_at_source=True))

    def _start(self, now_ns: int) -> None:
        """Start the schedules: now, or at `--start-at`."""
        context, requested = self._context, self._options.start_at
        at_ns = None if requested is None else requested.at_ns
        context.began_ns = now_ns if at_ns is None else at_ns - context.clock.offset_ns
        context.late_ns = max(0, now_ns - context.began_ns)
        for pace in context.paces.values():
            pace.start(context.began_ns)
            pace.skip(now_ns)
        if context.late_ns:
            _log.warning(late_start(context.late_ns, context.skipped))

    async def _begin(
        self, log: SequenceLog, view: LedgerView, sender: Sender, session: str
    ) -> Incarnation:
        """Register an incarnation, reserve its first numbers, and end the ones before it."""
        options = self._options
        registration = await register(
            view,
            run=options.run,
            producer=options.name,
            session=session,
            lanes={plan.topic: plan.lanes for plan in self._plans},
            above=await asyncio.to_thread(
                last_incarnation, options.log_dir, options.run, options.name
            ),
            before=self._ended[-1].registration if self._ended else None,
        )
        _log.info(
            "incarnation registered",
            producer=registration.producer,
            incarnation=registration.incarnation,
        )
        await log.revise(_with_incarnation(registration.incarnation))
        incarnation = build_incarnation(self._context, self._plans, registration, log, view, sender)
        self._lanes += incarnation.lanes
        incarnation.before_end = partial(self._ask_policies, log)
        await incarnation.ledger_writer.round()
        # The registration precedes these end marks: consumers do not take the run for over.
        while self._ended:
            await self._ended[0].finish(ended=True)
            self._release(self._ended.pop(0).registration.incarnation)
        await publish_closed(view, registration)
        return incarnation

    def _release(self, incarnation: int) -> None:
        """Keep only what the report needs of an incarnation that has ended: lanes are large."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            if lane.stream.incarnation == incarnation:
                self._ended_lanes.append(_recorded(lane))
            else:
                self._lanes.append(lane)

    def _all_lanes(self) -> list[tuple[LaneRecord, int]]:
        """The lanes of all incarnations as in the ledger, and their source partitions."""
        return [*self._ended_lanes, *map(_recorded, self._lanes)]

    async def _watch_policies(self, log: SequenceLog) -> None:
        """Check from time to time whether topics have become compacted; for ever."""
        while True:
            await asyncio.sleep(_POLICY_SECONDS)
            await self._ask_policies(log)

    async def _ask_policies(self, log: SequenceLog) -> None:
        """Record topics that have become compacted, in the ledger and in the log.

        Raises SequenceLogError.
        """
        asked = [plan.topic for plan in self._plans if not plan.compacted]
        new = await find_compacted(lambda: Admin(self._options.client), asked) if asked else []
        if not new:
            return
        self._plans = [
            replace(plan, compacted=plan.compacted or plan.topic in new) for plan in self._plans
        ]
        for lane in self._lanes:
            if lane.stream.topic in new:
                lane.source_is_compacted()
        await log.revise(_with_topics(new, compacted=True))

    def _topics(self) -> dict[str, Topic]:
        return {
            plan.topic: Topic(
                source_partitions=plan.source_partitions,
                destination_partitions=plan.destination_partitions,
                compacted=plan.compacted,
                stamped_at_source=plan.stamped,
            )
            for plan in self._plans
        }

    async def _sender(self, stop: asyncio.Event, *, retry: bool) -> Sender | None:
        """Connect; with `retry`, until the source answers. None: `stop` was set meanwhile."""
        while True:
            self._metrics.health.beat()
            sender = Sender(self._options.client)
            try:
                await sender.start()
            except UnreachableError as error:
                if not retry:
                    raise
                _log.warning("the source does not answer, trying again", reason=str(error))
                self._housekeeping.fault = f"the source does not answer: {error}"
            else:
                self._housekeeping.fault = ""
                return sender
            if await set_within(stop, _RETRY_SECONDS):
                return None

    # -- the end --------------------------------------------------------------------------------

    def _report(
        self, log: SequenceLog, session: str, error: MirrortestError | None, *, interrupted: bool
    ) -> ProduceReport:
        return ProduceReport(
            run=self._options.run,
            name=self._options.name,
            session=session,
            log=log.where,
            numbers=self._context.numbers,
            lanes=self._all_lanes(),
            reasons=self._context.reasons,
            behind_ns=self._housekeeping.behind_ns,
            warmup_records=self._options.warmup_records,
            notes=self._housekeeping.notes,
            late_ns=self._context.late_ns,
            skipped=self._context.skipped,
            error=error,
            settings=self._options.settings,
            workload=document_of(self._options.workload),
            due=not interrupted and self._options.share.of == 1,
        )

    def _write_summary(self, session: Session, report: ProduceReport) -> None:
        """Write the summary into the log's directory; a failure does not change the result."""
        place = Location.parse(self._options.log_dir).child(*session.folders, SUMMARY_FILE)
        try:
            place.write_text(json.dumps(report.to_json(), indent=1) + "\n")
        except OSError as error:
            _log.warning(
                "the summary cannot be written", where=place.shown, reason=reason_of(error)
            )


async def _closed(
    log: SequenceLog, error: MirrortestError | None, *, clean: bool
) -> MirrortestError | None:
    """Close the log; return the error that ended the run: `error`, or else the log's."""
    try:
        await log.close(clean=clean)
    except SequenceLogError as problem:
        return error or problem
    return error


def _recorded(lane: Lane) -> tuple[LaneRecord, int]:
    """A lane as in the ledger, and its source partition."""
    return lane.record(), lane.partition


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the failure of a task that should never end."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("background task failed", exc_info=error)


def _with_incarnation(incarnation: int) -> Callable[[Session], Session]:
    return lambda session: session.model_copy(update={"incarnation": incarnation})


def _with_topics(names: Collection[str], **flags: bool) -> Callable[[Session], Session]:
    """The change of a session's log that gives these topics some flags."""

    def change(session: Session) -> Session:
        changed = {name: session.topics[name].model_copy(update=flags) for name in names}
        return session.model_copy(update={"topics": session.topics | changed})

    return change
