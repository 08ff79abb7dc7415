"""`mirrortest reconcile --html`: the report comes with the verdict."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
import typer

from mirrortest.cli import reconcile as cli
from mirrortest.cli import spark
from mirrortest.errors import MirrortestError
from mirrortest.report.result import read_result
from mirrortest.seqlog.location import Location
from tests.made_result import RUN, Made, failed_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """A reconciliation that returns a prepared result, without Spark."""

    def install(made: Made) -> list[str]:
        place = Location.parse(made.write(tmp_path / "logs"))
        job = types.ModuleType("mirrortest.reconcile.job")
        vars(job)["reconcile"] = lambda *_, **__: read_result(place).summary
        monkeypatch.setitem(sys.modules, job.__name__, job)
        monkeypatch.setattr(spark, "spark_session", lambda *_, **__: contextlib.nullcontext())
        return [str(tmp_path / "logs")]

    return install


def test_the_report_is_written_whatever_the_verdict(
    judged: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed run has its report and its exit code; stdout has only the summary."""
    page = tmp_path / "r.html"
    with pytest.raises(typer.Exit) as ended:
        cli.reconcile(logdir=judged(failed_run()), html=str(page), json=True)
    assert ended.value.exit_code == 99
    assert "Run made1: " in page.read_text()
    printed = capsys.readouterr()
    assert printed.out.startswith("{")
    assert printed.out.rstrip().endswith("}")
    assert str(page) in printed.err


@pytest.mark.parametrize(("made", "code"), [(failed_run(), 99), (Made(minutes=1), 1)])
def test_a_page_that_cannot_be_created_does_not_hide_the_verdict(
    judged: Callable[..., Any], tmp_path: Path, made: Made, code: int
) -> None:
    """The exit code is the worse of the error's and the verdict's: that of a failed run was 1."""
    page = tmp_path / "logs" / f"run={RUN}" / "result" / "nowhere" / "r.html"
    with pytest.raises(MirrortestError, match=r"r\.html: cannot be written") as ended:
        cli.reconcile(logdir=judged(made), html=str(page))
    assert ended.value.exit_code == code


def test_what_the_report_needs_is_missed_before_the_work(
    judged: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Jinja, --html fails before the reconciliation starts."""
    logdir = judged(Made(minutes=1))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(
        sys.modules, "mirrortest.reconcile.job", types.ModuleType("must not be asked")
    )
    with pytest.raises(MirrortestError, match=r"pip install 'mirrortest\[report\]'"):
        cli.reconcile(logdir=logdir, html=str(tmp_path / "r.html"))


def test_without_html_there_is_no_report(
    judged: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jinja is an extra: a reconciliation without --html does not need it."""
    logdir = judged(Made(minutes=1))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    cli.reconcile(logdir=logdir)
    assert list(tmp_path.rglob("*.html")) == []
