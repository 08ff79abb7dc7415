"""One command and its cost: wall time, CPU time and peak memory of its process tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EVERY_SECONDS = 0.2
_LOOK_SECONDS = 5.0
_GROWN = 1.05
"""Measuring what processes share walks through all their pages. Doing that every time took a tenth
of two cores, so it is done when resident memory has grown by this factor, or after some seconds."""


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes; `failed` is the reason why there is no result, None if there is one."""

    wall: float
    cpu: float
    peak: int
    failed: str | None = None


def run(
    command: Sequence[str],
    folder: Path,
    *,
    limit: int,
    seconds: float,
    spare_disk: int,
    fine: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Run a command in its own session; kill it above `limit` bytes or `seconds`.

    `environment` is added to this process's. `spare_disk` bytes must stay free in its folder.
    `fine` are the exit codes of a success.
    """
    began, peak, cpu, failed = time.monotonic(), 0, 0.0, None
    output = folder / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, cwd=folder, start_new_session=True,
            env={
                **os.environ, **(environment or {}),
                "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd()),
            },
        )  # fmt: skip
        seen: dict[int, float] = {}
        looked, before, memory = began, 0.0, 0
        while process.poll() is None and failed is None:
            resident, tree = 0, _tree(process.pid)
            for each in tree:
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    seen[each.pid] = times.user + times.system
                    resident += each.memory_info().rss
            if resident > _GROWN * before or time.monotonic() > looked + _LOOK_SECONDS:
                looked, before = time.monotonic(), resident
                memory = sum(_proportional(each.pid) for each in tree)
                peak = max(peak, memory)
            if memory > limit:
                failed = f"out of memory ({memory / 1e9:.1f} GB)"
            elif time.monotonic() - began > seconds:
                failed = f"timed out ({seconds:.0f} s)"
            elif psutil.disk_usage(str(folder)).free < spare_disk:
                failed = "out of disk"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_EVERY_SECONDS)
        cpu = sum(seen.values())
        if failed is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for each in _tree(process.pid):
            with contextlib.suppress(psutil.Error):
                each.kill()
        process.wait()
    wall = time.monotonic() - began
    if failed is None and process.returncode not in fine:
        failed = _why(output.read_text(errors="replace"), process.returncode)
    return Cost(wall, cpu, peak, failed)


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _proportional(pid: int) -> int:
    """Proportional memory (PSS) of a process; 0 if it has ended."""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/smaps_rollup").open() as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")), 0)
    return 0


def _why(output: str, code: int) -> str:
    if "OutOfMemory" in output or "Out of Memory" in output or "java heap space" in output.lower():
        return "out of memory"
    last = (output.strip().splitlines() or ["no output"])[-1]
    return f"failed ({code}): {last[:200]}"
