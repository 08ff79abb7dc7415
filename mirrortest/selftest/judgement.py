"""From what a stage left in its folder to the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.config.run import TopicMapping
from mirrortest.faults.ground_truth import read_truth
from mirrortest.model.findings import Finding
from mirrortest.report.summary import Summary, Verdict
from mirrortest.selftest.calibration import Calibration, Figures, KindFigures
from mirrortest.selftest.expected import expect
from mirrortest.selftest.injected_faults import read_done
from mirrortest.selftest.observed import offline, online, records_without_id
from mirrortest.selftest.score import Score, Tally, score
from mirrortest.selftest.sent import Numbers, Sent
from mirrortest.selftest.stage import LOGS, ONLINE, TRUTH, Stage
from mirrortest.verify.anomaly import EFFECTS, Anomaly
from mirrortest.wire.message import Form

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.selftest.injected_faults import Done
    from mirrortest.selftest.score import Line

CALIBRATION_FILE = "calibration.json"
_DISAGREE = "online and offline disagree"


@dataclass
class _Evidence:
    """What was found, and why it may prove nothing."""

    online: Score
    offline: Score
    done: list[Done]
    messages: int
    doubts: list[str] = field(default_factory=list)
    """With one of these, neither success nor failure is proven."""
    gaps: list[str] = field(default_factory=list)
    """With one of these, success is not proven."""


def judge(folder: Path) -> Calibration:
    """Score what lies in a stage's folder, and write the figures beside it.

    Raises:
        MirrortestError: a part of it is missing or cannot be read.
    """
    stage = Stage.read(folder)
    evidence = _gather(folder, stage)
    verdict = _verdict(evidence)
    shown = Calibration(
        run=stage.run,
        verdict=verdict,
        exit_code=verdict.exit_code,
        messages=evidence.messages,
        seeded=len(evidence.done),
        seed=stage.seed,
        rates=stage.rates,
        forms=[form.value for form in stage.forms],
        consumers=len(stage.readers),
        kinds=_figures(evidence),
        differences=[*evidence.online.differences, *evidence.offline.differences],
        examples=[
            f"{way}: {example}"
            for way, told in (("online", evidence.online), ("offline", evidence.offline))
            for example in told.examples
        ],
        inconclusive=[*evidence.doubts, *evidence.gaps],
        directory=str(folder),
    )
    (folder / CALIBRATION_FILE).write_text(shown.encode())
    return shown


def _gather(folder: Path, stage: Stage) -> _Evidence:
    numbers = Numbers()
    logs = folder / LOGS
    result = logs / f"run={stage.run}" / "result"
    sent = Sent.read(logs, stage.run, numbers)
    mapping = TopicMapping.parse(source_alias=stage.alias)
    done = read_done(read_truth(folder / TRUTH).to_pylist(), numbers, mapping, stage.run)
    written = {
        (topic, partition): end
        for topic, ends in stage.ends.items()
        for partition, end in ends.items()
    }
    expected = expect(sent, done, written, numbers)
    records, unread = records_without_id(logs, stage.run, numbers)
    reports = _reports(folder, stage)

    def form_of(key: int) -> Form:
        return stage.senders.get(numbers.stream_of(key).producer, Form.BODY)

    told = online(reports, records, numbers)
    reconciled = offline(result, stage.run, records, numbers)
    evidence = _Evidence(
        score(done, expected, told, numbers, form_of),
        score(done, expected, reconciled, numbers, form_of),
        done,
        len(sent.keys),
    )
    summary = Summary.model_validate_json((result / "summary.json").read_bytes())
    if summary.online is not None:
        evidence.offline.differences += [
            f"{_DISAGREE}: {each}" for each in summary.online.disagreements
        ]
    evidence.doubts += [*stage.reasons, *sent.reasons, *unread]
    evidence.doubts += [
        f"no report of consumer {name}" for name in stage.readers if name not in reports
    ]
    evidence.doubts += [
        f"the reconciliation is inconclusive: {reason}"
        for reason in summary.inconclusive
        if not reason.startswith(_DISAGREE)
    ]
    late = told.told.get(Finding.LATE)
    if late is not None and len(late) and stage.slowest >= stage.deadline:
        evidence.doubts.append(
            f"messages took up to {stage.slowest:.0f} s, and the deadline is "
            f"{stage.deadline:.0f} s: slowness cannot be told from loss; lower --throughput or "
            "raise --deadline"
        )
    evidence.gaps += [*expected.reasons, *_unseeded(done, stage)]
    return evidence


def _reports(folder: Path, stage: Stage) -> dict[str, dict[str, Any]]:
    files = {name: folder / ONLINE / f"{name}.json" for name in stage.readers}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def _unseeded(done: list[Done], stage: Stage) -> list[str]:
    """Kinds that did not occur: of them nothing was measured."""
    there = {(each.kind, each.effect.form) for each in done}
    wanted = dict.fromkeys((effect.kind, effect.form) for effect in EFFECTS)
    return [
        f"no {kind} was seeded in {form} form: nothing was measured of it"
        for kind, form in wanted
        if form in stage.forms and (kind, form) not in there
    ]


def _verdict(evidence: _Evidence) -> Verdict:
    """A measurement that went wrong proves nothing, not even a failure."""
    if evidence.doubts:
        return Verdict.INCONCLUSIVE
    perfect = evidence.online.perfect and evidence.offline.perfect
    return Verdict.of(failed=not perfect, inconclusive=bool(evidence.gaps))


def _figures(evidence: _Evidence) -> list[KindFigures]:
    none = Tally()
    lines: list[Line] = [(kind, form) for kind in (*Anomaly, None) for form in Form]
    by_online, by_offline = evidence.online.lines, evidence.offline.lines
    return [
        KindFigures(
            kind="none" if line[0] is None else line[0].value,
            form=line[1].value,
            seeded=by_online.get(line, none).seeded,
            online=Figures.of(by_online.get(line, none)),
            offline=Figures.of(by_offline.get(line, none)),
        )
        for line in lines
        if line in by_online or line in by_offline
    ]
