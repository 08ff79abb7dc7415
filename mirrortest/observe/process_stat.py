"""One process: its files `stat` and `io` in /proc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.observe.counters import Change, ratio

if TYPE_CHECKING:
    from mirrortest.observe.counters import Counters

_FIELDS = {
    "parent": 1, "major_faults": 9, "user_ticks": 11, "system_ticks": 12,
    "threads": 17, "started_ticks": 19, "virtual_bytes": 20, "resident_pages": 21,
}  # fmt: skip
"""Field -> its index after the command's name."""


def parse(text: str) -> tuple[str, Counters]:
    """The command's name, which may contain anything, and the numbers of `stat`."""
    head, _, rest = text.rpartition(")")
    values = rest.split()
    return head.partition("(")[2], {name: int(values[at]) for name, at in _FIELDS.items()}


def parse_io(text: str) -> Counters:
    """The counters of `io`, in bytes and calls."""
    return {
        name: int(value) for name, _, value in (line.partition(": ") for line in text.splitlines())
    }


def figures(
    before: Counters, now: Counters, seconds: float, *, tick_seconds: float, page_bytes: int
) -> dict[str, float | None]:
    """The figures of `model.observed.PROCESS`; counters of `io` may be missing."""
    change = Change(before, now, seconds)
    returned, from_disk = change.of("rchar"), change.of("read_bytes")
    missed = ratio(from_disk, returned)
    return {
        "virtual_bytes": now["virtual_bytes"],
        "resident_bytes": now["resident_pages"] * page_bytes,
        "cpus": change.per_second("user_ticks", "system_ticks", unit=tick_seconds),
        "user_cpus": change.per_second("user_ticks", unit=tick_seconds),
        "system_cpus": change.per_second("system_ticks", unit=tick_seconds),
        "threads": now["threads"],
        "descriptors": now.get("descriptors"),
        "major_faults_per_second": change.per_second("major_faults"),
        "requested_read_bytes_per_second": change.per_second("rchar"),
        "requested_written_bytes_per_second": change.per_second("wchar"),
        "read_calls_per_second": change.per_second("syscr"),
        "read_bytes_per_second": change.per_second("read_bytes"),
        "written_bytes_per_second": change.per_second("write_bytes"),
        # Read-ahead and mapped files can make it negative: then there were no hits.
        "cache_hit_ratio": None if missed is None else max(1 - missed, 0.0),
    }
