"""A calibration's result: scored from its folder, as a versioned document and for a terminal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from rich.box import SIMPLE
from rich.console import Group

from mirrortest import __version__
from mirrortest.config.run_naming import TopicMapping
from mirrortest.errors import MirrortestError
from mirrortest.faults.ground_truth import read_truth
from mirrortest.model.findings import Finding
from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import Summary, as_percentage, shorten
from mirrortest.results.tables import lines, table, verdict_line
from mirrortest.selftest.calibration_run import LOGS, ONLINE, TRUTH, CalibrationRun
from mirrortest.selftest.detected import offline, online, records_without_id
from mirrortest.selftest.expected import expect, read_injected
from mirrortest.selftest.score import Score, Tally, score
from mirrortest.selftest.sent import NO_KEYS, Numbers, Sent
from mirrortest.verify.anomaly import EFFECTS, Anomaly
from mirrortest.wire.form import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import RenderableType
    from rich.table import Table

    from mirrortest.selftest.expected import Injected
    from mirrortest.selftest.score import Line

T = TypeVar("T")
CALIBRATION_FILE = "calibration.json"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Figures(_Model):
    """The score of one kind, online or offline; `recall` and `precision` are shares.

    `recall` is None if nothing was seeded, `precision` if nothing was reported.
    """

    found: int
    missed: int
    false: int
    recall: float | None
    precision: float | None

    @classmethod
    def of(cls, tally: Tally) -> Figures:
        """The figures of a tally."""
        reported = tally.found + tally.false
        return cls(
            found=tally.found,
            missed=tally.missed,
            false=tally.false,
            recall=tally.found / tally.seeded if tally.seeded else None,
            precision=tally.found / reported if reported else None,
        )


class KindFigures(_Model):
    """The score of one kind of anomaly in one form; "none": findings that no kind explains."""

    kind: str
    form: str
    seeded: int
    online: Figures
    offline: Figures


class Calibration(_Model):
    """What `mirrortest calibrate --json` prints, and `calibration.json` contains.

    Attributes:
        messages: how many were sent in all.
        rates: of the anomalies of single messages.
        differences: wrong counts, and where online and offline disagree.
        examples: the first findings that are missed or false.
        inconclusive: why nothing is proven.
    """

    version: Literal[1] = 1
    kind: Literal["calibrate"] = "calibrate"
    mirrortest: str = __version__
    run: str
    verdict: Verdict
    exit_code: int
    messages: int
    seeded: int
    seed: int
    rates: list[float]
    forms: list[str]
    consumers: int
    kinds: list[KindFigures]
    differences: list[str] = Field(default_factory=list)
    examples: list[str] = Field(default_factory=list)
    inconclusive: list[str] = Field(default_factory=list)
    directory: str

    def encode(self) -> str:
        """The document as JSON."""
        return self.model_dump_json(indent=2) + "\n"


@dataclass
class _Evidence:
    """The scores, and the reasons why they might prove nothing."""

    online: Score
    offline: Score
    injected: list[Injected]
    messages: int
    doubts: list[str] = field(default_factory=list)
    """With one of these, neither success nor failure is proven."""
    gaps: list[str] = field(default_factory=list)
    """With one of these, success is not proven."""

    @property
    def verdict(self) -> Verdict:
        """The verdict: a measurement that went wrong proves nothing, not even a failure."""
        if self.doubts:
            return Verdict.INCONCLUSIVE
        perfect = self.online.perfect and self.offline.perfect
        return Verdict.of(failed=not perfect, inconclusive=bool(self.gaps))


def judge(folder: Path) -> Calibration:
    """Score a calibration's folder, and write the figures into it.

    Raises:
        MirrortestError: a part of it is missing or cannot be read.
    """
    run = CalibrationRun.read(folder)
    evidence = _gather(folder, run)
    both = (("online", evidence.online), ("offline", evidence.offline))
    result = Calibration(
        run=run.run,
        verdict=evidence.verdict,
        exit_code=evidence.verdict.exit_code,
        messages=evidence.messages,
        seeded=len(evidence.injected),
        seed=run.seed,
        rates=run.rates,
        forms=[form.value for form in run.forms],
        consumers=len(run.readers),
        kinds=_figures(evidence),
        differences=[difference for _, way in both for difference in way.differences],
        examples=[f"{name}: {example}" for name, way in both for example in way.examples],
        inconclusive=[*evidence.doubts, *evidence.gaps],
        directory=str(folder),
    )
    (folder / CALIBRATION_FILE).write_text(result.encode())
    return result


def _gather(folder: Path, run: CalibrationRun) -> _Evidence:
    numbers = Numbers()
    logs = folder / LOGS
    result = logs / f"run={run.run}" / "result"
    sent = Sent.read(logs, run.run, numbers)
    mapping = TopicMapping.parse(source_alias=run.alias)
    injected = read_injected(read_truth(folder / TRUTH).to_pylist(), numbers, mapping, run.run)
    written = {
        (topic, partition): end
        for topic, ends in run.ends.items()
        for partition, end in ends.items()
    }
    expected = expect(sent, injected, written, numbers)
    records, unread = records_without_id(logs, run.run, numbers)
    reports = _reports(folder, run)

    def form_of(key: int) -> Form:
        return run.senders.get(numbers.stream_of(key).producer, Form.BODY)

    found_online = online(reports, records, numbers)
    summary = _read(result / "summary.json", Summary.model_validate_json)
    found_offline = offline(result, summary, records, numbers)
    evidence = _Evidence(
        score(injected, expected, found_online, numbers, form_of),
        score(injected, expected, found_offline, numbers, form_of),
        injected,
        len(sent.keys),
    )
    disagreements = [] if summary.online is None else summary.online.disagreements
    evidence.offline.differences += [
        f"online and offline disagree: {each}" for each in disagreements
    ]
    evidence.doubts += [*run.reasons, *sent.reasons, *unread]
    evidence.doubts += [
        f"no report of consumer {name}" for name in run.readers if name not in reports
    ]
    evidence.doubts += [
        f"the reconciliation is inconclusive: {reason}"
        for reason in summary.inconclusive
        if not reason.endswith(tuple(disagreements))  # a failure, not a doubt
    ]
    if len(found_online.by_any.get(Finding.LATE, NO_KEYS)) and run.slowest >= run.deadline:
        evidence.doubts.append(
            f"messages took up to {run.slowest:.0f} s, which exceeds the deadline of "
            f"{run.deadline:.0f} s, so that slow ones count as lost: lower --throughput or raise "
            "--deadline"
        )
    evidence.gaps += [*expected.reasons, *_unseeded(injected, run)]
    return evidence


def _reports(folder: Path, run: CalibrationRun) -> dict[str, dict[str, Any]]:
    files = {name: folder / ONLINE / f"{name}.json" for name in run.readers}
    return {name: _read(file, json.loads) for name, file in files.items() if file.exists()}


def _read(file: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(file.read_bytes())
    except OSError as error:
        why = error.strerror or ""
    except ValueError:
        why = "it is incomplete or damaged"
    raise MirrortestError(
        f"{file}: cannot be read: {why}; if the calibration was interrupted, run a new one"
    )


def _unseeded(injected: list[Injected], run: CalibrationRun) -> list[str]:
    """Reasons for kinds that did not occur, and so were not measured."""
    there = {(each.kind, each.effect.form) for each in injected}
    wanted = dict.fromkeys((effect.kind, effect.form) for effect in EFFECTS)
    return [
        f"no {kind} was seeded in {form} form: it was not measured"
        for kind, form in wanted
        if form in run.forms and (kind, form) not in there
    ]


def _figures(evidence: _Evidence) -> list[KindFigures]:
    empty = Tally()
    lines: list[Line] = [(kind, form) for kind in (*Anomaly, None) for form in Form]
    by_online, by_offline = evidence.online.lines, evidence.offline.lines
    return [
        KindFigures(
            kind="none" if line[0] is None else line[0].value,
            form=line[1].value,
            seeded=by_online.get(line, empty).seeded,
            online=Figures.of(by_online.get(line, empty)),
            offline=Figures.of(by_offline.get(line, empty)),
        )
        for line in lines
        if line in by_online or line in by_offline
    ]


def calibration_view(calibration: Calibration) -> RenderableType:
    """The result for a terminal: the verdict, a line for each kind, and what went wrong."""
    head = verdict_line(
        f"run {calibration.run}: {calibration.messages:,} messages, {calibration.seeded:,} "
        f"anomalies at rates of {', '.join(f'{rate:g}' for rate in calibration.rates)}, "
        f"seed {calibration.seed}, {calibration.consumers} consumers, "
        f"{' and '.join(calibration.forms)} form",
        calibration.verdict,
    )
    return Group(
        head,
        _table(calibration),
        *lines((f"differs: {each}" for each in shorten(calibration.differences)), colour="red"),
        *lines((f"wrong: {each}" for each in calibration.examples), colour="red"),
        *lines(shorten(calibration.inconclusive), "inconclusive: ", "yellow"),
        *lines([f"truth, logs and tables are in {calibration.directory}"]),
    )


def _table(calibration: Calibration) -> Table:
    by_kind: dict[str, list[KindFigures]] = {}
    for each in calibration.kinds:
        by_kind.setdefault(each.kind, []).append(each)
    shown = table(
        ("anomaly", "seeded", "way", "found", "missed", "false", "recall", "precision"),
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    shown.columns[0].no_wrap = True
    shown.columns[2].justify = "left"
    for kind, figures in by_kind.items():
        _add_rows(shown, kind, figures)
    shown.add_section()
    _add_rows(shown, "all", calibration.kinds)
    return shown


def _add_rows(rows: Table, name: str, kinds: list[KindFigures]) -> None:
    """Add one row if online and offline are equal, else one for each."""
    seeded = sum(each.seeded for each in kinds)
    ways = {"online": [each.online for each in kinds], "offline": [each.offline for each in kinds]}
    cells = {way: _cells(seeded, figures) for way, figures in ways.items()}
    if cells["online"] == cells["offline"]:
        cells = {"both": cells["online"]}
    wrong = any(each.missed or each.false for figures in ways.values() for each in figures)
    for way, shown in cells.items():
        rows.add_row(name, f"{seeded:,}", way, *shown, style="red" if wrong else None)


def _cells(seeded: int, figures: Sequence[Figures]) -> tuple[str, ...]:
    found = sum(each.found for each in figures)
    missed = sum(each.missed for each in figures)
    false = sum(each.false for each in figures)
    shares = (as_percentage(found, seeded), as_percentage(found, found + false))
    return (f"{found:,}", f"{missed:,}", f"{false:,}", *shares)
