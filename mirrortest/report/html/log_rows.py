"""Rows of a run's sequence logs, if they are few enough to be read for a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.model.intervals import IntervalSet
from mirrortest.seqlog.files import read_file
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ROWS, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.result import Result

MOST_ROWS = 3_000_000
_CHANGED = (
    "the logs have other messages than this result rests on, for example because they grew since: "
    "this report draws no step below a minute, and shows no offsets; reconcile again"
)


def few_rows(result: Result) -> bool:
    """Whether the logs of all of the run's processes are available and have few rows."""
    rows = sum(file.estimated_rows for found in result.sessions for file in found.files)
    return 0 < rows <= MOST_ROWS and not result.sessions_missing


def with_matching_logs(result: Result) -> Result:
    """The result; without the files of its logs if they differ from what it rests on."""
    if not few_rows(result) or _match(result):
        return result
    sessions = tuple(replace(each, files=()) for each in result.sessions)
    return replace(result, sessions=sessions, absent=(*result.absent, _CHANGED))


def _match(result: Result) -> bool:
    """Whether the logs have as many acknowledged messages, and offsets read, as the result."""
    sent = read_rows(result, Role.PRODUCER, Kind.SENT, ("outcome", "seq_lo", "seq_hi"))
    acked = sent.filter(pc.equal(sent["outcome"], Outcome.ACKED.value))
    messages = pc.sum(pc.subtract(acked["seq_hi"], acked["seq_lo"]), min_count=0).as_py()
    if messages != result.summary.counts.get("acked"):
        return False
    if result.summary.rests_on is None:
        return True
    place = ("topic", "partition", "topic_identity")
    offsets: dict[tuple[str, int, str], IntervalSet] = {}
    rows = read_rows(result, Role.CONSUMER, Kind.READ, (*place, "offset_lo", "offset_hi"))
    for *at, lo, hi in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        offsets.setdefault((at[0], at[1], at[2]), IntervalSet()).add(lo, hi)
    return sum(each.count for each in offsets.values()) == result.summary.rests_on.offsets_read


def read_rows(result: Result, role: Role, kind: Kind, columns: Sequence[str]) -> pa.Table:
    """The run's rows of one kind, from all sessions of a role.

    Damage is ignored: the reconciliation has reported it.
    """
    found = []
    for files in result.sessions:
        if files.session.role is not role:
            continue
        for file in files.files:
            for batch in read_file(file, [], columns=("kind", "run", *columns)):
                ours = pc.equal(batch["kind"], kind.value)
                if kind is not Kind.READ:  # offsets are of no run
                    ours = pc.and_(ours, pc.equal(batch["run"], result.summary.run))
                found.append(batch.filter(pc.fill_null(ours, False)).select(list(columns)))
    schema = pa.schema([ROWS.field(name) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in found], schema)
