"""Functions from Arrow batches to Arrow batches in Spark's Python workers, a task per partition.

This does the same as PySpark's `DataFrame.mapInArrow`, without its check for pandas, which it does
not use. A Python data source would start three more kinds of workers first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    OfBatches = Callable[[int, Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_batches(frame: Any, function: OfBatches, schema: str) -> Any:
    """A DataFrame of what `function` gives for each partition's number and batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from function(context.partitionId() if context else 0, batches)

    mapped = UserDefinedFunction(
        run, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = mapped(*(frame[name] for name in frame.columns))
    jdf = frame._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001  # see above
    return DataFrame(jdf, frame.sparkSession)


def map_numbers(
    spark: Any,
    numbers: Sequence[int],
    function: Callable[[int], Iterable[pa.RecordBatch]],
    schema: str,
) -> Any:
    """A DataFrame of what `function` gives for each number, in a task of its own."""
    chosen = tuple(numbers)

    def run(_: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from function(chosen[place])

    return map_batches(spark.range(0, len(chosen), 1, max(len(chosen), 1)), run, schema)
