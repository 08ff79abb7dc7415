"""The ground truth: what the faulty mirror did, to compare with the findings.

It is a directory with Parquet files of the columns below and `truth.json`, which has the names of
the valid files, the specification, and the counts of what was read and written. A file that it does
not name was written by a mirror that was killed during a save; the next one records its rows again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from mirrortest import __version__
from mirrortest.errors import MirrortestError
from mirrortest.faults.spec import Spec  # noqa: TC001  # pydantic reads it
from mirrortest.results.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

TRUTH_FILE = "truth.json"
REPORT_VERSION = 1

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
`form` are of the message acted on (run to form null if it cannot be read). `part` is the header
that was stripped, renamed or added, or where a truncated value ends (`fill`, `descriptor`,
`header`, `numbers`, `id`).
`overtaken` is, for swap, hold and delay, how many later messages of its stream were written to its
partition before it. An act that changed nothing has no row. For duplicates and replays the
destination is that of the surplus copy. The copy includes the message's other changes, which have
no further rows. For other-run the destination is that of the added message.
"""


class Deferral(BaseModel):
    """A message, or a later copy of one, that is written later.

    `due` is the source offset after which it is written, `left_ns` the remaining time of a delay,
    `copy_of` whether it is a copy, and `overtaken` the same as in the rows.
    """

    offset: int
    act: int
    due: int
    left_ns: int
    overtaken: int
    copy_of: bool


class Partition(BaseModel):
    """A source partition: the number of records read, the next offset, and what is deferred."""

    model_config = ConfigDict(extra="ignore")

    read: int = 0
    next: int = 0
    waiting: list[Deferral] = Field(default_factory=list)


class Truth(BaseModel):
    """truth.json: the specification, the valid files, and the totals.

    `read` is by source topic and partition. `written` counts acknowledged records by destination
    topic and partition; all of them are below `ends`. `skipped` are source offsets that were
    deleted before they were read, or before they were read again after a restart because they were
    deferred, or cannot be read. `clean`: the mirror ended in order, and everything is recorded.
    `clusters` are the ids of source and destination; none until a mirror has reached both, and in
    a truth of an older version.
    """

    model_config = ConfigDict(extra="ignore")

    version: Literal[1] = 1
    mirrortest: str = __version__
    spec: Spec
    clusters: tuple[str, str] | None = None
    clean: bool = False
    files: list[str] = Field(default_factory=list)
    read: dict[str, dict[int, Partition]] = Field(default_factory=dict)
    written: dict[str, dict[int, int]] = Field(default_factory=dict)
    ends: dict[str, dict[int, int]] = Field(default_factory=dict)
    skipped: list[dict[str, Any]] = Field(default_factory=list)

    @field_serializer("spec")
    def _spec(self, spec: Spec) -> dict[str, Any]:
        return spec.to_json()


def read_summary(folder: Path) -> Truth:
    """Read a truth's summary.

    Raises:
        MirrortestError: there is no summary, or this version cannot read it.
    """
    file = folder / TRUTH_FILE
    try:
        return Truth.model_validate_json(file.read_bytes())
    except OSError as error:
        raise MirrortestError(f"{file} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"])) or "it"
        raise MirrortestError(f"{file} has another format: {at}: {first['msg']}") from None


def read_truth(folder: Path) -> pa.Table:
    """Read a truth's rows, of the columns of `TRUTH`.

    Raises:
        MirrortestError: there is no truth, or it cannot be read.
    """
    return rows_of(folder, read_summary(folder))


def rows_of(folder: Path, truth: Truth) -> pa.Table:
    """The rows of the files that a summary names.

    Raises:
        MirrortestError: a file cannot be read.
    """
    tables = [TRUTH.empty_table()]
    for name in truth.files:
        try:
            tables.append(pq.read_table(folder / name, schema=TRUTH))
        except (OSError, pa.ArrowException) as error:
            raise MirrortestError(f"{folder / name} cannot be read: {error}") from None
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class FaultyMirrorReport:
    """Totals of a truth, over all restarts of the mirror; `acts` counts its rows by kind."""

    truth: str
    read: dict[str, int]
    written: dict[str, int]
    acts: dict[str, int]
    seconds: float

    @classmethod
    def of(cls, folder: Path, elapsed_ns: int) -> FaultyMirrorReport:
        """Sum up the truth in a directory; `elapsed_ns` is how long this process mirrored."""
        summary = read_summary(folder)
        kinds = rows_of(folder, summary)["kind"].value_counts().to_pylist()
        return cls(
            truth=str(folder),
            read={t: sum(p.read for p in found.values()) for t, found in summary.read.items()},
            written={t: sum(found.values()) for t, found in summary.written.items()},
            acts={each["values"]: each["counts"] for each in kinds},
            seconds=elapsed_ns / 1e9,
        )

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"version": REPORT_VERSION, **asdict(self), "seconds": round(self.seconds, 3)}

    def table(self) -> Table:
        """The report as a table for a terminal."""
        records = {
            f"{name} {topic}": count
            for name, found in (("read", self.read), ("written", self.written))
            for topic, count in sorted(found.items())
        }
        records |= {f"act {kind}": count for kind, count in sorted(self.acts.items())}
        return table(
            ("what", "records"),
            [(name, f"{count:,}") for name, count in records.items()],
            box=None,
            pad_edge=False,
            title=f"truth in {self.truth}",
        )
