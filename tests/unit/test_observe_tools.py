"""Figures compared with vmstat, iostat and pidstat, all since the machine's start.

Both read the same counters at almost the same time, so that such long-term figures agree.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mirrortest.observe import disk_stats, proc_stat, process_stat
from tests.tools import ToolMissingError
from tests.tools.debian import program

TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


def output(tool: str, package: str, *arguments: str) -> list[list[str]]:
    """The words of each line that the tool prints."""
    try:
        path = program(tool, package)
    except ToolMissingError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [path, *arguments],
        env={"LC_ALL": "C", "S_TIME_FORMAT": "ISO"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


def uptime() -> float:
    return float((PROC / "uptime").read_text().split()[0])


def none(counters: dict[str, int]) -> dict[str, int]:
    """The counters at the machine's start."""
    return dict.fromkeys(counters, 0)


def test_cpu_and_switches_are_vmstats() -> None:
    """Its first line covers the time since boot, in whole percents and per second."""
    lines = output("vmstat", "procps", "-n")
    theirs = dict(zip(lines[1], map(int, lines[2]), strict=True))
    now = proc_stat.parse((PROC / "stat").read_text())
    seconds = uptime()
    ours = proc_stat.figures(none(now), now, seconds)
    for column, name in {
        "us": "user_ratio",
        "sy": "system_ratio",
        "id": "idle_ratio",
        "wa": "io_wait_ratio",
        "st": "steal_ratio",
    }.items():
        assert 100 * (ours[name] or 0) == pytest.approx(theirs[column], abs=1.5), column
    # Versions of vmstat divide the rates of its first line differently: compare totals.
    totals = {" ".join(words[1:]): int(words[0]) for words in output("vmstat", "procps", "-s")}
    for what, name in {
        "CPU context switches": "context_switches_per_second",
        "interrupts": "interrupts_per_second",
        "forks": "forks_per_second",
    }.items():
        assert (ours[name] or 0) * seconds == pytest.approx(totals[what], rel=0.01), what


def test_disks_are_iostats() -> None:
    """Each device that it shows is compared; it prints two decimals."""
    lines = [line for line in output("iostat", "sysstat", "-dxk") if line]
    head = next(index for index, line in enumerate(lines) if line[0] == "Device")
    now = disk_stats.parse((PROC / "diskstats").read_text())
    compared = 0
    for values in lines[head + 1 :]:
        theirs: dict[str, Any] = dict(zip(lines[head][1:], map(float, values[1:]), strict=True))
        if values[0] not in now:
            continue
        ours = disk_stats.figures(none(now[values[0]]), now[values[0]], uptime())
        for column, name, factor in (
            ("r/s", "reads_per_second", 1),
            ("w/s", "writes_per_second", 1),
            ("f/s", "flushes_per_second", 1),
            ("rkB/s", "read_bytes_per_second", 1 / 1024),
            ("wkB/s", "written_bytes_per_second", 1 / 1024),
            ("%rrqm", "read_merge_ratio", 100),
            ("%wrqm", "write_merge_ratio", 100),
            ("r_await", "read_seconds", 1000),
            ("w_await", "write_seconds", 1000),
            ("f_await", "flush_seconds", 1000),
            ("%util", "busy_ratio", 100),
        ):
            value = (ours[name] or 0) * factor
            assert value == pytest.approx(theirs[column], rel=0.02, abs=0.02), column
        compared += 1
    if not compared:
        pytest.skip("this machine has no disk that iostat shows")


def test_a_process_is_pidstats_and_the_systems() -> None:
    """This process's sizes agree with pidstat, its CPU time since its start with the system."""
    pid = str(os.getpid())
    lines = output("pidstat", "sysstat", "-h", "-r", "-p", pid)
    head = next(line for line in lines if line[:2] == ["#", "Time"])
    theirs = dict(zip(head[1:], lines[lines.index(head) + 1], strict=False))
    _, now = process_stat.parse((PROC / pid / "stat").read_text())
    times = os.times()
    # Over one second, so that a rate equals the total.
    ours = process_stat.figures(none(now), now, 1.0, tick_seconds=TICK, page_bytes=PAGE)
    assert (ours["virtual_bytes"] or 0) / 1024 == pytest.approx(float(theirs["VSZ"]), rel=0.01)
    assert (ours["resident_bytes"] or 0) / 1024 == pytest.approx(float(theirs["RSS"]), rel=0.05)
    assert ours["user_cpus"] == pytest.approx(times.user, abs=3 * TICK)
    assert ours["system_cpus"] == pytest.approx(times.system, abs=3 * TICK)
