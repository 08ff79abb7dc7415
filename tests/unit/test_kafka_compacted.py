"""A compacted topic whose batches anybody may have written."""

from __future__ import annotations

from mirrortest.kafka.compacted import _entries
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.wire.single_records import write_records


def batch(offset: int, key: bytes | None) -> bytearray:
    return write_records([(offset, 0, key, b"value", ())])


def test_a_batch_that_cannot_be_read_is_left_out() -> None:
    """P2: those fetched with it are read; a stranger's batch ends nobody's run."""
    damaged = batch(1, b"b")
    damaged[61] = 0x7E  # the record's length
    buffer = batch(0, b"a") + damaged + batch(2, None) + batch(3, b"c")
    fetched = FetchedBatches("ledger", 0, 0, 4, 0, buffer, 4)
    assert list(_entries(fetched)) == [(0, b"a", b"value"), (3, b"c", b"value")]
