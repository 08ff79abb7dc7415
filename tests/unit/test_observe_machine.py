"""Figures of /proc, from two readings of its files, which are a real machine's, shortened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import structlog

from mirrortest.model.observed import DEVICE, HOST, INTERFACE, PROCESS
from mirrortest.observe.machine import Machine
from mirrortest.observe.processes import Processes
from mirrortest.observe.readable_files import ReadableFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST = {
    "proc/stat": "cpu  1000 100 500 8000 200 50 50 100 30 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    "intr 5000 1 2 3\nctxt 90000\nprocesses 700\nprocs_running 5\nprocs_blocked 1\n",
    "proc/meminfo": "MemTotal:  1000 kB\nMemAvailable:  700 kB\nCached:  300 kB\nDirty:  5 kB\n"
    "Writeback:  1 kB\nSwapTotal:  100 kB\nSwapFree:  90 kB\nHugePages_Total:  0\n",
    "proc/vmstat": "pswpin 10\npswpout 20\npgmajfault 30\n",
    "proc/diskstats": " 254 0 vda 100 20 800 50 200 100 4000 400 0 1000 900 0 0 0 0 5 10\n"
    " 254 1 vda1 90 20 700 50 200 100 4000 400 0 1000 900 0 0 0 0 0 0\n"
    " 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    "proc/net/dev": "Inter-|   Receive |  Transmit\n face |bytes packets\n"
    "    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    "  eth0: 1000 10 1 2 0 0 0 0 500 5 0 0 0 0 0 0\n",
    "proc/net/snmp": "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\n"
    "Tcp: 1 -1 100 10 0\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0 avg300=0 total=1000000\n",
    "proc/pressure/io": "some avg10=1.00 total=10\nfull avg10=0.63 total=99\n",
}
SECOND = FIRST | {
    "proc/stat": "cpu  1070 110 530 8050 220 55 55 110 30 0\nintr 5400 1 2\nctxt 90800\n"
    "processes 702\nprocs_running 2\nprocs_blocked 0\n",
    "proc/vmstat": "pswpin 12\npswpout 20\npgmajfault 40\n",
    "proc/diskstats": " 254 0 vda 110 30 1000 60 240 260 4800 500 3 2500 2900 0 0 0 0 7 16\n",
    "proc/net/dev": "  eth0: 3000 20 2 4 0 0 0 0 900 9 1 0 0 0 0 0\n",
    "proc/net/snmp": "Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs\nTcp: 1 -1 140 14 2\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0 avg300=0 total=2000000\n",
    "proc/pressure/io": "some avg10=1.00 total=500010\n",
}


class Clock:
    """A monotonic clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path) -> ReadableFiles:
    (tmp_path / "sys/block/vda").mkdir(parents=True)
    return ReadableFiles(tmp_path / "proc", tmp_path / "sys")


def place(files: ReadableFiles, texts: Mapping[str, str]) -> None:
    """Write files below the directory of /proc and /sys."""
    for name, text in texts.items():
        path = files.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def two_readings(
    files: ReadableFiles, clock: Clock, second: Mapping[str, str] = SECOND
) -> dict[Any, list[dict[str, Any]]]:
    """The rows of a machine, two seconds after the first reading."""
    machine = Machine(files, 4096, clock)
    place(files, FIRST)
    assert machine.rows() == {}
    place(files, second)
    clock.now += 2
    return machine.rows()


def test_the_hosts_figures(files: ReadableFiles, clock: Clock) -> None:
    """All CPUs together have 200 ticks; user time includes guests'; a page has 4096 bytes."""
    (host,) = two_readings(files, clock)[HOST]
    assert host == pytest.approx(
        {
            "cpu_ratio": 120 / 200,
            "user_ratio": 80 / 200,
            "system_ratio": 40 / 200,
            "io_wait_ratio": 20 / 200,
            "steal_ratio": 10 / 200,
            "idle_ratio": 50 / 200,
            "context_switches_per_second": 400,
            "interrupts_per_second": 200,
            "forks_per_second": 1,
            "running": 2,
            "blocked": 0,
            "cpu_pressure_ratio": 0.5,
            "io_pressure_ratio": 0.25,
            "memory_pressure_ratio": None,
            "memory_bytes": 1000 * 1024,
            "available_bytes": 700 * 1024,
            "page_cache_bytes": 300 * 1024,
            "dirty_bytes": 6 * 1024,
            "swap_used_bytes": 10 * 1024,
            "swap_in_bytes_per_second": 4096,
            "swap_out_bytes_per_second": 0,
            "major_faults_per_second": 5,
            "tcp_sent_segments_per_second": 20,
            "tcp_retransmits_per_second": 2,
            "tcp_receive_errors_per_second": 1,
        }
    )


def test_a_disks_figures(files: ReadableFiles, clock: Clock) -> None:
    """Partitions, and devices that were never used, are left out."""
    (device,) = two_readings(files, clock)[DEVICE]
    assert device == pytest.approx(
        {
            "device": "vda",
            "reads_per_second": 5,
            "writes_per_second": 20,
            "flushes_per_second": 1,
            "read_bytes_per_second": 100 * 512,
            "written_bytes_per_second": 400 * 512,
            "read_merge_ratio": 0.5,
            "write_merge_ratio": 0.8,
            "read_seconds": 0.001,
            "write_seconds": 0.0025,
            "flush_seconds": 0.003,
            "response_seconds": 0.0022,
            "queue": 1.0,
            "waiting": 0.25,
            "active": 3,
            "busy_ratio": 0.75,
        }
    )


def test_an_interfaces_figures(files: ReadableFiles, clock: Clock) -> None:
    """Errors and drops are sums of both directions."""
    (interface,) = two_readings(files, clock)[INTERFACE]
    assert interface == pytest.approx(
        {
            "interface": "eth0",
            "received_bytes_per_second": 1000,
            "sent_bytes_per_second": 200,
            "received_packets_per_second": 5,
            "sent_packets_per_second": 2,
            "errors_per_second": 1,
            "dropped_per_second": 1,
        }
    )


def test_figures_are_those_of_the_table(files: ReadableFiles, clock: Clock) -> None:
    """Each column has its figure, and no figure lacks its column."""
    for table, rows in two_readings(files, clock).items():
        expected = [each.name for each in (*table.keys, *table.figures)]
        for row in rows:
            assert sorted(row) == sorted(expected)


def test_a_counter_that_fell_gives_no_figure(files: ReadableFiles, clock: Clock) -> None:
    """The counters of a replaced device start again: no rate is negative."""
    fallen = SECOND | {
        "proc/diskstats": " 254 0 vda 1 0 8 1 240 260 4800 500 3 2500 2900 0 0 0 0 7 16\n"
    }
    (device,) = two_readings(files, clock, fallen)[DEVICE]
    assert device["reads_per_second"] is None
    assert device["response_seconds"] is None
    assert device["writes_per_second"] == 20


def test_nothing_written_has_no_merge_ratio_and_no_response_time(
    files: ReadableFiles, clock: Clock
) -> None:
    """They are unknown, not zero."""
    (device,) = two_readings(files, clock, FIRST)[DEVICE]
    assert device["write_merge_ratio"] is None
    assert device["response_seconds"] is None
    assert device["busy_ratio"] == 0


def test_what_cannot_be_read_is_left_out_and_noted_once(files: ReadableFiles, clock: Clock) -> None:
    """Here the system has no file for memory pressure."""
    place(files, FIRST)
    machine = Machine(files, 4096, clock)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            machine.rows()
    assert files.left_out == {"pressure/memory": "this system has no such file"}
    assert [(line["what"], line["why"]) for line in logged] == [*files.left_out.items()]


# -- processes ------------------------------------------------------------------------------------


IO = "rchar: {}\nwchar: {}\nsyscr: 1\nsyscw: 1\nread_bytes: {}\nwrite_bytes: {}\n"


def process(pid: int, line: str, stat: str, io: str = IO.format(0, 0, 0, 0)) -> dict[str, str]:
    """A process's files; `stat` is the text after its name."""
    return {
        f"proc/{pid}/cmdline": line.replace(" ", "\0"),
        f"proc/{pid}/stat": f"{pid} (a (java) b) {stat}",
        f"proc/{pid}/fd/0": "",
        f"proc/{pid}/io": io,
    }


def stat(user: int, system: int, started: int, faults: int = 0) -> str:
    return f"S 1 1 1 0 -1 0 0 0 {faults} 0 {user} {system} 0 0 20 0 42 0 {started} 5000 10 9 0 0"


@pytest.fixture
def processes(files: ReadableFiles, clock: Clock) -> Processes:
    files.proc.mkdir()
    return Processes(
        files,
        matches=["kafka.Kafka", "Mirror"],
        tick_seconds=0.01,
        page_bytes=4096,
        monotonic=clock,
    )


def test_a_processs_figures(files: ReadableFiles, clock: Clock, processes: Processes) -> None:
    """Its reads returned 4000 bytes, of which 1000 came from a disk."""
    place(files, process(7, "java kafka.Kafka a", stat(100, 50, 9)))
    place(files, process(8, "cat notes", stat(100, 50, 9)))
    assert processes.rows() == []
    place(
        files,
        process(
            7,
            "java kafka.Kafka a",
            stat(400, 150, 9, 4),
            io=IO.format(4000, 600, 1000, 400).replace("syscr: 1", "syscr: 9"),
        ),
    )
    clock.now += 2
    assert processes.unmatched == ["Mirror"]
    (row,) = processes.rows()
    descriptors = row.pop("descriptors")  # depends on the file system of the fake /proc
    assert isinstance(descriptors, int)
    assert row == pytest.approx(
        {
            "process": "kafka.Kafka",
            "pid": 7,
            "virtual_bytes": 5000,
            "resident_bytes": 10 * 4096,
            "cpus": 2.0,
            "user_cpus": 1.5,
            "system_cpus": 0.5,
            "threads": 42,
            "major_faults_per_second": 2,
            "requested_read_bytes_per_second": 2000,
            "requested_written_bytes_per_second": 300,
            "read_calls_per_second": 4,
            "read_bytes_per_second": 500,
            "written_bytes_per_second": 200,
            "cache_hit_ratio": 0.75,
        }
    )
    assert {*row, "descriptors"} == {each.name for each in (*PROCESS.keys, *PROCESS.figures)}


def test_another_process_of_the_same_pid_begins_anew(
    files: ReadableFiles, clock: Clock, processes: Processes
) -> None:
    """Its start time differs; the former process's usage does not count."""
    place(files, process(7, "java kafka.Kafka a", stat(500, 50, 9)))
    processes.rows()
    place(files, process(7, "java kafka.Kafka a", stat(900, 50, 10)))
    clock.now += 2
    assert processes.rows() == []


def test_a_program_that_replaces_its_start_script_late_is_found(
    files: ReadableFiles, clock: Clock, processes: Processes
) -> None:
    """As in containers whose start script waits before its exec: the pid stays the same."""
    place(files, process(7, "bash /etc/run", stat(0, 0, 9)))
    for _ in range(10):
        clock.now += 1
        assert processes.rows() == []
    place(files, process(7, "java kafka.Kafka a", stat(0, 0, 9)))
    found = []
    for _ in range(16):
        clock.now += 1
        found += processes.rows()
    assert {row["process"] for row in found} == {"kafka.Kafka"}


def test_a_real_process_is_found_by_its_command_line_until_it_ends() -> None:
    """Its row has its pid, one thread and its descriptors; after its end, there is no row.

    This process and its ancestors are not found, not even by their own command lines.
    """
    program = "import sys; print('runs', flush=True); sys.stdin.read()  # observed-by-the-test"
    own = [psutil.Process(), *psutil.Process().parents()]
    lines = [line for each in own if (line := " ".join(each.cmdline()))]
    found = Processes(
        ReadableFiles(),
        matches=["observed-by-the-test", *lines],
        tick_seconds=0.01,
        page_bytes=4096,
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"runs\n"
        found.rows()
        rows = {row["process"]: row for row in found.rows()}
        row = rows["observed-by-the-test"]
        assert row["pid"] == child.pid
        assert not {each.pid for each in own} & {*found.chosen}
        assert row["threads"] == 1
        assert isinstance(row["descriptors"], int)
        assert row["descriptors"] >= 3
        child.communicate()
    found.rows()
    assert child.pid not in found.chosen


def test_a_process_named_by_its_pid_is_called_by_its_command() -> None:
    """Even this process, which no text matches, is observed by its pid."""
    found = Processes(ReadableFiles(), pids=[os.getpid()], tick_seconds=0.01, page_bytes=4096)
    found.rows()
    (row,) = found.rows()
    assert row["pid"] == os.getpid()
    assert row["process"] == Path("/proc/self/comm").read_text().strip()


@pytest.mark.parametrize("name", ["io", "fd"])
def test_a_refusal_is_noted_once_and_the_rest_is_observed(
    files: ReadableFiles,
    clock: Clock,
    processes: Processes,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another user's process shows its CPU, but neither its I/O nor its descriptors."""
    place(files, process(7, "java kafka.Kafka a", stat(100, 50, 9)))
    allowed = files.of_process

    def refused(pid: int, file: str, of: str, read: Any) -> Any:
        def read_refused(path: str) -> Any:
            if file == name:
                raise PermissionError(13, "Permission denied")
            return read(path)

        return allowed(pid, file, of, read_refused)

    monkeypatch.setattr(files, "of_process", refused)
    with structlog.testing.capture_logs() as logged:
        processes.rows()
        clock.now += 1
        (row,) = processes.rows()
    assert row["cpus"] == 0
    missing = {"io": "read_bytes_per_second", "fd": "descriptors"}[name]
    assert row[missing] is None
    assert files.left_out == {
        f"{name} of kafka.Kafka": "no permission: observe as its user or as root"
    }
    assert [(line["what"], line["why"]) for line in logged] == [*files.left_out.items()]
