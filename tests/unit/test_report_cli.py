"""`mirrortest report`: where it writes, and its errors for a user's mistakes."""

from __future__ import annotations

import json
import sys
import webbrowser
from pathlib import Path

import pytest
import typer

from mirrortest.cli.report import report
from mirrortest.errors import MirrortestError, UsageError
from tests.made_result import RUN, Made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A result in its log directory."""
    return Made(minutes=2).write(tmp_path / "logs")


def test_it_writes_beside_the_result_and_names_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default report.html is written next to the tables."""
    report(result=str(place))
    assert Path(capsys.readouterr().out.strip()) == place / "report.html"
    assert (place / "report.html").read_text().startswith("<!doctype html>")


def test_a_run_of_a_log_directory_is_found(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --log-dir and --run; the page and JUnit XML are written to other places."""
    page, xml = tmp_path / "r.html", tmp_path / "r.xml"
    report(log_dir=[str(tmp_path / "logs")], run=RUN, output=str(page), junit=str(xml))
    assert capsys.readouterr().out.split() == [str(page), str(xml)]
    assert "c-producer" in page.read_text()
    assert xml.read_text().startswith("<?xml")
    assert not (place / "report.html").exists()


def test_the_result_is_found_in_whichever_log_directory_has_it(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers' and consumers' logs are in two directories, in any order."""
    (tmp_path / "other" / f"run={RUN}").mkdir(parents=True)
    both = [str(tmp_path / "other"), str(tmp_path / "logs")]
    report(log_dir=both)
    report(log_dir=both, run=RUN)
    assert capsys.readouterr().out.split() == [str(place / "report.html")] * 2
    with pytest.raises(
        UsageError, match=rf"no result of run nothere \(there are results of {RUN}\); run mirrort"
    ):
        report(log_dir=both, run="nothere")


def test_pngs_need_playwright_and_a_browser(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what is missing and how to install it; the page is written all the same."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    with pytest.raises(MirrortestError, match="--png needs Chromium: install it, or run"):
        report(result=str(place), png=tmp_path / "charts")
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(MirrortestError, match=r"pip install 'mirrortest\[png\]'"):
        report(result=str(place), png=tmp_path / "charts")
    assert (place / "report.html").exists()


def test_a_runs_directory_stands_for_the_result_in_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is written next to the tables, and the run's logs are read."""
    assert place.name == "result"
    report(result=str(place.parent))
    assert Path(capsys.readouterr().out.strip()) == place / "report.html"
    assert "c-producer" in (place / "report.html").read_text()
    with pytest.raises(UsageError, match=r"RESULT .*nowhere: there is no such directory"):
        report(result=str(place.parent / "nowhere"))
    (place.parent / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty: no summary\.json; reconcile"):
        report(result=str(place.parent / "empty"))


def test_logs_that_lie_elsewhere_are_read(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of a moved result shows the set-up once --log-dir names the logs."""
    moved = place.rename(tmp_path / "elsewhere")
    report(result=str(moved))
    assert "c-producer" not in (moved / "report.html").read_text()
    report(result=str(moved), log_dir=[str(tmp_path / "logs")])
    assert "c-producer" in (moved / "report.html").read_text()


def test_it_is_opened_where_asked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--open hands the file's address to the browser."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    report(result=str(place), open_it=True)
    assert asked == [(place / "report.html").as_uri()]


def test_mistakes_are_told(place: Path, tmp_path: Path) -> None:
    """No RESULT, a superfluous --run, a missing directory, another version: usage errors."""
    with pytest.raises(UsageError, match="name the RESULT"):
        report()
    with pytest.raises(UsageError, match="leave out --run"):
        report(result=str(place), run=RUN)
    with pytest.raises(UsageError, match="nowhere: there is no such directory"):
        report(log_dir=[str(tmp_path / "nowhere")])
    with pytest.raises(UsageError, match="there is no directory"):
        report(result=str(place), output=str(tmp_path / "no" / "such" / "r.html"))
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps(summary | {"version": 9}))
    with pytest.raises(UsageError, match="version 9"):
        report(result=str(place))


def test_page_and_junit_need_two_files(place: Path, tmp_path: Path) -> None:
    """The page was overwritten by the XML."""
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(UsageError, match=r"--junit .*x: the HTML report has this name"):
        report(result=str(place), output=str(tmp_path / "x"), junit=str(tmp_path / "x"))
    with pytest.raises(UsageError, match=r"--junit .*report\.html: the HTML report has this name"):
        report(result=str(place), junit=str(tmp_path / "link" / "report.html"))
    assert not (place / "report.html").exists()


def test_its_options_have_help() -> None:
    """Typer can create a command from it, and every option has a help text."""
    app = typer.Typer()
    app.command("report")(report)
    command = typer.main.get_command(app)
    assert [option.name for option in command.params if not getattr(option, "help", None)] == []
