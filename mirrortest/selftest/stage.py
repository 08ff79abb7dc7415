"""The stage: producers, the faulty mirror and consumers on a lab, and what they leave in a folder.

::

    FOLDER/stage.json          what was measured, and what went wrong with the measurement
    FOLDER/spec.toml           what the faulty mirror was to do
    FOLDER/truth/              the faulty mirror's truth
    FOLDER/logs/run=RUN/       the sequence logs, and the reconciliation's result
    FOLDER/online/NAME.json    each consumer's report
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from mirrortest.config.client import ClientConfig
from mirrortest.config.run import TopicMapping
from mirrortest.consume import consumer
from mirrortest.consume.options import CONSUMER_DEFAULTS, ConsumeOptions
from mirrortest.errors import LabError, MirrortestError
from mirrortest.faults.ground_truth import read_summary
from mirrortest.lab.faulty_mirror import FaultyMirrorSettings
from mirrortest.lab.lab import Lab
from mirrortest.model.findings import Finding, Outcome
from mirrortest.produce import producer
from mirrortest.produce.options import PRODUCER_DEFAULTS, ProduceOptions
from mirrortest.selftest.matrix import MESSAGE_SIZE
from mirrortest.wire.message import Form  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from mirrortest.consume.consume_report import ConsumeProgress, ConsumeReport
    from mirrortest.produce.produce_report import ProduceProgress, ProduceReport
    from mirrortest.selftest.matrix import Matrix, Sender

STAGE_FILE = "stage.json"
TRUTH, LOGS, ONLINE = "truth", "logs", "online"
_POLL_SECONDS = 0.5
_SETTLE_SECONDS = 2.0
"""What is held back has come by the deadline of what was dropped: little more is waited for."""

T = TypeVar("T")


class Stage(BaseModel):
    """stage.json.

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
    def read(cls, folder: Path) -> Stage:
        """Read what `perform` left.

        Raises:
            MirrortestError: there is none, or none that this version can read.
        """
        file = folder / STAGE_FILE
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise MirrortestError(f"{file}: no calibration lies here: {error.strerror}") from None
        except ValidationError as error:
            raise MirrortestError(f"{file}: not of this version of mirrortest: {error}") from None


@dataclass
class Progress:
    """How far everybody is; its text is one line."""

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


def raised(matrix: Matrix, folder: Path, tell: Callable[[str], None]) -> Lab:
    """A lab whose mirror is the faulty mirror, not up yet: use it as a context manager.

    Raises:
        MirrortestError: the folder cannot be written.
    """
    file = folder / "spec.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(matrix.specification())
    except OSError as error:
        raise MirrortestError(f"--directory {folder}: {error.strerror}") from None
    return Lab(mirror=FaultyMirrorSettings(spec=file, truth=folder / TRUTH), tell=tell)


async def perform(
    lab: Lab,
    matrix: Matrix,
    folder: Path,
    stop: asyncio.Event,
    tell: Callable[[Progress], None],
) -> Stage:
    """Play the matrix on a lab whose mirror is the faulty mirror, up to the online verdicts.

    Whatever fails on the way is told in the stage's `reasons`.
    """
    played = _Played(lab, matrix, folder, tell)
    return await played.run(stop)


class _Played:
    def __init__(
        self, lab: Lab, matrix: Matrix, folder: Path, tell: Callable[[Progress], None]
    ) -> None:
        self._lab = lab
        self._matrix = matrix
        self._folder = folder
        self._tell = tell
        every = sum(len(each.topics) * each.messages for each in matrix.senders)
        self._progress = Progress(every)
        self._reasons: list[str] = []
        self._enough = asyncio.Event()
        self._slowest = 0

    async def run(self, stop: asyncio.Event) -> Stage:
        lab, matrix = self._lab, self._matrix
        for topic, partitions in matrix.topics.items():
            await asyncio.to_thread(lab.source.create_topic, topic, partitions)
        for topic in matrix.topics:
            await asyncio.to_thread(lab.mirror.wait_topic, topic)
        self._show("mirroring with a faulty mirror")
        watching = asyncio.create_task(self._watch(stop))
        readers = [self._kept(f"consumer {name}", self._consume(name)) for name in matrix.readers]
        senders = [
            self._kept(f"producer {each.name}", self._produce(each)) for each in matrix.senders
        ]
        try:
            reports, _ = await asyncio.gather(asyncio.gather(*readers), asyncio.gather(*senders))
        finally:
            watching.cancel()
        for report in reports:
            if report is not None:
                self._note_report(report)
        self._show("ending the faulty mirror")
        await asyncio.to_thread(lab.mirror.terminate)
        self._note_truth()
        ends = {
            topic: await asyncio.to_thread(
                lab.destination.end_offsets, f"{lab.source.alias}.{topic}"
            )
            for topic in matrix.topics
        }
        stage = Stage(
            run=matrix.run,
            messages=matrix.messages,
            rates=list(matrix.rates(matrix.rate)),
            deadline=matrix.deadline,
            seed=matrix.seed,
            forms=list(matrix.forms),
            senders={each.name: each.form for each in matrix.senders},
            readers=list(matrix.readers),
            alias=lab.source.alias,
            ends=ends,
            slowest=self._slowest / 1e9,
            reasons=self._reasons,
        )
        (self._folder / STAGE_FILE).write_text(stage.model_dump_json(indent=1))
        return stage

    def _show(self, doing: str) -> None:
        self._progress.doing = doing
        self._tell(self._progress)

    async def _watch(self, stop: asyncio.Event) -> None:
        """End early where the faulty mirror died, or the user has had enough."""
        while not stop.is_set():
            try:
                self._lab.mirror.check()
            except LabError as error:
                self._reasons.append(
                    f"the faulty mirror died, what it did is not fully told: {error}"
                )
                break
            await asyncio.sleep(_POLL_SECONDS)
        else:
            self._reasons.append("stopped before the end")
        self._enough.set()

    async def _kept(self, who: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Do one's work; an error of ours ends everybody's and is told."""
        try:
            return await work
        except MirrortestError as error:
            self._reasons.append(f"{who} ended early: {error}")
            self._enough.set()
            return None

    # -- producing ------------------------------------------------------------------------------

    async def _produce(self, sender: Sender) -> ProduceReport:
        report = await producer.run(
            self._produce_options(sender),
            stop=self._enough,
            on_progress=lambda told: self._note_sent(sender.name, told),
            progress_seconds=1.0,
        )
        if report.exit_code:
            self._reasons.append(
                f"producer {sender.name} {report.verdict}: {report.error or dict(report.reasons)}"
            )
        self._progress.sent[sender.name] = report.whole.outcomes[Outcome.ACKED]
        return report

    def _note_sent(self, name: str, told: ProduceProgress) -> None:
        self._progress.sent[name] = told.outcomes[Outcome.ACKED]
        self._tell(self._progress)

    def _produce_options(self, sender: Sender) -> ProduceOptions:
        return ProduceOptions(
            run=self._matrix.run,
            name=sender.name,
            client=ClientConfig.load(
                bootstrap_server=self._lab.source.bootstrap_servers, defaults=PRODUCER_DEFAULTS
            ),
            topics=sender.topics,
            throughput=sender.messages / self._matrix.seconds,
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
            stop=self._enough,
            on_progress=lambda told: self._note_read(name, told),
        )
        place = self._folder / ONLINE
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.json").write_text(json.dumps(report.to_json()))
        return report

    def _note_read(self, name: str, told: ConsumeProgress) -> None:
        self._progress.read[name] = told.consumed
        waiting = told.findings.get(Finding.IN_FLIGHT.label, 0)
        self._progress.found = sum(told.findings.values()) - waiting
        self._tell(self._progress)

    def _note_report(self, report: ConsumeReport) -> None:
        self._reasons += [f"consumer {report.name}: {reason}" for reason in report.inconclusive]
        took = [since_sent.maximum for _, since_sent in report.latency.values() if since_sent.count]
        self._slowest = max([self._slowest, *took])

    def _consume_options(self, name: str) -> ConsumeOptions:
        alias, matrix = self._lab.source.alias, self._matrix
        return ConsumeOptions(
            run=matrix.run,
            name=name,
            client=ClientConfig.load(
                bootstrap_server=self._lab.destination.bootstrap_servers,
                defaults=CONSUMER_DEFAULTS,
            ),
            mapping=TopicMapping.parse(source_alias=alias),
            thresholds=(),
            topics=tuple(f"{alias}.{topic}" for topic in matrix.topics),
            group="calibrate",
            expect_producers=tuple(each.name for each in matrix.senders),
            deadline=matrix.deadline,
            settle_time=_SETTLE_SECONDS,
            include_backlog=True,
            log_dir=str(self._folder / LOGS),
        )

    # -- the truth ------------------------------------------------------------------------------

    def _note_truth(self) -> None:
        """What the faulty mirror's own summary says against it."""
        try:
            truth = read_summary(self._folder / TRUTH)
        except MirrortestError as error:
            self._reasons.append(str(error))
            return
        if not truth.clean:
            self._reasons.append(
                "the faulty mirror did not end in order: its truth may not be whole"
            )
        if truth.skipped:
            self._reasons.append("the faulty mirror found records gone before it could read them")
