"""A user's mistake ends with an exit code and a message, never a traceback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from mirrortest.cli import console
from mirrortest.cli.consume import consume
from mirrortest.cli.options import Output
from mirrortest.errors import ClusterError, MirrortestError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from typer.main import Typer

    from mirrortest.consume.options import ConsumeOptions

ARGUMENTS = ("--bootstrap-server", "localhost:1", "--run", "r1", "--topics", "t")


def _cli() -> Typer:
    app = typer.Typer()
    app.command()(consume)
    return app


def test_an_unknown_log_detail_is_a_usage_error() -> None:
    """It is refused before the consumer connects."""
    with pytest.raises(UsageError, match="--log-detail 'all': use intervals or messages"):
        CliRunner().invoke(_cli(), [*ARGUMENTS, "--log-detail", "all"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        (
            ("--report", "no/such/place.json"),
            "--report no/such/place.json: there is no directory",
        ),
        # Brackets in the user's input are not markup, closed or not.
        (("--command-property", "[/x]=1"), "no Kafka broker answers"),
    ],
)
def test_what_is_told_before_a_run(more: tuple[str, str], shown: str) -> None:
    """A missing report directory is an error before the run, not after it."""
    with pytest.raises(MirrortestError, match=shown):
        CliRunner().invoke(_cli(), [*ARGUMENTS, *more], catch_exceptions=False)


def test_a_dry_run_asks_the_cluster_of_the_ledger() -> None:
    """With --ledger-bootstrap-server: once, a wrong address was ready for a test."""
    more = ("--dry-run", "--source-alias", "", "--ledger-bootstrap-server", "localhost:2", "--json")
    done = CliRunner().invoke(_cli(), [*ARGUMENTS, *more])
    levels = {each["subject"]: each["level"] for each in json.loads(done.stdout)["checks"]}
    assert levels["source"] == levels["destination"] == "error"
    assert done.exit_code == 1


def test_exactly_once_reads_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of aborted transactions are not delivered; conflicting options are refused."""
    asked: list[ConsumeOptions] = []

    async def consumed(options: ConsumeOptions, **_: object) -> None:
        asked.append(options)
        raise ClusterError("enough")

    monkeypatch.setattr("mirrortest.consume.consumer.run", consumed)
    kept = ("--source-alias", "")  # so that no cluster is asked for it
    for more in (kept, (*kept, "--exactly-once")):
        with pytest.raises(ClusterError, match="enough"):
            CliRunner().invoke(_cli(), [*ARGUMENTS, *more], catch_exceptions=False)
    assert [options.client.isolation_level.value for options in asked] == [
        "read_uncommitted",
        "read_committed",
    ]
    both = ("--exactly-once", "--command-property", "isolation.level=read_uncommitted")
    with pytest.raises(UsageError, match=r"leave out isolation[.]level=read_uncommitted"):
        CliRunner().invoke(_cli(), [*ARGUMENTS, *both], catch_exceptions=False)


def test_more_workers_than_any_machine_has_cores_are_a_usage_error() -> None:
    """They are refused before the first worker starts."""
    too_many = [*ARGUMENTS, "--workers", str(10**18)]
    with pytest.raises(UsageError, match=r"--workers '10*': must be at most 1,024"):
        CliRunner().invoke(_cli(), too_many, catch_exceptions=False)


def test_a_report_that_cannot_be_written_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result is printed first; the error then reports that the file was not written."""
    with pytest.raises(MirrortestError, match=r"--report .*nowhere"):
        console.show(
            {"a": 1}, None, Output(as_json=True, report=tmp_path / "nowhere" / "report.json")
        )
    assert capsys.readouterr().out == '{"a": 1}\n'
    console.show({}, None, Output(report=tmp_path / "report.json"))
    assert (tmp_path / "report.json").read_text() == "{}\n"


def test_an_interrupt_while_nobody_answers_ends_in_one_line() -> None:
    """The broker's port accepts connections but never answers, so there is nothing to report."""
    with socket.socket() as frozen:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen()
        frozen.settimeout(60)
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        program = "from mirrortest.cli.start import run; run()"
        arguments = ["--bootstrap-server", address, *ARGUMENTS[2:]]
        # Long enough for the interrupt to arrive during the wait.
        patience = ["--command-property", "request.timeout.ms=3000"]
        with subprocess.Popen(
            [sys.executable, "-c", program, "consume", *arguments, *patience],
            stderr=subprocess.PIPE,
            text=True,
        ) as consumer:
            connection, _ = frozen.accept()
            consumer.send_signal(signal.SIGINT)
            _, shown = consumer.communicate(timeout=60)
            connection.close()
    assert consumer.returncode == 1
    draining, *waiting, error = shown.split("\n\n")[0].strip().splitlines()
    assert all(f"still trying {address}" in line for line in waiting)
    assert draining.startswith("SIGINT: draining")
    assert error.startswith(f"error: no Kafka broker answers at {address}: no answer in time")
