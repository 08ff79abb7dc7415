"""A user's mistake gives an exit code and words, never a traceback."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from mirrortest.cli import console
from mirrortest.cli.consume import consume
from mirrortest.errors import MirrortestError


def _cli():
    app = typer.Typer()
    app.command()(consume)
    return app


def test_an_unknown_log_detail_is_a_usage_error():
    """It is refused before anything is connected."""
    arguments = ["--bootstrap-server", "localhost:1", "--run", "r1", "--topics", "t"]
    result = CliRunner().invoke(_cli(), [*arguments, "--log-detail", "all"])
    assert result.exit_code == 2
    assert "intervals" in result.output


def test_a_report_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    """The verdict was printed before; the exit code says that the file is not there."""
    with pytest.raises(MirrortestError, match=r"--report .*nowhere"):
        console.write_report(tmp_path / "nowhere" / "report.json", "{}")
    console.write_report(tmp_path / "report.json", "{}")
    assert (tmp_path / "report.json").read_text() == "{}\n"
