"""A result's directory is found and read, or refused with its name."""

from __future__ import annotations

import io
import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from rich.console import Console

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.report.html import render
from mirrortest.report.html.breakdown import first_ids
from mirrortest.report.result import find_result, read_result
from mirrortest.report.terminal import run_result
from mirrortest.results.summary import Minute
from mirrortest.seqlog.location import Location
from tests.made_result import RUN, Made

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_that_is_a_directory_is_read_whole(tmp_path: Path) -> None:
    """Large tables are directories: same ids, same count, and nothing is listed as absent."""
    made = Made(minutes=30, wrong={"lost": [(number, 0, 1) for number in range(20)]})
    place = made.write(tmp_path)
    unsplit = read_result(Location.parse(place))
    before = first_ids(unsplit), unsplit.row_count("findings"), unsplit.tables_absent
    for name in ("findings", "undelivered"):
        file = place / f"{name}.parquet"
        rows = pq.read_table(file)
        file.unlink()
        file.mkdir()
        for at in range(2):
            pq.write_table(rows.slice(at * 10, 10), file / f"part-{at:05d}.parquet")
    parts = read_result(Location.parse(place))
    assert (first_ids(parts), parts.row_count("findings"), parts.tables_absent) == before
    table = parts.table("findings")
    assert table is not None
    assert table.num_rows == 20


@pytest.mark.parametrize("order", [1, -1])
def test_a_session_in_several_places_has_what_any_of_them_has(order: int, tmp_path: Path) -> None:
    """As the reconciliation reads it: the order of the directories does not matter."""
    place = Made(minutes=2).write(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "copied")
    session = next((tmp_path / "whole").rglob("session.json"))
    (session.parent / "000001.journal").touch()
    places = [Location.parse(tmp_path / name) for name in ("whole", "copied")]
    found = read_result(Location.parse(place), places[::order])
    files = {each.session.session: len(each.files) for each in found.sessions}
    assert len(files) == len(found.sessions)
    assert sorted(files.values()) == [0] * (len(files) - 1) + [1]


def test_what_is_no_result_of_this_version_is_refused(tmp_path: Path) -> None:
    """No file, another document, another version: the error names the problem or the remedy."""
    place = Location.parse(tmp_path)
    with pytest.raises(UsageError, match="reconcile the run first"):
        read_result(place)
    file = tmp_path / "summary.json"
    for raw in ("[]", "{}", "no json", '{"version": 1}', "[" * 9999):
        file.write_text(raw)
        with pytest.raises(UsageError, match="not a summary of a reconciliation"):
            read_result(place)
    for version, kind in ((2, "reconcile"), (1, "produce")):
        file.write_text(json.dumps({"version": version, "kind": kind}))
        with pytest.raises(UsageError, match="use the mirrortest that wrote it"):
            read_result(place)
    file.write_text('{"version": 1, "kind": "reconcile", "run": "r1"}')
    with pytest.raises(UsageError, match="verdict: Field required"):
        read_result(place)


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("thresholds", [{"expression": "p(99)<2s", "value": 1e999, "passed": False}], "0.value"),
        ("latency_seconds", {"t": {"count": 1, "negative": 0, "mean": float("nan")}}, "t.mean"),
        (
            "latency_seconds",
            {"t": {"count": 1, "negative": 0, "quantiles": {"p99": 1e300}}},
            "t.quantiles.p99",
        ),
    ],
)
def test_numbers_that_no_run_has_are_refused_in_a_line(
    tmp_path: Path, field: str, value: Any, where: str
) -> None:
    """A damaged summary ended the command with a traceback."""
    place = Made(minutes=1).write(tmp_path)
    file = place / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(
        UsageError, match=rf"summary\.json: {field}\.{where}: a run has no such num"
    ):
        read_result(Location.parse(place))


def test_a_minute_without_counts_is_shown(tmp_path: Path) -> None:
    """It ended the command with a traceback."""
    summary = read_result(Location.parse(Made(minutes=1).write(tmp_path))).summary
    empty = summary.model_copy(update={"minutes": [Minute(topic="t", minute=None, counts={})]})
    console = Console(file=io.StringIO(), width=200)
    console.print(run_result(empty).view(details=True))
    assert isinstance(console.file, io.StringIO)
    assert "unknown" in console.file.getvalue()


def test_a_broken_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A file that is not Parquet is not skipped."""
    place = Made(minutes=1).write(tmp_path)
    (place / "findings.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(SequenceLogError, match=r"findings\.parquet: cannot be read"):
        render(read_result(Location.parse(place)))


class _Refusing:
    """A local file system that refuses access to one file, as an object store may."""

    def __init__(self, name: str, error: Exception) -> None:
        self._local = fs.LocalFileSystem()
        self._name, self._error = name, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def get_file_info(self, asked: Any) -> Any:
        if isinstance(asked, str) and asked.endswith(self._name):
            raise self._error
        return self._local.get_file_info(asked)


@pytest.mark.parametrize("error", [OSError("access denied"), pa.ArrowKeyError("access denied")])
def test_an_object_store_that_refuses_is_an_error_that_names_the_file(
    tmp_path: Path, error: Exception
) -> None:
    """The command ended with a traceback."""
    place = Made(minutes=1).write(tmp_path)
    at = Location(_Refusing("by_minute.parquet", error), str(place))
    with pytest.raises(SequenceLogError, match=r"by_minute\.parquet: cannot be read"):
        read_result(at)
    logs = Location(_Refusing("summary.json", error), str(tmp_path))
    with pytest.raises(SequenceLogError, match=r"summary\.json: cannot be read"):
        find_result([logs], None)


def test_the_only_result_of_a_log_directory_is_found(tmp_path: Path) -> None:
    """Without --run there must be exactly one result; else the error lists the runs."""
    root = Location.parse(tmp_path)
    with pytest.raises(UsageError, match="no reconciliation result"):
        find_result([root], None)
    place = Made(minutes=1).write(tmp_path)
    (tmp_path / "run=unjudged").mkdir()
    assert find_result([root], None).path == str(place)
    (tmp_path / "run=other" / "result").mkdir(parents=True)
    (tmp_path / "run=other" / "result" / "summary.json").write_text("{}")
    with pytest.raises(UsageError, match=f"name one with --run: {RUN}, other"):
        find_result([root], None)
    assert find_result([root], "other").path.endswith("/run=other/result")


def test_the_command_in_an_error_can_be_pasted(tmp_path: Path) -> None:
    logs = tmp_path / "dc1's logs"
    logs.mkdir()
    for run, words in ((None, []), ("r1", ["--run", "r1"])):
        with pytest.raises(UsageError) as raised:
            find_result([Location.parse(logs)], run)
        _, command = str(raised.value).split("; run ")
        assert shlex.split(command) == ["mirrortest", "reconcile", str(logs), *words]


def test_two_results_of_a_run_are_refused_by_their_names(tmp_path: Path) -> None:
    """Each directory of logs may have a result of the run: the first one was taken silently."""
    places = [Made(minutes=1).write(tmp_path / name) for name in ("dc1", "dc2")]
    roots = [Location.parse(tmp_path / name) for name in ("dc1", "dc2")]
    for run in (None, RUN):
        with pytest.raises(UsageError, match=f"several results.* {places[0]}, {places[1]}"):
            find_result(roots, run)
    assert find_result([roots[1], roots[1]], RUN).path == str(places[1])
