"""Finds the records that a killed mirror wrote but did not record yet, by their content.

The faulty mirror injects the same faults into the same messages each time, so the next one creates
the same records from where the truth ends. Those that are already in the destination are not
written again; their rows have the offsets at which they were found.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import structlog

from mirrortest.faults.records import CopiedRows, RawRecord, raw_record
from mirrortest.kafka.fetched import OutOfRange
from mirrortest.kafka.reader import Reader
from mirrortest.wire.record_batch import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.admin import Admin

    At = tuple[str, int]

_log = structlog.get_logger()

_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.5


class UnrecordedWrites:
    """Records of the destination that are not in the truth, by their content."""

    def __init__(self) -> None:
        self._offsets: dict[At, dict[bytes, deque[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, at: At, raw: RawRecord, offset: int) -> None:
        """Add a record of the destination."""
        self._offsets.setdefault(at, defaultdict(deque))[raw.digest()].append(offset)

    def match(
        self, at: At, content: CopiedRows | RawRecord
    ) -> Iterator[tuple[CopiedRows | RawRecord, int | None]]:
        """The content in pieces, each with its offset in the destination; None: not written yet."""
        by_digest = self._offsets.get(at)
        if not by_digest:
            yield content, None
        elif isinstance(content, RawRecord):
            yield content, self._take(at, content)
        else:
            lo = content.lo
            for row in range(content.lo, content.hi):
                offset = self._take(at, raw_record(content.records, row))
                if offset is not None:
                    if lo < row:
                        yield CopiedRows(content.records, lo, row), None
                    yield CopiedRows(content.records, row, row + 1), offset
                    lo = row + 1
            if lo < content.hi:
                yield CopiedRows(content.records, lo, content.hi), None

    def clear(self) -> int:
        """Stop matching; returns how many records were never matched."""
        remaining = sum(len(o) for by_digest in self._offsets.values() for o in by_digest.values())
        self._offsets.clear()
        return remaining

    def _take(self, at: At, raw: RawRecord) -> int | None:
        by_digest = self._offsets.get(at)
        if not by_digest:
            return None
        digest = raw.digest()
        offsets = by_digest.get(digest)
        if not offsets:
            return None
        offset = offsets.popleft()
        if not offsets:
            del by_digest[digest]
        if not by_digest:
            del self._offsets[at]
        return offset


async def find_unrecorded_writes(
    config: ClientConfig, admin: Admin, recorded: Mapping[At, int]
) -> UnrecordedWrites:
    """Read the destination from where the truth ends (`recorded`: partition to offset)."""
    found = UnrecordedWrites()
    before = await admin.end_offsets(recorded)
    while True:  # a request of the killed mirror may still be in flight
        await asyncio.sleep(_SETTLE_SECONDS)
        ends = await admin.end_offsets(recorded)
        if ends == before:
            break
        before = ends
    end_offset_of = {(at.topic, at.partition): end for at, end in ends.items()}
    remaining = {at: end for at, end in end_offset_of.items() if end > recorded[at]}
    if not remaining:
        return found
    _log.info("reading what was written but not recorded", partitions=len(remaining))
    async with Reader(config) as reader:
        await reader.assign(remaining)
        for at in remaining:
            reader.seek(at, recorded[at])
        while remaining:
            for item in await reader.next(_POLL_SECONDS):
                at = (item.topic, item.partition)
                if isinstance(item, OutOfRange):
                    begin = (await reader.beginning_offsets([at]))[at]
                    reader.seek(at, begin)
                    if begin >= remaining.get(at, 0):
                        remaining.pop(at, None)
                    continue
                if item.buffer is not None:
                    records = decode_records(item.buffer).from_offset(item.fetched_from)
                    for row, offset in enumerate(records.offsets.tolist()):
                        found.add(at, raw_record(records, row), offset)
                if item.next_offset >= remaining.get(at, 0):
                    remaining.pop(at, None)
    return found
