"""The offsets of messages in the destination, by the consumers' logs.

Missing messages would be between two offsets of their stream's partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.report.html.log_rows import few_rows, read_rows
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS, STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.report.html.breakdown import Range
    from mirrortest.report.result import Result

_NUMBERS = ("partition", "offset_lo", "offset_hi", "seq_lo", "seq_hi")
MOST = 3
"""The most positions of one range that are shown; a message that arrived twice has two."""


@dataclass(frozen=True)
class Position:
    """Offsets [lo, hi) of a destination partition, or those around `missing` messages.

    For missing messages, `lo` is the offset of the message before them, and `hi` - 1 that of the
    message after them; None: there is no such message.
    """

    partition: int
    lo: int | None
    hi: int | None
    missing: bool = False
    others: bool = False
    """Whether messages of other streams are between them."""

    def __str__(self) -> str:
        if not self.missing:
            assert self.lo is not None  # noqa: S101  # what was seen has an offset
            assert self.hi is not None  # noqa: S101  # see above
            last = self.hi - 1
            text = f"{self.lo}" if self.lo == last else f"{self.lo} to {last}"
            return f"{text}, others between" if self.others else text
        bounds = [
            f"after {self.lo}" if self.lo is not None else "",
            f"before {self.hi - 1}" if self.hi is not None else "",
        ]
        return ", ".join(filter(None, bounds))


def positions(result: Result, ranges: Sequence[Range]) -> list[list[Position]]:
    """The positions of each range; none if the logs are missing, too large, or lack the range.

    Offsets are left out that other messages have now, in a later incarnation of the partition's
    log: the topic was recreated, or the partition truncated.
    """
    if not ranges or not few_rows(result):
        return [[] for _ in ranges]
    rows = read_rows(result, Role.CONSUMER, Kind.SEEN, (*STREAM, *_NUMBERS, "topic_identity"))
    log = pc.fill_null(rows["topic_identity"], "0").cast(pa.int64())
    rows = rows.append_column("log", log)
    replaced = _replaced_from(rows)
    wanted = {each.topic for each in ranges}, {each.producer for each in ranges}
    for name, values in zip(("topic", "producer"), wanted, strict=True):
        rows = rows.filter(pc.is_in(rows[name], pc.cast(sorted(values), "string")))
    rows = rows.filter(pc.is_valid(rows["seq_lo"]))
    streams: dict[tuple[str, str, int, int], dict[str, NDArray[np.int64]]] = {}
    found = []
    for each in ranges:
        stream = (each.topic, each.producer, each.incarnation, each.lane)
        if stream not in streams:
            streams[stream] = _numbers(rows, stream, replaced)
        found.append(_places(streams[stream], each.seq_lo, each.seq_hi))
    return found


def _replaced_from(rows: pa.Table) -> dict[tuple[str, int, int], int]:
    """By topic, partition and incarnation of its log, the least offset of a later incarnation."""
    keys = ["topic", "partition", "log"]
    begins = rows.group_by(keys).aggregate([("offset_lo", "min")])
    least: dict[tuple[str, int], int] = {}
    found = {}
    for row in begins.sort_by([("log", "descending")]).to_pylist():
        place = row["topic"], row["partition"]
        found[*place, row["log"]] = least.get(place, ENDLESS)
        least[place] = min(least.get(place, ENDLESS), row["offset_lo_min"])
    return found


def _numbers(
    rows: pa.Table,
    stream: tuple[str, str, int, int],
    replaced: Mapping[tuple[str, int, int], int],
) -> dict[str, NDArray[np.int64]]:
    """The columns of a stream's rows; `replaced` is 1 if other messages have the offsets now."""
    for name, value in zip(STREAM, stream, strict=True):
        rows = rows.filter(pc.equal(rows[name], value))
    found = {name: rows[name].to_numpy().astype(np.int64) for name in (*_NUMBERS, "log")}
    places = zip(found["partition"].tolist(), found["log"].tolist(), strict=True)
    until = np.array([replaced[stream[0], *place] for place in places], np.int64)
    return {**found, "replaced": (found["offset_lo"] >= until).astype(np.int64)}


def _places(rows: dict[str, NDArray[np.int64]], lo: int, hi: int) -> list[Position]:
    """The positions of the seqs [lo, hi) of the stream that has these rows."""
    here = (rows["seq_lo"] < hi) & (rows["seq_hi"] > lo)
    now = rows["replaced"] == 0
    if not here.any():
        return _bounds({name: column[now] for name, column in rows.items()}, lo, hi)
    here &= now
    first = rows["offset_lo"] + np.maximum(lo - rows["seq_lo"], 0)
    last = rows["offset_hi"] - np.maximum(rows["seq_hi"] - hi, 0)
    columns = (rows["partition"], first, last, rows["seq_lo"], rows["seq_hi"])
    at = zip(*(each[here].tolist() for each in columns), strict=True)
    merged: list[Position] = []
    until = 0
    for partition, begin, end, seq_lo, seq_hi in sorted(set(at)):
        before = merged[-1] if merged else None
        # Merge rows whose offsets touch, or whose seqs continue after messages of other streams.
        # A row may have been logged again after a restart.
        if (
            before
            and before.partition == partition
            and (begin <= (before.hi or 0) or seq_lo == until)
        ):
            others = before.others or begin > (before.hi or 0)
            merged[-1] = Position(partition, before.lo, max(before.hi or 0, end), others=others)
        else:
            merged.append(Position(partition, begin, end))
        until = seq_hi
    return merged


def _bounds(rows: dict[str, NDArray[np.int64]], lo: int, hi: int) -> list[Position]:
    earlier = np.flatnonzero(rows["seq_hi"] <= lo)
    later = np.flatnonzero(rows["seq_lo"] >= hi)
    if not earlier.size and not later.size:
        return []
    before = int(earlier[rows["seq_hi"][earlier].argmax()]) if earlier.size else None
    after = int(later[rows["seq_lo"][later].argmin()]) if later.size else None
    nearest = before if before is not None else after
    partition = int(rows["partition"][nearest])
    if after is not None and rows["partition"][after] != partition:
        after = None
    return [
        Position(
            partition,
            None if before is None else int(rows["offset_hi"][before]) - 1,
            None if after is None else int(rows["offset_lo"][after]) + 1,
            missing=True,
        )
    ]
