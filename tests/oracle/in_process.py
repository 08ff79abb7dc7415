"""A reconciliation's engine in this process: the same job without Spark, for thousands of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrortest.reconcile.bundle import DRIVER, opened
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.result_files import write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirrortest.reconcile.worker import OfBatches
    from mirrortest.seqlog.location import Location


@dataclass(frozen=True)
class ListedBundles:
    """A list of bundles; see `steps.Bundles`."""

    batches: list[pa.RecordBatch]

    def _of(self, *names: str) -> list[pa.RecordBatch]:
        return [each for each in self.batches if each["name"][0].as_py() in names]

    def driver_rows(self) -> pa.Table:
        """See `steps.Bundles`."""
        mine = (each["packed"][0] for each in self.batches if each["part"][0].as_py() == DRIVER)
        return pa.concat_tables([INTERVALS.empty_table(), *opened(mine)])

    def tables(self, *names: str) -> Iterator[tuple[str, pa.Table]]:
        """See `steps.Bundles`."""
        for each in self._of(*names):
            yield from ((each["name"][0].as_py(), table) for table in opened(each["packed"]))

    def count(self, name: str) -> int:
        """See `steps.Bundles`."""
        return sum(each["number"][0].as_py() for each in self._of(name))

    def largest_part(self, name: str) -> int:
        """See `steps.Bundles`."""
        return max((each["part"][0].as_py() for each in self._of(name)), default=-1)

    def named(self, name: str) -> ListedBundles:
        """See `steps.Bundles`."""
        return ListedBundles(self._of(name))

    def renamed(self, name: str) -> ListedBundles:
        """See `steps.Bundles`."""
        return ListedBundles(
            [each.set_column(0, "name", pa.array([name])) for each in self.batches]
        )

    def replaced(self, tasks: Sequence[int], anew: ListedBundles) -> ListedBundles:
        """See `steps.Bundles`."""
        kept = [each for each in self.batches if each["task"][0].as_py() not in tasks]
        return ListedBundles(kept + anew.batches)

    def with_(self, others: ListedBundles) -> ListedBundles:
        """See `steps.Bundles`."""
        return ListedBundles(self.batches + others.batches)

    def map_parts(self, parts: int, function: OfBatches) -> ListedBundles:
        """See `steps.Bundles`."""
        made: list[pa.RecordBatch] = []
        for part in range(parts):
            mine: Iterable[pa.RecordBatch] = (
                each for each in self.batches if each["part"][0].as_py() == part
            )
            made += function(part, mine)
        return ListedBundles(made)

    def write(self, schema: pa.Schema, place: Location) -> None:
        """See `steps.Bundles`."""
        by_part: dict[int, list[pa.RecordBatch]] = {}
        for each in self.batches:
            by_part.setdefault(each["part"][0].as_py(), []).append(each)
        for part, batches in by_part.items():
            tables = (table for each in batches for table in opened(each["packed"]))
            for _ in write_part(tables, schema, place.uri, part):
                pass


class InProcess:
    """See `steps.Engine`."""

    cores = 2

    def scan(self, tasks: Sequence[int], read: Any) -> ListedBundles:
        """See `steps.Engine`."""
        return ListedBundles([batch for task in tasks for batch in read(task)])
