"""`mirrortest run` on the command line: what an interrupted run is to be gone on with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
import typer

from mirrortest.cli.run import run
from mirrortest.scenario.catalogue import find
from mirrortest.scenario.series import Series

if TYPE_CHECKING:
    from pathlib import Path


def test_an_interrupted_run_names_the_command_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the values that were changed: without them it would be another scenario."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Series, "run", interrupted)
    monkeypatch.setattr("mirrortest.cli.run.signal.signal", lambda *_: None)
    output, changes = tmp_path / "two words", ["produce.duration=5s", "fault.at='2s'"]
    with pytest.raises(typer.Exit) as ended:
        run(scenario="demo", output=output, change=changes)
    assert ended.value.exit_code == 130
    command = capsys.readouterr().err.partition("to go on at the same point: ")[2]
    assert shlex.split(command) == [
        *("mirrortest", "run", find("demo").name, "--output", str(output)),
        *("--set", changes[0], "--set", changes[1]),
    ]
