"""The JSON summaries of the commands: with all fields, and those of runs with the fewest."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

from mirrortest.cli import salvage
from mirrortest.config.threshold import evaluate, thresholds
from mirrortest.consume.consume_report import Basis, ConsumeReport, counts_of
from mirrortest.consume.statistics import ReadFigures
from mirrortest.errors import ClusterError, MirrortestError
from mirrortest.faults.ground_truth import Deferral, FaultyMirrorReport, Partition, Truth
from mirrortest.faults.spec import Spec
from mirrortest.model.findings import OF_STREAM, Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.verdict import Verdict
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.recording import TopicNumbers
from mirrortest.results import summary
from mirrortest.results.summary import Latency, Summary, Workload
from mirrortest.selftest.calibration import Calibration, Figures, KindFigures
from mirrortest.selftest.synthesis import Written
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import FileNote, Session
from mirrortest.timing.histogram import Histogram
from mirrortest.verify.judge import RunVerdict, StreamVerdict
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.wire.stream import StreamId
from mirrortest.workers.worker_pool import PoolReport

START = 1_700_000_000_000_000_000
SECOND = 10**9
STREAM = StreamId("orders", "run7", "pa", 3, 11)
FIGURES = Figures(found=3, missed=1, false=0, recall=0.75, precision=1.0)


def document() -> dict[str, Any]:
    """Everything, as JSON's types."""
    return {
        "produce": {
            "nothing sent": _produced(Outcome.ACKED, count=0).to_json(),
            "all fields": PoolReport(_produced(Outcome.ACKED), [{"a worker": "says"}]).to_json(),
            "exit codes": {
                **{f"{o.name.lower()}": _ended(_produced(o)) for o in Outcome},
                "nothing sent": _ended(_produced(Outcome.ACKED, count=0)),
                "error": _ended(_produced(Outcome.ACKED, error=ClusterError("away"))),
            },
        },
        "consume": {
            "nothing read": _consumed(full=False).to_json(),
            "all fields": PoolReport(_consumed(full=True), [{"a worker": "says"}]).to_json(),
            "counts": list(counts_of(RunVerdict(), with_ledger=True)),
            "counts without a ledger": list(counts_of(RunVerdict(), with_ledger=False)),
            "exit codes": {
                "passed": _ended(_consumed(full=False, doubts=())),
                "inconclusive": _ended(_consumed(full=False)),
                "failed": _ended(_consumed(full=True, doubts=())),
                "failed and inconclusive": _ended(_consumed(full=True)),
            },
        },
        "reconcile": {
            "nothing found": _of_no_version(
                Summary(run="run7", verdict=Verdict.PASSED, exit_code=0, counts={})
            ),
            "all fields": _of_no_version(_reconciled()),
            "exit codes": {
                "passed": Verdict.of(failed=False, inconclusive=False).exit_code,
                "inconclusive": Verdict.of(failed=False, inconclusive=True).exit_code,
                "failed": Verdict.of(failed=True, inconclusive=False).exit_code,
                "failed and inconclusive": Verdict.of(failed=True, inconclusive=True).exit_code,
            },
        },
        "calibrate": _of_no_version(_calibrated()),
        "sabotage": FaultyMirrorReport(
            "/truth", {"orders": 5}, {"A.orders": 4}, {"drop": 1}, 1.25
        ).to_json(),
        "sabotage, truth.json": _of_no_version(_truth()),
        "salvage": salvage._summary(_session()),
        "synth": dataclasses.asdict(Written("run7", 10, findings={"lost": 1})),
    }


def _ended(report: ProduceReport | ConsumeReport) -> str:
    return f"{report.exit_code}, {report.verdict}"


def _of_no_version(model: Any) -> dict[str, Any]:
    """A document without the program's version, which each release changes."""
    content: dict[str, Any] = json.loads(model.model_dump_json())
    return content | {"mirrortest": "its version"}


def _histogram() -> Histogram:
    histogram = Histogram()
    histogram.add([-5, 10**6, 10**7, 10**8, 10**9])
    return histogram


def _produced(
    outcome: Outcome, *, count: int = 4, error: MirrortestError | None = None
) -> ProduceReport:
    """A producer's report, with a warm-up if anything was sent."""
    numbers = TopicNumbers(100)
    lanes = []
    if count:
        for tally in (numbers.warm, numbers.steady):
            tally.outcomes[outcome] = count
            tally.value_bytes = 100 * count
            tally.span(START, START + 2 * SECOND)
            for gathered in (tally.from_intended, tally.from_sent, tally.schedule_lag):
                gathered.histogram.merge(_histogram())
        lane = LaneRecord(
            STREAM, 40, IntervalSet([(0, 9)]), IntervalSet([(9, 10)]), IntervalSet([(10, 11)]),
            11, 8, 4,
        )  # fmt: skip
        lanes = [(lane, 2)]
    return ProduceReport(
        run="run7",
        name="pa",
        session="20231114T221320Z-1f2e3d4c",
        log="/logs",
        numbers={"orders": numbers},
        lanes=lanes,
        reasons={"it timed out": 1} if count else {},
        behind_ns={"orders": 1_500_000_000},
        warmup_records=1 if count else 0,
        notes=["a note"] if count else [],
        error=error,
        settings={"throughput": "ramp(0, 5k, 10m)"} if count else {},
    )


def _consumed(*, full: bool, doubts: tuple[str, ...] = ("a doubt",)) -> ConsumeReport:
    """A consumer's report; a `full` one fails by a loss, and its stream has every finding."""
    counts = {"acked": 20, "lost": 1, "delivered": 19} if full else {"acked": 0}
    conditions = thresholds(["lost==0", "p(99)<2s"] if full else [])
    results = evaluate(conditions, counts, total=20, latencies={"latency": _histogram()})
    each = IntervalSet([(3, 5), (7, 8)])
    verdict = StreamVerdict(
        STREAM,
        acked=each,
        unknown=each,
        delivered=each,
        copies=2,
        found=dict.fromkeys(OF_STREAM, each),
    )
    return ConsumeReport(
        run="run7",
        name="ca",
        counts=counts,
        copies=2 if full else 0,
        verdicts={STREAM: verdict} if full else {},
        latency={"orders": (_histogram(), _histogram())} if full else {},
        thresholds=results if full else (),
        inconclusive=doubts,
        notes=["a note"] if full else [],
        reading=ReadFigures(
            started_ns=1_700_000_000 * 10**9,
            ended_ns=1_700_000_004 * 10**9,
            messages=19,
            value_bytes=19 << 20,
            rebalance_ns=10**9,
            lag=2,
        )
        if full
        else ReadFigures(),
        log="/logs",
        partitions=["A.orders-5"] if full else (),
        role=Role.CONSUMER if full else Role.SOURCE,
        backlog={"orders": 3, "others": 0} if full else {},
        rests_on={"A.orders-5": Basis(19, 4)} if full else {},
    )


def _reconciled() -> Summary:
    missing = summary.Missing(
        topic="orders", producer="pa", incarnation=3, lane=11, verdict="lost",
        attribution="in the source", seq_lo=3, seq_hi=4,
    )  # fmt: skip
    return Summary(
        run="run7",
        verdict=Verdict.FAILED,
        exit_code=99,
        counts={"acked": 20, "lost": 1},
        partitions=[summary.Partition(topic="orders", partition=5, counts={"seen": 19})],
        latency_seconds={"orders": Latency.of(_histogram()), "empty": Latency.of(Histogram())},
        backlog={"orders": 3},
        thresholds=[summary.Threshold(expression="lost==0", value=1.0, passed=False)],
        inconclusive=["a doubt"],
        notes=["a note"],
        online=summary.Online(partitions=1, disagreements=["a difference"]),
        rests_on=summary.RestsOn(producers=1, consumers=1, offsets_read=25),
        undelivered=[missing],
        undelivered_ranges=1,
        attribution=[
            summary.Attributed(verdict="lost", attribution="in the source", messages=1),
        ],
        minutes=[
            summary.Minute(
                topic="orders",
                minute=datetime(2023, 11, 14, 22, 13, tzinfo=UTC),
                counts=dict.fromkeys(summary.MINUTE_COUNTS, 1),
                latency_seconds=dict.fromkeys(summary.MINUTE_LATENCIES, 0.5),
            ),
            summary.Minute(topic="orders", minute=None, counts={}),
        ],
        minutes_total=2,
        workloads=[Workload(producers=["p1", "p2"], workload={"topics": "orders", "seed": 7})],
        tables="/result",
    )


def _calibrated() -> Calibration:
    return Calibration(
        run="run7",
        verdict=Verdict.FAILED,
        exit_code=99,
        messages=100,
        seeded=4,
        seed=7,
        rates=[0.01],
        forms=["body", "headers"],
        consumers=2,
        kinds=[
            KindFigures(kind="drop", form="body", seeded=4, online=FIGURES, offline=FIGURES),
        ],
        differences=["a difference"],
        examples=["an example"],
        directory="/calibration",
        inconclusive=["a doubt"],
    )


def _truth() -> Truth:
    waiting = Deferral(offset=7, act=0, due=9, left_ns=5, overtaken=1, copy_of=False)
    return Truth(
        spec=Spec(seed=7),
        clean=True,
        files=["000001.parquet"],
        read={"orders": {5: Partition(read=8, next=8, waiting=[waiting])}},
        written={"A.orders": {5: 7}},
        ends={"A.orders": {5: 7}},
        skipped=[{"topic": "orders"}],
    )


def _session() -> Session:
    return Session(
        run="run7",
        role=Role.PRODUCER,
        name="pa",
        session="s",
        started_ns=START,
        files=(FileNote(name="000001.parquet", rows=7),),
    )
