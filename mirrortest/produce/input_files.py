"""Files that a workload names: a recorded rate (CSV or Parquet), sizes (one per line), payloads."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from mirrortest.config.shape import FASTEST, SHORTEST_NS, Replay, SizeFile, Step, Steps
from mirrortest.config.units import MILLISECOND_NS, SECOND_NS, parse_size
from mirrortest.config.visible import visible
from mirrortest.errors import UsageError
from mirrortest.seqlog.location import Location
from mirrortest.timing.schedule import exact_rate
from mirrortest.wire.own_payloads import Payloads
from mirrortest.wire.payload import MAX_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_replay(shape: Replay) -> Steps:
    """Read a recorded rate, with the columns `time` and `rate`.

    `time` is seconds or a timestamp; it ascends, and counts from the first row. Each row's `rate`
    (messages/s) lasts until the next row's time; the last one lasts as long as the one before.

    Raises:
        UsageError: the file cannot be read, or does not have this form.
    """
    place = Location.parse(shape.path)
    where = f"replay({place.shown})"
    file = pa.BufferReader(_read(place, where))
    try:
        parquet_file = file.read(4) == b"PAR1"
        file.seek(0)
        table = parquet.read_table(file) if parquet_file else csv.read_csv(file)
    except pa.ArrowException:
        raise UsageError(f"{where}: neither CSV with a header nor Parquet") from None
    try:
        return Steps(tuple(_steps(table)), text=shape.text)
    except (ValueError, pa.ArrowException) as error:
        raise UsageError(f"{where}: {visible(str(error))}") from None


def read_sizes(shape: SizeFile) -> SizeFile:
    """Read sizes, one per line, in the notation of --message-size.

    Raises:
        UsageError: the file is empty or cannot be read, or a line is not a size.
    """
    place = Location.parse(shape.path)
    where = f"file({place.shown})"
    lines = _read(place, where).decode(errors="replace").splitlines()
    if not lines:
        raise UsageError(f"{where}: the file is empty: write one size on each line")
    sizes = (
        parse_size(line.strip(), option=f"{where}: line {number}:")
        for number, line in enumerate(lines, start=1)
    )
    return replace(shape, sizes=tuple(sizes))


def read_payloads(path: str, delimiter: str) -> Payloads:
    """Read payloads, separated by the delimiter; the file may end with one.

    `delimiter` is as typed, with its escapes.

    Raises:
        UsageError: the file cannot be read, has no payload, or one that is too large.
    """
    place = Location.parse(path)
    where = f"--payload-file {place.shown}"
    data = _read(place, where)
    # The codec reads bytes outside of escapes as Latin-1; encoded so again, they are UTF-8.
    separator = delimiter.encode().decode("unicode_escape").encode("latin-1")
    found = data.split(separator)
    if not found[-1]:
        found.pop()
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    if not sizes.any():
        raise UsageError(f"{where}: has no payload: write them with --payload-delimiter between")
    largest = int(sizes.argmax())
    if sizes[largest] > MAX_SIZE:
        raise UsageError(
            f"{where}: payload {largest + 1} has {sizes[largest]:,} bytes, and a message at most "
            f"{MAX_SIZE:,}: is --payload-delimiter right?"
        )
    starts = np.cumsum(sizes + len(separator)) - sizes - len(separator)
    return Payloads.of(data, starts, sizes, place.shown)


def _read(place: Location, where: str) -> bytes:
    """Read a file. Raises UsageError, which begins with `where`."""
    try:
        with place.filesystem.open_input_stream(place.path, compression=None) as file:
            return bytes(file.read())
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no such file") from None
    except OSError:
        raise UsageError(f"{where}: cannot be read: is it a file?") from None


def _steps(table: pa.Table) -> Iterator[Step]:
    for name in ("time", "rate"):
        if table.column_names.count(name) != 1:
            raise ValueError(f"needs one column {name!r}; it has {', '.join(table.column_names)}")
    times = _nanoseconds(table["time"])
    rates = _numbers(table["rate"], "rate")
    if len(times) < 2:
        raise ValueError("needs at least two rows")
    durations = [after - before for before, after in pairwise(times)]
    durations.append(durations[-1])
    if not any(rates):
        raise ValueError("every rate is 0: nothing would be sent")
    for row, (rate, duration) in enumerate(zip(rates, durations, strict=True), start=1):
        if not 0 <= rate <= FASTEST:
            raise ValueError(f"row {row}: the rate must be in 0..{FASTEST:g} messages/s")
        if duration < SHORTEST_NS:
            raise ValueError(
                f"row {row}: the next row's time must be at least "
                f"{SHORTEST_NS // MILLISECOND_NS} ms later"
            )
        yield Step(exact_rate(rate), duration)


def _nanoseconds(column: Any) -> list[int]:
    if pa.types.is_timestamp(column.type):
        if column.null_count:
            raise ValueError("a time is missing")
        found: list[int] = column.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
        return found
    return [round(each * SECOND_NS) for each in _numbers(column, "time")]


def _numbers(column: Any, name: str) -> list[float]:
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    found: list[float] = column.cast(pa.float64()).to_pylist() if numeric else []
    usable = numeric and not column.null_count
    # A time must be finite in nanoseconds, too.
    if not usable or not all(math.isfinite(each * SECOND_NS) for each in found):
        raise ValueError(f"every {name} must be a number")
    return found
