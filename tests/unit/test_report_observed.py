"""The report's sections on what was observed: machines, JVMs, brokers, log lines."""

from __future__ import annotations

import base64
import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.model.observed import BROKER, DEVICE, GC, HOST, LOG, MIRROR, PROCESS, REQUEST
from mirrortest.report.html import observations, render
from mirrortest.report.html.observations import Observations, read_observations, short_names
from mirrortest.report.html.observed import observed_sections
from mirrortest.report.html.observed_panels import (
    Drawn,
    broker_panels,
    jvm_panels,
    log_panels,
    machine_panels,
)
from mirrortest.report.html.page import page
from mirrortest.report.result import Result, read_result
from mirrortest.seqlog.location import Location
from tests.made_observation import Rows, at, entries, everything, pause, write_observation
from tests.made_result import RUN, Made

if TYPE_CHECKING:
    from pathlib import Path

MINUTES = 2


def result_of(tmp_path: Path, *rows: Rows, place: str = "observations", **more: Any) -> Result:
    """A run of two minutes whose observations are next to its logs."""
    logs = tmp_path / "logs"
    result = Made(minutes=MINUTES, topics=("orders",)).write(logs)
    for number, each in enumerate(rows, start=1):
        write_observation(tmp_path / place, each, **{"name": f"m{number}", **more})
    return read_result(Location.parse(result))


def found_in(result: Result) -> Observations:
    found, absent = read_observations(result)
    assert found is not None
    assert absent == []
    return found


def line(drawn: Drawn, title: str, name: str) -> list[float]:
    (panel,) = [each for each in drawn.panels if each.title == title]
    (its,) = [each for each in panel.lines if each.name == name]
    values: list[float] = its.values.tolist()
    return values


def sections(result: Result) -> list[str]:
    return [each.name for each in page(result)["observed"]]


def test_everything_that_is_recorded_is_drawn(tmp_path: Path) -> None:
    """Four sections, named in the list of sections; a chart has data for each of its panels."""
    result = result_of(tmp_path, everything(120, 5))
    shown = page(result)
    names = ["machines", "jvms", "brokers", "log-lines"]
    assert sections(result) == names
    assert [name for name, _ in shown["sections"] if name in names] == names
    drawn = {each["name"]: each["panels"] for each in shown["charts"]["observed"]}
    assert {name: len(panels) for name, panels in drawn.items()} == {
        "machine-0": 16, "jvms": 3, "brokers": 20, "log-lines": 1
    }  # fmt: skip
    assert all(line["values"] for panels in drawn.values() for p in panels for line in p["lines"])
    text = render(result)
    assert all(f'id="{name}"' in text for name in (*names, *(f"chart-{name}" for name in drawn)))


def test_a_run_without_observations_has_no_such_section(tmp_path: Path) -> None:
    """Nor does a kind of figures have a section if nothing of it was observed."""
    assert sections(result_of(tmp_path / "a")) == []
    only_host = result_of(tmp_path / "b", {HOST: [at(0, 1, cpu_ratio=0.5)]})
    assert sections(only_host) == ["machines"]
    (section,) = page(only_host)["observed"]
    assert [each["title"] for each in section.charts[0].data["panels"]] == ["CPU, % of all CPUs"]


def test_figures_are_means_of_a_step_weighted_by_time(tmp_path: Path) -> None:
    """For intervals that are longer or shorter than a step, or cut off by the run's end."""
    rows = [at(0, 1, cpu_ratio=0.2), at(1, 1.5, cpu_ratio=0.4), at(1.5, 2, cpu_ratio=0.8)]
    rows += [at(2, 4, cpu_ratio=0.5), at(119, 125, cpu_ratio=0.1), at(130, 131, cpu_ratio=0.9)]
    rows += [at(begin, begin + 1) for begin in range(5, 118)]
    drawn = machine_panels(found_in(result_of(tmp_path, {HOST: rows})), "m1")
    cpu = line(drawn, "CPU, % of all CPUs", "at work")
    assert cpu[:4] == pytest.approx([20, 60, 50, 50])
    assert np.isnan(cpu[4])
    assert len(cpu) == MINUTES * 60
    assert cpu[-1] == pytest.approx(10)


def test_brokers_have_lines_of_their_own_and_requests_the_mean_of_all(tmp_path: Path) -> None:
    """A stage's mean weighs each broker by its requests."""
    brokers = [at(0, 10, endpoint=name, bytes_in_per_second=rate * (1 << 20))
               for name, rate in (("A1", 3.0), ("B1", 5.0))]  # fmt: skip
    requests = [
        at(0, 10, endpoint=name, request="Produce", requests_per_second=rate, local_seconds=time)
        for name, rate, time in (("A1", 30.0, 0.001), ("B1", 10.0, 0.005))
    ]
    copied = [at(0, 10, endpoint="mirror", topic=topic, partition="", records_per_second=100.0,
                 replication_latency_seconds=seconds)
              for topic, seconds in (("a", 0.1), ("b", 0.7))]  # fmt: skip
    found = found_in(result_of(tmp_path, {BROKER: brokers, REQUEST: requests, MIRROR: copied}))
    drawn = broker_panels(found)
    assert line(drawn, "bytes in, MiB/s", "A1")[:10] == pytest.approx([3] * 10)
    assert line(drawn, "bytes in, MiB/s", "B1")[:10] == pytest.approx([5] * 10)
    stage = line(drawn, "time of a request by stage, ms: Produce", "at the log")
    assert stage[0] == pytest.approx((30 * 1 + 10 * 5) / 40)
    assert line(drawn, "mirror: records/s", "mirror")[0] == pytest.approx(200)
    latency = line(drawn, "mirror: replication latency, worst partition", "mirror")
    assert latency[0] == pytest.approx(0.7)


def test_trouble_is_drawn_where_there_was_some_and_else_said_to_be_none(tmp_path: Path) -> None:
    """What was not recorded is neither drawn nor said to be absent."""
    rows = [
        at(0, 10, endpoint="A1", isr_shrinks_per_second=0.0, elections_per_second=0.0),
        at(10, 20, endpoint="A1", isr_shrinks_per_second=0.0, elections_per_second=0.4),
    ]
    drawn = broker_panels(found_in(result_of(tmp_path, {BROKER: rows})))
    assert drawn.silent == ["changes of in-sync replicas/s"]
    assert [each.title for each in drawn.panels] == ["elections/s"]


def test_trouble_of_any_of_many_brokers_is_drawn(tmp_path: Path) -> None:
    """Only six have lines: the lag of the eighth was said to be 0 all the time."""
    brokers = [
        at(0, 10, endpoint=f"B{each}", bytes_in_per_second=1.0, replica_lag=1000.0 * (each == 8))
        for each in range(1, 10)
    ]
    copied = [
        at(0, 10, endpoint=f"W{each}", topic="orders", partition="",
           replication_latency_seconds=9.0 if each == 8 else 0.1)
        for each in range(1, 10)
    ]  # fmt: skip
    result = result_of(tmp_path, {BROKER: brokers, MIRROR: copied})
    drawn = broker_panels(found_in(result))
    assert drawn.silent == []
    assert line(drawn, "lag of followers, messages", "B8")[0] == 1000
    assert line(drawn, "mirror: replication latency, worst partition", "W8")[0] == 9
    (section,) = page(result)["observed"]
    assert "At most 6" in section.about


def test_the_cache_hit_ratio_is_that_of_all_processes(tmp_path: Path) -> None:
    """By bytes: rchar against read_bytes; by calls: reads against the disk's requests."""
    processes = [
        at(0, 10, process="a", pid=pid, requested_read_bytes_per_second=asked, cpus=0.5,
           read_bytes_per_second=missed, read_calls_per_second=40.0)
        for pid, asked, missed in ((1, 1000.0, 400.0), (2, 3000.0, 0.0))
    ]  # fmt: skip
    disk = [at(0, 10, device="vda", reads_per_second=8.0, written_bytes_per_second=0.0)]
    rows: Rows = {PROCESS: processes, DEVICE: disk, HOST: [at(0, 10)]}
    drawn = machine_panels(found_in(result_of(tmp_path, rows)), "m1")
    title = "reads that the page cache served, %"
    assert line(drawn, title, "bytes")[0] == pytest.approx(90)
    assert line(drawn, title, "calls")[0] == pytest.approx(90)
    assert line(drawn, "CPU of processes, in cores", "a")[0] == pytest.approx(1.0)


def test_pauses_add_up_and_the_heap_stays_until_the_next_collection(tmp_path: Path) -> None:
    """Each JVM is separate and has its log's name; the table has the totals."""
    rows = [pause(1, 0.1, 30 << 20), pause(1.5, 0.3, 40 << 20), pause(5, 0.2, 20 << 20)]
    rows += [pause(3, 0.05, 10 << 20, log="/other/B1-gc.log")]
    result = result_of(tmp_path, {GC: rows, HOST: [at(t, t + 1) for t in range(120)]})
    drawn = jvm_panels(found_in(result))
    assert line(drawn, "time in pauses, %", "A1-gc")[:6] == pytest.approx([0, 40, 0, 0, 0, 20])
    longest = line(drawn, "longest pause", "A1-gc")
    assert longest[1] == pytest.approx(0.3)
    assert np.isnan(longest[2])
    heap = line(drawn, "heap after a collection, MiB", "A1-gc")
    assert np.isnan(heap[0])
    assert heap[1:7] == pytest.approx([40, 40, 40, 40, 20, 20])
    assert line(drawn, "longest pause", "B1-gc")[3] == pytest.approx(0.05)
    (table,) = [t for s in page(result)["observed"] if s.name == "jvms" for t in s.tables]
    assert [row[0] for row in table.rows] == ["A1-gc", "B1-gc"]
    assert table.rows[0][5:9] == ["600 ms", "300 ms", "99.50 %", "3"]


def test_a_pause_may_end_with_the_last_step(tmp_path: Path) -> None:
    """The pause was counted in the step after the last: `mirrortest report` raised a traceback."""
    result = result_of(tmp_path, {GC: [pause(119.5, 0.5, 20_000_000), pause(4, 0, 10_000_000)]})
    drawn = jvm_panels(found_in(result))
    assert line(drawn, "longest pause", "A1-gc")[-1] == pytest.approx(0.5)
    assert line(drawn, "longest pause", "A1-gc")[0] == 0


def test_shares_of_collections_are_of_the_time_that_was_observed(tmp_path: Path) -> None:
    """They were of whole steps: four of 10 s for 30 s that begin and end within one."""
    rows = [at(begin, begin + 10, cpu_ratio=0.5) for begin in (5, 15, 25)]
    pauses = [pause(begin, 1.0, 30_000_000) for begin in (6, 20, 34)]
    found = page(result_of(tmp_path, {HOST: rows, GC: pauses}))["observed"]
    (section,) = [each for each in found if each.name == "jvms"]
    ((_, _, _, freed, by_minute, _, _, throughput, *_),) = section.tables[0].rows
    assert (freed, by_minute, throughput) == ("150.0", "300.0", "90.00 %")


def test_log_lines_are_counted_by_class_over_the_whole_run(tmp_path: Path) -> None:
    """Count, first and last time and an example of each, the most frequent first."""
    name = "org.apache.kafka.common.errors.NotLeaderOrFollowerException"
    rows = [
        entries(1, 2, 3, name, kind="exception"),
        entries(30, 31, 4, name, kind="exception", example="a later one"),
        entries(40, 41, 1, "kafka.server.<script>"),
    ]
    result = result_of(tmp_path, {LOG: rows})
    drawn = log_panels(found_in(result))
    assert sum(line(drawn, "entries", "exception")) == pytest.approx(7)
    assert sum(line(drawn, "entries", "warning")) == pytest.approx(1)
    (table,) = [t for s in page(result)["observed"] for t in s.tables]
    first, second = table.rows
    assert first[:4] == ["server", "exception", name, "7"]
    assert first[4][-8:] < first[5][-8:]
    assert first[6] == f"{name} failed"
    assert second[3] == "1"
    assert "<script>kafka" not in render(result)
    assert "kafka.server.&lt;script&gt;" in render(result)


def test_each_machine_has_its_chart_and_what_it_could_not_see_is_named(tmp_path: Path) -> None:
    """Charts are in the order of names; the reason for what is missing is shown."""
    rows: Rows = {HOST: [at(0, 1, cpu_ratio=0.5)]}
    result = result_of(tmp_path, rows, rows, left_out={"io of java": "no permission"})
    shown = page(result)
    charts = [each.title for section in shown["observed"] for each in section.charts]
    assert charts == ["Machine m1", "Machine m2"]
    assert "m1: io of java: not observed: no permission" in shown["absent"]


def test_logs_and_endpoints_of_one_name_on_two_machines_are_two(tmp_path: Path) -> None:
    """Two brokers that log to the same path were one JVM, with the pauses of both."""
    own: list[Rows] = [
        everything(60, 5) | {GC: [pause(begin, seconds, 30_000_000) for begin in (0, 20, 40)]}
        for seconds in (1.0, 3.0)
    ]
    result = result_of(tmp_path, *own)
    jvms, lines = [table for section in page(result)["observed"] for table in section.tables]
    log = "/lab/logs/A1-gc.log"
    pauses = {row[0]: row[5] for row in jvms.rows}
    assert pauses == {f"m1: {log}": "3.00 s", f"m2: {log}": "9.00 s"}
    log = "/lab/logs/server.log"
    assert [row[0] for row in lines.rows] == [f"m1: {log}", f"m2: {log}"]
    brokers = found_in(result).of(BROKER, "bytes_in_per_second", "endpoint")
    assert list(brokers) == ["m1: A1", "m1: B1", "m2: A1", "m2: B1"]


def test_only_the_runs_own_observations_are_shown(tmp_path: Path) -> None:
    """Of an observation without a run id, only what was during the run; of another run, nothing."""
    rows: Rows = {HOST: [at(-5, -4, cpu_ratio=0.9), at(0, 1, cpu_ratio=0.5)]}
    assert sections(result_of(tmp_path / "a", rows, run="another")) == []
    found = found_in(result_of(tmp_path / "b", rows, run=None))
    assert found.tables[HOST]["cpu_ratio"].to_pylist() == [0.5]
    early: Rows = {HOST: [at(-5, -4, cpu_ratio=0.9)]}
    assert sections(result_of(tmp_path / "c", early, run=None)) == []


def test_an_observation_that_lasts_or_was_killed_is_read_from_its_journals(tmp_path: Path) -> None:
    """It has everything that was written until then."""
    result = result_of(tmp_path, {HOST: [at(0, 1, cpu_ratio=0.5)]}, finish=False)
    assert found_in(result).tables[HOST].num_rows == 1


def test_machines_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    """As in two data centres: lines of observations at the same time have their folders' names."""
    for number, cpu in enumerate((0.2, 0.8)):
        rows: Rows = {HOST: [at(0, 1, cpu_ratio=cpu)], LOG: [entries(0, 1, 1, "a.B")]}
        write_observation(tmp_path / "observations", rows, name="kafka-0", session=f"dc{number}")
    found = found_in(result_of(tmp_path))
    assert found.machines == ["kafka-0-dc0-kafka-0", "kafka-0-dc1-kafka-0"]
    assert [float(values[0]) for values in found.of(HOST, "cpu_ratio").values()] == [0.2, 0.8]
    assert len(found.events(LOG, "count", "log")) == 2


def test_an_observer_that_starts_again_keeps_its_name(tmp_path: Path) -> None:
    """Also after a kill, which leaves no end."""
    rows: Rows = {HOST: [at(0, 1, cpu_ratio=0.2)]}
    write_observation(tmp_path / "observations", rows, finish=False)
    result = result_of(tmp_path, {HOST: [at(61, 62, cpu_ratio=0.8)]}, session="b", started=60)
    assert found_in(result).machines == ["m1"]


def test_observations_elsewhere_are_named(tmp_path: Path) -> None:
    """The option names a directory of observations, or one of them; each one counts once."""
    result = result_of(tmp_path, {HOST: [at(0, 1, cpu_ratio=0.5)]}, place="elsewhere")
    assert sections(result) == []
    base = tmp_path / "elsewhere"
    (folder,) = base.iterdir()
    places = [Location.parse(base), Location.parse(folder)]
    again = read_result(result.place, observations=places)
    assert [each.observation.name for each in again.observations] == ["m1"]
    assert sections(again) == ["machines"]
    empty = tmp_path / "empty"
    empty.mkdir()
    without = read_result(result.place, observations=[Location.parse(empty)])
    assert f"{empty}: there is no observation of run {RUN}" in without.absent


def test_what_is_damaged_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    """A table with other bytes, and a damaged observation.json."""
    rows: Rows = {HOST: [at(0, 1, cpu_ratio=0.5)], GC: [pause(1, 0.1, 5)]}
    result_of(tmp_path, rows, rows)
    one, other = sorted((tmp_path / "observations").iterdir())
    (one / "gc.parquet").write_bytes(b"not what was written")
    (other / "observation.json").write_text("{")
    result = read_result(Location.parse(tmp_path / "logs" / f"run={RUN}" / "result"))
    shown = page(result)
    assert [each.name for each in shown["observed"]] == ["machines"]
    wrong = "\n".join(shown["absent"])
    assert "what was observed is incomplete" in wrong
    assert "gc.parquet" in wrong
    assert "observation.json is damaged" in wrong


def test_endless_observations_are_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than fit into memory."""
    result = result_of(tmp_path, {HOST: [at(0, 1, cpu_ratio=0.5)]})
    monkeypatch.setattr(observations, "MOST_ROWS", 0)
    assert read_observations(result) == (
        None, ["the observations have 1 row: they are shown for at most 0 rows"],
    )  # fmt: skip


def test_the_lines_can_be_taken_away_as_csv(tmp_path: Path) -> None:
    """As they are drawn; a step without a value is empty."""
    rows: Rows = {HOST: [at(0, 1, cpu_ratio=0.5), at(2, 3, cpu_ratio=0.25)]}
    text = render(result_of(tmp_path, rows))
    name = f"mirrortest-{RUN}-machine-0.csv"
    (content,) = re.findall(rf'<a download="{name}" href="data:text/csv[^,]*,([^"]+)"', text)
    table = list(csv.DictReader(io.StringIO(base64.b64decode(content).decode())))
    column = "CPU, % of all CPUs: at work"
    assert [each[column] for each in table[:3]] == ["50.0", "", "25.0"]


def test_files_are_called_by_their_names_where_these_differ() -> None:
    """What is not a path, and files of the same name, stay as they are."""
    names = ["/a/A1.properties", "/a/B1.properties", "/x/server.log", "/y/server.log", "java -cp"]
    assert list(short_names(names).values()) == [
        "A1", "B1", "/x/server.log", "/y/server.log", "java -cp",
    ]  # fmt: skip
    commands = ["java", "/usr/lib/jvm/bin/java"]  # of --pid and --match: one line hid the other
    assert list(short_names(commands).values()) == commands


def test_sections_of_tables_alone_have_no_chart(tmp_path: Path) -> None:
    """Collections without pauses or sizes: the table is shown."""
    row = pause(1, 0.1, 5) | {"kind": "phase", "after_bytes": None, "freed_bytes": None}
    result = result_of(tmp_path, {GC: [row]})
    (section,) = observed_sections(found_in(result), result.summary)
    assert (section.name, section.charts, len(section.tables)) == ("jvms", [], 1)


def test_names_with_any_character_and_kinds_of_later_versions_are_shown(tmp_path: Path) -> None:
    """Names of observations, devices and logs may have a NUL in any place."""
    devices = [at(0, 10, device=name, busy_ratio=0.5) for name in ("a\0b", "a", "b")]
    collections = [pause(0, 0.5, 10, log="a\0b"), {**pause(1, 0.5, 10), "kind": "epsilon"}]
    rows: Rows = {HOST: [at(0, 1, cpu_ratio=0.5)], DEVICE: devices, GC: collections}
    result = result_of(tmp_path, rows)
    (notes,) = (tmp_path / "observations").glob("*/observation.json")
    notes.write_text(notes.read_text().replace('"m1"', '"m\\u00001"'))
    assert found_in(result).of(DEVICE, "busy_ratio", "device").keys() == {"a\0b", "a", "b"}
    assert sections(result) == ["machines", "jvms"]
    render(result)
