"""The content of each record of a batch."""

from __future__ import annotations

from typing import Any

from mirrortest.wire.record_batch import decode_records
from mirrortest.wire.single_records import parse_headers


def content(buffer: Any) -> list[tuple[Any, ...]]:
    records = decode_records(buffer)
    return [
        (
            int(records.timestamps[row]),
            records.key(row),
            records.value(row),
            parse_headers(records.raw_headers(row)),
        )
        for row in range(len(records))
    ]
