"""How codecs compress our batches: payloads do not compress, or only as far as requested.

`python -m tests.unit.test_wire_compression` prints the table of docs/reference/messages.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirrortest.kafka.codec import CODEC_IDS, compressor
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.form import Form
from mirrortest.wire.payload import zeros
from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 1 << 20
NS = 1_700_000_000_123_456_789
PRODUCER = ProducerId("producer-0", "run7", 3)
CODECS = [name for name in CODEC_IDS if name != "none"]
SIZES = [100, 1000, 10_000]
HEADER = len(PRODUCER.encode()) + 34 + 32


def encoder(form: Form, size: int, compressibility: int = 0) -> LaneEncoder:
    return LaneEncoder("orders", PRODUCER, 11, 2, 5, form, size, compressibility)


def compressed(codec: str, form: Form, size: int, count: int, compressibility: int = 0) -> int:
    """Compressed bytes of a batch's records."""
    times = NS + np.arange(count, dtype=np.int64) * 20_000
    batch = encoder(form, size, compressibility).encode(123_456, times, NS)
    found = compressor(codec)
    assert found is not None
    return len(found[1](bytes(batch.buffer[HEADER_SIZE:])))


def payload(form: Form, size: int) -> int:
    """Bytes of a message's fill."""
    return size - HEADER if form is Form.BODY else size


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("size", SIZES)
def test_a_payload_is_incompressible(codec: str, form: Form, size: int) -> None:
    """Compressed, a full batch exceeds one without payloads by about the payloads' bytes."""
    count = encoder(form, size).most_within(BATCH)
    least = HEADER if form is Form.BODY else 0
    with_payload = compressed(codec, form, size, count)
    share = (with_payload - compressed(codec, form, least, count)) / (count * payload(form, size))
    assert 0.98 <= share <= 1.1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("size", SIZES)
def test_of_a_compressible_payload_so_much_is_saved(codec: str, form: Form, size: int) -> None:
    """The saving is within 0.02 of the request; snappy saves less in short runs."""
    count = encoder(form, size).most_within(BATCH)
    bytes_each = payload(form, size)
    asked = max(0.3, zeros(bytes_each, 30) / bytes_each - 0.003)  # few bytes: rounded to whole ones
    saved = compressed(codec, form, size, count) - compressed(codec, form, size, count, 30)
    off = 0.07 if codec == "snappy" and size == 100 else 0.02
    assert abs(saved / (count * bytes_each) - asked) <= off


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("percent", [10, 50, 80])
def test_larger_shares_are_saved_as_well(codec: str, percent: int) -> None:
    """Within 0.02; snappy, which copies at most 64 bytes at once, may miss a thirtieth of it."""
    count = encoder(Form.BODY, 1000).most_within(BATCH)
    without_zeros = compressed(codec, Form.BODY, 1000, count)
    saved = without_zeros - compressed(codec, Form.BODY, 1000, count, percent)
    off = max(0.02, percent / 100 / 30) if codec == "snappy" else 0.02
    assert abs(saved / (count * payload(Form.BODY, 1000)) - percent / 100) <= off


@pytest.mark.parametrize("size", [HEADER, 100, 1000])
@pytest.mark.parametrize("compressibility", [0, 30])
def test_the_ancestor_reads_each_of_40000(size: int, compressibility: int) -> None:
    """It splits a value at `;`, and needs four parts, two of them numbers."""
    lane = encoder(Form.BODY, size, compressibility)
    for seq in range(0, 40_000, 10_000):
        # Each batch has its own send time, in which some bytes are `;`.
        sent_ns = NS + 0x3B3B * seq
        batch = lane.encode(seq, np.full(10_000, NS) + np.arange(10_000), sent_ns)
        records = decode_records(batch.buffer)
        for index in range(len(records)):
            raw_id, raw_seq, raw_time, filled = (records.value(index) or b"").split(b";")
            assert (raw_id, int(raw_seq), int(raw_time)) == (
                PRODUCER.encode(),
                seq + index,
                NS + index,
            )
            assert len(filled) == size - HEADER + 32


def test_batches_of_messages_of_any_size_are_free_of_semicolons_too() -> None:
    """Each size has its own mask."""
    sizes = np.arange(HEADER, 70_000, 59)
    batch = encoder(Form.BODY, 70_000).encode(0, np.full(len(sizes), NS), NS, sizes)
    records = decode_records(batch.buffer)
    assert all((records.value(index) or b"").count(b";") == 3 for index in range(len(records)))


def table() -> Iterator[str]:
    """The table's lines: a full batch's compressed bytes for each byte of its records."""
    yield "| messages | " + " | ".join(CODECS) + " |"
    yield "|---" * (1 + len(CODECS)) + "|"
    for form, size in itertools.product(Form, SIZES):
        count = encoder(form, size).most_within(BATCH)
        batch = encoder(form, size).encode(0, np.full(count, NS), NS)
        cells = [
            "{:.2f} ({:.2f})".format(
                *(
                    compressed(codec, form, size, count, percent) / (batch.size - HEADER_SIZE)
                    for percent in (0, 30)
                )
            )
            for codec in CODECS
        ]
        yield f"| {size:,} B, {form} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print("\n".join(table()))  # noqa: T201  # a command's output
