"""Progress on a terminal and elsewhere: no output mixes with it, and nothing of it remains."""

from __future__ import annotations

import fcntl
import io
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

import pytest
from rich.text import Text

from mirrortest.cli.console import SafeConsole
from mirrortest.cli.live import BoardDisplay, ProgressDisplay, _Screen
from mirrortest.cli.options import Progress, ProgressMode
from mirrortest.errors import UsageError
from mirrortest.results.status_document import ConsumeDocument, ProduceDocument
from mirrortest.scenario.board import Board
from tests.lab.harness import until
from tests.unit.statuses import consuming, producing_badly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUN = """
import asyncio
import structlog
from dataclasses import replace
from mirrortest.cli import console
from mirrortest.cli.application import run_application
from mirrortest.cli.live import ProgressDisplay
from mirrortest.cli.log_output import configure_logging
from mirrortest.cli.options import Progress
from mirrortest.results.status_document import ConsumeDocument, ProduceDocument
from tests.unit.statuses import consuming, producing_badly

configure_logging()
log = structlog.get_logger()

async def main(stop):
    elapsed = 0
    while not stop.is_set():
        elapsed += 1
        display.show(replace(consuming(), elapsed_seconds=float(elapsed)))
        if elapsed % 5 == 0:
            log.warning("a line of the log", number=elapsed)
        await asyncio.sleep(0.05)

with ProgressDisplay(console.err, Progress()) as display:
    run_application(main)
console.out.print("run nightly, consumer c1: passed")
"""
"""A program that shows progress as `consume` does, logs meanwhile, and drains on an interrupt."""

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


@dataclass
class Screen:
    """A terminal's screen, emulated as far as the display needs it."""

    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    column: int = 0
    cursor_visible: bool = True

    def feed(self, text: str) -> Self:
        for parameters, command, control, printed in _TOKEN.findall(text):
            if printed:
                before = self.lines[self.row].ljust(self.column)
                after = before[self.column + len(printed) :]
                self.lines[self.row] = before[: self.column] + printed + after
                self.column += len(printed)
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif command == "A":
                self.row -= int(parameters or 1)
                assert self.row >= 0, "above the first line"
            elif (parameters, command) == ("2", "K"):
                self.lines[self.row] = ""
            elif parameters == "?25":
                self.cursor_visible = command == "h"
            else:
                assert command == "m", (parameters, command)
        return self


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(
        self, *, columns: int = 80, rows: int = 24, environment: dict[str, str] | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns, rows)
        settings = termios.tcgetattr(self._ours)
        settings[3] |= termios.NOFLSH  # else Ctrl-C drops what was written and not read yet
        termios.tcsetattr(self._ours, termios.TCSANOW, settings)
        self._settings = termios.tcgetattr(self._ours)
        sizes = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
        own = {name: value for name, value in os.environ.items() if name not in sizes}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=own | {"TERM": "xterm-256color", **(environment or {})},
            start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, theirs, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # one call, no lock
        )
        os.close(theirs)
        self.text = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, condition: Callable[[str], object], what: str) -> None:
        """Read until the condition is true of all output so far."""
        deadline = time.monotonic() + 60
        while not condition(self.text):
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.text!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._ours, 1 << 16).decode()
                except OSError:  # the program has ended
                    assert condition(self.text), f"{what}\n{self.text!r}"

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def end(self) -> None:
        """Wait for the program's end; the terminal's settings are as before."""
        self.until(lambda text: "consumer c1: passed" in text, "the result")
        assert self.process.wait(30) == 0
        assert termios.tcgetattr(self._ours) == self._settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_an_interrupt_leaves_log_and_result() -> None:
    """Nothing of the screen remains; each log entry is on its own line above the result."""
    with Terminal() as terminal:
        terminal.until(
            lambda text: text.count("a line of the log") >= 3 and "elapsed" in text,
            "log lines beside the screen",
        )
        terminal.press_ctrl_c()
        terminal.end()
    shown = Screen().feed(terminal.text)
    assert shown.cursor_visible
    lines = [line.rstrip() for line in shown.lines if line.strip()]
    assert lines.pop() == "run nightly, consumer c1: passed"
    drained = [line for line in lines if line.startswith("SIGINT: draining")]
    assert len(drained) == 1
    logged = [line for line in lines if re.search(r"a line of the log\s+number=\d+$", line)]
    assert len(logged) >= 3
    # The terminal itself echoes the key, where the cursor is.
    assert [line for line in lines if line not in (*drained, *logged, "^C")] == []


def test_a_process_that_is_killed_leaves_the_cursor_on_a_line_of_its_own() -> None:
    """The shell's prompt stays readable; the cursor is visible at all times."""
    with Terminal() as terminal:
        terminal.until(lambda text: text.count("newest sent") >= 2, "some screens")
        terminal.process.kill()
        terminal.process.wait()
        shown = Screen().feed(terminal.text)
    assert shown.cursor_visible
    assert (shown.row, shown.column) == (len(shown.lines) - 1, 0)
    assert shown.lines[-1] == ""
    assert shown.lines[-2].startswith("A.orders-0")


@pytest.mark.parametrize(
    ("environment", "screen", "colours"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_the_terminals_limits_are_respected(
    environment: dict[str, str], screen: bool, colours: bool
) -> None:
    """NO_COLOR: no colours; a dumb terminal gets lines, and no control sequence at all."""
    with Terminal(environment=environment) as terminal:
        terminal.until(lambda text: "elapsed" in text, "progress")
        terminal.press_ctrl_c()
        terminal.end()
    assert ("\x1b[1A" in terminal.text) is screen
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", terminal.text)) is colours
    assert ("\x1b" in terminal.text) is screen


def test_a_terminal_that_becomes_narrower_has_folded_what_was_there() -> None:
    """The display moves up by the number of lines after folding."""
    with Terminal(columns=80) as terminal:
        terminal.until(lambda text: text.count("newest sent") >= 2, "two screens")
        terminal.resize(40, 24)
        begun = len(terminal.text)
        terminal.until(lambda text: text[begun:].count("newest sent") >= 2, "two more")
        terminal.press_ctrl_c()
        terminal.end()
    climbs = [each.count("1A") for each in re.findall(r"(?:\x1b\[1A\x1b\[2K)+", terminal.text)]
    written = Screen().feed(live_screen(80)).row
    folded = sum(max(1, -(-len(line) // 40)) for line in Screen().feed(live_screen(80)).lines) - 1
    assert written in climbs
    assert folded in climbs


def live_screen(width: int) -> str:
    """One screen of the program, as written to a terminal."""
    stream = io.StringIO()
    console = SafeConsole(file=stream, width=width, height=24, soft_wrap=True, highlight=False)
    console.print(consuming().view(), end="")
    return stream.getvalue().removesuffix("\n").replace("\n", "\r\n")


def test_a_print_waits_until_the_display_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints stay intact, however the display's height changes in the thread that refreshes it."""
    monkeypatch.setenv("TERM", "xterm")
    stream, heights = io.StringIO(), itertools.cycle(range(1, 9))
    console = SafeConsole(
        file=stream, force_terminal=True, width=80, height=24, color_system=None, highlight=False
    )
    display = _Screen(console, lambda: Text("\n".join(["row"] * next(heights))))
    logged = [f"log {number}" for number in range(300)]

    def renew() -> None:
        for _ in logged:
            display.refresh()

    with display:
        renewing = Thread(target=renew)
        renewing.start()
        for line in logged:
            console.print(line)
        renewing.join()
    shown = Screen().feed(stream.getvalue().replace("\n", "\r\n"))
    assert [line for line in shown.lines if line] == logged


def test_a_screen_that_cannot_be_rendered_once_is_rendered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error would end the thread that refreshes it; it is caught, and one line reports it."""
    monkeypatch.setenv("TERM", "xterm")
    warned: list[str] = []
    monkeypatch.setattr("mirrortest.cli.live.warn", warned.extend)
    console = SafeConsole(file=io.StringIO(), force_terminal=True, width=80, height=24)
    failures, shown = list[Exception](), Event()

    def renderable() -> Text:
        if failures:
            raise failures.pop()
        shown.set()
        return Text("row")

    with _Screen(console, renderable):
        failures += [ZeroDivisionError(), ZeroDivisionError()]
        until(lambda: not failures)
        shown.clear()
        assert shown.wait(60)
    assert warned == ["the progress cannot be shown, trying again: ZeroDivisionError()"]


def _lines(mode: ProgressMode | None, seconds: float = 5.0) -> tuple[ProgressDisplay, io.StringIO]:
    stream = io.StringIO()
    console = SafeConsole(file=stream, soft_wrap=True, highlight=False)
    return ProgressDisplay(console, Progress(progress=mode, reporting_interval=seconds)), stream


def test_elsewhere_there_is_a_line_at_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes at once; statuses between two lines are skipped."""
    now = [100.0]
    monkeypatch.setattr("mirrortest.cli.live.time.monotonic", lambda: now[0])
    display, stream = _lines(None, 3.0)
    with display:
        for _ in range(7):
            display.show(consuming())
            now[0] += 1.0
    assert stream.getvalue().splitlines() == [str(consuming())] * 3


def test_none_shows_nothing_and_renders_nothing() -> None:
    """A user who reads only the JSON does not pay for rendering."""

    class NotViewed:
        def view(self) -> None:
            raise AssertionError

    display, stream = _lines(ProgressMode.NONE)
    with display:
        display.show(NotViewed())  # type: ignore[arg-type]  # that is the test
    assert stream.getvalue() == ""


def test_a_screen_needs_a_terminal() -> None:
    """`--progress screen` without a terminal is an error, and does not fall back to lines."""
    with pytest.raises(UsageError, match="--progress screen needs a terminal"):
        _lines(ProgressMode.SCREEN)


def test_forced_colours_are_no_terminal(tmp_path: Path) -> None:
    """Pipelines set FORCE_COLOR: their logs had a screen, drawn twice a second."""
    line = f"observe --interval 100ms --duration 300ms --output {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", *line.split()],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"},
    )
    assert re.match("1 interval, .*\n", done.stderr)
    assert "\x1b[2K" not in done.stderr


def test_the_status_file_is_always_whole_and_of_the_newest_status(tmp_path: Path) -> None:
    """It is written whatever `--progress` shows, and has the percentiles of Kafka's Trogdor."""
    place = tmp_path / "status.json"
    display = ProgressDisplay(
        SafeConsole(file=io.StringIO()), Progress(progress=ProgressMode.NONE, status_file=place)
    )
    with display:
        display.show(consuming())
        display.show(replace(consuming(), read=17_791))
    found = ConsumeDocument.model_validate_json(place.read_text())
    assert (found.read, found.counts["in_flight"]) == (17_791, 12)
    assert found.latency_seconds.quantiles["p95"] == pytest.approx(0.9, rel=0.004)
    display.show(producing_badly())
    written = ProduceDocument.model_validate_json(place.read_text())
    assert written.sent == written.acked + written.failed + written.unknown
    assert list(tmp_path.iterdir()) == [place]


def test_a_status_file_that_cannot_be_written_ends_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One warning reports it."""
    display = ProgressDisplay(
        SafeConsole(file=io.StringIO()),
        Progress(progress=ProgressMode.NONE, status_file=tmp_path / "gone" / "status.json"),
    )
    with display:
        display.show(consuming())
        display.show(consuming())
    assert capsys.readouterr().err.count("is no longer written: No such file") == 1


def test_a_board_on_a_dumb_terminal_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints each change, but figures, which change all the time, only now and then."""
    monkeypatch.setenv("TERM", "dumb")
    stream = io.StringIO()
    with BoardDisplay(SafeConsole(file=stream, force_terminal=True)) as display:
        board = Board(display.show)
        for line in ("starting", "5 read, 1/s", "6 read, 1/s", "passed"):
            board.put("c1", line)
    assert stream.getvalue().splitlines() == ["c1: starting", "c1: passed"]


def test_a_board_on_a_terminal_leaves_nothing_and_the_cursor_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cursor is visible meanwhile, too: a second Ctrl-C ends the process without clean-up."""
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    console = SafeConsole(file=stream, force_terminal=True, width=40, color_system=None)
    with BoardDisplay(console) as display:
        Board(display.show).put("c1", "reads [::1]:9092")
        display._live.refresh()  # type: ignore[attr-defined]
        during = Screen().feed(stream.getvalue())
        assert during.cursor_visible
        assert any("c1  reads [::1]:9092" in line for line in during.lines)
    after = Screen().feed(stream.getvalue())
    assert after.cursor_visible
    assert not "".join(after.lines).strip()
