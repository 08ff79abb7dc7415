"""Messages as the specification encodes them, and record batches as the batch path writes them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mirrortest.wire.digits import SEQ_LIMIT, TIME_LIMIT
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import MAX_LANE
from mirrortest.wire.message import Message, encode
from mirrortest.wire.payload import CURRENT, GENERATORS, MAX_SIZE
from mirrortest.wire.record_batch import compress_records, seal
from mirrortest.wire.single_records import write_records
from mirrortest.wire.stream import ProducerId
from tests.unit.lane_batches import encoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

START = 1_700_000_000_123_456_789
USUAL = Message("orders", ProducerId("pa", "run7", 3), 11, 5000, START, START + 7, 2, 5, 100)
SHORTEST = ProducerId("p", "r", 1)
LONGEST = ProducerId("p" * 64, "r" * 16, 999_999_999)

MESSAGES = {
    "usual": USUAL,
    "first": USUAL._replace(
        id=SHORTEST, lane=0, seq=0, intended_ns=0, sent_ns=0, source_partition=0,
        destination_partitions=0,
    ),
    "last": USUAL._replace(
        id=LONGEST, lane=MAX_LANE, seq=SEQ_LIMIT - 1, intended_ns=TIME_LIMIT - 1,
        sent_ns=TIME_LIMIT - 1, source_partition=65535, destination_partitions=65535, size=400,
    ),
    "without a value": USUAL._replace(size=0),
    "one byte too small for the proof": USUAL._replace(size=74),
    "just the proof": USUAL._replace(size=75),
    "one byte of fill": USUAL._replace(size=76),
    "10 kB": USUAL._replace(size=10_000),
    "as large as it may be": USUAL._replace(size=MAX_SIZE),
    "another topic": USUAL._replace(topic="orders.eu"),
}  # fmt: skip

BATCHES = {
    "one message": (USUAL, 1),
    "two messages": (USUAL, 2),
    "offset deltas of two bytes": (USUAL, 65),
    "offset deltas of three bytes": (USUAL._replace(size=80), 8193),
    "without a value": (USUAL._replace(size=0), 3),
    "the last numbers": (MESSAGES["last"]._replace(seq=SEQ_LIMIT - 3), 3),
    "the fill's block begins again": (USUAL._replace(seq=CURRENT.period - 9000, size=90), 18_000),
    "compressible": (USUAL._replace(compressibility=30, size=200), 200),
}


def document() -> dict[str, Any]:
    """Everything, as JSON's types."""
    return {
        **{
            f"messages of generator {number}": {
                f"{name}, {form}": _message(message._replace(generator=number), form)
                for name, message in MESSAGES.items()
                for form in Form
            }
            for number in GENERATORS
        },
        "compressible messages": {
            f"{percent} %, {form}": _message(USUAL._replace(compressibility=percent), form)
            for percent in (1, 30, 100)
            for form in Form
        },
        "batches": {
            f"{name}, {form}": _shown(_batch(message, count, form))
            for name, (message, count) in BATCHES.items()
            for form in Form
        },
        "batches of varying sizes": {
            f"{form}": _shown(_batch(USUAL._replace(size=200), 301, form, np.arange(301) % 201))
            for form in Form
        },
        "batches, finished": _finished(),
        "records written one by one": _shown(
            write_records(
                [
                    (41, START // 10**6, b"11", b"value", [("id", b"pa@run7.3"), ("none", None)]),
                    (43, START // 10**6 + 300, None, None, []),
                ]
            )
        ),
        "records written one by one, stamped by the broker": _shown(
            write_records([(7, 1234, b"", b"", [])], log_append_time=True)
        ),
    }


def _message(message: Message, form: Form) -> dict[str, Any]:
    record = encode(message, form)
    return {
        "key": _shown(record.key or b""),
        "value": _shown(record.value or b""),
        "headers": [[name, _shown(value or b"")] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
    }


def _batch(
    message: Message, count: int, form: Form, sizes: NDArray[np.int64] | None = None
) -> memoryview:
    """An unsealed batch; intended times step by a microsecond, up to the message's own."""
    times = message.intended_ns - 1000 * np.arange(count, dtype=np.int64)[::-1]
    return encoder(message, form).encode(message.seq, times, message.sent_ns, sizes).buffer


def _finished() -> dict[str, Any]:
    """A batch as the sender finishes it: producer state, CRC, compressed records."""
    sealed = bytearray(_batch(USUAL, 1, Form.BODY))
    seal(sealed, 4000, 3, 77)
    transactional = bytearray(sealed)
    seal(transactional, 4000, 3, 78, transactional=True)
    # Not a compressor's output: only the bytes written around it matter.
    compressed = bytearray(compress_records(memoryview(sealed), 4, lambda _: b"zstd bytes"))
    seal(compressed, 4000, 3, 79)
    return {
        "sealed": _shown(sealed),
        "transactional": _shown(transactional),
        "compressed": _shown(compressed),
    }


def _shown(data: bytes | bytearray | memoryview) -> dict[str, Any] | str:
    """Short bytes in hexadecimal, long ones by length and digest."""
    raw = bytes(data)
    if len(raw) <= 400:
        return raw.hex()
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
