"""Rows of a run's sequence logs, if they are few enough to be read for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.seqlog.files import read_file
from mirrortest.seqlog.schema import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.report.result import Result
    from mirrortest.seqlog.options import Role
    from mirrortest.seqlog.schema import Kind

MOST_ROWS = 3_000_000


def few_rows(result: Result) -> bool:
    """Whether the logs of all of the run's processes are available and have few rows."""
    rows = sum(file.estimated_rows for found in result.sessions for file in found.files)
    return 0 < rows <= MOST_ROWS and not result.sessions_missing


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
                ours = pc.and_(
                    pc.equal(batch["kind"], kind.value), pc.equal(batch["run"], result.summary.run)
                )
                found.append(batch.filter(pc.fill_null(ours, False)).select(list(columns)))
    schema = pa.schema([ROWS.field(name) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in found], schema)
