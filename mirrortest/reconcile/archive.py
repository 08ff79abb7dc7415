"""`python -m mirrortest.reconcile.archive` writes the archive of Spark's classes (`kept_classes`).

Once for each Java and each Spark, it reconciles a small run of its own; from then on every start
uses the archive.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mirrortest.host import class_archive
from mirrortest.model.findings import Finding, Outcome
from mirrortest.reconcile.job import reconcile
from mirrortest.reconcile.jvm import spark_java
from mirrortest.reconcile.kept_classes import place
from mirrortest.reconcile.plan import plan
from mirrortest.reconcile.spark_session import spark_session
from mirrortest.seqlog import rows
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.seqlog.rows import Row

_RUN = "archive"
_START = 28_000_000 * 60_000_000_000


def write_archive() -> Path:
    """Write the archive, unless it exists; takes a minute. Raises MirrortestError."""

    def write(folder: Path, draft: Path) -> None:
        logs = folder / "logs"
        asyncio.run(_write(logs))
        with spark_session("local[2]", archive=draft) as spark:
            for _ in range(2):
                reconcile(spark, plan([str(logs)], _RUN), (), Location.parse(str(logs / "result")))

    step = "reconciling a small run whose classes are archived"
    return class_archive.write_once(place(spark_java()), step, write)


async def _write(logs: Path) -> None:
    """Write the logs of a small run with many kinds of findings."""
    streams = [StreamId("t", _RUN, "p", 1, lane) for lane in range(2)]
    sent: list[Row] = []
    seen: list[Row] = []
    offset = 0
    for of in streams:
        time = (_START, _START + 90_000_000_000)
        sent += [
            rows.reserved(of, 0, 100),
            rows.sent(of, 0, 90, partition=0, outcome=Outcome.ACKED, offset_lo=None,
                      intended=time, acknowledged=time),
            rows.sent(of, 90, 100, partition=0, outcome=Outcome.UNKNOWN, offset_lo=None,
                      intended=time),
            rows.end(of, 100),
        ]  # fmt: skip
        for lo, hi, findings in ((0, 40, 0), (50, 60, 0), (45, 55, 0), (60, 61, 8), (61, 99, 0)):
            seen.append(_seen(of, lo, hi, offset, findings, time))
            offset += hi - lo
    seen += [
        rows.read("t", 0, 0, offset, topic_identity="0"),
        rows.tail("t", 0, offset, topic_identity="0"),
        rows.claimed(streams[0], 40, 45),
        rows.found(streams[0], 50, 55, Finding.DUPLICATED, partition=0, next_offset=offset),
    ]
    for role, written in ((Role.PRODUCER, sent), (Role.CONSUMER, seen)):
        about = Session(
            run=_RUN,
            role=role,
            name=role.value,
            session=new_session_id(_START),
            incarnation=1 if role is Role.PRODUCER else None,
            started_ns=_START,
            topics={"t": Topic(destination="t", destination_partitions=1)},
            deadline_ns=1,
        )
        async with await SequenceLog.open(logs, about) as log:
            log.append(written)


def _seen(of: StreamId, lo: int, hi: int, offset: int, findings: int, time: rows.Times) -> Row:
    return rows.Row(
        "seen", *of, lo, hi, 0, offset, offset + hi - lo, "0", None, findings, *time, *time, *time,
        negative=0, latency_bucket=(1000,), latency_count=(hi - lo,),
    )  # fmt: skip


if __name__ == "__main__":
    class_archive.run(write_archive)
