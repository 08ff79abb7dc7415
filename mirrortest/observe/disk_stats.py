"""Disks: /proc/diskstats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.observe.counters import Change, ratio

if TYPE_CHECKING:
    from mirrortest.observe.counters import Counters

_FIELDS = (
    "reads", "reads_merged", "sectors_read", "read_ms",
    "writes", "writes_merged", "sectors_written", "write_ms",
    "active", "busy_ms", "queue_ms",
    "discards", "discards_merged", "sectors_discarded", "discard_ms",
    "flushes", "flush_ms",
)  # fmt: skip
"""In the order of the file; it has flushes since Linux 5.5."""
_SECTOR = 512
_MS = 1e-3


def parse(text: str) -> dict[str, Counters]:
    """The counters of each device that was ever used."""
    found = {}
    for line in text.splitlines():
        _, _, name, *values = line.split()
        counters = dict(zip(_FIELDS, map(int, values), strict=False))
        if any(counters.values()):
            found[name] = counters
    return found


def figures(before: Counters, now: Counters, seconds: float) -> dict[str, float | None]:
    """The figures of `model.observed.DEVICE`."""
    change = Change(before, now, seconds)

    def mean(milliseconds: tuple[str, ...], requests: tuple[str, ...]) -> float | None:
        total = change.of(*milliseconds)
        return ratio(None if total is None else total * _MS, change.of(*requests))

    queue = change.per_second("queue_ms", unit=_MS)
    busy = change.share("busy_ms", unit=_MS)
    return {
        "reads_per_second": change.per_second("reads"),
        "writes_per_second": change.per_second("writes"),
        "flushes_per_second": change.per_second("flushes"),
        "read_bytes_per_second": change.per_second("sectors_read", unit=_SECTOR),
        "written_bytes_per_second": change.per_second("sectors_written", unit=_SECTOR),
        "read_merge_ratio": ratio(change.of("reads_merged"), change.of("reads_merged", "reads")),
        "write_merge_ratio": ratio(
            change.of("writes_merged"), change.of("writes_merged", "writes")
        ),
        "read_seconds": mean(("read_ms",), ("reads",)),
        "write_seconds": mean(("write_ms",), ("writes",)),
        "flush_seconds": mean(("flush_ms",), ("flushes",)),
        "response_seconds": mean(("read_ms", "write_ms"), ("reads", "writes")),
        "queue": queue,
        "waiting": None if queue is None or busy is None else max(queue - busy, 0.0),
        "active": now.get("active"),
        "busy_ratio": busy,
    }
