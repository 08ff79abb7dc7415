"""What all verbs share."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import structlog

from mirrortest.cli import console
from mirrortest.cli.live import LiveLines
from mirrortest.cli.log_output import configure_logging
from mirrortest.cli.options import named_after_host
from mirrortest.errors import MirrortestError
from mirrortest.wire.stream import checked_name


def test_what_is_not_installed_is_said_before_anything_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the extras that are missing, and only those."""
    there = {"jgo"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    console.require("lab")
    with pytest.raises(MirrortestError, match=r"pip install 'mirrortest\[report,spark\]'"):
        console.require("lab", "report", "spark")


@pytest.mark.parametrize("host", ["a" * 63, "db-1.example.org", "a b.c", "-", "", "münchen"])
def test_who_gives_no_name_gets_one_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Whatever the machine is called; with room for the number of a worker."""
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=host))
    for what in ("", "consumer-"):
        name = named_after_host(what)
        assert checked_name(f"{name}.1000").startswith(what)
        assert name.endswith(f"-{os.getpid()}")


@pytest.mark.parametrize(("columns", "wide"), [({}, True), ({"COLUMNS": "60"}, False)])
def test_results_that_go_into_a_pipe_are_not_folded(columns: dict[str, str], wide: bool) -> None:
    """Unless the environment says how wide they shall be."""
    show = "from mirrortest.cli.console import out; from rich.table import Table; out.print("
    show += "Table(*('a column of some width' for _ in range(6))))"
    command = [sys.executable, "-c", show]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    run = subprocess.run(
        command, env=environment | columns, capture_output=True, text=True, check=True
    )
    assert (run.stdout.count("a column of some width") == 6) is wide


def test_log_lines_stay_above_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger that was made before the display, as modules do, erases the line and repeats it."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("aiokafka"), "level", logging.NOTSET)
    configure_logging()
    terminal = console.SafeConsole(stderr=True, force_terminal=True, width=80, soft_wrap=True)
    with LiveLines(terminal) as live:
        live.show("17 read")
        live._live.refresh()  # type: ignore[union-attr]  # it is a terminal
        structlog.get_logger().warning("the broker restarts")
        logging.getLogger("library").warning("reconnected")
    written = stream.getvalue()
    for message in ("the broker restarts", "reconnected"):
        before, _, after = written.partition(message)
        # Erased since it was last drawn, and drawn again below the message.
        assert "\x1b[2K" in before.rpartition("17 read")[2]
        assert "\n" in after.partition("17 read")[0]
