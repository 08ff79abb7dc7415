"""The worker processes of a command: their messages, metrics and end; none outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrortest.errors import ClusterError, WorkerError
from mirrortest.metrics import snapshot
from mirrortest.metrics.endpoint import MetricsEndpoint
from mirrortest.workers.worker_metrics import PoolMetrics
from mirrortest.workers.worker_pool import WorkerPool
from tests.lab.harness import until
from tests.unit import worker_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.workers.worker_pool import Worker
    from tests.unit.worker_jobs import AllReported


def crew(
    job: Callable[..., Any],
    shares: list[int | str],
    on_progress: Callable[..., Any] | AllReported = lambda _: None,
) -> WorkerPool:
    return WorkerPool(job, shares, prepare=worker_jobs.quiet, on_progress=on_progress)


def pid_of(worker: Worker) -> int:
    assert worker.pid is not None
    return worker.pid


def stopped(pid: int) -> None:
    """Wait until a process that got SIGSTOP has stopped, with all its threads."""
    deadline = time.monotonic() + 60
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answer(url: str) -> tuple[int, str]:
    """The status and the text of a response."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


async def test_workers_work_their_shares_until_all_are_told_to_end() -> None:
    """Each process has its own share; one endpoint serves all; signals do not end them."""
    stop, reported = asyncio.Event(), worker_jobs.AllReported(2)
    async with crew(worker_jobs.until_stopped, [1, 2], reported) as hands:
        await reported.wait()
        assert [worker.progress for worker in hands.workers] == [
            (worker.pid, worker.number) for worker in hands.workers
        ]
        metrics = PoolMetrics(hands, lambda: None)
        await asyncio.to_thread(until, lambda: metrics.alive)
        with MetricsEndpoint(metrics, health=metrics, own_process=False) as endpoint:
            address = f"http://127.0.0.1:{endpoint.port}"
            status, text = await asyncio.to_thread(answer, f"{address}/metrics")
            ready, _ = await asyncio.to_thread(answer, f"{address}/ready")
        assert (status, ready) == (200, 200)
        for worker in hands.workers:
            os.kill(pid_of(worker), signal.SIGINT)
            os.kill(pid_of(worker), signal.SIGTERM)
        stop.set()
        reports = await hands.ended(stop)
    assert [(r.pid, r.share) for r in reports] == [(w.pid, w.number) for w in hands.workers]
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    rows = {
        sample.labels["worker"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "mirrortest_log_rows_total"
    }
    assert rows == {"1": 1.0, "2": 2.0}
    processes = [family for family in families if family.name == "process_resident_memory_bytes"]
    assert [sample.labels["worker"] for sample in processes[0].samples] == ["1", "2"]


async def test_a_crew_that_cannot_be_completed_leaves_nobody_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the second worker cannot be started, the first one is killed, and the error says why."""
    started: list[int] = []
    start = SpawnProcess.start

    def only_one(process: SpawnProcess) -> None:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start(process)
        assert process.pid is not None
        started.append(process.pid)

    monkeypatch.setattr(SpawnProcess, "start", only_one)
    reported = worker_jobs.AllReported(2)
    with pytest.raises(WorkerError, match=r"worker 2 cannot be started: .*unavailable"):
        async with crew(worker_jobs.until_stopped, [1, 2], reported):
            raise AssertionError("it has a worker too few")
    assert not psutil.pid_exists(started[0])


async def test_all_are_ready_only_when_each_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker that is not ready makes all not ready; one that is stopped, all not alive."""
    reported = worker_jobs.AllReported(2)
    async with crew(worker_jobs.until_stopped, [1, 3], reported) as hands:
        await reported.wait()
        metrics = PoolMetrics(hands, lambda: None)
        monkeypatch.setattr(snapshot, "_FRESH_SECONDS", 60)
        await asyncio.to_thread(until, lambda: metrics.alive and metrics.started)
        assert not metrics.ready
        first = pid_of(hands.workers[0])
        os.kill(first, signal.SIGSTOP)
        await asyncio.to_thread(stopped, first)
        monkeypatch.setattr(snapshot, "_FRESH_SECONDS", 3)
        await asyncio.to_thread(until, lambda: not metrics.alive)
        # The pool's exit kills all that still run, stopped ones too.
    assert not any(worker._process.is_alive() for worker in hands.workers)


@pytest.mark.parametrize(
    ("share", "error", "reported"),
    [
        ("refuse", ClusterError, "the brokers refuse"),
        ("die", WorkerError, "worker 1 died: ended by SIGKILL"),
        ("leave", WorkerError, "worker 1 died: exit code 7"),
        ("mumble", WorkerError, "worker 1 died: ended by SIGKILL"),
    ],
)
async def test_one_that_fails_is_told_and_ends_all(
    share: str, error: type[ClusterError | WorkerError], reported: str
) -> None:
    """The others drain and report; the error says what happened to the first."""
    async with crew(worker_jobs.first_falls, [share, ""]) as hands:
        first, second = await hands.ended(asyncio.Event())
        assert isinstance(first, error)
        assert reported in str(first)
        assert second.share == 0
        assert not list(PoolMetrics(hands, lambda: None).collect())


async def test_one_that_reports_an_error_ends_all() -> None:
    """A report with an error is a failure, too."""
    async with crew(worker_jobs.first_falls, ["report", ""]) as hands:
        first, second = await hands.ended(asyncio.Event())
    assert str(first.error) == "it ended early"
    assert second.error is None


def test_a_command_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    """No worker outlives the command's process, even if that is killed."""
    file = tmp_path / "pids"
    command = subprocess.Popen([sys.executable, worker_jobs.__file__, str(file)], cwd=Path.cwd())
    try:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert command.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        workers = [psutil.Process(int(pid)) for pid in file.read_text().split()]
        assert len(workers) == 2
    finally:
        command.kill()
        command.wait()
    ended, alive = psutil.wait_procs(workers, timeout=60)
    assert (len(ended), alive) == (2, [])
