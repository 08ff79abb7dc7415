"""Rows of ended batches: joined where they follow, cut where they must be, and counted right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.check.verdict import Outcome
from mirrortest.produce.clock import Clock
from mirrortest.produce.lane import Flight, Lane
from mirrortest.produce.recording import LaneRecorder, TopicNumbers, Window
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.seqlog.batches import Columns
    from mirrortest.seqlog.rows import Row

MINUTE = 60_000_000_000
LANE = SimpleNamespace(stream=StreamId("t", "r", "p", 1, 7), partition=2)


class Book:
    """A recorder with what it wrote; its wall clock is the monotonic one."""

    def __init__(self, *, warmup: int = 0, each: bool = False) -> None:
        self.rows: list[Row] = []
        self.columns: list[Columns] = []
        self.numbers = TopicNumbers(warmup, 1, 100)
        self.window = Window()
        self.recorder = LaneRecorder(
            cast("Lane", LANE),
            self.numbers,
            warmup=warmup,
            clock=Clock(lambda: 0, lambda: 0),
            window=self.window,
            each=each,
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
        self.recorder.ended(flight, outcome, offset, sent + 10 if ended is None else ended)


def test_batches_that_follow_are_one_row() -> None:
    """Seq and offset go on, so the interval does; times and latencies are of all of it."""
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
    """No row spans a minute of intended time or both phases, and nothing is lost by cutting."""
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
    assert book.numbers.whole.outcomes[Outcome.ACKED] == len(times)
    assert book.numbers.whole.from_intended.histogram.count == len(times)
    assert book.window.acked == len(times)


def test_each_message_has_a_row_with_its_own_time() -> None:
    """In detail `messages` the intended times are exact."""
    book = Book(each=True)
    book.batch(3, [30, 47, 90], 103)
    (columns,) = book.columns
    table = columns.batch().to_pydict()
    assert table["seq_lo"] == [3, 4, 5]
    assert table["offset_lo"] == [103, 104, 105]
    assert table["intended_first"] == [30, 47, 90]
    assert book.rows == []


def test_numbers_of_a_report() -> None:
    """Latency from the intended and from the actual send, the schedule's lag, and the rate."""
    book = Book()
    second = 1_000_000_000
    book.batch(0, [0, second], 0, sent=2 * second, ended=4 * second)
    told = book.numbers.whole.to_json()
    assert told["records"] == told["acked"] == 2
    assert told["seconds"] == 4
    assert told["records_per_second"] == 0.5
    assert told["latency_seconds"]["from_intended"]["max"] == 4
    assert told["latency_seconds"]["from_intended"]["avg"] == 3.5
    assert told["latency_seconds"]["from_sent"]["max"] == 2
    assert told["schedule_lag_seconds"]["max"] == 2
    book.numbers.flush()
    assert book.numbers.ack_latency.count == 2
