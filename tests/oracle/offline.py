"""Histories as sequence logs for one reconciliation, each with its own topic.

Starting Spark costs more than hundreds of small histories: they share the sessions of one run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.job import reconcile_by
from mirrortest.reconcile.online import Disagreement
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.result_tables import JUDGED
from mirrortest.reconcile.steps import Spark
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.wire.stream import StreamId

from .in_process import InProcess
from .online import START, STEP
from .outer_join import judged
from .play import play
from .script import make_history
from .tape import Tape
from .truth import RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.reconcile.steps import Engine
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.rows import Row
    from mirrortest.verify.placement import ExpectPartition

    from .online import Online
    from .reference import Answer, Reference
    from .script import History
    from .truth import Sent, Truth

DEADLINE_NS = 10_000_000_000
NEVER_DUE = 1 << 61
"""An acknowledgement time whose deadline never passes."""
COUNTED = ("acked", "delivered", "unknown")
"""What the table of streams has as counts only."""


def sent_rows(sent: Sent) -> list[Row]:
    """A producer's log of one lane."""
    stream, written = sent.stream, []
    if sent.reserved:
        written.append(rows.reserved(stream, 0, sent.reserved, partition=sent.source_partition))
    numbers = list(sent.outcomes.items())
    lo = 0
    for at, (seq, outcome) in enumerate(numbers):
        follows = at + 1 < len(numbers) and _alike(sent, seq, numbers[at + 1][0])
        if follows:
            continue
        if outcome is not None:
            last = START + seq * STEP
            acked_ns = NEVER_DUE if seq in sent.recent else last
            acknowledged = (acked_ns, acked_ns) if outcome is Outcome.ACKED else None
            written.append(
                rows.sent(
                    stream,
                    lo,
                    seq + 1,
                    partition=sent.source_partition,
                    outcome=outcome,
                    offset_lo=None,
                    intended=(START + lo * STEP, last),
                    acknowledged=acknowledged,
                )
            )
        lo = seq + 1
    if sent.ended:
        written.append(rows.end(stream, len(numbers), partition=sent.source_partition))
    return written


def _alike(sent: Sent, seq: int, after: int) -> bool:
    """Whether two seqs may share a row, which ends at each minute of intended time."""
    same_minute = (START + seq * STEP) // 60_000_000_000 == (START + after * STEP) // 60_000_000_000
    return (
        same_minute
        and sent.outcomes[seq] == sent.outcomes[after]
        and (seq in sent.recent) == (after in sent.recent)
    )


def write(logdir: Path, played: Sequence[Online], *, detail: Detail = Detail.INTERVALS) -> None:
    """Write the logs of all these histories, which share one policy."""
    logs: list[list[Row]] = []
    for online in played:
        for number, log in enumerate(online.close()):
            if number == len(logs):
                logs.append([])
            logs[number] += log
    truths = [online.truth for online in played]
    sent = [row for truth in truths for each in truth.sent for row in sent_rows(each)]
    asyncio.run(_write(logdir, truths, sent, logs, detail))


async def _write(
    logdir: Path, truths: Sequence[Truth], sent: list[Row], logs: list[list[Row]], detail: Detail
) -> None:
    await _log(logdir, truths, Role.PRODUCER, "p", sent, detail)
    for number, log in enumerate(logs):
        await _log(logdir, truths, Role.CONSUMER, f"c{number}", log, detail)


async def _log(
    logdir: Path, truths: Sequence[Truth], role: Role, name: str, written: list[Row], detail: Detail
) -> None:
    about = Session(
        run=RUN,
        role=role,
        name=name,
        session=new_session_id(START),
        detail=detail,
        incarnation=1 if role is Role.PRODUCER else None,
        started_ns=START,
        topics={
            t.topic: Topic(
                destination=t.topic,
                source_partitions=t.source_partitions,
                destination_partitions=t.planned if role is Role.PRODUCER else t.partitions,
                compacted=t.source_compact if role is Role.PRODUCER else t.compact,
            )
            for t in truths
        },
        expect_partition=truths[0].policy.value if role is Role.CONSUMER else None,
        deadline_ns=DEADLINE_NS,
    )
    log = await SequenceLog.open(logdir, about)
    log.append(written)
    await log.sync()
    await log.close()


def reconciled(
    engine: Engine, logdir: Path
) -> tuple[Summary, Answer, dict[tuple[StreamId, str], int]]:
    """Reconcile; returns the summary, the exact ids, and the counts of each stream."""
    summary = reconcile_by(engine, plan([str(logdir)], RUN), ())
    answer: Answer = {}
    place = logdir / f"run={RUN}" / "result"
    for row in pq.read_table(place / "findings.parquet").to_pylist():
        numbers = answer.setdefault((_stream(row), row["finding"]), set())
        numbers |= set(range(row["seq_lo"], row["seq_hi"]))
    counts = {
        (_stream(row), name): row[name]
        for row in pq.read_table(place / "by_stream.parquet").to_pylist()
        for name in COUNTED
        if row[name]
    }
    return summary, answer, counts


def expected(answer: Answer) -> tuple[Answer, dict[tuple[StreamId, str], int]]:
    """The reference's answer, in the same two parts."""
    found = {finding.label for finding in (*JUDGED, Finding.COMPACTED)}
    return (
        {key: numbers for key, numbers in answer.items() if key[1] in found},
        {key: len(numbers) for key, numbers in answer.items() if key[1] in COUNTED},
    )


class Job(NamedTuple):
    """Histories for one reconciliation, by their tapes."""

    tapes: Sequence[bytes]
    policy: ExpectPartition
    detail: Detail = Detail.INTERVALS


def differences(spark: Any, place: Path, jobs: Sequence[Job]) -> dict[tuple[int, int], str]:
    """Judge histories by the reconciliation, by one outer join of all, and by the reference.

    Returns the differences by the indexes of job and tape. Without a Spark session the
    reconciliation runs in this process, and there is no outer join.
    """
    engine: Engine = InProcess() if spark is None else Spark(spark)
    lines_by_topic: dict[str, list[str]] = {}
    histories: dict[str, History] = {}
    references: list[Reference] = []
    right: Answer = {}
    for number, job in enumerate(jobs):
        played = [_played(job, number, at, histories) for at in range(len(job.tapes))]
        answers = [reference.offline() for reference, _ in played]
        logdir = place / str(number)
        write(logdir, [online for _, online in played], detail=job.detail)
        summary, found, counts = reconciled(engine, logdir)
        findings, outcomes = expected({k: v for answer in answers for k, v in answer.items()})
        _compare(lines_by_topic, "reconciliation", found, findings)
        _compare(lines_by_topic, "reconciliation", counts, outcomes)
        named = [
            line
            for (reference, _), answer in zip(played, answers, strict=True)
            for line in apart(reference, answer)
        ]
        assert summary.online is not None
        for line in {*summary.online.disagreements} ^ {*named}:
            topic = line.partition(":")[0].partition("-")[0]
            lines_by_topic.setdefault(topic, []).append(f"online and offline: {line}")
        references += [reference for reference, _ in played]
        right |= findings
    if spark is not None:
        _compare(lines_by_topic, "outer join", judged(spark, references), right)
    different: dict[tuple[int, int], str] = {}
    for topic, lines in sorted(lines_by_topic.items()):
        part, number = map(int, topic[1:].split("x"))
        different[part, number] = "\n".join([str(histories[topic]), *sorted(lines)])
    return different


def _played(
    job: Job, number: int, at: int, histories: dict[str, History]
) -> tuple[Reference, Online]:
    name = f"{number}x{at}"
    history = make_history(Tape(job.tapes[at]), name=name, topic=f"t{name}", policy=job.policy)
    histories[history.truth.topic] = history
    return play(history)


def _compare(
    lines_by_topic: dict[str, list[str]],
    judge: str,
    answer: Mapping[tuple[StreamId, str], object],
    right: Mapping[tuple[StreamId, str], object],
) -> None:
    for key in {**answer, **right}:
        if answer.get(key) != right.get(key):
            line = f"{judge}: {key}: {answer.get(key)}, expected: {right.get(key)}"
            lines_by_topic.setdefault(key[0].topic, []).append(line)


def apart(reference: Reference, answer: Answer) -> list[str]:
    """The disagreements about losses that the summary should name, of one topic.

    What the last consumer could not decide, because it ended before a deadline, is not one.
    """
    lost = {(of, seq) for (of, name), ids in answer.items() if name == "lost" for seq in ids}
    late = {(of, seq) for (of, name), ids in answer.items() if name == "late" for seq in ids}
    unsure = {
        (o, seq) for (o, name), ids in answer.items() if name == "inconclusive" for seq in ids
    }
    online = reference.logged_lost - lost - late - unsure
    offline = lost - reference.logged_lost - reference.undecided
    if not (online or offline):
        return []
    where = reference.truth.topic
    return [str(Disagreement(where, None, "lost", len(online), len(offline)))]


def _stream(row: dict[str, Any]) -> StreamId:
    return StreamId(row["topic"], RUN, row["producer"], row["incarnation"], row["lane"])
