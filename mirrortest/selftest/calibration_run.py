"""A calibration run: producers, the faulty mirror and consumers, and the folder that they fill.

::

    FOLDER/stage.json          what was measured, and what went wrong with the measurement
    FOLDER/spec.toml           the faulty mirror's specification
    FOLDER/truth/              the faulty mirror's truth
    FOLDER/logs/run=RUN/       the sequence logs, and the reconciliation's result
    FOLDER/online/NAME.json    each consumer's report
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume import consumer
from mirrortest.consume.options import CONSUMER_DEFAULTS, ConsumeOptions
from mirrortest.errors import LabError, MirrortestError
from mirrortest.faults.ground_truth import read_summary
from mirrortest.host.error_text import reason_of
from mirrortest.lab.mirrors import FaultyMirrorSettings
from mirrortest.lab.testbed import Lab
from mirrortest.model.findings import Outcome
from mirrortest.produce import producer
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
from mirrortest.selftest.calibration_plan import MESSAGE_SIZE
from mirrortest.wire.form import Form  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.consume_status import ConsumeStatus
    from mirrortest.produce.produce_report import ProduceReport
    from mirrortest.produce.produce_status import ProduceStatus
    from mirrortest.selftest.calibration_plan import CalibrationPlan, Sender

RUN_FILE = "stage.json"
TRUTH, LOGS, ONLINE = "truth", "logs", "online"
_POLL_SECONDS = 0.5
_SETTLE_SECONDS = 2.0
"""Short: messages that the faulty mirror defers arrive before the deadline of those it drops."""

T = TypeVar("T")


class CalibrationRun(BaseModel):
    """The content of stage.json.

    Attributes:
        ends: by source topic, how many records each partition of its copy has.
        slowest: the longest time that any message took to a consumer, seconds.
        reasons: why nothing can be concluded from what was found.
    """

    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    run: str
    messages: int
    rates: list[float]
    deadline: float
    seed: int
    forms: list[Form]
    senders: dict[str, Form]
    readers: list[str]
    alias: str
    ends: dict[str, dict[int, int]]
    slowest: float
    reasons: list[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `run_calibration` wrote.

        Raises:
            MirrortestError: it is missing, or this version cannot read it.
        """
        file = folder / RUN_FILE
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise MirrortestError(f"{file}: no calibration here: {error.strerror}") from None
        except ValidationError as error:
            raise MirrortestError(f"{file}: this version cannot read it: {error}") from None


@dataclass
class Progress:
    """How far producers and consumers are; its text is one line."""

    of: int
    doing: str = "starting"
    sent: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    found: int = 0

    def __str__(self) -> str:
        if not self.sent:
            return self.doing
        sent, read = sum(self.sent.values()), sum(self.read.values())
        return (
            f"{self.doing}: {sent:,} of {self.of:,} sent, {read:,} read by {len(self.read)} "
            f"consumers, {self.found:,} findings so far"
        )


def lab_with_faulty_mirror(plan: CalibrationPlan, folder: Path, show: Callable[[str], None]) -> Lab:
    """A lab whose mirror is the faulty mirror, not started yet: use it as a context manager.

    Raises:
        MirrortestError: the folder cannot be written.
    """
    file = folder / "spec.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(plan.specification())
    except OSError as error:
        raise MirrortestError(f"--directory {folder}: {error.strerror}") from None
    return Lab(mirror=FaultyMirrorSettings(spec=file, truth=folder / TRUTH), on_step=show)


async def run_calibration(
    lab: Lab,
    plan: CalibrationPlan,
    folder: Path,
    stop: asyncio.Event,
    show: Callable[[Progress], None],
) -> None:
    """Run the plan on a lab whose mirror is the faulty mirror, up to the online verdicts.

    Whatever fails on the way is in the `reasons` of the `CalibrationRun` that it writes.
    """
    await _Runner(lab, plan, folder, show).run(stop)


class _Runner:
    def __init__(
        self, lab: Lab, plan: CalibrationPlan, folder: Path, show: Callable[[Progress], None]
    ) -> None:
        self._lab = lab
        self._plan = plan
        self._folder = folder
        self._show = show
        total = sum(len(each.topics) * each.messages for each in plan.senders)
        self._progress = Progress(total)
        self._reasons: list[str] = []
        self._ending = asyncio.Event()
        self._slowest = 0

    async def run(self, stop: asyncio.Event) -> None:
        lab, plan = self._lab, self._plan
        for topic, partitions in plan.topics.items():
            await asyncio.to_thread(lab.source.create_topic, topic, partitions)
        for topic in plan.topics:
            await asyncio.to_thread(lab.mirror.wait_topic, topic)
        self._show_doing("mirroring with a faulty mirror")
        watching = asyncio.create_task(self._watch(stop))
        readers = [self._guarded(f"consumer {each}", self._consume(each)) for each in plan.readers]
        senders = [
            self._guarded(f"producer {each.name}", self._produce(each)) for each in plan.senders
        ]
        try:
            reports, _ = await asyncio.gather(asyncio.gather(*readers), asyncio.gather(*senders))
        finally:
            watching.cancel()
        for report in reports:
            if report is not None:
                self._note_report(report)
        self._show_doing("ending the faulty mirror")
        await asyncio.to_thread(lab.mirror.terminate)
        self._note_truth()
        ends = {
            topic: await asyncio.to_thread(
                lab.destination.end_offsets, f"{lab.source.alias}.{topic}"
            )
            for topic in plan.topics
        }
        result = CalibrationRun(
            run=plan.run,
            messages=plan.messages,
            rates=list(plan.rates(plan.rate)),
            deadline=plan.deadline,
            seed=plan.seed,
            forms=list(plan.forms),
            senders={each.name: each.form for each in plan.senders},
            readers=list(plan.readers),
            alias=lab.source.alias,
            ends=ends,
            slowest=self._slowest / 1e9,
            reasons=self._reasons,
        )
        (self._folder / RUN_FILE).write_text(result.model_dump_json(indent=1))

    def _show_doing(self, doing: str) -> None:
        self._progress.doing = doing
        self._show(self._progress)

    async def _watch(self, stop: asyncio.Event) -> None:
        """End early when the faulty mirror dies or the user interrupts."""
        while not stop.is_set():
            try:
                self._lab.mirror.check()
            except LabError as error:
                self._reasons.append(f"the faulty mirror died, so its truth is incomplete: {error}")
                break
            except Exception as error:  # noqa: BLE001  # else it could die unnoticed
                self._reasons.append(f"the faulty mirror could not be watched: {reason_of(error)}")
                break
            await asyncio.sleep(_POLL_SECONDS)
        else:
            self._reasons.append("interrupted before the end")
        self._ending.set()

    async def _guarded(self, name: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Await one application; its error becomes a reason, and ends all of them."""
        try:
            return await work
        except MirrortestError as error:
            self._reasons.append(f"{name} ended early: {error}")
            self._ending.set()
            return None

    # -- producing ------------------------------------------------------------------------------

    async def _produce(self, sender: Sender) -> ProduceReport:
        report = await producer.run(
            self._produce_options(sender),
            stop=self._ending,
            on_progress=lambda progress: self._note_sent(sender.name, progress),
        )
        if report.exit_code:
            self._reasons.append(
                f"producer {sender.name} {report.verdict}: {report.error or dict(report.reasons)}"
            )
        self._progress.sent[sender.name] = report.overall.outcomes[Outcome.ACKED]
        return report

    def _note_sent(self, name: str, progress: ProduceStatus) -> None:
        self._progress.sent[name] = progress.outcomes[Outcome.ACKED]
        self._show(self._progress)

    def _produce_options(self, sender: Sender) -> ProduceOptions:
        return ProduceOptions(
            run=self._plan.run,
            name=sender.name,
            client=ClientConfig.load(
                bootstrap_server=self._lab.source.bootstrap_servers, defaults=PRODUCER_DEFAULTS
            ),
            topics=sender.topics,
            throughput=sender.messages / self._plan.seconds,
            num_records=sender.messages,
            message_size=MESSAGE_SIZE,
            form=sender.form,
            log_dir=str(self._folder / LOGS),
            log_spool=str(self._folder / "spool"),
        )

    # -- consuming ------------------------------------------------------------------------------

    async def _consume(self, name: str) -> ConsumeReport:
        report = await consumer.run(
            self._consume_options(name),
            stop=self._ending,
            on_progress=lambda progress: self._note_read(name, progress),
        )
        place = self._folder / ONLINE
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.json").write_text(json.dumps(report.to_json()))
        return report

    def _note_read(self, name: str, progress: ConsumeStatus) -> None:
        self._progress.read[name] = progress.read
        self._progress.found = sum(progress.findings.values())
        self._show(self._progress)

    def _note_report(self, report: ConsumeReport) -> None:
        self._reasons += [f"consumer {report.name}: {reason}" for reason in report.inconclusive]
        latencies = [
            since_sent.maximum for _, since_sent in report.latency.values() if since_sent.count
        ]
        self._slowest = max([self._slowest, *latencies])

    def _consume_options(self, name: str) -> ConsumeOptions:
        alias, plan = self._lab.source.alias, self._plan
        return ConsumeOptions(
            run=plan.run,
            name=name,
            client=ClientConfig.load(
                bootstrap_server=self._lab.destination.bootstrap_servers,
                defaults=CONSUMER_DEFAULTS,
            ),
            mapping=TopicMapping.parse(source_alias=alias),
            thresholds=(),
            topics=tuple(f"{alias}.{topic}" for topic in plan.topics),
            group="calibrate",
            expect_producers=tuple(each.name for each in plan.senders),
            deadline=plan.deadline,
            settle_time=_SETTLE_SECONDS,
            include_backlog=True,
            log_dir=str(self._folder / LOGS),
        )

    # -- the truth ------------------------------------------------------------------------------

    def _note_truth(self) -> None:
        """Check in the faulty mirror's own summary that its truth is complete."""
        try:
            truth = read_summary(self._folder / TRUTH)
        except MirrortestError as error:
            self._reasons.append(str(error))
            return
        if not truth.clean:
            self._reasons.append(
                "the faulty mirror did not exit cleanly: its truth may be incomplete"
            )
        if truth.skipped:
            self._reasons.append("records were deleted before the faulty mirror could read them")
