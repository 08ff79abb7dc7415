"""A one-minute run with its logs: a test chooses the rows of producer and consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.config.units import SECOND_NS
from mirrortest.model.findings import Outcome
from mirrortest.report.result import Result, read_result
from mirrortest.seqlog import rows
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.timing.histogram import Histogram, Sparse
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.made_result import RUN, SCHEMAS, START, Made

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from mirrortest.seqlog.rows import Row

BEGIN = START * SECOND_NS


def stream(lane: int = 0) -> StreamId:
    return StreamId("orders", RUN, "ann", 1, lane)


def sent(
    lo: int, hi: int, first: float, last: float, outcome: Outcome = Outcome.ACKED, *, lane: int = 0
) -> Row:
    """A producer's row; times are seconds from the run's start."""
    times = (BEGIN + int(first * SECOND_NS), BEGIN + int(last * SECOND_NS))
    return rows.sent(
        stream(lane), lo, hi, partition=0, outcome=outcome, offset_lo=lo, intended=times,
        acknowledged=times,
    )  # fmt: skip


def seen(
    lo: int,
    hi: int,
    first: float,
    last: float,
    bucket: int,
    *,
    arrived: float | None = None,
    offset: int | None = None,
) -> Row:
    """A consumer's row; its messages arrived at their intended times, or all at `arrived`."""
    times = (BEGIN + int(first * SECOND_NS), BEGIN + int(last * SECOND_NS))
    at = lo if offset is None else offset
    came = times if arrived is None else (BEGIN + int(arrived * SECOND_NS),) * 2
    return rows.seen(
        SeenRow(stream(), lo, hi, at, at + hi - lo, 0, *times, *times, *came), topic="orders",
        partition=0, topic_identity="0", latencies=Sparse(0, (bucket,), (hi - lo,)),
    )  # fmt: skip


def seen_as(lo: int, hi: int, intended: NDArray[np.int64], arrived: NDArray[np.int64]) -> Row:
    """A consumer's row of messages with these times, ns from the run's start."""
    histogram = Histogram()
    histogram.add(arrived[lo:hi] - intended[lo:hi])
    ends = [BEGIN + int(times[at]) for times in (intended, arrived) for at in (lo, hi - 1)]
    return rows.seen(
        SeenRow(stream(), lo, hi, lo, hi, 0, *ends[:2], *ends[:2], *ends[2:]), topic="orders",
        partition=0, topic_identity="0",
        latencies=histogram.sparse(),
    )  # fmt: skip


async def log(logdir: Path, role: Role, written: list[Row]) -> None:
    about = Session(
        run=RUN, role=role, name="ann", session=new_session_id(BEGIN),
        incarnation=1 if role is Role.PRODUCER else None, started_ns=BEGIN,
        topics={"orders": Topic(destination_partitions=1)},
    )  # fmt: skip
    writer = await SequenceLog.open(logdir, about)
    writer.append(written)
    await writer.close()


def short_run(
    tmp_path: Path,
    *,
    found: Sequence[tuple[str, int, int, int]] = (),
    producer: Sequence[Row] = (),
    consumer: Sequence[Row] = (),
) -> Result:
    """A one-minute run with its logs and these ranges of findings."""
    acked = sum(
        (row.seq_hi or 0) - (row.seq_lo or 0) for row in producer if row.outcome == Outcome.ACKED
    )
    made = Made(minutes=1, topics=("orders",), counts={"acked": acked})
    place = made.write(tmp_path, sessions=False)
    ids = [
        {"topic": "orders", "run": RUN, "producer": "ann", "incarnation": 1}
        | {"lane": lane, "finding": name, "seq_lo": lo, "seq_hi": hi}
        for name, lane, lo, hi in found
    ]
    pq.write_table(pa.Table.from_pylist(ids, SCHEMAS["findings"]), place / "findings.parquet")
    for role, written in ((Role.PRODUCER, producer), (Role.CONSUMER, consumer)):
        if written:
            asyncio.run(log(tmp_path, role, list(written)))
    return read_result(Location.parse(place))
