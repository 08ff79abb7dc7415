"""Spark's door to the logs: a data source that reads *paths* and gives intervals.

Arrow batches go from pyarrow's readers straight into Spark; the driver sees paths alone. (The
data source does what `mapInArrow` over a table of paths would, and needs no pandas.)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)

from mirrortest.reconcile.compact import SPARK_SCHEMA, compact, damage_row
from mirrortest.seqlog.files import read_file
from mirrortest.seqlog.schema import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mirrortest.reconcile.plan import Plan
    from mirrortest.seqlog.damage import Damage

FORMAT = "mirrortest"
_TASKS_PER_CORE = 4


class _File(NamedTuple):
    """What a task needs of a file: its session's number, its URI, how many rows it must hold."""

    session: int
    uri: str
    rows: int | None


class _Files(InputPartition):  # type: ignore[misc]  # untyped library
    def __init__(self, files: list[_File]) -> None:
        super().__init__(files)
        self.files = files


class LogSource(DataSource):  # type: ignore[misc]  # untyped library
    """`spark.read.format("mirrortest")`; the options are made by `read_intervals`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Columns as `compact.INTERVALS`."""
        return SPARK_SCHEMA

    def reader(self, schema: Any) -> LogReader:  # noqa: ARG002  # Spark's signature
        """A reader of the files named in the options."""
        return LogReader(self.options["run"], json.loads(self.options["bins"]))


class LogReader(DataSourceReader):  # type: ignore[misc]  # untyped library
    """Reads bins of files, one task each."""

    def __init__(self, run: str, bins: list[list[list[Any]]]) -> None:
        self._run = run
        self._bins = bins

    def partitions(self) -> list[_Files]:
        """One partition a bin."""
        return [_Files([_File(*each) for each in files]) for files in self._bins]

    def read(self, partition: _Files) -> Iterator[pa.RecordBatch]:
        """The files' intervals, then what could not be read of them."""
        for session, uri, rows in partition.files:
            damage: list[Damage] = []
            for batch in read_file(uri, damage, rows=rows):
                yield from compact(batch, self._run, session)
            for each in damage:
                yield damage_row(str(each), harmless=each.harmless, session=session)


def read_intervals(spark: Any, plan: Plan) -> Any:
    """A DataFrame of the run's intervals."""
    spark.dataSource.register(LogSource)
    files = [
        (file.size, _File(number, file.uri, file.rows))
        for number, found in enumerate(plan.sessions)
        if found.session.role is not Role.SOURCE
        for file in found.files
    ]
    bins = _bins(files, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
    return spark.read.format(FORMAT).option("run", plan.run).option("bins", json.dumps(bins)).load()


def _bins(files: list[tuple[int, _File]], most: int) -> list[list[_File]]:
    """Spread files over at most `most` tasks, evenly by size."""
    bins: list[list[_File]] = [[] for _ in range(max(1, min(most, len(files))))]
    load = [0] * len(bins)
    for size, file in sorted(files, key=lambda each: (-each[0], each[1].uri)):
        least = load.index(min(load))
        bins[least].append(file)
        load[least] += size + 1
    return bins
