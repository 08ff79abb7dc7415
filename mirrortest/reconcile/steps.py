"""The engine that runs the steps of a reconciliation, with bundles between them.

The job uses only `Engine` and `Bundles`; `Spark` is the product's one implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions

from mirrortest.reconcile.bundle import BUNDLES, DRIVER, opened
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.result_files import write_part
from mirrortest.reconcile.worker import map_batches, map_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirrortest.reconcile.worker import OfBatches
    from mirrortest.seqlog.location import Location

    OfTask = Callable[[int], Iterable[pa.RecordBatch]]


class Bundles(Protocol):
    """Rows of `bundle.BUNDLES`, kept until the engine is closed."""

    def driver_rows(self) -> pa.Table:
        """The rows of intervals that are for the driver."""

    def tables(self, *names: str) -> Iterator[tuple[str, pa.Table]]:
        """The tables with these names, on the driver, each with its name."""

    def count(self, name: str) -> int:
        """How many rows tables with this name have."""

    def largest_part(self, name: str) -> int:
        """The greatest part number of the bundles with this name; -1: there are none."""

    def named(self, name: str) -> Self:
        """The bundles with this name."""

    def renamed(self, name: str) -> Self:
        """The same, all with this name."""

    def replaced(self, tasks: Sequence[int], anew: Self) -> Self:
        """These with those of some tasks replaced."""

    def with_(self, others: Self) -> Self:
        """These and others."""

    def map_parts(self, parts: int, function: OfBatches) -> Self:
        """Apply a function to the bundles of each of so many parts."""

    def write(self, schema: pa.Schema, place: Location) -> None:
        """Write all tables as files in a directory, which exists."""


class Engine(Protocol):
    """Where tasks run."""

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""

    def scan(self, tasks: Sequence[int], read: OfTask) -> Bundles:
        """The bundles that `read` gives for each task's number."""


class _SparkBundles:
    """A DataFrame of bundles."""

    def __init__(self, frame: Any, kept: list[Any]) -> None:
        self._frame = frame
        self._kept = kept

    @classmethod
    def keep(cls, frame: Any, kept: list[Any]) -> _SparkBundles:
        """A DataFrame that is computed once; the engine unpersists all of `kept` at its end."""
        kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return cls(frame, kept)

    def _named(self, name: str) -> Any:
        return self._frame.where(self._frame["name"] == name)

    def driver_rows(self) -> pa.Table:
        packed = self._frame.where(f"part = {DRIVER}").select("packed").toArrow()["packed"]
        return pa.concat_tables([INTERVALS.empty_table(), *opened(packed)])

    def tables(self, *names: str) -> Iterator[tuple[str, pa.Table]]:
        chosen = self._frame.where(self._frame["name"].isin(*names))
        rows = chosen.select("name", "packed").toArrow()
        yield from zip(rows["name"].to_pylist(), opened(rows["packed"]), strict=True)

    def count(self, name: str) -> int:
        (found,) = self._named(name).agg({"number": "sum"}).first()
        return found or 0

    def largest_part(self, name: str) -> int:
        (found,) = self._named(name).agg({"part": "max"}).first()
        return -1 if found is None else int(found)

    def named(self, name: str) -> _SparkBundles:
        return _SparkBundles(self._named(name), self._kept)

    def renamed(self, name: str) -> _SparkBundles:
        return _SparkBundles(self._frame.withColumn("name", functions.lit(name)), self._kept)

    def replaced(self, tasks: Sequence[int], anew: _SparkBundles) -> _SparkBundles:
        others = self._frame.where(~self._frame["task"].isin(list(tasks)))
        return self.keep(others.unionAll(anew._frame), self._kept)

    def with_(self, others: _SparkBundles) -> _SparkBundles:
        return _SparkBundles(self._frame.unionAll(others._frame), self._kept)

    def map_parts(self, parts: int, function: OfBatches) -> _SparkBundles:
        mine = self._frame.where(f"part <> {DRIVER}")
        together = mine.coalesce(1) if parts == 1 else mine.repartitionById(parts, mine["part"])
        return self.keep(map_batches(together, function, BUNDLES), self._kept)

    def write(self, schema: pa.Schema, place: Location) -> None:
        uri = place.uri

        def write(part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tables = (table for batch in batches for table in opened(batch["packed"]))
            yield from write_part(tables, schema, uri, part)

        map_batches(self._frame, write, "part long").collect()


class Spark:
    """A Spark session as an `Engine`."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._kept: list[Any] = []

    @property
    def cores(self) -> int:
        """See `Engine`."""
        return int(self._session.sparkContext.defaultParallelism)

    def scan(self, tasks: Sequence[int], read: OfTask) -> _SparkBundles:
        """See `Engine`."""
        return _SparkBundles.keep(map_numbers(self._session, tasks, read, BUNDLES), self._kept)

    def close(self) -> None:
        """Unpersist all DataFrames that were kept."""
        while self._kept:
            self._kept.pop().unpersist()
