"""The truth: what the faulty mirror did, to be held against what was found.

A directory with Parquet files of the columns below and `truth.json`, which names the files that
count, the specification, and what was read and written. A file that it does not name is of a
mirror that was killed before it had made sure of it, and is told again by the next one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mirrortest import __version__
from mirrortest.errors import MirrortestError
from mirrortest.faults.spec import Spec

TRUTH_FILE = "truth.json"

TRUTH = pa.schema(
    [
        pa.field("act", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("source_partition", pa.int32(), nullable=False),
        pa.field("source_offset", pa.int64(), nullable=False),
        pa.field("run", pa.string()),
        pa.field("producer", pa.string()),
        pa.field("incarnation", pa.int32()),
        pa.field("lane", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("form", pa.string()),
        pa.field("part", pa.string()),
        pa.field("overtaken", pa.int64()),
        pa.field("destination_topic", pa.string()),
        pa.field("destination_partition", pa.int32()),
        pa.field("destination_offset", pa.int64()),
        pa.field("detail", pa.string(), nullable=False),
    ]
)
"""One row per act and destination record, or per act and message where nothing was written.

`act` is the act's index in the specification. `topic`, source partition and offset, run to seq and
`form` are of the message acted on (run to form null where it cannot be read). `part` is the header
that was hit, or where a truncated value ends (`fill`, `descriptor`, `header`, `numbers`, `id`).
`overtaken` is, for swap, hold and delay, how many later messages of its stream were written to its
partition before it; a swap or hold that nothing at all overtook has no row, nor has any act that
changed nothing. For duplicates and replays the destination is that of the surplus copy, which is
the same record as the message's own, changes included: those have no rows of their own at the copy.
For other-run the message is the one behind which another was put, and the destination that other's.
"""


class Waiting(BaseModel):
    """A message, or a later copy of one, that is kept back: see `course.Pending`."""

    offset: int
    act: int
    due: int
    left_ns: int
    overtaken: int
    copy_of: bool


class Partition(BaseModel):
    """How many records of a source partition were read, and the offset to go on from."""

    model_config = ConfigDict(extra="ignore")

    read: int = 0
    next: int = 0
    waiting: list[Waiting] = Field(default_factory=list)


class Truth(BaseModel):
    """truth.json: the specification, the files that count, and the totals.

    `read` is by source topic and partition, `written` by destination topic and partition: records
    that the destination acknowledged; `ends` are the offsets there that all of them lie below.
    `skipped` are source offsets that were deleted before they could be read, or cannot be read.
    `clean` says that the mirror ended in order, with everything written down.
    """

    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    mirrortest: str = __version__
    spec: dict[str, Any]
    clean: bool = False
    files: list[str] = Field(default_factory=list)
    read: dict[str, dict[int, Partition]] = Field(default_factory=dict)
    written: dict[str, dict[int, int]] = Field(default_factory=dict)
    ends: dict[str, dict[int, int]] = Field(default_factory=dict)
    skipped: list[dict[str, Any]] = Field(default_factory=list)

    def specification(self) -> Spec:
        """What was to be done."""
        return Spec.from_json(self.spec)


def read_summary(path: Path | str) -> Truth:
    """Read a truth's summary.

    Raises:
        MirrortestError: there is none, or none that this version can read.
    """
    file = Path(path) / TRUTH_FILE
    try:
        return Truth.model_validate_json(file.read_bytes())
    except OSError as error:
        raise MirrortestError(f"{file}: no faulty mirror's truth: {error.strerror}") from None
    except ValidationError as error:
        raise MirrortestError(f"{file}: no truth of this version of mirrortest: {error}") from None


def read_truth(path: Path | str) -> pa.Table:
    """Read a truth's rows, of the columns of `TRUTH`.

    Raises:
        MirrortestError: there is none, or it cannot be read.
    """
    return rows_of(Path(path), read_summary(path))


def rows_of(folder: Path, truth: Truth) -> pa.Table:
    """The rows of the files that a summary names.

    Raises:
        MirrortestError: one cannot be read.
    """
    tables = [TRUTH.empty_table()]
    for name in truth.files:
        try:
            tables.append(pq.read_table(folder / name, schema=TRUTH))
        except (OSError, pa.ArrowException) as error:
            raise MirrortestError(f"{folder / name}: cannot be read: {error}") from None
    return pa.concat_tables(tables)
