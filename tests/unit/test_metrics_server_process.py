"""A busy process's metrics, served by a child: correct, fresh, and never left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import psutil
import pytest
import structlog

from mirrortest.errors import UsageError
from mirrortest.lab.free_ports import free_ports
from mirrortest.metrics import names, server_process
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.endpoint import MetricsEndpoint
from mirrortest.metrics.health import Health, Probes
from mirrortest.metrics.server_process import ServerProcess, serve_in_child
from mirrortest.metrics.snapshot import (
    LatestSnapshot,
    Snapshot,
    SnapshotPages,
    SnapshotSender,
)
from tests.lab.harness import until
from tests.lifetime import end_with_parent
from tests.unit.statuses import producing_badly

_ADDRESS = "127.0.0.1"
_SERVES = """
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.health import Health
from mirrortest.metrics.server_process import ServerProcess
server = ServerProcess(Metrics(), address="127.0.0.1", port=0, health=Health(90))
print(server._process.pid, server.port, flush=True)
input()
"""


def ask(port: int, path: str = "/metrics", accept: str = "") -> tuple[int, str]:
    """The status and body of a real HTTP response."""
    request = urllib.request.Request(f"http://{_ADDRESS}:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def ended(process: psutil.Process) -> bool:
    """Whether a process has ended (or is a zombie)."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def serving(metrics: Metrics, health: Health | None = None) -> ServerProcess:
    """A server on a free port."""
    return ServerProcess(metrics, address=_ADDRESS, port=0, health=health or Health(90))


def test_what_changes_is_served_soon() -> None:
    """Values, probes, and the operating system's figures of this process, not of the server."""
    metrics, health = Metrics(), Health(90)
    steps = metrics.counter(names.CLOCK_STEPS)
    with serving(metrics, health) as server:
        assert "mirrortest_clock_steps_total 0.0" in ask(server.port)[1]
        assert [ask(server.port, path)[0] for path in ("/startup", "/ready", "/live", "/")] == [
            503, 503, 200, 404,
        ]  # fmt: skip
        steps.add(3)
        health.started = health.ready = True
        until(lambda: "mirrortest_clock_steps_total 3.0" in ask(server.port)[1])
        assert [ask(server.port, path)[0] for path in ("/startup", "/ready")] == [200, 200]
        began = f"{psutil.Process().create_time():.0f}"
        (sample,) = [
            line
            for line in ask(server.port)[1].splitlines()
            if line.startswith("process_start_time_seconds")
        ]
        assert f"{float(sample.split()[1]):.0f}" == began


def test_the_status_is_served_as_json() -> None:
    """As in --status-file; 503 before there is one, and None if it is no longer fresh."""
    health, status = Health(90), producing_badly()
    with serving(Metrics(), health) as server:
        assert ask(server.port, "/status")[0] == 503
        health.status = status
        until(lambda: ask(server.port, "/status")[0] == 200)
        assert json.loads(ask(server.port, "/status")[1]) == status.document().model_dump()
    latest = LatestSnapshot(iter([0.0, 1.0, 60.0]).__next__)
    latest.take(Snapshot((), Probes.of(health)))
    assert latest.status == status
    assert latest.status is None


def test_a_server_that_is_killed_is_started_again() -> None:
    """It uses the same port, on which requests wait meanwhile."""
    with serving(Metrics()) as server:
        first = server._process.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: server._process.pid != first)
        assert ask(server.port)[0] == 200


def test_a_server_that_cannot_be_started_again_is_tried_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine may be unable to start a process for a while; each failed try is logged."""
    monkeypatch.setattr(server_process, "_RETRY_SECONDS", 0.01)
    popen, refusals = subprocess.Popen, [BlockingIOError(11, "Resource unavailable")] * 2

    def start(*words: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return popen(*words, **options)

    with structlog.testing.capture_logs() as logged, serving(Metrics()) as server:
        first = server._process.pid
        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", start)
            os.kill(first, signal.SIGKILL)
            until(lambda: server._process.pid != first)
        assert ask(server.port)[0] == 200
    assert [each["event"].partition(":")[0] for each in logged] == [
        "the metrics server was killed",
        *["the metrics server cannot be started, trying again"] * 2,
    ]


def test_metrics_that_could_not_be_sent_once_are_sent_later() -> None:
    """A snapshot that cannot be pickled is logged, and the thread goes on."""
    stopped, sent = threading.Event(), list[Snapshot]()
    refusals: list[Exception] = [TypeError("cannot be pickled")]

    def send(snapshot: Snapshot) -> None:
        if refusals:
            raise refusals.pop()
        sent.append(snapshot)
        stopped.set()

    with structlog.testing.capture_logs() as logged:
        SnapshotSender(Metrics(), Health(90)).run(send, stopped)
    assert len(sent) == len(logged) == 1


def test_metrics_that_could_not_be_collected_once_are_served_later() -> None:
    """They are read while others write them: an error is logged, and the read is repeated."""
    metrics, refusals = Metrics(), iter([ZeroDivisionError()])

    def bound() -> float:
        for refusal in refusals:
            raise refusal
        return 5.0

    metrics.gauge(names.CLOCK_ERROR).read_by(bound)
    with structlog.testing.capture_logs() as logged, serving(metrics) as server:
        assert f"{names.CLOCK_ERROR.name} 5.0" in ask(server.port)[1]
    assert [each["event"] for each in logged] == ["the metrics could not be collected"]


@pytest.mark.parametrize("stopped", [False, True])
def test_stopping_ends_the_server_and_frees_the_port(stopped: bool) -> None:
    """It takes effect at once, can be repeated, and works on a frozen server, too."""
    server = serving(Metrics())
    assert ask(server.port)[0] == 200
    process = psutil.Process(server._process.pid)
    if stopped:
        process.suspend()
    server.stop()
    server.stop()
    assert not process.is_running()
    with ServerProcess(Metrics(), address=_ADDRESS, port=server.port, health=Health(90)) as again:
        assert ask(again.port)[0] == 200


def test_a_server_ends_with_whom_it_serves_and_hears_no_ctrl_c() -> None:
    """It ends however its parent ends; Ctrl-C reaches the terminal's session, not its own."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # one call of C, no lock in it
    ) as served:
        assert served.stdout is not None
        pid, port = map(int, served.stdout.readline().split())
        assert ask(port)[0] == 200
        server = psutil.Process(pid)
        assert os.getsid(pid) != os.getsid(served.pid)
        served.kill()
        until(lambda: ended(server))


def test_a_taken_port_is_a_usage_error() -> None:
    """The error comes before a process is started; port zero is off."""
    (port,) = free_ports(1)
    refused = pytest.raises(UsageError, match=f"--metrics-port {port}")
    with socket.create_server((_ADDRESS, port)), refused:
        serve_in_child(Metrics(), address=_ADDRESS, port=port, health=Health(90))
    assert serve_in_child(Metrics(), address=_ADDRESS, port=0, health=Health(90)) is None


def test_who_stands_still_is_not_well() -> None:
    """An old snapshot is not served, and no probe passes, as if the process did not answer."""
    now = [100.0]
    latest = LatestSnapshot(lambda: now[0])
    assert not latest.fresh
    assert not list(latest.collect())
    pages = SnapshotPages(latest)
    with MetricsEndpoint(pages, health=latest) as endpoint:

        def answers() -> list[int]:
            return [ask(endpoint.port, at)[0] for at in ("/metrics", "/startup", "/ready", "/live")]

        assert answers() == [503, 503, 503, 503]
        pages.take(Snapshot(list(Metrics().collect()), Probes(started=True, alive=True)))
        assert answers() == [200, 200, 503, 200]
        assert "mirrortest_build_info" in ask(endpoint.port)[1]
        now[0] += 11
        assert answers() == [503, 503, 503, 503]
        pages.take(Snapshot([], Probes(started=True, ready=True, alive=True)))
        assert answers() == [200, 200, 200, 200]


def test_each_form_that_is_asked_for_is_what_was_told_last() -> None:
    """Whatever was rendered before; and of many different requests, few pages are kept."""
    metrics, latest = Metrics(), LatestSnapshot()
    rows, pages = metrics.counter(names.LOG_ROWS), SnapshotPages(latest)
    with MetricsEndpoint(pages, health=latest) as endpoint:
        for value in (1, 2, 3):
            rows.add()
            pages.take(Snapshot(list(metrics.collect()), Probes()))
            text = ask(endpoint.port)[1]
            open_metrics = ask(endpoint.port, accept="application/openmetrics-text")[1]
            assert f"mirrortest_log_rows_total {value}.0\n" in text
            assert f"mirrortest_log_rows_total {value}.0\n" in open_metrics
            assert open_metrics.endswith("# EOF\n")
            assert not text.endswith("# EOF\n")
        for each in range(20):
            assert "log_rows_total 3.0" in ask(endpoint.port, f"/metrics?new={each}")[1]
        assert 0 < len(pages._pages) <= 4
