"""The keeper of a pod's files: it prints them, outlives the client, and sends it signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

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


def test_the_keeper_s_signal_stops_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stopped before it returns; if the client has ended, it exits with one line."""
    program = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            tasks = Path(f"/proc/{process.pid}/task")
            until(lambda: len(list(tasks.iterdir())) == 2)
            monkeypatch.setattr(keeper, "_client", lambda _: process.pid)
            keeper.main(["signal", str(int(signal.SIGSTOP)), "file"])
            assert {(task / "stat").read_text().split()[2] for task in tasks.iterdir()} == {"T"}
        finally:
            process.kill()
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="the client has ended"):
        keeper.main(["signal", "15", "no process has this argument"])
