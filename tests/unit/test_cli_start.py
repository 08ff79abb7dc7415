"""Signals from the first moment to the last: an exit code, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from rich.text import Text

from docs import generated
from mirrortest.cli import main
from mirrortest.errors import InterruptedRunError

_MIRRORTEST = [sys.executable, "-m", "mirrortest"]
PROGRAM = """
    import asyncio, signal, sys
    sys.argv = ["mirrortest"]
    from mirrortest.cli import application, main, start

    async def drains(stop):
        print("running", flush=True)
        await stop.wait()
        print("draining", flush=True)
        await asyncio.sleep(0 if "{way}" == "quick" else 600)
        return "drained"

    async def stubborn(stop):
        print("running", flush=True)
        await stop.wait()
        print("draining", flush=True)
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    def app(**_):
        application._ABORT_SECONDS = 0.05
        run = application.run_application
        print(run(stubborn if "{way}" == "stubborn" else drains, writes="{way}" != "looks"))

    main._register = lambda *_: None
    main.app = app
    start.run()
"""


def _run(way: str, *signals: Signals) -> tuple[int, str, str]:
    """The exit code and both streams of a program that gets a signal after each line it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.format(way=way))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for number in signals:
            process.stdout.readline()
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, out, err


def test_one_signal_drains() -> None:
    """The run returns its result."""
    code, out, err = _run("quick", signal.SIGTERM)
    assert (code, out.splitlines()[-1]) == (0, "drained")
    assert "SIGTERM: draining" in err


@pytest.mark.parametrize("way", ["slow", "stubborn"])
def test_a_second_signal_ends_the_run_at_once(way: str) -> None:
    """It does so even if the client library swallows the cancellation."""
    code, _, err = _run(way, signal.SIGINT, signal.SIGINT)
    assert code == 128 + signal.SIGINT
    assert "a second signal ended the run at once" in err


def test_a_command_that_writes_nothing_ends_at_the_first_signal() -> None:
    """It has nothing to drain, so it does not wait for a cluster that does not answer."""
    code, _, err = _run("looks", signal.SIGINT)
    assert code == 128 + signal.SIGINT
    assert err.splitlines() == ["error: interrupted: nothing was written"]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (OSError(errno.EROFS, "no", "/cache"), "/cache: cannot be read or written: Read-only"),
        (
            OSError(errno.ENAMETOOLONG, "no", "one two"),
            "one two: cannot be read or written: File n",
        ),
        (OSError(errno.ENOSPC, "no"), "a file cannot be read or written: No space left on device"),
    ],
)
def test_a_place_that_cannot_be_written_gives_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: OSError,
    message: str,
) -> None:
    """So does a place that no option names. Another OSError is a bug, and is raised unchanged."""

    def fails(**_: object) -> None:
        raise problem

    monkeypatch.setattr(main, "_register", lambda _: None)
    monkeypatch.setattr(main, "app", fails)
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 1
    assert message in capsys.readouterr().err
    problem.errno = errno.ENOTCONN
    with pytest.raises(OSError, match="no"):
        main.run()


def test_the_error_tells_which_signal_it_was() -> None:
    """The exit code is 128 plus the signal, as shells expect."""
    assert InterruptedRunError("x", signal.SIGTERM).exit_code == 143


def test_an_interrupt_outside_a_run_ends_without_a_traceback() -> None:
    """It may come while the program imports, or prints its answer."""
    program = "import os, signal; from mirrortest.cli import main, start; main.run = lambda: "
    program += "os.kill(os.getpid(), signal.SIGINT); start.run()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handled", [True, False])
def test_what_a_command_began_is_ended_when_it_is_interrupted(
    number: Signals, handled: bool
) -> None:
    """A calibration left its lab's directory, also between the end of its run and the lab's."""
    program = f"""
import os
from mirrortest.cli import main, start
from mirrortest.cli.application import run_application
from mirrortest.cli.interrupt import interruptible

async def nothing(stop):
    pass

program = main.Program()

@program.command("began")
@interruptible()
def began():
    try:
        if {handled}:
            run_application(nothing)
        os.kill(os.getpid(), {number.value})
    finally:
        print("removed")

main._register = lambda *_: None
main.app = lambda **given: program([], **given)
start.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "removed\n", "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_run_outlives_those_who_read_its_output(stream: str, tmp_path: Path) -> None:
    """At Ctrl-C `tee` ends first: the run drains, writes its report, and exits with its code."""
    reader, writer = os.pipe()
    os.close(reader)
    report = tmp_path / "report.json"
    # A row is a line of progress on stderr; the result is on stdout.
    line = "observe --interval 100ms --duration 300ms --json --output"
    command = [*_MIRRORTEST, *line.split(), str(tmp_path), "--report", str(report)]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done = subprocess.run(command, check=False, **(streams | {stream: writer}))
    os.close(writer)
    assert done.returncode == 0
    assert json.loads(report.read_text())["intervals"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["scenarios", "--version", "lab --help"])
def test_a_full_disk_under_stdout_is_one_line(command: str, unbuffered: str) -> None:
    """It was 120 with a traceback: Python writes what is buffered again when it ends."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*_MIRRORTEST, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: a file cannot be read or written: No space left on device"
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_escaped(encoding: str) -> None:
    """The sign of a check ended help and results in a traceback, and a run without its report."""
    done = subprocess.run(
        [*_MIRRORTEST, "doctor", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "(right)" in done.stdout


def test_a_closed_stdout_is_no_error() -> None:
    """Results then go nowhere; the exit code remains."""
    command = f"{shlex.join([*_MIRRORTEST, 'scenarios'])} >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


_HEAVY = {"numpy", "pyarrow", "aiokafka", "pyspark", "jinja2", "prometheus_client", "structlog"}


def _imported(arguments: list[str]) -> tuple[set[str], str]:
    """The modules that a command line imports, and what it prints."""
    program = f"""
import sys
sys.argv = ["mirrortest", *{arguments}]
from mirrortest.cli.main import run
try:
    run()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split()), done.stdout


@pytest.mark.parametrize("option", ["--version", "--help", "-h"])
def test_help_and_version_import_no_verb(option: str) -> None:
    """They answer at once: no library of clients, logs or reports is imported."""
    imported, shown = _imported([option])
    assert "mirrortest.cli.main" in imported
    assert not imported & (_HEAVY | {f"mirrortest.cli.{verb}" for verb in main._VERBS})
    assert all(verb in shown for verb in main._VERBS) or option == "--version"


@pytest.mark.parametrize("verb", sorted(main._VERBS))
def test_help_of_a_verb_imports_only_its_options(verb: str) -> None:
    """None of the application's heavy libraries is imported."""
    imported, shown = _imported([verb, "--help"])
    assert f"mirrortest {verb}" in shown
    assert not imported & _HEAVY


def test_the_list_of_verbs_has_each_ones_own_words() -> None:
    """The list repeats the verbs' help, so that it does not import them."""
    for verb, command in generated.program().commands.items():
        first = " ".join(Text.from_markup(command.help).plain.split("\n\n")[0].split())
        assert first.startswith(main._VERBS[verb])
