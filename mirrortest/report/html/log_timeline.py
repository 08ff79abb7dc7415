"""The timeline of a short run, by the second, from its sequence logs.

A slot of a minute is too coarse for a run of a few minutes. If the logs of all its processes are
here and small, its timeline comes from them: each row has the intended times of its first and last
message. Times within a row are assumed to be evenly spaced. A row's latencies are assumed to rise
or fall from its first to its last message: after an outage, one row can have seconds of messages
that arrived at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.config.units import SECOND_NS
from mirrortest.model.findings import Finding, Outcome
from mirrortest.report.html.latencies import Latencies
from mirrortest.report.html.log_rows import few_rows, read_rows
from mirrortest.report.html.timeline import Slots, Timeline, from_minutes, topic_numbers
from mirrortest.seqlog.batches import filled, positions
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import STREAM, Kind
from mirrortest.verify.row import MINUTE_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from mirrortest.report.result import Result

LONGEST_NS = 10 * MINUTE_NS
MOST_RANGES = 300_000

_SENT = (*STREAM, "seq_lo", "seq_hi", "outcome", "intended_first", "intended_last")
_IN_PARTITION = ("partition", "topic_identity")
_SEEN = (
    *STREAM, *_IN_PARTITION, "offset_lo", "seq_lo", "seq_hi", "findings", "intended_first",
    "intended_last", "arrived_first", "arrived_last", "negative", "latency_bucket",
    "latency_count",
)  # fmt: skip
_OF_ORDER = Finding.DUPLICATED | Finding.REORDERED
_NEGATIVE = -1
"""The bucket of latencies below zero."""
_SEQ_BITS = 42  # a seq has at most 12 digits
_OUTCOMES = {outcome.name.lower(): int(outcome) for outcome in Outcome}


class _Rows(NamedTuple):
    """Rows of messages in order of (stream, seq), evenly spaced in time within each row.

    `at` is the first seq, with the stream's number in the bits above `_SEQ_BITS`; `until` is the
    end of the seqs, likewise. `first` and `last` are intended times (but see `_arrivals`).
    """

    topic: NDArray[np.int64]
    at: NDArray[np.int64]
    until: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def chosen(self, by: NDArray[Any]) -> _Rows:
        """Some of the rows, chosen by a mask, or by their indices in order."""
        return _Rows(*(each[by] for each in self))


def best_timeline(result: Result) -> Timeline | None:
    """The timeline by the second if possible, else by the minute; None if no message has a time."""
    minutes = from_minutes(result.table("by_minute"), result.table("latency"))
    by_second = from_logs(
        result, 0 if minutes is None else minutes.slots.step_ns * minutes.slots.count
    )
    return minutes if by_second is None else by_second


def from_logs(result: Result, span_ns: int) -> Timeline | None:
    """The timeline of a run of `span_ns` from its logs; None if they are not used.

    They are not used if the run is long, or if they are large, incomplete, or span a longer time.
    """
    if span_ns > LONGEST_NS or not few_rows(result) or result.row_count("findings") > MOST_RANGES:
        return None
    sent = _timed(read_rows(result, Role.PRODUCER, Kind.SENT, _SENT))
    sent = sent.filter(pc.is_valid(sent["seq_lo"]))
    if not sent.num_rows:
        return None
    topics = tuple(sorted(set(sent["topic"].unique().to_pylist())))
    seen = _timed(read_rows(result, Role.CONSUMER, Kind.SEEN, _SEEN))
    seen = seen.filter(pc.is_in(seen["topic"], pa.array(topics, pa.string())))
    measured = seen.filter(pc.is_valid(seen["latency_bucket"]))
    begin, end = _ints(sent["intended_first"]), _ints(sent["intended_last"])
    first = min([int(begin.min()), *_ints(measured["intended_first"]).tolist()])
    last = max([int(end.max()), *_ints(measured["intended_last"]).tolist()])
    if last - first > LONGEST_NS + MINUTE_NS:
        return None
    slots = Slots.over(first, last, SECOND_NS)
    shape = (len(topics), slots.count)
    streams = _streams(sent)
    stream_keys = streams.unique()
    rows, outcome = _rows(sent, streams, stream_keys, topics)
    counts = {"sent": _spread(rows, slots, shape)}
    for name, value in _OUTCOMES.items():
        counts[name] = _spread(rows.chosen(outcome == value), slots, shape)
    findings = result.table("findings")
    arrivals = _arrivals(measured, stream_keys, topics)
    unplaced: dict[str, int] = {}
    before: dict[tuple[str, int], int] = {}
    if findings is not None:
        for name in findings["finding"].unique().to_pylist():
            ranges = findings.filter(pc.equal(findings["finding"], name))
            pieces, missing = _pieces(rows, ranges, stream_keys)
            counts[name] = _spread(pieces, slots, shape)
            before |= {(name, topic): at for topic, at in _passed(pieces, arrivals)}
            if missing:
                unplaced[name] = missing
    before |= _first_arrivals(seen, topics)
    latencies = _latencies(measured, topics, slots, shape)
    return Timeline(slots, topics, counts, unplaced, latencies, True, before)


def _timed(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.is_valid(rows["intended_first"]))


def _earliest(topic: NDArray[np.int64], at: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The earliest time of each topic."""
    return [(int(each), int(at[topic == each].min())) for each in np.unique(topic)]


def _arrivals(seen: pa.Table, stream_keys: pa.Array, topics: Sequence[str]) -> _Rows:
    """The rows of `seen`, in its order; their times are those of their arrival."""
    seen, at, until = _numbered(seen, stream_keys)
    times = _ints(seen["arrived_first"]), _ints(seen["arrived_last"])
    return _Rows(topic_numbers(seen["topic"], topics), at, until, *times)


def _passed(pieces: _Rows, arrivals: _Rows) -> Iterator[tuple[int, int]]:
    """Each topic, and when its first message or a later one of that stream arrived.

    A mirror keeps the order: by then the message was late, or missing. If none of them arrived, it
    is the intended time.
    """
    for topic in np.unique(pieces.topic):
        its = pieces.chosen(pieces.topic == topic)
        earliest = its.first.argmin()
        message, intended = its.at[earliest], its.first[earliest]
        same_stream = arrivals.at >> _SEQ_BITS == message >> _SEQ_BITS
        rows = arrivals.chosen(same_stream & (arrivals.until > message))
        share = np.maximum(message - rows.at, 0) / np.maximum(rows.until - rows.at - 1, 1)
        arrived = rows.first + ((rows.last - rows.first) * share).astype(np.int64)
        passed = int(arrived.min()) if arrived.size else 0
        yield int(topic), max(int(intended), passed)


def _first_arrivals(seen: pa.Table, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """When a consumer first read a message with each finding, by the finding's name and topic.

    Rows have no findings of order. The earliest possible time of these is the first row that goes
    back to a seq that its stream had passed in the partition.
    """
    seen = seen.filter(pc.is_valid(seen["arrived_first"]))
    bits, arrived = _ints(seen["findings"]), _ints(seen["arrived_first"])
    topic = topic_numbers(seen["topic"], topics)
    back = _going_back(seen)
    return {
        (finding.label, place): at
        for finding in Finding
        for here in [back if finding in _OF_ORDER else bits & int(finding) != 0]
        for place, at in _earliest(topic[here], arrived[here])
    }


def _going_back(seen: pa.Table) -> NDArray[np.bool_]:
    """Whether each row begins below a seq that its stream had passed in the partition."""
    parts = [seen[name].cast(pa.string()).fill_null("") for name in (*STREAM, *_IN_PARTITION)]
    keys = pc.binary_join_element_wise(*parts, "\0")
    group = _ints(pc.index_in(keys, keys.unique())) << _SEQ_BITS
    seq = [_ints(seen[name]) for name in ("seq_lo", "seq_hi")]
    order = np.lexsort((_ints(seen["offset_lo"]), group))
    passed = np.maximum.accumulate((group + seq[1])[order])
    back = np.zeros(len(order), np.bool_)
    back[order[1:]] = (group + seq[0])[order[1:]] < passed[:-1]
    back &= seen["seq_lo"].is_valid().to_numpy()
    return back


def _latencies(
    seen: pa.Table, topics: Sequence[str], slots: Slots, shape: tuple[int, int]
) -> Latencies:
    """The rows' latencies, spread over the slots of their intended times."""
    first, last = _ints(seen["intended_first"]), _ints(seen["intended_last"])
    arrived = [_ints(seen[name]) for name in ("arrived_first", "arrived_last")]
    falling = arrived[0] - first >= arrived[1] - last
    negative = _ints(seen["negative"])
    row = np.concatenate(
        [pc.list_parent_indices(seen["latency_bucket"]).to_numpy(), np.arange(len(negative))]
    )
    bucket = np.concatenate(
        [_ints(pc.list_flatten(seen["latency_bucket"])), np.full(len(negative), _NEGATIVE)]
    )
    count = np.concatenate([_ints(pc.list_flatten(seen["latency_count"])), negative])
    order = np.lexsort((np.where(falling[row], -bucket, bucket), row))
    row, bucket, count = row[order], bucket[order], count[order]
    messages = np.bincount(row, weights=count, minlength=len(first)).astype(np.int64)
    of, slot, inside = _cuts(first, last, messages, slots)
    # Put all messages in one sequence: cut it where the bucket changes, and where the slot does.
    of_bucket, of_slot = np.cumsum(count), np.cumsum(inside)
    ends = np.union1d(of_bucket, of_slot)
    ends = ends[ends > 0]
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    bucket = bucket[np.searchsorted(of_bucket, starts, "right")]
    piece = np.searchsorted(of_slot, starts, "right")
    topic, slot = topic_numbers(seen["topic"], topics)[of[piece]], slot[piece]
    below, length = bucket == _NEGATIVE, ends - starts
    negatives = np.zeros(shape, np.int64)
    np.add.at(negatives, (topic[below], slot[below]), length[below])
    return Latencies.of_cells(
        topic[~below], slot[~below], bucket[~below], length[~below], negatives
    )


def _streams(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in STREAM), "\0")


def _numbered(
    table: pa.Table, stream_keys: pa.Array
) -> tuple[pa.Table, NDArray[np.int64], NDArray[np.int64]]:
    """The rows of known streams, with their `at` and `until` as in `_Rows`."""
    streams = pc.index_in(_streams(table), stream_keys)
    known = table.filter(pc.is_valid(streams))
    stream = _ints(streams.drop_null()) << _SEQ_BITS
    return known, stream + _ints(known["seq_lo"]), stream + _ints(known["seq_hi"])


def _rows(
    sent: pa.Table, streams: pa.ChunkedArray, stream_keys: pa.Array, topics: Sequence[str]
) -> tuple[_Rows, NDArray[np.int64]]:
    stream = _ints(pc.index_in(streams, stream_keys)) << _SEQ_BITS
    at, until = stream + _ints(sent["seq_lo"]), stream + _ints(sent["seq_hi"])
    times = _ints(sent["intended_first"]), _ints(sent["intended_last"])
    order = np.argsort(at, kind="stable")
    rows = _Rows(topic_numbers(sent["topic"], topics), at, until, *times)
    return rows.chosen(order), _ints(sent["outcome"])[order]


def _pieces(rows: _Rows, ranges: pa.Table, stream_keys: pa.Array) -> tuple[_Rows, int]:
    """Cut ranges of seqs along the rows that have their times; also how many are in no row."""
    _, lo, hi = _numbered(ranges, stream_keys)
    first = np.searchsorted(rows.until, lo, "right")
    number = np.maximum(np.searchsorted(rows.at, hi, "left") - first, 0)
    of, nth = positions(number)
    row = first[of] + nth
    at, until = np.maximum(lo[of], rows.at[row]), np.minimum(hi[of], rows.until[row])
    length = np.maximum(rows.until[row] - rows.at[row] - 1, 1)
    apart = (rows.last[row] - rows.first[row]) / length

    def time(seq: NDArray[np.int64]) -> NDArray[np.int64]:
        after: NDArray[np.int64] = rows.first[row] + ((seq - rows.at[row]) * apart).astype(np.int64)
        return after

    pieces = _Rows(rows.topic[row], at, until, time(at), time(until - 1))
    wanted = int(pc.sum(pc.subtract(ranges["seq_hi"], ranges["seq_lo"])).as_py() or 0)
    return pieces, wanted - int((until - at).sum())


def _spread(rows: _Rows, slots: Slots, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Count the rows' messages by topic and slot."""
    counts = np.zeros(shape, np.int64)
    of, slot, inside = _cuts(rows.first, rows.last, rows.until - rows.at, slots)
    np.add.at(counts, (rows.topic[of], slot), inside)
    return counts


class _Cuts(NamedTuple):
    """Rows cut at the slots' borders: each piece's row, slot and number of messages."""

    row: NDArray[np.int64]
    slot: NDArray[np.int64]
    messages: NDArray[np.int64]


def _cuts(
    first: NDArray[np.int64], last: NDArray[np.int64], messages: NDArray[np.int64], slots: Slots
) -> _Cuts:
    """Cut rows of `messages` each, evenly spaced from `first` to `last`, at the slots' borders."""
    begin, end = slots.of(first), slots.of(last)
    number = end - begin + 1
    of, nth = positions(number)
    slot = begin[of] + nth
    length = messages[of]
    took = np.maximum(last - first, 1)[of]

    def before(border: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of a row's messages come before a time."""
        passed = border - first[of]
        reached = np.ceil(passed * ((length - 1) / took)).astype(np.int64)
        return np.where(border > last[of], length, np.clip(reached, 0, length))

    return _Cuts(of, slot, before(slots.begin(slot + 1)) - before(slots.begin(slot)))


def _ints(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of integers, 0 for null."""
    return filled(column.cast(pa.int64()), 0)
