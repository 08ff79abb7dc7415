"""How a point ended: the verdicts of clients and reconciliation, compared with the expectation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from mirrortest.config.threshold import Threshold
from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding
from mirrortest.model.verdict import ExitCode, Verdict
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.results.summary import Summary
    from mirrortest.scenario.specification import Expectation

_WORST_FIRST = (ExitCode.FAILED, ExitCode.ERROR, ExitCode.USAGE, ExitCode.INCONCLUSIVE)


def worst(codes: Iterable[int]) -> int:
    """The worst of several exit codes: a proven failure comes first, then errors."""
    found = set(codes) - {0}
    return next((code.value for code in _WORST_FIRST if code in found), max(found, default=0))


class ClientOutcome(BaseModel):
    """How a client ended; `verdict` is None if it left no summary."""

    model_config = ConfigDict(frozen=True)

    name: str
    verb: str
    verdict: Verdict | None


class PointOutcome(BaseModel):
    """A point's ``point.json``.

    `settings` are the varied values, by path; `label` names the point. `verdict` is None if the
    point could not be judged; `reasons` explain why it is not as expected, and `notes` which faults
    of a plan, or repetitions, were not injected, and which figures are missing. `figures` are in
    messages, seconds and MiB; those of several clients are added up, but of percentiles the worst
    one counts. `findings` are the reconciliation's.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    kind: Literal["point"] = "point"
    number: int
    label: str
    settings: dict[str, Any]
    repeat: int
    run: str
    verdict: Verdict | None
    expected: Verdict
    as_expected: bool
    exit_code: int
    reasons: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    began: str
    seconds: float
    clients: list[ClientOutcome] = Field(default_factory=list)
    figures: dict[str, float] = Field(default_factory=dict)
    findings: dict[str, int] = Field(default_factory=dict)

    @property
    def result_word(self) -> str:
        """One word for how the point ended."""
        return "error" if self.verdict is None else self.verdict.value


class SeriesOutcome(BaseModel):
    """A scenario's ``scenario.json``: the points that have ended, of `planned` points.

    `exit_code` is that of the worst point; while points are missing, at least 3 (inconclusive).
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    kind: Literal["scenario"] = "scenario"
    name: str
    description: str
    digest: str
    planned: int
    exit_code: int
    points: list[PointOutcome]

    @classmethod
    def of(
        cls, name: str, description: str, digest: str, planned: int, points: Sequence[PointOutcome]
    ) -> Self:
        """The outcome with the points that have ended."""
        codes = [point.exit_code for point in points]
        if len(points) < planned:
            codes.append(ExitCode.INCONCLUSIVE)
        return cls(
            name=name,
            description=description,
            digest=digest,
            planned=planned,
            exit_code=worst(codes),
            points=list(points),
        )


class Ended(NamedTuple):
    """How a client or the reconciliation ended.

    `verdict` is None if there is none. `failed` are the metrics of the thresholds that failed.
    """

    name: str
    verdict: Verdict | None
    failed: Sequence[str] = ()


def judged(
    expect: Expectation,
    those: Sequence[Ended],
    counts: Mapping[str, int],
    undone: Sequence[str] = (),
) -> tuple[Verdict | None, int, list[str]]:
    """A point's verdict, its exit code given the expectation, and the reasons.

    `those` are its clients and the reconciliation, whose `counts` are by finding. A point whose
    faults were not all done (`undone` says which) is never as expected.
    """
    if not those:
        return None, ExitCode.ERROR.value, ["every client was killed: nothing left a verdict"]
    silent = [each.name for each in those if each.verdict is None]
    if silent:
        return None, ExitCode.ERROR.value, [f"{name} left no verdict" for name in silent]
    found = {each.verdict for each in those}
    verdict = Verdict.of(failed=Verdict.FAILED in found, inconclusive=Verdict.INCONCLUSIVE in found)
    reasons = [f"no message was {name}" for name in expect.findings if not counts.get(name)]
    if verdict is not expect.verdict:
        by = ", ".join(f"{each.name}: {verdict}" for each in those if each.verdict is verdict)
        reasons.insert(0, f"{verdict.value}, not {expect.verdict.value} ({by})")
    elif verdict is Verdict.FAILED and expect.findings:
        for each in those:
            other = [metric for metric in each.failed if metric not in expect.findings]
            if each.verdict is Verdict.FAILED and (other or not each.failed):
                reasons.append(f"{each.name} failed: {', '.join(other) or 'not by a threshold'}")
    if reasons:
        return verdict, verdict.exit_code or ExitCode.FAILED.value, [*reasons, *undone]
    return verdict, (ExitCode.INCONCLUSIVE if undone else ExitCode.PASSED).value, [*undone]


def findings(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of the findings that occurred."""
    labels = [finding.label for finding in Finding]
    return {label: counts[label] for label in labels if counts.get(label)}


def figures(reports: Sequence[Mapping[str, Any]], summary: Summary | None) -> dict[str, float]:
    """The figures of a point, from the summaries of its clients and of the reconciliation."""
    sent = [report["whole"] for report in reports if report.get("kind") == "produce"]
    consumed = [report for report in reports if report.get("kind") == "consume"]
    # An observer reads at the source what consumers read again at the destination.
    read = [report["reading"] for report in consumed if report.get("role") != Role.SOURCE]
    found: dict[str, float] = {}
    if sent:
        found["acked"] = sum(each["acked"] for each in sent)
        found["sent_per_second"] = sum(each["records_per_second"] for each in sent)
        found["sent_mib_per_second"] = sum(each["mib_per_second"] for each in sent)
        for name in ("p50", "p99"):
            values = [each["latency_seconds"]["from_sent"].get(name) for each in sent]
            _put(found, f"ack_{name}_seconds", values)
    if read:
        found["read_per_second"] = sum(each["records_per_second"] for each in read)
        found["read_mib_per_second"] = sum(each["mib_per_second"] for each in read)
    if summary is not None:
        for name in ("p50", "p99"):
            by_topic = [each.quantiles.get(name) for each in summary.latency_seconds.values()]
            _put(found, f"latency_{name}_seconds", by_topic)
    return found


def _put(found: dict[str, float], name: str, values: Sequence[float | None]) -> None:
    present = [value for value in values if value is not None]
    if present:
        found[name] = max(present)


def failed_metrics(thresholds: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics of the thresholds of a summary that failed."""
    names = []
    for each in thresholds:
        if not each["passed"]:
            try:
                names.append(Threshold.parse(each["expression"]).metric)
            except UsageError:  # written by a version with more metrics
                names.append(each["expression"])
    return names
