"""Runs the documents' reconcile commands as they are written there, on synthetic logs."""

from __future__ import annotations

import itertools
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from mirrortest.cli import reconcile as reconcile_verb
from mirrortest.cli import spark as sessions
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import SynthOptions
from tests import documented
from tests.lab.harness import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.documented import Shown

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _lay_out(run: str, places: list[str]) -> None:
    """Write a run's logs into one directory, or each side's into one of two."""
    synthesize(SynthOptions(log_dir=Path(places[0]), run=run, messages=2000, producers=2, lanes=2))
    for other in places[1:]:
        moved = Path(other) / f"run={run}"
        moved.mkdir(parents=True)
        for each in list((Path(places[0]) / f"run={run}").glob("role=consumer*")):
            shutil.move(each, moved)


@pytest.mark.parametrize(
    "shown", documented.commands("reconcile", but="--bootstrap-server"), ids=str
)
def test_reconciliations(
    spark: SparkSession, shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each documented command succeeds and names the run; one with --html writes the report."""
    monkeypatch.chdir(tmp_path)
    words = shown.words[1:]
    places = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    run = words[words.index("--run") + 1]
    _lay_out(run, places)
    with patch.object(sessions, "spark_session", lambda *_, **__: nullcontext(spark)):
        ended = run_here(reconcile_verb.reconcile, *words)
    assert ended.code == 0, ended.stdout
    assert run in ended.stdout
    assert f"run {run}: 4 logs found, Spark starts" in ended.stderr
    if "--html" in words:
        assert Path(words[words.index("--html") + 1]).read_text().startswith("<!doctype html>")
