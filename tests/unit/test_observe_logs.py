"""Kafka's logs: the entries that are counted, and files that grow and are rotated."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from mirrortest.observe import tailed_file
from mirrortest.observe.log_lines import Kind, LogLines
from mirrortest.observe.logs import KafkaLogs
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.observe.tailed_file import TailedFile
from tests.unit.test_observe_recording import observed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVER = """\
[2026-11-25 23:17:12,063] INFO starting (kafka.server.KafkaRaftServer)
[2026-11-25 23:17:13,001] ERROR [Broker id=1] Error while appending (kafka.server.ReplicaManager)
org.apache.kafka.common.errors.NotLeaderOrFollowerException: Leader not local
\tat kafka.server.ReplicaManager.append(ReplicaManager.scala:1)
Caused by: java.io.IOException: disk
\tat java.base/java.io.Files.write(Files.java)
[2026-11-25 23:17:14,002] WARN [Broker id=1] slow disk (kafka.log.LogManager)
[2026-11-25 23:17:15,003] WARN [Broker id=1] slow disk again (kafka.log.LogManager)
[2026-11-25 23:17:16,004] WARN Node 2 disconnected: java.net.ConnectException: refused (a.b.Client)
[2026-11-25 23:17:17,005] INFO a java.lang.IllegalStateException that nobody threw (x.Y)
[2026-11-25 23:17:18,006] ERROR no broker (kafka.Kafka$)
"""
SECOND = 10**9
AT = 1795648632 * SECOND
"""2026-11-25 23:17:12 in UTC."""


def test_entries_are_counted_by_class_or_logger() -> None:
    """The thrown class is counted, not its cause; INFO is not counted, whatever it names."""
    log = LogLines(UTC)
    log.add(SERVER.splitlines())
    log.close()
    found = {key: (each.count, each.first_ns, each.last_ns) for key, each in log.take().items()}
    assert found == {
        (Kind.EXCEPTION, "org.apache.kafka.common.errors.NotLeaderOrFollowerException"): (
            1, AT + 1_001_000_000, AT + 1_001_000_000,
        ),
        (Kind.WARNING, "kafka.log.LogManager"): (2, AT + 2_002_000_000, AT + 3_003_000_000),
        (Kind.EXCEPTION, "java.net.ConnectException"): (
            1, AT + 4_004_000_000, AT + 4_004_000_000,
        ),
        (Kind.ERROR, "kafka.Kafka$"): (1, AT + 6_006_000_000, AT + 6_006_000_000),
    }  # fmt: skip
    assert log.take() == {}


def test_an_entry_is_counted_once_its_trace_is_complete() -> None:
    """A trace may be half written when the log is read."""
    log = LogLines(UTC)
    first, second = SERVER.splitlines()[1:3]
    log.add([first])
    assert log.take() == {}
    log.add([second])
    log.close()
    ((kind, name),) = log.take()
    assert (kind, name.rpartition(".")[2]) == (Kind.EXCEPTION, "NotLeaderOrFollowerException")


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-25 23:17:12,063] WARN [Mirror|task-0] late: retrying (org.x.WorkerTask:234)",
        "2026-11-25 23:17:12,063 WARN late: retrying (org.x.WorkerTask) [task-thread-Mirror-0]",
    ],
    ids=["connect", "strimzi"],
)
def test_the_logger_is_found_in_every_layout(line: str) -> None:
    """Kafka Connect's own layout, which MirrorMaker 2 has, adds the line; Strimzi's, the thread."""
    log = LogLines(UTC)
    log.add([line])
    log.close()
    assert [*log.take()] == [(Kind.WARNING, "org.x.WorkerTask")]


def test_the_labs_layout_is_read_too() -> None:
    """In that layout, the logger comes before the text."""
    log = LogLines(UTC)
    log.add(["2026-11-25 23:17:12.063 WARN  Plugins: All plugins have ServiceLoader manifests"])
    log.close()
    (((kind, name), found),) = log.take().items()
    assert (kind, name, found.first_ns) == (Kind.WARNING, "Plugins", AT + 63_000_000)
    assert found.example == "Plugins: All plugins have ServiceLoader manifests"


def test_control_characters_of_a_log_are_escaped(tmp_path: Path) -> None:
    """Other programs write it."""
    path = tmp_path / "server.log"
    path.write_text("[2026-11-25 23:17:12,063] WARN \x1b[31mred (a.B)\n")
    (row,) = KafkaLogs(ReadableFiles(), [path]).rows(last=True)
    assert "\x1b" not in str(row["example"])


def test_a_file_is_read_by_whole_lines_as_it_grows(tmp_path: Path) -> None:
    """It is read from its beginning, even if it is created later."""
    path = tmp_path / "log"
    tailed = TailedFile(path)
    assert list(tailed.lines()) == []
    path.write_bytes(b"one\ntwo\r\nthr")
    assert list(tailed.lines()) == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"ee\n\xff\n")
    assert list(tailed.lines()) == ["three", "�"]
    assert list(tailed.lines()) == []
    tailed.close()


def test_a_rotated_file_loses_no_line(tmp_path: Path) -> None:
    """Lines appended to the old file since the last read come first, then the new file's."""
    path = tmp_path / "log"
    path.write_text("one\n")
    tailed = TailedFile(path)
    assert list(tailed.lines()) == ["one"]
    with path.open("a") as file:
        file.write("two\nthree")
    path.rename(tmp_path / "log.1")
    assert list(tailed.lines()) == ["two"]
    path.write_text("four\n")
    assert list(tailed.lines()) == ["three", "four"]
    path.write_text("5\n")
    assert list(tailed.lines()) == ["5"]
    tailed.close()


def test_a_file_that_is_rotated_amid_a_reading_loses_no_line(tmp_path: Path) -> None:
    """Once, warnings that a broker logged just before the rotation were not counted."""
    path = tmp_path / "log"

    class Rotated(TailedFile):
        def _read(self) -> Iterator[str]:
            yield from super()._read()
            if path.read_text() == "one\n":
                with path.open("a") as file:
                    file.write("two\n")
                path.rename(tmp_path / "log.1")
                path.write_text("three\n")

    tailed = Rotated(path)
    path.write_text("one\n")
    assert [*tailed.lines(), *tailed.lines()] == ["one", "two", "three"]
    tailed.close()


def test_a_file_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a log of 300 MB took a gigabyte of memory; a line can be in several pieces."""
    monkeypatch.setattr(tailed_file, "_PIECE", 5)
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthirteen\n14")
    tailed = TailedFile(path)
    lines = tailed.lines()
    assert next(lines) == "one"
    assert tailed._rest == b"t"
    assert list(lines) == ["two", "thirteen"]
    tailed.close()


def test_what_a_log_had_before_the_observation_is_not_read(tmp_path: Path) -> None:
    """Entries after it are counted, also in a log that did not exist yet."""
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    entry = "[2026-11-25 23:17:12,063] WARN slow (a.B)\n"
    old.write_text(entry * 3 + "[2026-11-25 23:17:12,063] WARN sl")
    logs = KafkaLogs(ReadableFiles(), [old, new])
    logs.skip()
    assert logs.rows() == []
    with old.open("a") as file:
        file.write("ow (a.B)\n" + entry)
    new.write_text(entry * 2)
    assert [row["count"] for row in logs.rows(last=True)] == [1, 2]


def test_the_command_reads_logs_once(tmp_path: Path) -> None:
    """It reads them to their last entry, and does not measure the machine."""
    path = tmp_path / "server.log"
    path.write_text(SERVER)
    gc_log = tmp_path / "gc.log"
    gc_log.write_text("[1.000s][info][gc] GC(0) Pause Full (System.gc()) 14M->3M(46M) 250.000ms\n")
    answer = observed("--once", "--log", path, "--gc-log", gc_log, "--output", tmp_path / "o")
    assert sum(each["count"] for each in answer["log"]) == 5
    assert answer["gc"][str(gc_log)]["full_collections"] == 1
    assert answer["intervals"] == 0
    assert {each.name for each in next((tmp_path / "o").iterdir()).iterdir()} == {
        "gc.parquet",
        "log.parquet",
        "observation.json",
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--match", ""], "matches every process"),
        (["--pid", "4194304"], "no such process"),
        (["--once"], "name them with --gc-log or --log"),
        (["--log", "."], "that is a directory"),
        (["--gc-log", "nowhere/gc.log"], "there is no directory nowhere"),
        (["--once", "--gc-log", "gc.lgo"], "--gc-log gc.lgo: there is no such file"),
        (["--once", "--log", "server.lgo"], "--log server.lgo: there is no such file"),
    ],
)
def test_what_cannot_be_observed_is_refused(arguments: list[str], expected: str) -> None:
    """The error is one line, before anything is observed."""
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", "observe", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert expected in done.stderr


def test_a_log_that_does_not_exist_yet_is_named_and_read_once_it_exists(tmp_path: Path) -> None:
    """A misspelt name gave an observation without collections, and no warning."""
    later, there = tmp_path / "later.log", tmp_path / "server.log"
    there.touch()
    observer = subprocess.Popen(
        [
            *(sys.executable, "-m", "mirrortest", "observe", "--json", "--duration", "10s"),
            *("--log", later, "--log", there, "--gc-log", tmp_path / "gc.lgo"),
            *("--output", tmp_path / "o"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert observer.stderr is not None
    named = [observer.stderr.readline() for _ in range(2)]
    later.write_text(SERVER)
    observer.terminate()
    answer, warnings = observer.communicate()
    assert "gc.lgo does not exist yet" in named[0]
    assert "later.log does not exist yet" in named[1]
    assert "server.log" not in "".join(named) + warnings
    assert sum(each["count"] for each in json.loads(answer)["log"]) == 5
