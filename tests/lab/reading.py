"""Reading until enough has come, by aiokafka's insides and by its public calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.wire.record_batch import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.kafka.reader import Reader

At = tuple[str, int]

both = pytest.mark.parametrize(
    "config", [False, True], indirect=True, ids=["by its insides", "by public calls"]
)
"""Whichever way aiokafka is used."""


async def read(reader: Reader, until: Callable[[list[Any]], bool]) -> list[Any]:
    """Read until enough has come."""
    found: list[Any] = []
    while not until(found):
        found += await reader.next(0.2)
    return found


def rows(found: list[Any]) -> list[tuple[int, bytes | None]]:
    """All records as (offset, value), from where each batch was read on."""
    batches = [(decode_records(item.buffer), item) for item in found if item.buffer is not None]
    return [
        (int(offset), records.value(row))
        for records, item in batches
        for row, offset in enumerate(records.offsets)
        if offset >= item.fetched_from
    ]


def reached(*ends: int) -> Callable[[list[Any]], bool]:
    """Whether each partition's last batch ends at its offset."""

    def check(found: list[Any]) -> bool:
        last = {item.partition: item.next_offset for item in found}
        return all(last.get(number) == end for number, end in enumerate(ends))

    return check
