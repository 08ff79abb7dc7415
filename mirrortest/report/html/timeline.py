"""What happened when: counts and latencies by topic and slot of intended time.

A timeline comes from the result's tables by minute; a long run has several minutes to a slot. That
is too coarse for a run of a few minutes. If its logs are next to the result and small, its timeline
comes from them, by the second: each producer's row has the intended time of its numbers. Within a
row, which takes milliseconds to seconds, times are taken to be evenly spaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Outcome
from mirrortest.report.html.latencies import Latencies
from mirrortest.seqlog.files import read_file
from mirrortest.seqlog.schema import Kind, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from mirrortest.report.result import Result

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
MOST_SLOTS = 180
_STEPS = tuple(
    SECOND_NS * seconds
    for seconds in (
        *(1, 2, 5, 10, 15, 30),
        *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    )
)


@dataclass(frozen=True)
class Slots:
    """Equal stretches of time: `count` of `step_ns` from `start_ns` (ns since the epoch)."""

    start_ns: int
    step_ns: int
    count: int

    @classmethod
    def over(cls, first_ns: int, last_ns: int, finest_ns: int) -> Slots:
        """At most `MOST_SLOTS` round slots over [first, last], none finer than `finest_ns`."""
        day = _STEPS[-1] * 2
        steps = [step for step in _STEPS if step >= finest_ns]
        for step in (*steps, *(day << power for power in range(40))):
            start = first_ns // step * step
            count = (last_ns - start) // step + 1
            if count <= MOST_SLOTS:
                return cls(start, step, count)
        raise ValueError("no time is that long")

    def of(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots of times within."""
        slots: NDArray[np.int64] = (times_ns - self.start_ns) // self.step_ns
        return slots


@dataclass(frozen=True)
class Timeline:
    """Counts of messages by their names, each an array [topic, slot]; and latencies.

    `unplaced` are those whose intended time is not known, by name. `latencies` is None where
    there is no table of them.
    """

    slots: Slots
    topics: tuple[str, ...]
    counts: Mapping[str, NDArray[np.int64]]
    unplaced: Mapping[str, int]
    latencies: Latencies | None
    from_logs: bool = False

    def total(self, name: str) -> NDArray[np.int64]:
        """A count by slot, over all topics."""
        counts = self.counts.get(name)
        if counts is None:
            return np.zeros(self.slots.count, np.int64)
        summed: NDArray[np.int64] = counts.sum(axis=0)
        return summed


def best_timeline(result: Result) -> Timeline | None:
    """By the second where that can be, else by the minute; None where nothing has a time."""
    minutes = from_minutes(result.table("by_minute"), result.table("latency"))
    close = from_logs(result, 0 if minutes is None else minutes.slots.step_ns * minutes.slots.count)
    return minutes if close is None else close


def from_minutes(by_minute: pa.Table | None, latency: pa.Table | None) -> Timeline | None:
    """Read the tables `by_minute` and `latency`; None where no message has an intended time."""
    minutes, numbers = _placed(by_minute)
    histograms, _ = _placed(latency)
    times = [_nanoseconds(table) for table in (minutes, histograms) if table is not None]
    known = np.concatenate(times) if times else np.empty(0, np.int64)
    if not known.size:
        return None
    slots = Slots.over(int(known.min()), int(known.max()), MINUTE_NS)
    tables = [table for table in (minutes, histograms) if table is not None]
    topics = tuple(sorted({topic for table in tables for topic in table["topic"].to_pylist()}))
    counts: dict[str, NDArray[np.int64]] = {}
    if minutes is not None:
        row = topic_numbers(minutes["topic"], topics)
        column = slots.of(_nanoseconds(minutes))
        for name in _counted(minutes):
            values = minutes[name].fill_null(0).to_numpy()
            counts[name] = np.zeros((len(topics), slots.count), np.int64)
            np.add.at(counts[name], (row, column), values)
    latencies = None
    if histograms is not None:
        latencies = Latencies.of_rows(
            topic_numbers(histograms["topic"], topics),
            slots.of(_nanoseconds(histograms)),
            histograms,
            shape=(len(topics), slots.count),
        )
    return Timeline(slots, topics, counts, numbers, latencies)


def topic_numbers(column: pa.ChunkedArray, topics: Sequence[str]) -> NDArray[np.int64]:
    """Each row's topic as its place in `topics`; -1 where it is none of them."""
    places = pc.index_in(column, pa.array(topics, pa.string()))
    numbers: NDArray[np.int64] = pc.fill_null(places, -1).to_numpy().astype(np.int64)
    return numbers


def _placed(table: pa.Table | None) -> tuple[pa.Table | None, dict[str, int]]:
    """The rows that have a minute, and the sums of those that have none."""
    if table is None:
        return None, {}
    without = table.filter(pc.is_null(table["minute"]))
    sums = {name: int(pc.sum(without[name]).as_py() or 0) for name in _counted(table)}
    placed = table.filter(pc.is_valid(table["minute"]))
    return placed if placed.num_rows else None, {name: n for name, n in sums.items() if n}


def _counted(table: pa.Table) -> list[str]:
    """The columns that count messages; beside them stand latencies."""
    return [
        field.name
        for field in table.schema
        if field.type == pa.int64() and not field.name.endswith("_ns")
    ]


def _nanoseconds(table: pa.Table) -> NDArray[np.int64]:
    at = table["minute"].cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    values: NDArray[np.int64] = at.to_numpy()
    return values


LONGEST_NS = 10 * MINUTE_NS
MOST_ROWS = 3_000_000
MOST_RANGES = 300_000
_ROW_BYTES = 100  # of a journal, whose rows nobody noted

STREAM = ("topic", "producer", "incarnation", "lane")
_SENT = (*STREAM, "seq_lo", "seq_hi", "outcome", "intended_first", "intended_last")
_SEEN = ("topic", "intended_first", "intended_last", "negative", "latency_bucket", "latency_count")
_SEQ_BITS = 42  # a seq has at most 12 digits
_OUTCOMES = {outcome.name.lower(): int(outcome) for outcome in Outcome}


class _Rows(NamedTuple):
    """Messages in the order of (stream, seq), evenly spaced in time within each row.

    `at` is the stream's number above `_SEQ_BITS` of seq; `until` is the end of the same.
    """

    topic: NDArray[np.int64]
    at: NDArray[np.int64]
    until: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def from_logs(result: Result, span_ns: int) -> Timeline | None:
    """The timeline of a run of `span_ns` from its logs; None where they are not to be used.

    That is where the run is long, the logs are large or not there, or tell of another time.
    """
    if span_ns > LONGEST_NS or not _small(result):
        return None
    sent = _read(result, Role.PRODUCER, Kind.SENT, _SENT)
    if not sent.num_rows:
        return None
    seen = _read(result, Role.CONSUMER, Kind.SEEN, _SEEN)
    seen = seen.filter(pc.is_valid(seen["latency_bucket"]))
    begin, end = _ints(sent["intended_first"]), _ints(sent["intended_last"])
    first = min([int(begin.min()), *_ints(seen["intended_first"]).tolist()])
    last = max([int(end.max()), *_ints(seen["intended_last"]).tolist()])
    if last - first > LONGEST_NS + MINUTE_NS:
        return None
    slots = Slots.over(first, last, max(SECOND_NS, _usual_span(seen)))
    topics = tuple(sorted(set(sent["topic"].unique().to_pylist())))
    shape = (len(topics), slots.count)
    streams = _streams(sent)
    known = streams.unique()
    rows, outcome = _rows(sent, streams, known, topics)
    counts = {"sent": _spread(rows, slots, shape)}
    for name, value in _OUTCOMES.items():
        counts[name] = _spread(_Rows(*(each[outcome == value] for each in rows)), slots, shape)
    findings = result.table("findings")
    unplaced: dict[str, int] = {}
    if findings is not None:
        for name in findings["finding"].unique().to_pylist():
            ranges = findings.filter(pc.equal(findings["finding"], name))
            pieces, missing = _pieces(rows, ranges, known)
            counts[name] = _spread(pieces, slots, shape)
            if missing:
                unplaced[name] = missing
    seen = seen.filter(pc.is_in(seen["topic"], pa.array(topics)))
    middles = (_ints(seen["intended_first"]) + _ints(seen["intended_last"])) // 2
    latencies = Latencies.of_rows(
        topic_numbers(seen["topic"], topics), slots.of(middles), seen, shape=shape
    )
    return Timeline(slots, topics, counts, unplaced, latencies, from_logs=True)


def _small(result: Result) -> bool:
    files = [file for found in result.sessions for file in found.files]
    rows = sum(file.size // _ROW_BYTES if file.rows is None else file.rows for file in files)
    return 0 < rows <= MOST_ROWS and result.row_count("findings") <= MOST_RANGES


def _read(result: Result, role: Role, kind: Kind, columns: Sequence[str]) -> pa.Table:
    """The rows of a kind that tell their intended time, of all sessions of a side."""
    found = []
    for files in result.sessions:
        if files.session.role is not role:
            continue
        for file in files.files:
            # The reconciliation has reported the damage.
            for batch in read_file(file, [], columns=("kind", "run", *columns)):
                ours = pc.and_(
                    pc.and_(
                        pc.equal(batch["kind"], kind.value),
                        pc.equal(batch["run"], result.summary.run),
                    ),
                    pc.and_(pc.is_valid(batch["intended_first"]), pc.is_valid(batch["seq_lo"]))
                    if "seq_lo" in columns
                    else pc.is_valid(batch["intended_first"]),
                )
                found.append(batch.filter(pc.fill_null(ours, False)).select(list(columns)))
    if not found:
        return pa.table({name: [] for name in columns})
    return pa.Table.from_batches(found)


def _usual_span(seen: pa.Table) -> int:
    """How long all but one in twenty of the consumers' rows are at most, ns.

    A row's latencies are of its whole stretch of time: slots must not be finer.
    """
    if not seen.num_rows:
        return 0
    spans = _ints(seen["intended_last"]) - _ints(seen["intended_first"])
    return int(np.quantile(spans, 0.95))


def _streams(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in STREAM), "\0")


def _rows(
    sent: pa.Table, streams: pa.ChunkedArray, known: pa.Array, topics: Sequence[str]
) -> tuple[_Rows, NDArray[np.int64]]:
    stream = _ints(pc.index_in(streams, known)) << _SEQ_BITS
    at, until = stream + _ints(sent["seq_lo"]), stream + _ints(sent["seq_hi"])
    order = np.argsort(at, kind="stable")
    columns = (
        topic_numbers(sent["topic"], topics), at, until,
        _ints(sent["intended_first"]), _ints(sent["intended_last"]),
    )  # fmt: skip
    return _Rows(*(each[order] for each in columns)), _ints(sent["outcome"])[order]


def _pieces(rows: _Rows, ranges: pa.Table, known: pa.Array) -> tuple[_Rows, int]:
    """Ranges of seqs, cut along the rows that tell their times; and how many no row tells of."""
    streams = pc.index_in(_streams(ranges), known)
    here = ranges.filter(pc.is_valid(streams))
    stream = _ints(streams.drop_null()) << _SEQ_BITS
    lo, hi = stream + _ints(here["seq_lo"]), stream + _ints(here["seq_hi"])
    first = np.searchsorted(rows.until, lo, "right")
    number = np.maximum(np.searchsorted(rows.at, hi, "left") - first, 0)
    of = np.repeat(np.arange(len(lo)), number)
    row = np.repeat(first - np.cumsum(number) + number, number) + np.arange(len(of))
    at, until = np.maximum(lo[of], rows.at[row]), np.minimum(hi[of], rows.until[row])
    length = np.maximum(rows.until[row] - rows.at[row] - 1, 1)
    apart = (rows.last[row] - rows.first[row]) / length

    def time(seq: NDArray[np.int64]) -> NDArray[np.int64]:
        after: NDArray[np.int64] = ((seq - rows.at[row]) * apart).astype(np.int64)
        return rows.first[row] + after

    pieces = _Rows(rows.topic[row], at, until, time(at), time(until - 1))
    wanted = int(pc.sum(pc.subtract(ranges["seq_hi"], ranges["seq_lo"])).as_py() or 0)
    return pieces, wanted - int((until - at).sum())


def _spread(rows: _Rows, slots: Slots, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Count the rows' messages by topic and slot."""
    counts = np.zeros(shape, np.int64)
    begin, end = slots.of(rows.first), slots.of(rows.last)
    number = end - begin + 1
    of = np.repeat(np.arange(len(number)), number)
    slot = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number) + begin[of]
    length = (rows.until - rows.at)[of]
    took = np.maximum(rows.last - rows.first, 1)[of]

    def before(border: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of a row's messages come before a time."""
        passed = border - rows.first[of]
        reached = np.ceil(passed * ((length - 1) / took)).astype(np.int64)
        return np.where(border > rows.last[of], length, np.clip(reached, 0, length))

    start = slots.start_ns + slot * slots.step_ns
    inside = before(start + slots.step_ns) - before(start)
    np.add.at(counts, (rows.topic[of], slot), inside)
    return counts


def _ints(column: pa.ChunkedArray) -> NDArray[np.int64]:
    values: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return values
