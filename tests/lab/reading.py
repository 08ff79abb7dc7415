"""Reading until enough has come, with aiokafka's internals and with its public API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.kafka.admin import Admin
from mirrortest.kafka.compacted import CompactedTopic
from mirrortest.wire.record_batch import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.reader import Reader

At = tuple[str, int]

both = pytest.mark.parametrize(
    "config", [False, True], indirect=True, ids=["by its insides", "by public calls"]
)
"""Runs a test with aiokafka's internals, and with its public API only."""


async def read(reader: Reader, until: Callable[[list[Any]], bool]) -> list[Any]:
    """Read until `until` is true of what was read."""
    found: list[Any] = []
    while not until(found):
        found += await reader.next(0.2)
    return found


async def entries(config: ClientConfig, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """All records of a compacted topic: offset, key, value."""
    async with Admin(config) as admin:
        admin.expect(topic)
        (end,) = (await admin.end_offsets([(topic, 0)])).values()
    found: list[tuple[int, bytes, bytes | None]] = []
    async with CompactedTopic(config, topic) as table:
        tail = table.tail()
        while (found[-1][0] + 1 if found else 0) < end:
            found.append(await anext(tail))
    return found


def rows(found: list[Any]) -> list[tuple[int, bytes | None]]:
    """All records as (offset, value), from the offset at which each batch was fetched."""
    batches = [(decode_records(item.buffer), item) for item in found if item.buffer is not None]
    return [
        (int(offset), records.value(row))
        for records, item in batches
        for row, offset in enumerate(records.offsets)
        if offset >= item.fetched_from
    ]


def reached(*ends: int) -> Callable[[list[Any]], bool]:
    """A check whether each partition's last batch ends at its offset in `ends`."""

    def check(found: list[Any]) -> bool:
        last = {item.partition: item.next_offset for item in found}
        return all(last.get(number) == end for number, end in enumerate(ends))

    return check
