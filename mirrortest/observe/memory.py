"""Memory and page cache: /proc/meminfo and /proc/vmstat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.observe.counters import Change

if TYPE_CHECKING:
    from mirrortest.observe.counters import Counters

_KIB = 1024


def parse(text: str) -> Counters:
    """The numbers of either file by name, in the file's units: KiB, pages or counts."""
    return {
        name.removesuffix(":"): int(value.split()[0])
        for name, _, value in (line.partition(" ") for line in text.splitlines())
        if value.split()
    }


def figures(
    before: Counters, now: Counters, seconds: float, page_bytes: int
) -> dict[str, float | None]:
    """The figures of `model.observed.HOST` that come from here."""
    change = Change(before, now, seconds)

    def size(*names: str, less: str = "") -> int | None:
        wanted = (*names, *([less] if less else ()))
        if any(name not in now for name in wanted):
            return None
        return _KIB * (sum(now[name] for name in names) - (now[less] if less else 0))

    return {
        "memory_bytes": size("MemTotal"),
        "available_bytes": size("MemAvailable"),
        # Without buffers, which are pages of devices, not of files.
        "page_cache_bytes": size("Cached"),
        "dirty_bytes": size("Dirty", "Writeback"),
        "swap_used_bytes": size("SwapTotal", less="SwapFree"),
        "swap_in_bytes_per_second": change.per_second("pswpin", unit=page_bytes),
        "swap_out_bytes_per_second": change.per_second("pswpout", unit=page_bytes),
        "major_faults_per_second": change.per_second("pgmajfault"),
    }
