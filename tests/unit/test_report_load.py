"""A report's section Load: the figures of the processes' intervals, by step."""

from __future__ import annotations

import base64
import csv
import io
import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mirrortest.report.html import load as load_module
from mirrortest.report.html import render
from mirrortest.report.html.load import Load, read_load
from mirrortest.report.html.load_panels import panels
from mirrortest.report.html.page import page
from mirrortest.report.result import Result, read_result
from mirrortest.seqlog.interval_log import SCHEMA
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import FileNote, Session
from mirrortest.timing.histogram import Histogram
from tests.made_result import RUN, START, Made

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
Rows = list[dict[str, Any]]


def row(begin: float, end: float, topic: str = "orders", **figures: Any) -> dict[str, Any]:
    """An interval; its times are in seconds from the run's start."""
    times = [int((START + at) * SECOND) for at in (begin, end)]
    common = {"cpu_seconds": 0.5 * (end - begin), "memory_bytes": 100 << 20}
    return {"started_ns": times[0], "ended_ns": times[1], "topic": topic, **common, **figures}


def sent(
    begin: float, end: float, messages: int, topic: str = "orders", **more: Any
) -> dict[str, Any]:
    """A producer's interval in which all was acknowledged."""
    counts = dict.fromkeys(("asked", "sent", "acked", "batch_messages"), messages)
    rest = {"failed": 0, "unknown": 0, "value_bytes": 100 * messages, "batch_bytes": 5000}
    rest |= {"batches": 5, "in_flight": 3, "debt_messages": 0}
    return row(begin, end, topic, **(counts | rest | more))


def arrived(
    begin: float, end: float, messages: int, topic: str = "orders", lag: int = 0
) -> dict[str, Any]:
    """A consumer's interval."""
    figures = {"arrived": messages, "value_bytes": 100 * messages, "lag": lag}
    return row(begin, end, topic, **figures)


def result_of(
    tmp_path: Path, *sessions: tuple[Role, Rows] | tuple[Role, Rows, dict[str, str]]
) -> Result:
    """A result with these sessions' intervals, named s0, s1 and so on."""
    place = Made(minutes=2, topics=("orders", "clicks")).write(tmp_path, sessions=False)
    for number, (role, rows, *settings) in enumerate(sessions):
        session = Session(
            run=RUN, role=role, name=f"s{number}", session=f"s{number}", started_ns=START * SECOND,
            incarnation=1 if role is Role.PRODUCER else None, settings=dict(*settings),
        )  # fmt: skip
        folder = tmp_path / session.folders[0] / session.folders[1] / f"s{number}-s{number}"
        folder.mkdir(parents=True)
        (folder / "session.json").write_bytes(session.encode())
        with closing(JournalWriter(folder / "intervals.journal")) as journal:
            journal.append([pa.RecordBatch.from_pylist(rows, SCHEMA)])
    return read_result(Location.parse(place))


def load_of(tmp_path: Path, *sessions: Any) -> Load:
    load, absent = read_load(result_of(tmp_path, *sessions))
    assert load is not None
    assert absent == []
    return load


def line(load: Load, title: str, name: str, topic: str | None = None) -> list[float]:
    """A line's values."""
    (panel,) = [each for each in panels(load, topic) if each.title == title]
    (found,) = [each for each in panel.lines if each.name == name]
    values: list[float] = found.values.tolist()
    return values


def test_a_steady_rate_is_that_rate_in_every_step(tmp_path: Path) -> None:
    """Whatever the intervals' bounds, and also in steps that the run fills only in part."""
    rows = [sent(at, at + 5.1, 510) for at in np.arange(12.3, 60, 5.1)]
    load = load_of(tmp_path, (Role.PRODUCER, rows))
    assert load.slots.step_ns == 5 * SECOND
    assert line(load, "messages/s", "acknowledged") == pytest.approx([100] * load.slots.count)
    assert line(load, "messages that wait", "in flight") == pytest.approx([3] * load.slots.count)
    assert line(load, "CPU, in cores", "producers") == pytest.approx([0.5] * load.slots.count)
    assert line(load, "messages in a batch", "mean") == pytest.approx([102] * load.slots.count)


def test_nothing_is_counted_twice_or_left_out(tmp_path: Path) -> None:
    """The steps have all messages of the intervals, whose lengths are random."""
    random = np.random.default_rng(7)
    borders = np.cumsum(random.uniform(0.5, 20, 300))
    counts = random.integers(0, 10_000, 299).tolist()
    rows = [
        sent(begin, end, count)
        for begin, end, count in zip(borders[:-1], borders[1:], counts, strict=True)
    ]
    load = load_of(tmp_path, (Role.PRODUCER, rows))
    total = load.total(Role.PRODUCER, "acked", [0])
    assert total.sum() == pytest.approx(sum(counts))
    assert load.seconds[Role.PRODUCER].sum() == pytest.approx(borders[-1] - borders[0])


def test_producers_and_topics_add_up_and_a_process_counts_once(tmp_path: Path) -> None:
    """Two producers of two topics: CPU and memory are the processes', not the topics'."""
    each = [sent(0, 10, 1000), sent(0, 10, 500, "clicks")]
    load = load_of(tmp_path, (Role.PRODUCER, each), (Role.PRODUCER, each))
    assert line(load, "messages/s", "sent") == pytest.approx([300])
    assert line(load, "messages/s", "sent", "clicks") == pytest.approx([100])
    assert line(load, "CPU, in cores", "producers") == pytest.approx([1.0])
    assert line(load, "memory, MiB", "producers") == pytest.approx([200])


def test_consumers_that_share_the_messages_add_up(tmp_path: Path) -> None:
    """Members of a group, and shards, each read a part."""
    group, shards = {"consumer group": "g"}, {"shard": "1/2"}
    part = [arrived(0, 10, 400, lag=5)]
    for settings in (group, shards):
        place = tmp_path / next(iter(settings)).replace(" ", "")
        load = load_of(place, (Role.CONSUMER, part, settings), (Role.CONSUMER, part, settings))
        assert load.readings == 1
        assert line(load, "messages/s", "arrived") == pytest.approx([80])
        assert line(load, "messages that wait", "lag of consumers") == pytest.approx([10])


def test_consumers_that_each_read_all_are_averaged(tmp_path: Path) -> None:
    """Two consumers judge the same run: their sum would be too high; the page says so."""
    one, other = [arrived(0, 10, 400, lag=5)], [arrived(0, 10, 200, lag=205)]
    result = result_of(
        tmp_path, (Role.CONSUMER, one), (Role.CONSUMER, other, {"consumer group": "g"}),
        (Role.SOURCE, one), (Role.PRODUCER, [sent(0, 10, 400)]),
    )  # fmt: skip
    load, _ = read_load(result)
    assert load is not None
    assert load.readings == 2
    assert line(load, "messages/s", "arrived") == pytest.approx([30])
    assert line(load, "messages/s", "in the source") == pytest.approx([40])
    assert line(load, "messages that wait", "lag of consumers") == pytest.approx([105])
    assert "2 consumers or groups each read all messages" in render(result)


def test_a_consumer_that_continues_for_another_reads_no_message_again(tmp_path: Path) -> None:
    """It has another name, as a new container does: what arrived was drawn as half of it."""
    before, after = [arrived(0, 10, 400)], [arrived(10, 20, 400)]
    load = load_of(tmp_path, (Role.CONSUMER, before), (Role.CONSUMER, after))
    assert load.readings == 1
    assert line(load, "messages/s", "arrived") == pytest.approx([40, 40])


def test_a_process_counts_whatever_its_topics(tmp_path: Path) -> None:
    """A consumer that gave its first topic away had no CPU and no memory from then on."""
    rows = [arrived(0, 10, 0, "clicks"), arrived(0, 10, 400), arrived(10, 20, 400)]
    load = load_of(tmp_path, (Role.CONSUMER, rows))
    assert line(load, "CPU, in cores", "consumers") == pytest.approx([0.5, 0.5])
    assert line(load, "memory, MiB", "consumers") == pytest.approx([100, 100])


def test_percentiles_are_those_of_the_intervals_histograms(tmp_path: Path) -> None:
    """They are of all topics' acknowledgements in a step together."""
    random = np.random.default_rng(3)
    rows, combined = [], Histogram()
    for topic in ("orders", "clicks"):
        histogram = Histogram()
        histogram.add(random.lognormal(16, 1, 5000).astype(np.int64))
        combined.merge(histogram)
        _, buckets, counts = histogram.sparse()
        latency = {"latency_bucket": buckets, "latency_count": counts, "negative": 0}
        rows.append(sent(0, 10, 5000, topic, **latency))
    load = load_of(tmp_path, (Role.PRODUCER, rows))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        expected = combined.quantile(share) / SECOND
        assert line(load, "acknowledgement latency", name) == pytest.approx([expected])


def test_errors_have_a_panel_only_where_there_are_any(tmp_path: Path) -> None:
    """Failed and unknown messages, each where it occurred."""
    clean = load_of(tmp_path / "clean", (Role.PRODUCER, [sent(0, 10, 1000)]))
    titles = [panel.title for panel in panels(clean)]
    assert "not acknowledged, messages/s" not in titles
    rows = [sent(0, 10, 1000), sent(10, 20, 1000, unknown=50)]
    broken = load_of(tmp_path / "broken", (Role.PRODUCER, rows))
    assert line(broken, "not acknowledged, messages/s", "unknown") == pytest.approx([0, 5])
    (panel,) = [each for each in panels(broken) if each.title.startswith("not acknowledged")]
    assert [each.name for each in panel.lines] == ["unknown"]


def test_a_step_without_anything_at_work_has_no_value(tmp_path: Path) -> None:
    """Consumers that began later have no rate before; that is not a rate of 0."""
    load = load_of(
        tmp_path,
        (Role.PRODUCER, [sent(0, 10, 1000), sent(10, 20, 1000)]),
        (Role.CONSUMER, [arrived(10, 20, 1000)]),
    )
    assert line(load, "messages/s", "acknowledged") == pytest.approx([100, 100])
    first, second = line(load, "messages/s", "arrived")
    assert np.isnan(first)
    assert second == pytest.approx(100)


def test_without_intervals_there_is_no_section(tmp_path: Path) -> None:
    """A run of an older version: no heading, no link, no data."""
    result = read_result(Location.parse(Made(minutes=2).write(tmp_path)))
    assert read_load(result) == (None, [])
    shown = page(result)
    assert shown["load"] is None
    assert "load" not in shown["charts"]
    assert 'id="load"' not in render(result)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Damaged intervals are left out, and the report says so."""
    result = result_of(tmp_path, (Role.PRODUCER, [sent(0, 10, 1000)]))
    (journal,) = tmp_path.rglob("intervals.journal")
    journal.write_bytes(journal.read_bytes()[:-9])
    load, absent = read_load(result)
    assert load is None
    assert len(absent) == 1
    assert "the load is incomplete" in absent[0]
    assert absent[0] in page(result)["absent"]


def test_a_report_reads_no_endless_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than fit into memory: the section is left out, with the reason."""
    result = result_of(tmp_path, (Role.PRODUCER, [sent(0, 10, 1000)]))
    (found,) = result.sessions
    monkeypatch.setattr(load_module, "MOST_ROWS", 0)
    noted = found.session.model_copy(
        update={"intervals": FileNote(name="intervals.parquet", rows=1)}
    )
    many = replace(result, sessions=(replace(found, session=noted),))
    load, absent = read_load(many)
    assert load is None
    assert absent == ["the files of intervals have 1 row: the load is shown for at most 0 rows"]


def test_the_figures_can_be_taken_away_as_csv(tmp_path: Path) -> None:
    """All topics together, then each, as the charts draw them; an absent value is empty."""
    rows = [sent(0, 10, 1000), sent(0, 10, 500, "clicks")]
    text = render(
        result_of(tmp_path, (Role.PRODUCER, rows), (Role.CONSUMER, [arrived(20, 30, 900)]))
    )
    name = f"mirrortest-{RUN}-load.csv"
    (content,) = re.findall(rf'<a download="{name}" href="data:text/csv[^,]*,([^"]+)"', text)
    table = list(csv.DictReader(io.StringIO(base64.b64decode(content).decode())))
    assert [(each["topic"], each["messages/s: sent"]) for each in table] == [
        ("all topics", "150.0"), ("all topics", ""), ("all topics", ""),
        ("clicks", "50.0"), ("clicks", ""), ("clicks", ""),
        ("orders", "100.0"), ("orders", ""), ("orders", ""),
    ]  # fmt: skip
    assert table[2]["messages/s: arrived"] == "90.0"
