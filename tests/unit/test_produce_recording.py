"""Rows of ended batches: joined if consecutive, cut where necessary, and counted correctly."""

from __future__ import annotations

import pickle
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.errors import SequenceLogError
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome
from mirrortest.produce.clock import Clock
from mirrortest.produce.lane import Flight, Lane
from mirrortest.produce.recording import LaneRecorder, TopicNumbers
from mirrortest.timing.histogram import Histogram, bucket_of
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.produce.statistics import Tally
    from mirrortest.seqlog.batches import Columns
    from mirrortest.seqlog.rows import Row

MINUTE = 60_000_000_000
LANE = SimpleNamespace(stream=StreamId("t", "r", "p", 1, 7), partition=2)


class Book:
    """A recorder, and what it wrote; its wall clock is the monotonic one."""

    def __init__(self, *, warmup: int = 0, each: bool = False) -> None:
        self.rows: list[Row] = []
        self.columns: list[Columns] = []
        self.numbers = TopicNumbers(100)
        self.recorder = LaneRecorder(
            cast("Lane", LANE),
            self.numbers,
            warmup=warmup,
            clock=Clock(lambda: 0, lambda: 0),
            per_message=each,
            append=self.rows.extend,
            append_arrays=self.columns.append,
        )

    def batch(
        self,
        lo: int,
        times: NDArray[np.int64] | list[int],
        offset: int,
        outcome: Outcome = Outcome.ACKED,
        sent: int | None = None,
        ended: int | None = None,
    ) -> None:
        times = np.asarray(times, dtype=np.int64)
        sent = int(times[-1]) + 5 if sent is None else sent
        flight = Flight(lo, lo, times, sent, 0, 1000)
        self.recorder.record_outcome(flight, outcome, offset, sent + 10 if ended is None else ended)


def test_batches_that_follow_are_one_row() -> None:
    """Seq and offset continue, so the row does; its times and latencies cover both batches."""
    book = Book()
    book.batch(0, [0, 10, 20], 100)
    book.batch(3, [30, 40], 103)
    assert book.rows == []
    book.recorder.close_row()
    (row,) = book.rows
    assert (row.seq_lo, row.seq_hi, row.offset_lo, row.offset_hi) == (0, 5, 100, 105)
    assert (row.intended_first, row.intended_last) == (0, 40)
    assert (row.sent_first, row.sent_last, row.arrived_first, row.arrived_last) == (25, 45, 35, 55)
    assert row.latency_count is not None
    assert sum(row.latency_count) == 5
    assert row.partition == 2


@pytest.mark.parametrize(
    ("lo", "offset", "outcome"),
    [(4, 103, Outcome.ACKED), (3, 104, Outcome.ACKED), (3, -1, Outcome.FAILED)],
)
def test_a_gap_or_another_outcome_begins_a_row(lo: int, offset: int, outcome: Outcome) -> None:
    """A foreign record in between, a missing number, a failure: each ends the row."""
    book = Book()
    book.batch(0, [0, 10, 20], 100)
    book.batch(lo, [30, 40], offset, outcome)
    book.recorder.close_row()
    assert len(book.rows) == 2
    if outcome is Outcome.FAILED:
        assert book.rows[1].offset_lo is None
        assert book.rows[1].arrived_first is None
        assert book.rows[1].latency_bucket is None


@given(st.lists(st.integers(0, 5 * MINUTE), min_size=1, max_size=40), st.integers(0, 40))
def test_rows_are_cut_at_minutes_and_at_the_warm_ups_end(steps: list[int], warmup: int) -> None:
    """No row spans two minutes of intended time or both phases, and cutting loses nothing."""
    times = np.cumsum(np.asarray(sorted(steps)) // 7)
    book = Book(warmup=warmup)
    book.batch(0, times, 50)
    book.recorder.close_row()
    assert book.rows[0].seq_lo == 0
    assert book.rows[-1].seq_hi == len(times)
    for before, after in zip(book.rows, book.rows[1:], strict=False):
        assert before.seq_hi == after.seq_lo
        assert before.offset_hi == after.offset_lo
    for row in book.rows:
        assert row.seq_lo is not None
        assert row.seq_hi is not None
        assert row.intended_first is not None
        assert row.intended_last is not None
        assert row.intended_first // MINUTE == row.intended_last // MINUTE
        assert row.intended_first == times[row.seq_lo]
        assert row.seq_hi <= warmup or row.seq_lo >= warmup
    steady = max(0, len(times) - warmup)
    assert book.numbers.steady.outcomes[Outcome.ACKED] == steady
    assert book.numbers.overall.outcomes[Outcome.ACKED] == len(times)
    assert book.numbers.overall.from_intended.histogram.count == len(times)
    assert book.numbers.overall.outcomes[Outcome.ACKED] == len(times)


def test_each_message_has_a_row_with_its_own_time() -> None:
    """With detail `messages`, the intended times are exact."""
    book = Book(each=True)
    book.batch(3, [30, 47, 90], 103)
    (columns,) = book.columns
    table = columns.batch().to_pydict()
    assert table["seq_lo"] == [3, 4, 5]
    assert table["offset_lo"] == [103, 104, 105]
    assert table["intended_first"] == [30, 47, 90]
    assert book.rows == []


def test_numbers_of_a_report() -> None:
    """Latencies from the intended and the actual send, the schedule's lag, and the rate."""
    book = Book()
    second = 1_000_000_000
    book.batch(0, [0, second], 0, sent=2 * second, ended=4 * second)
    numbers = book.numbers.overall.to_json()
    assert numbers["records"] == numbers["acked"] == 2
    assert numbers["seconds"] == 4
    assert numbers["records_per_second"] == 0.5
    assert numbers["latency_seconds"]["from_intended"]["max"] == 4
    assert numbers["latency_seconds"]["from_intended"]["avg"] == 3.5
    assert numbers["latency_seconds"]["from_sent"]["max"] == 2
    assert numbers["schedule_lag_seconds"]["max"] == 2
    book.numbers.flush()
    assert book.numbers.ack_latency.count == 2


class Message(NamedTuple):
    """A message's outcome, numbers and times; the wall clock is the monotonic one."""

    outcome: Outcome
    seq: int
    offset: int | None
    intended: int
    sent: int
    ended: int
    steady: bool


class Steps(NamedTuple):
    """A batch, and the action after it."""

    gaps: list[int]
    """Between intended times; the first is from the previous batch's last time."""
    outcome: Outcome
    same_seq: bool
    same_offset: bool
    sent_after: int
    ended_after: int
    then: str


STEPS = st.builds(
    Steps,
    st.lists(st.sampled_from([0, 1, 9_000, MINUTE // 3]), min_size=1, max_size=6)
    | st.integers(1, 6).map(lambda count: [7] + [0] * (count - 1)),
    st.sampled_from([Outcome.ACKED, Outcome.ACKED, Outcome.ACKED, *Outcome]),
    st.booleans(),
    st.booleans(),
    st.integers(-20, 2 * MINUTE),
    st.sampled_from([0, 4, 5_000_000]),
    st.sampled_from(["go on", "go on", "go on", "close the row", "read", "publish"]),
)


def expected_rows(messages: list[Message | None]) -> list[tuple[object, ...]]:
    """Consecutive messages as rows; None: the row was closed here."""
    rows: list[list[Message]] = []
    before: Message | None = None
    for message in messages:
        if message is not None and (
            before is not None
            and (before.outcome, before.seq + 1, before.intended // MINUTE, before.steady)
            == (message.outcome, message.seq, message.intended // MINUTE, message.steady)
            and (None if before.offset is None else before.offset + 1) == message.offset
        ):
            rows[-1].append(message)
        elif message is not None:
            rows.append([message])
        before = message
    return [expected_row(row) for row in rows]


def expected_row(row: list[Message]) -> tuple[object, ...]:
    """The columns of a row of these messages."""
    first, last = row[0], row[-1]
    offsets: tuple[int | None, int | None] = (None, None)
    if first.offset is not None and last.offset is not None:
        offsets = (first.offset, last.offset + 1)
    acknowledged: tuple[object, ...] = (None, None, None, None, None)
    if first.outcome is Outcome.ACKED:
        latencies = [each.ended - each.intended for each in row]
        found = sorted(Counter(bucket_of(each) for each in latencies if each >= 0).items())
        negative = sum(each < 0 for each in latencies)
        buckets, counts = [each for each, _ in found], [each for _, each in found]
        acknowledged = (first.ended, last.ended, negative, buckets, counts)
    times = (first.intended, last.intended, first.sent, last.sent)
    return (first.seq, last.seq + 1, *offsets, int(first.outcome), *times, *acknowledged)


def facts(histogram: Histogram) -> tuple[object, ...]:
    """All figures of a histogram."""
    return (
        histogram.count, histogram.negative, histogram.total, histogram.negative_total,
        histogram.minimum, histogram.maximum, histogram.sparse(),
    )  # fmt: skip


def facts_of(values: list[int]) -> tuple[object, ...]:
    """The same of values that are added one by one."""
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return facts(histogram)


def check_tally(tally: Tally, messages: list[Message]) -> None:
    """Check that the tally is that of these messages."""
    acked = [each for each in messages if each.outcome is Outcome.ACKED]
    assert tally.records == len(messages)
    assert tally.value_bytes == 100 * len(acked)
    assert tally.first_ns == min((each.intended for each in messages), default=None)
    assert tally.last_ns == max((each.ended for each in messages), default=None)
    latencies = facts(tally.from_intended.histogram)
    assert latencies == facts_of([each.ended - each.intended for each in acked])
    assert facts(tally.from_sent.histogram) == facts_of([each.ended - each.sent for each in acked])
    lags = [each.sent - each.intended for each in messages]
    assert facts(tally.schedule_lag.histogram) == facts_of(lags)


@given(st.lists(STEPS, max_size=12), st.integers(0, 20), st.sampled_from([1, 5, 8192]))
def test_everything_is_as_message_by_message(
    batches: list[Steps], warmup: int, portion: int
) -> None:
    """Rows, both tallies and the metrics agree, whenever they are read."""
    with patch("mirrortest.produce.statistics._PORTION", portion):
        look_at_all(batches, warmup)


def look_at_all(batches: list[Steps], warmup: int) -> None:
    """See the test."""
    book = Book(warmup=warmup)
    messages: list[Message | None] = []
    seq = offset = now = 0
    for batch in batches:
        seq += not batch.same_seq
        offset += not batch.same_offset
        times = now + np.cumsum(np.asarray(batch.gaps, dtype=np.int64))
        now = int(times[-1])
        sent, ended = now + batch.sent_after, now + batch.sent_after + batch.ended_after
        base = offset if batch.outcome is Outcome.ACKED else -1
        book.batch(seq, times, base, batch.outcome, sent, ended)
        messages += [
            Message(
                batch.outcome, seq + at, None if base < 0 else base + at, int(time), sent, ended,
                seq + at >= warmup,
            )
            for at, time in enumerate(times)
        ]  # fmt: skip
        seq += len(times)
        offset += len(times)
        if batch.then == "close the row":
            book.recorder.close_row()
            messages.append(None)
        elif batch.then == "read":
            known = [each for each in messages if each is not None]
            check_tally(book.numbers.overall, known)
        elif batch.then == "publish":
            book.numbers.flush()
            known = [each for each in messages if each is not None]
            acked = [each for each in known if each.outcome is Outcome.ACKED]
            actual = facts(book.numbers.ack_latency)
            assert actual == facts_of([each.ended - each.sent for each in acked])
            lags = facts_of([each.sent - each.intended for each in known])
            assert facts(book.numbers.schedule_lag) == lags
    known = [each for each in messages if each is not None]
    # As in a worker's report, while rows are open.
    actual = pickle.loads(pickle.dumps(book.numbers)).overall.to_json()
    assert actual == book.numbers.overall.to_json()
    check_tally(book.numbers.warm, [each for each in known if not each.steady])
    check_tally(book.numbers.steady, [each for each in known if each.steady])
    book.recorder.close_row()
    check_tally(book.numbers.overall, known)
    logged = [
        (
            row.seq_lo, row.seq_hi, row.offset_lo, row.offset_hi, row.outcome,
            row.intended_first, row.intended_last, row.sent_first, row.sent_last,
            row.arrived_first, row.arrived_last,
            row.negative, row.latency_bucket, row.latency_count,
        )
        for row in book.rows
    ]  # fmt: skip
    assert logged == expected_rows(messages)


def test_what_a_broken_log_refuses_is_counted() -> None:
    """The report counts all batches that ended, including the one at which the log failed."""
    book = Book()

    def refuse(_: list[Row]) -> None:
        raise SequenceLogError("the disk is full")

    book.recorder._append = refuse
    book.batch(0, [0, 10, 20], 100)
    with pytest.raises(SequenceLogError):
        book.batch(3, [30, 40], 200)
    assert book.numbers.overall.from_intended.histogram.count == 5


def test_failures_are_counted_by_category_with_their_messages() -> None:
    """If the warm-up ends within a batch, each part counts in its own phase."""
    book = Book(warmup=4)
    for lo, failure in ((0, Failure.TIMEOUT), (3, Failure.TIMEOUT), (6, Failure.TOO_LARGE)):
        flight = Flight(lo, lo, np.arange(3) + lo, 10, 0, 1000)
        book.recorder.record_outcome(flight, Outcome.UNKNOWN, -1, 20, failure)
    assert book.numbers.warm.failures == {Failure.TIMEOUT: 4}
    assert book.numbers.steady.failures == {Failure.TIMEOUT: 2, Failure.TOO_LARGE: 3}
    overall = book.numbers.overall
    assert overall.to_json()["not_acked"] == {"timeout": 6, "too_large": 3}
    assert sum(overall.failures.values()) == overall.outcomes[Outcome.UNKNOWN]
