"""Garbage collection logs of real JVMs, compared with the JVM's own counters.

gc_logs/README.md has the commands that created them.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from mirrortest.model.observed import GC, PAUSES, GcKind
from mirrortest.observe.gc_log import GcLog
from mirrortest.observe.logs import GcLogs
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.results.observed_totals import GcSummary

LOGS = Path(__file__).with_name("gc_logs")
OF = {"G1 Young Generation": [GcKind.YOUNG], "G1 Old Generation": [GcKind.FULL],
      "G1 Concurrent GC": [GcKind.PAUSE], "Copy": [GcKind.YOUNG], "MarkSweepCompact": [GcKind.FULL],
      "PS Scavenge": [GcKind.YOUNG], "PS MarkSweep": [GcKind.FULL],
      "ZGC Cycles": [GcKind.COLLECTION],
      "ZGC Pauses": [GcKind.PAUSE], "ZGC Major Cycles": [GcKind.COLLECTION],
      "ZGC Major Pauses": [GcKind.PAUSE], "Shenandoah Pauses": [GcKind.PAUSE]}  # fmt: skip
"""The JVM's name of a collector -> the kinds of its events."""


def rows(name: str) -> list[dict[str, object]]:
    """The rows of a log, as they are recorded."""
    return GcLogs(ReadableFiles(), [LOGS / f"{name}.log"]).rows()


def summary(name: str) -> GcSummary:
    found = GcSummary()
    for row in rows(name):
        found.add(row)
    return found


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_collections_are_those_that_the_jvm_counted(name: str) -> None:
    """Counts are equal; times agree within 1 ms per collection plus 10 %."""
    found = summary(name)
    compared = 0
    for bean, count, milliseconds in csv.reader((LOGS / f"{name}.csv").read_text().splitlines()):
        if bean not in OF or not int(count):
            continue
        total = found.of(*OF[bean])
        assert total.count == int(count), bean
        if GcKind.COLLECTION not in OF[bean]:  # ZGC's cycle is longer than its own log of it
            assert 1000 * total.seconds == pytest.approx(
                int(milliseconds), abs=int(count) + 0.1 * int(milliseconds)
            )
        compared += 1
    assert compared


@pytest.mark.parametrize(
    ("name", "collector", "footprint", "freed"),
    [
        ("serial-17", "Serial", 36, 71),
        ("parallel-25", "Parallel", 55, 70),
        ("g1-25", "G1", 50, 72),
        ("z-17", "ZGC", 46, 56),
        ("z-25", "ZGC", 32, 24),
        ("shenandoah-25", "Shenandoah", 32, 10),
    ],
)
def test_the_heap_of_each_collector(name: str, collector: str, footprint: int, freed: int) -> None:
    """Its largest size, and what its collections freed, in MiB, added up by hand."""
    found = summary(name)
    assert (found.collector, found.footprint >> 20, found.freed >> 20) == (
        collector,
        footprint,
        freed,
    )


def test_phases_are_each_collectors_own() -> None:
    """A full collection of Serial has four; ZGC and Shenandoah have concurrent ones."""
    serial = summary("serial-17").phases
    assert [name for kind, name in serial if kind == GcKind.PHASE] == [
        "Phase 1: Mark live objects",
        "Phase 2: Compute new object addresses",
        "Phase 3: Adjust pointers",
        "Phase 4: Move objects",
    ]
    assert (GcKind.CONCURRENT, "Concurrent Relocate") in summary("z-25").phases
    assert (GcKind.CONCURRENT, "Concurrent marking") in summary("shenandoah-25").phases
    assert (GcKind.PHASE, "Evacuate Collection Set") in summary("g1-25").phases


def test_a_pause_as_a_row() -> None:
    """A row has all columns; its name, cause, kind, number and heap are right."""
    log = LOGS / "serial-17.log"
    line = next(text for text in log.read_text().splitlines() if re.search(r"\d+ms$", text))
    at = re.match(r"\[(\S+?)\]", line)
    assert at is not None
    (first, *_), columns = rows("serial-17"), {each.name for each in GC.columns}
    assert set(first) == columns
    assert first["name"] == "Pause Young"
    assert first["cause"] == "Allocation Failure"
    assert first["kind"] == "young pause"
    assert first["number"] == 0
    before, after = first["before_bytes"], first["after_bytes"]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert first["freed_bytes"] == before - after > 0


def test_lines_with_the_uptime_alone_have_times_by_the_files_age(tmp_path: Path) -> None:
    """These are Java's default decorations. The last line's time is the file's."""
    log = tmp_path / "gc.log"
    log.write_text(
        "[0.010s][info][gc] Using G1\n"
        "[1.000s][info][gc] GC(0) Pause Young (Normal) (Evacuation) 14M->3M(46M) 50.000ms\n"
        "[3.000s][info][gc] GC(1) Pause Full (System.gc()) 14M->3M(46M) 250.000ms\n"
    )
    first, second = GcLogs(ReadableFiles(), [log]).rows()
    written_ns = log.stat().st_mtime_ns
    assert (first["ended_ns"], second["ended_ns"]) == (written_ns - 2_000_000_000, written_ns)
    assert second["started_ns"] == written_ns - 250_000_000


def test_a_restarted_jvm_has_times_of_its_own(tmp_path: Path) -> None:
    """Its uptime starts at 0 again: once, its pauses were dated ten hours too early."""
    log = tmp_path / "gc.log"
    pause = "[{}s][info][gc] GC(0) Pause Young (Normal) (Evacuation) 14M->3M(46M) 50.000ms\n"
    log.write_text(pause.format("36000.000"))
    logs = GcLogs(ReadableFiles(), [log])
    logs.rows()
    with log.open("a") as file:
        file.write(pause.format("36001.000") + pause.format("2.000") + pause.format("3.000"))
    written_ns = log.stat().st_mtime_ns
    before, first, second = (row["ended_ns"] for row in logs.rows())
    assert (before, first, second) == (written_ns, written_ns - 1_000_000_000, written_ns)


def test_a_log_that_is_deleted_while_it_is_read_ends_nothing(tmp_path: Path) -> None:
    """A rotation may delete it: once, that ended the entire observation with a traceback."""
    log = tmp_path / "gc.log"
    log.write_text("[0.010s][info][gc] Using G1\n")
    logs = GcLogs(ReadableFiles(), [log])
    assert logs.rows() == []
    with log.open("a") as file:
        file.write("[9.000s][info][gc] GC(0) Pause Full (System.gc()) 14M->3M(46M) 250.000ms\n")
    written_ns = log.stat().st_mtime_ns
    log.unlink()
    (row,) = logs.rows()
    assert row["ended_ns"] == written_ns


@pytest.mark.parametrize("first", ["[0.010s][info][gc] Using G1\n", ""], ids=["whole", "rotated"])
def test_what_a_log_had_before_the_observation_is_not_read(tmp_path: Path, first: str) -> None:
    """Except for its collector: Kafka's own settings let a log grow to 100 MB."""
    log = tmp_path / "gc.log"
    pause = "[9.000s][info][gc] GC(0) Pause Full (System.gc()) 14M->3M(46M) 250.000ms\n"
    log.write_text(first + pause * 3 + pause[:9])
    logs = GcLogs(ReadableFiles(), [log])
    logs.skip()
    assert logs.collectors == [(str(log), "G1" if first else "")]
    with log.open("a") as file:
        file.write(pause[9:] + pause)
    (row,) = logs.rows()
    assert row["collector"] == ("G1" if first else "")


def test_the_share_of_time_without_pauses() -> None:
    """It is a share of the observation; if its length is unknown, from first to last event."""
    found = summary("parallel-25")
    pauses = found.of(*PAUSES).seconds
    assert found.to_json(10.0)["throughput_ratio"] == pytest.approx(1 - pauses / 10)
    assert found.to_json(10.0)["freed_bytes_per_minute"] == found.freed * 6
    alone = found.to_json()
    assert alone["throughput_ratio"] == pytest.approx(1 - pauses / found.seconds)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no decoration",
        "[1.000s][info][safepoint] GC(0) Pause Young (Normal) 1M->1M(2M) 1.0ms",
        "[1.000s][info][gc,start] GC(0) Pause Young (Normal) (G1 Evacuation Pause)",
        "[1.000s][info][gc] GC(0) Concurrent Mark Cycle",
        "[1.000s][info][gc] GC(x) Pause Young 1M->1M(2M) 1.0ms",
        "[1.000s][info][gc,cpu] GC(0) User=0.01s Sys=0.00s Real=0.07s",
    ],
)
def test_other_lines_are_no_events(line: str) -> None:
    """Starts, other tags, and lines that are not from such a log."""
    assert list(GcLog().events(line)) == []
