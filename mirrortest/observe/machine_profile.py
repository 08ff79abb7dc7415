"""A machine's profile: processors, memory, disks, file systems, kernel, limits, clock, Java."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrortest.config.redaction import command_without_secrets
from mirrortest.observe import memory
from mirrortest.observe.readable_files import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirrortest.observe.readable_files import ReadableFiles

Profile = dict[str, Any]

_SETTINGS = (
    "kernel/numa_balancing", "kernel/sched_autogroup_enabled",
    "net/core/rmem_max", "net/core/somaxconn", "net/core/wmem_max",
    "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem",
    "vm/dirty_background_ratio", "vm/dirty_expire_centisecs", "vm/dirty_ratio",
    "vm/dirty_writeback_centisecs", "vm/max_map_count", "vm/overcommit_memory", "vm/swappiness",
)  # fmt: skip
"""Kernel settings below /proc/sys that Kafka's documentation and operators of brokers set."""
_HUGE_PAGES = "kernel/mm/transparent_hugepage/enabled"
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_QUEUE = ("rotational", "scheduler", "read_ahead_kb", "nr_requests", "write_cache")
_SECTOR = 512
_ESCAPED = re.compile(r"\\([0-7]{3})")


def processors(text: str) -> Profile:
    """The processors of /proc/cpuinfo: their number, model and flags."""
    found = [
        (name.strip(), value.strip())
        for name, _, value in (line.partition(":") for line in text.splitlines())
    ]
    first = dict(reversed(found))
    return {
        "count": sum(name == "processor" for name, _ in found),
        "model": first.get("model name", ""),
        "flags": sorted(first.get("flags", first.get("Features", "")).split()),
    }


def limits(text: str) -> dict[str, str]:
    """The soft limits of /proc/PID/limits."""
    rows = (re.split(r" {2,}", line) for line in text.splitlines()[1:])
    return {row[0].removeprefix("Max ").strip(): row[1] for row in rows if len(row) > 1}


def mounts(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Device, mount point, type and options of each mount of a disk, tmpfs or overlay."""
    for line in text.splitlines():
        words = [_ESCAPED.sub(lambda each: chr(int(each[1], 8)), word) for word in line.split()]
        if len(words) >= 4 and (words[0].startswith("/") or words[2] in {"tmpfs", "overlay"}):
            yield words[0], words[1], words[2], words[3]


def read_profile(files: ReadableFiles, pids: Iterable[int]) -> Profile:
    """This machine's profile, with the limits and commands of these processes.

    Entries that cannot be read are empty or left out.
    """
    system = os.uname()
    sizes = memory.parse(files.read("meminfo"))
    return {
        "host": system.nodename,
        "kernel": {"release": system.release, "version": system.version, "machine": system.machine},
        "processors": processors(files.read("cpuinfo")),
        "memory_bytes": sizes.get("MemTotal", 0) * 1024,
        "swap_bytes": sizes.get("SwapTotal", 0) * 1024,
        "huge_pages": sizes.get("HugePages_Total", 0),
        "transparent_huge_pages": files.setting(files.sys, _HUGE_PAGES),
        "clock_source": files.setting(files.sys, _CLOCK_SOURCE),
        "settings": {name: files.setting(files.proc / "sys", name) for name in _SETTINGS},
        "disks": dict(_disks(files)),
        "file_systems": list(_file_systems(files)),
        "processes": {
            str(pid): found for pid in pids if (found := _process(files, pid)) is not None
        },
    }


def changes(before: object, now: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """The differences of two profiles: the path (``settings.vm/swappiness``) and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from changes(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif before != now:
        yield path, before, now


def _disks(files: ReadableFiles) -> Iterator[tuple[str, Profile]]:
    for name in sorted(files.disks()):
        folder = f"block/{name.replace('/', '!')}"
        sectors = int(files.setting(files.sys, f"{folder}/size") or 0)
        if sectors:  # a loop device may have no disk behind it
            queue = {each: files.setting(files.sys, f"{folder}/queue/{each}") for each in _QUEUE}
            yield name, {"bytes": sectors * _SECTOR, **queue}


def _file_systems(files: ReadableFiles) -> Iterator[Profile]:
    for device, mount, kind, options in mounts(files.read("self/mounts")):
        try:
            size = shutil.disk_usage(mount).total
        except OSError:
            continue  # it is another user's
        yield {"device": device, "mount": mount, "type": kind, "options": options, "bytes": size}


def _process(files: ReadableFiles, pid: int) -> Profile | None:
    """A process's command, limits and Java; None if it has ended."""

    def read(name: str) -> str:
        return files.of_process(pid, name, f"process {pid}", read_text) or ""

    command = read("cmdline").rstrip("\0")
    if not command:
        return None
    found: Profile = {
        "command": command_without_secrets(command.split("\0")),
        "limits": limits(read("limits")),
    }
    executable = files.of_process(pid, "exe", f"process {pid}", os.readlink)
    if executable and (java := Path(executable)).name == "java":
        # Next to its bin folder a Java runtime has a file with its version.
        found["java"] = java_release(files.setting(java.parent.parent, "release"))
    return found


def java_release(text: str) -> dict[str, str]:
    """The version and the vendor in the file `release` of a Java runtime."""
    values = {
        name: value.strip('"')
        for name, _, value in (line.partition("=") for line in text.splitlines())
    }
    return {
        name.lower(): values[name]
        for name in ("JAVA_VERSION", "JAVA_RUNTIME_VERSION", "IMPLEMENTOR")
        if name in values
    }
