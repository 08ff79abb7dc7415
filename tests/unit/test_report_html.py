"""The report's content (places, ids, figures) and its safety."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import io
import json
import re
from importlib import resources
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrortest.model.verdict import Verdict
from mirrortest.report.html import ECHARTS_VERSION, render
from mirrortest.report.html.breakdown import MOST, MOST_CELLS, first_ids, grid, short
from mirrortest.report.html.charts import MOST_TOPICS, chart_data
from mirrortest.report.html.page import page
from mirrortest.report.html.timeline import from_minutes
from mirrortest.report.html.tones import Tones
from mirrortest.report.result import read_result
from mirrortest.results.summary import Partition
from mirrortest.seqlog.location import Location
from tests.made_result import RUN, SCHEMAS, Made, note_events
from tests.unit.report_page import Page, result_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.timing.histogram import Histogram

HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}'\"&"


def test_nothing_from_outside_becomes_markup(tmp_path: Path) -> None:
    """Names, events, notes and reasons are shown unchanged, and never executed."""
    made = Made(
        topics=(HOSTILE, "orders"),
        producer=HOSTILE,
        wrong={"lost": [(3, 0, 2)]},
        thresholds=[("lost==0", 2.0, False), (HOSTILE, 1.0, False)],
        verdict=Verdict.FAILED,
        inconclusive=[HOSTILE],
        notes=[HOSTILE],
    )
    place = made.write(tmp_path, sessions=False)
    note_events(tmp_path, (2, HOSTILE, HOSTILE))
    text = render(read_result(Location.parse(place)))
    shown = Page(text)
    assert "img" not in {tag for tag, _ in shown.tags}
    assert [tag for tag, _ in shown.tags].count("script") == 7
    assert shown.words.count("onerror=alert(1)") >= 8
    assert "{{7*7}}" in shown.words
    (data,) = [raw for about, raw in shown.scripts if about.get("type") == "application/json"]
    assert json.loads(data)["topics"][1] == HOSTILE


def test_only_the_pages_scripts_may_run_and_nothing_may_be_asked(tmp_path: Path) -> None:
    """The policy names the page's scripts by their hashes and allows no address at all."""
    shown = Page(render(result_of(Made(minutes=2), tmp_path)))
    (policy,) = [
        about["content"]
        for tag, about in shown.tags
        if tag == "meta" and about.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    ran = [raw for about, raw in shown.scripts if "type" not in about]
    found = {
        __import__("base64").b64encode(hashlib.sha256(raw.encode()).digest()).decode()
        for raw in ran
    }
    assert found == allowed
    assert len(ran) == 6
    assert "http" not in policy
    for tag, about in shown.tags:
        links = {about.get("src"), about.get("href")} - {None, "data:,"}
        assert all(str(link).startswith(("#", "data:text/csv;")) for link in links), tag


def test_the_library_is_the_one_that_was_published() -> None:
    """The file in the package is npm's echarts/dist/echarts.min.js, byte by byte."""
    raw = resources.files("mirrortest.report").joinpath("assets/echarts/echarts.min.js")
    digest = hashlib.sha256(raw.read_bytes()).hexdigest()
    assert (ECHARTS_VERSION, digest) == (
        "6.1.0",
        "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0",
    )


def test_a_long_run_of_many_topics_makes_no_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours, twenty topics of 400 partitions: the report has less than 1 MB besides the library."""
    made = Made(
        minutes=200, topics=tuple(f"t{number}" for number in range(20)), partitions=400,
        wrong={"lost": [(number % 200, number % 20, 1) for number in range(5000)]},
    )  # fmt: skip
    monkeypatch.setattr(made, "_histogram", lambda minute, topic: _one_histogram())
    result = result_of(made, tmp_path)
    text = render(result)
    library = resources.files("mirrortest.report").joinpath("assets/echarts/echarts.min.js")
    assert len(text) - len(library.read_bytes()) < 1_000_000
    shown = page(result)
    assert len(shown["charts"]["topics"]) == MOST_TOPICS + 1
    assert len(shown["ids"].ranges) == MOST
    assert shown["ids"].total == 5000
    assert sum(len(cells) for cells in shown["grid"].topics.values()) == MOST_CELLS
    words = Page(text).words
    assert "The first 100 of 5,000 ranges" in words
    assert f"{20 * 400 - MOST_CELLS:,} more partitions" in words


@functools.cache
def _one_histogram() -> Histogram:
    return Made(minutes=1)._histogram(0, 0)


def test_every_kind_of_finding_is_among_the_first_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rare grave finding is not crowded out by a common one, nor the other way round."""
    made = Made(
        minutes=500,
        wrong={
            "lost": [(number, 0, 1) for number in range(300)],
            "duplicated": [(number, 1, 2) for number in range(400)],
            "corrupted": [(7, 1, 1)],
        },
    )
    monkeypatch.setattr(made, "_histogram", lambda minute, topic: _one_histogram())
    ids = first_ids(result_of(made, tmp_path))
    kinds = [each.kind for each in ids.ranges]
    assert kinds == sorted(kinds, key=["lost", "corrupted", "duplicated"].index)
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "lost": 90, "corrupted": 1, "duplicated": 9,
    }  # fmt: skip
    assert ids.total == 701
    assert ids.attributed


def test_the_grid_shows_the_gravest_finding(tmp_path: Path) -> None:
    """A cell's state is that of its worst finding; streams that were seen nowhere have one, too.

    Only a finding that failed a condition is bad; an allowed one is a note.
    """
    failed = Made(thresholds=[("lost==0", 8.0, False)]).summary(tmp_path)
    found = grid(
        [
            Partition(topic="t", partition=0, counts={"seen": 5, "duplicated": 9, "lost": 1}),
            Partition(topic="t", partition=1, counts={"seen": 5, "duplicated": 9}),
            Partition(topic="t", partition=2, counts={"seen": 5, "in_flight": 2}),
            Partition(topic="t", partition=3, counts={"seen": 5}),
            Partition(topic="t", partition=None, counts={"lost": 7}),
        ],
        Tones(failed),
    )
    cells = {cell.partition: (cell.state, cell.worst, cell.count) for cell in found.topics["t"]}
    assert cells == {
        None: ("bad", "lost", 7),
        0: ("bad", "lost", 1),
        1: ("note", "duplicated", 9),
        2: ("doubt", "in flight", 2),
        3: ("clean", "", 0),
    }
    assert found.columns == ("lost", "in_flight", "duplicated")
    assert [row.partition for row in found.rows] == [None, 0, 2, 1]
    allowed = Tones(Made(thresholds=[("lost<1%", 0.1, True)]).summary(tmp_path))
    states = [cell.state for cell in grid(found.rows, allowed).topics["t"]]
    assert states == ["note", "note", "note", "doubt"]


def test_red_is_what_failed_and_nothing_else(tmp_path: Path) -> None:
    """An allowed loss is a note, a failed percentile is bad: in the key figures and the charts."""
    made = Made(
        minutes=10,
        outage=range(4, 6),
        wrong={"lost": [(1, 0, 5)], "duplicated": [(2, 0, 9)]},
        thresholds=[("lost<0.1%", 0.02, True), ("p(99)<2s", 100.0, False)],
        verdict=Verdict.FAILED,
    )
    shown = page(result_of(made, tmp_path))
    tones = {figure.label: figure.tone for figure in shown["figures"]}
    assert (tones["lost"], tones["duplicated"], tones["latency p99"]) == ("note", "note", "bad")
    assert tones["latency p50"] == "plain"
    assert {strip["weight"] for strip in shown["charts"]["strips"]} == {"plain", "note"}
    (limit,) = shown["charts"]["limits"]
    assert limit["failed"]
    assert limit["failing"] == [[(4, 6)]] * 3  # all topics, and each of two


def test_figures_can_be_taken_away_as_csv(tmp_path: Path) -> None:
    """The page's links contain every count, and counts and percentiles by topic and step."""
    result = result_of(Made(minutes=3, wrong={"lost": [(1, 0, 5)]}), tmp_path)
    links = dict(
        re.findall(r'<a download="([^"]+)" href="data:text/csv[^,]*,([^"]+)"', render(result))
    )
    tables = {
        name: list(csv.DictReader(io.StringIO(base64.b64decode(content).decode())))
        for name, content in links.items()
    }
    counts = {row["name"]: row["messages"] for row in tables[f"mirrortest-{RUN}-counts.csv"]}
    assert (counts["acked"], counts["lost"]) == ("6000", "5")
    rows = tables[f"mirrortest-{RUN}-over-time.csv"]
    assert [row["topic"] for row in rows] == [
        topic for topic in ("all topics", "clicks.eu", "orders") for _ in range(3)
    ]
    assert [row["lost"] for row in rows] == ["0", "5", "0", "0", "0", "0", "0", "5", "0"]
    assert all(0 < float(row["p50_seconds"]) <= float(row["max_seconds"]) for row in rows)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (9_960, "10k"), (999_600, "1.0M"), (12e9, "12G")],
)
def test_counts_in_four_signs(count: float, shown: str) -> None:
    """Short enough for a cell."""
    assert short(int(count)) == shown


def test_an_older_result_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    """Without the newer tables there is less to draw, and the page says what is missing."""
    place = Made(wrong={"lost": [(1, 0, 2)]}).write(tmp_path, sessions=False)
    (place / "latency.parquet").unlink()
    (place / "undelivered.parquet").unlink()
    old = SCHEMAS["by_minute"].names[:-6]
    minutes = pq.read_table(place / "by_minute.parquet").select(old)
    pq.write_table(minutes, place / "by_minute.parquet")
    result = read_result(Location.parse(place))
    shown = page(result)
    assert shown["charts"]["latency"] is None
    assert [row.name for row in shown["latency_rows"]] == ["orders", "clicks.eu", "all topics"]
    assert [each.kind for each in shown["ids"].ranges] == ["lost"]
    words = Page(render(result)).words
    assert "The result has no table of latencies: reconcile again to create it." in words
    assert "the table undelivered does not exist" in words
    assert "the run's logs were not found" not in words.split("What this report does not show")[0]
    for name in ("by_minute", "findings", "by_stream"):
        (place / f"{name}.parquet").unlink()
    words = Page(render(read_result(Location.parse(place)))).words
    assert "The result has no table by minute: reconcile again to create it." in words
    assert "the table findings does not exist" in words


def test_a_run_without_latencies_or_minutes_draws_nothing_empty(tmp_path: Path) -> None:
    """Sentences replace charts that would be empty."""
    made = Made(minutes=0, latency=False)
    result = result_of(made, tmp_path)
    assert page(result)["charts"] is None
    words = Page(render(result)).words
    assert "No message has a known intended time, so there is nothing to draw." in words
    assert "No latency was measured." in words


def test_limits_of_latency_are_drawn_where_the_conditions_speak_of_them(tmp_path: Path) -> None:
    """A condition on the latency from the intended time is a line; others are not."""
    made = Made(
        minutes=3,
        thresholds=[("p(99)<2s", 1.0, True), ("ack_latency.max<5s", 1.0, True), ("x~y", 1, True)],
    )
    result = result_of(made, tmp_path)
    timeline = from_minutes(result.table("by_minute"), result.table("latency"))
    assert timeline is not None
    limits = chart_data(result.summary, timeline, (), Tones(result.summary))["limits"]
    assert limits == [{"text": "p(99)<2s", "seconds": 2.0, "failed": False, "failing": []}]


def test_an_empty_table_of_streams_is_no_table(tmp_path: Path) -> None:
    """The page lists no producers."""
    place = Made(minutes=1).write(tmp_path)
    empty = pa.Table.from_pylist([], SCHEMAS["by_stream"])
    pq.write_table(empty, place / "by_stream.parquet")
    assert page(read_result(Location.parse(place)))["producers"].rows == []
