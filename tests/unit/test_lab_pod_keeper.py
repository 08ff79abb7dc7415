"""The keeper of a pod's files: it prints them, outlives the client, and sends it signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mirrortest.lab.kubernetes import keeper
from tests.lab.harness import until


def test_the_keeper_prints_what_is_replaced_until_it_is_killed(tmp_path: Path) -> None:
    """SIGTERM, which a drained pod gets, does not end it: its files can still be fetched."""
    file = tmp_path / "status.json"
    file.write_text("one\n")
    command = [sys.executable, "-m", keeper.MODULE, "hold", str(tmp_path / "none"), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline()) == {"file": str(file), "text": "one\n"}
            process.terminate()
            file.write_text("two\n")
            assert json.loads(process.stdout.readline())["text"] == "two\n"
        finally:
            process.kill()


PROGRAM = """
import subprocess, sys, threading
threading.Thread(target=threading.Event().wait).start()
subprocess.run([sys.executable, "-c", "import signal; signal.pause()"])
"""


def test_the_keeper_s_signal_stops_every_thread_and_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are stopped before it returns; if the client has ended, it exits with one line."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, process_group=0) as process:
        client = psutil.Process(process.pid)
        try:
            until(lambda: client.num_threads() == 2 and client.children())
            monkeypatch.setattr(keeper, "_client", lambda _: process.pid)
            keeper.main(["signal", str(int(signal.SIGSTOP)), "file"])
            (worker,) = client.children()
            threads = [*Path("/proc").glob(f"{client.pid}/task/*/stat")]
            threads += Path("/proc").glob(f"{worker.pid}/task/*/stat")
            assert [each.read_text().split()[2] for each in threads] == ["T"] * 3
            keeper.main(["signal", str(int(signal.SIGCONT)), "file"])
            until(lambda: worker.status() != psutil.STATUS_STOPPED)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="the client has ended"):
        keeper.main(["signal", "15", "no process has this argument"])
