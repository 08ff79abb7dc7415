"""An observation's files: as Parquet and CSV, after a kill, and by the command."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.model.observed import DEVICE, GC, HOST, LOG, MIRROR, TABLES
from mirrortest.observe import observer
from mirrortest.observe.observe_report import ObserveReport
from mirrortest.observe.observer import _until
from mirrortest.observe.options import ObserveOptions
from mirrortest.seqlog.journal import frame
from mirrortest.seqlog.observation import (
    OBSERVATION_FILE,
    SCHEMAS,
    Observation,
    Recording,
    finish_killed,
)
from mirrortest.seqlog.session import digest

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


def observation() -> Observation:
    return Observation(session="s", name="host", started_ns=EPOCH, interval_seconds=1.0)


def row(number: int, **figures: Any) -> dict[str, Any]:
    return {
        "started_ns": EPOCH + number * SECOND,
        "ended_ns": EPOCH + (number + 1) * SECOND,
        **figures,
    }


def record(recording: Recording) -> None:
    """Two intervals of the host, one of a device."""
    recording.write(HOST, [row(0, cpu_ratio=0.25, running=3)])
    recording.write(HOST, [row(1, cpu_ratio=0.5)])
    recording.write(DEVICE, [row(1, device="vda", busy_ratio=None, queue=1.5)])
    recording.write(DEVICE, [])


def observed(*arguments: str | Path) -> dict[str, Any]:
    """The JSON result of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "mirrortest", "observe", "--json", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_rows_become_parquet_files_that_the_observation_notes(tmp_path: Path) -> None:
    """It notes their digests; journals are removed, and a table without rows has no file."""
    with Recording(tmp_path, observation(), csv=False) as recording:
        record(recording)
        recording.finish(EPOCH + 2 * SECOND, left_out={"io of java": "no permission"})
    names = sorted(path.name for path in recording.path.iterdir())
    assert names == ["device.parquet", "host.parquet", OBSERVATION_FILE]
    noted = Observation.model_validate_json((recording.path / OBSERVATION_FILE).read_bytes())
    assert noted.ended_ns == EPOCH + 2 * SECOND
    assert noted.left_out == {"io of java": "no permission"}
    for name, note in noted.tables.items():
        data = (recording.path / f"{name}.parquet").read_bytes()
        assert (note.digest, note.rows) == (
            digest(data),
            pq.read_table(recording.path / f"{name}.parquet").num_rows,
        )
    host = pq.read_table(recording.path / "host.parquet")
    assert host.schema.equals(SCHEMAS["host"])
    assert host["cpu_ratio"].to_pylist() == [0.25, 0.5]
    assert host["running"].to_pylist() == [3, None]


def test_the_csv_has_the_same_rows(tmp_path: Path) -> None:
    """Times are in UTC, unknown figures empty; it can be read during the observation."""
    with Recording(tmp_path, observation(), csv=True) as recording:
        record(recording)
        recording.flush()
        with (recording.path / "device.csv").open() as file:
            (only,) = csv.DictReader(file)
    assert only["start"] == "2023-11-14T22:13:21.000Z"
    assert only["end"] == "2023-11-14T22:13:22.000Z"
    assert (only["device"], only["busy_ratio"], only["queue"]) == ("vda", "", "1.5")


def test_rows_are_in_their_files_after_five_seconds(tmp_path: Path) -> None:
    """The next write to any table flushes them."""
    now = [100.0]
    with Recording(tmp_path, observation(), csv=True, monotonic=lambda: now[0]) as recording:
        record(recording)
        assert not (recording.path / "host.csv").exists()
        now[0] += 5
        recording.write(DEVICE, [])
        assert len((recording.path / "host.csv").read_text().splitlines()) == 3


def test_many_intervals_are_one_row_group(tmp_path: Path) -> None:
    """A group for each interval would make the file ten times as large."""
    with Recording(tmp_path, observation(), csv=False) as recording:
        for number in range(50):
            recording.write(HOST, [row(number, cpu_ratio=0.5)])
        recording.finish(EPOCH, left_out={})
    assert pq.ParquetFile(recording.path / "host.parquet").num_row_groups == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.test_observe_recording import observation, record
from mirrortest.seqlog.observation import Recording
with Recording(Path(sys.argv[1]), observation(), csv=False) as recording:
    record(recording)
    recording.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_observation_keeps_its_rows_and_is_finished_by_the_next(tmp_path: Path) -> None:
    """It has no end time. A running one is left alone; a second call finds nothing."""
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert killed.returncode == -9
    other = observation().model_copy(update={"name": "other"})
    with Recording(tmp_path, other, csv=False) as going_on:
        record(going_on)
        going_on.flush()
        assert finish_killed(tmp_path) == ([tmp_path / "host-s"], [])
        assert (going_on.path / "host.journal").exists()
        assert finish_killed(tmp_path) == ([], [])
    assert pq.read_table(tmp_path / "host-s/host.parquet")["cpu_ratio"].to_pylist() == [0.25, 0.5]
    noted = Observation.model_validate_json((tmp_path / "host-s" / OBSERVATION_FILE).read_bytes())
    assert noted.ended_ns is None
    assert noted.tables["host"].rows == 2


def killed_with(tmp_path: Path, damaged: bytes) -> Path:
    """An observation that ended early, with this journal of the host, and an unknown table's."""
    with Recording(tmp_path, observation(), csv=False) as recording:
        record(recording)
        recording.flush()
    (recording.path / "host.journal").write_bytes(damaged)
    (recording.path / "newer.journal").write_bytes(b"of a newer version")
    return recording.path


def test_a_table_of_a_newer_version_stays_a_journal(tmp_path: Path) -> None:
    """That version finishes it; this one does not list the observation again."""
    path = killed_with(tmp_path, b"")
    assert finish_killed(tmp_path) == ([path], [])
    assert (path / "newer.journal").read_bytes() == b"of a newer version"
    assert not (path / "host.journal").exists()
    assert finish_killed(tmp_path) == ([], [])


def test_rows_that_a_killed_observation_lost_are_reported(tmp_path: Path) -> None:
    """A hole in a journal is reported; the last frame, which the kill truncated, is not."""
    batch = pa.RecordBatch.from_pylist([row(0, cpu_ratio=0.5)], schema=SCHEMAS["host"])
    frames = [frame(batch, at) for at in range(3)]
    path = killed_with(tmp_path, frames[0] + b"\0" * len(frames[1]) + frames[2] + frames[0][:20])
    finished, (wrong,) = finish_killed(tmp_path)
    assert finished == [path]
    assert wrong.startswith(f"{path}/host.journal: hole: bytes {len(frames[0])} to ")
    assert wrong.endswith("(lost: 1 rows)")


def test_a_damaged_observation_hinders_no_other(tmp_path: Path) -> None:
    """It is reported, and its journals stay."""
    with Recording(tmp_path, observation(), csv=False) as recording:
        record(recording)
        recording.flush()
    (recording.path / OBSERVATION_FILE).write_text("{")
    finished, (wrong,) = finish_killed(tmp_path)
    assert finished == []
    assert "observation.json is damaged" in wrong
    assert (recording.path / "host.journal").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error is one line."""
    (tmp_path / "file").touch()
    with pytest.raises(SequenceLogError, match="file/host-s: cannot write the observation here"):
        Recording(tmp_path / "file", observation(), csv=False)


def test_an_interval_too_short_for_the_kernels_clock_is_refused() -> None:
    """A CPU counter steps by a hundredth of a second."""
    with pytest.raises(UsageError, match="use at least 100ms"):
        ObserveOptions(name="n", interval=0.05)


@pytest.mark.parametrize(
    ("passed", "until"),
    [(0.0, 2.0), (2.1, 1.9), (2.9, 1.1), (3.5, 2.5), (1.999, 2.001), (6.9, 1.1), (8.1, 2.4)],
)
def test_no_interval_is_much_shorter_than_asked_for(passed: float, until: float) -> None:
    """After a late reading, and at the end: the rates of 25 ms were the highest of all."""
    options = ObserveOptions(name="n", interval=2.0, duration=10.5)
    assert _until(passed, options) == pytest.approx(until)


def test_an_observation_can_be_shorter_than_an_interval() -> None:
    """It has one row."""
    assert _until(0.0, ObserveOptions(name="n", interval=60.0, duration=2.0)) == 2.0


@pytest.mark.parametrize(
    ("seconds", "intervals"), [(5.0, 1), (61.0, 1), (89.0, 1), (91.0, 2), (179.0, 3)]
)
async def test_the_last_interval_is_recorded_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, intervals: int
) -> None:
    """Unless it is too short for rates; the length of the observation includes it in any case."""
    now = [0.0]

    async def wait(_: asyncio.Event, at_most: float) -> bool:
        now[0] = min(now[0] + at_most, seconds)
        return now[0] == seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
    monkeypatch.setattr(observer, "time", clock)
    monkeypatch.setattr(observer, "set_within", wait)
    options = ObserveOptions(name="n", output=tmp_path, interval=60.0)
    report = await observer.run(options, stop=asyncio.Event())
    assert (report.intervals, report.seconds) == (intervals, seconds)


def test_a_narrow_terminal_shows_every_figure_of_the_logs(tmp_path: Path) -> None:
    """At 80 columns, the table of collections cut its figures; at 40, nothing could be read."""
    report = ObserveReport(tmp_path)
    event = {"log": "/var/log/gc.log", "collector": "G1", "kind": "full pause", "name": "Pause"}
    sizes = {"before_bytes": 90, "after_bytes": 40, "capacity_bytes": 10**9, "freed_bytes": 50}
    times: dict[str, Any] = {"started_ns": EPOCH, "ended_ns": EPOCH + SECOND, "seconds": 1.0}
    logger = "org.apache.kafka.connect.runtime.AbstractWorkerSourceTask"
    entries = {"count": 1234, "first_ns": EPOCH, "last_ns": EPOCH, "example": "it failed"}
    report.add({
        GC: [event | sizes | times],
        LOG: [{"log": "mirror.log", "kind": "error", "type": logger} | entries],
    })  # fmt: skip
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(report.view())
    shown = re.sub(r"[^\w.:,]+", "", console.export_text())
    for text in ("gc.logG1longest1.00s", "gc.logG1heap1,000.00MB", "1,234", "itfailed", "Task"):
        assert text in shown, text
    assert "…" not in console.export_text()


def test_a_share_of_no_time_is_unknown(tmp_path: Path) -> None:
    """A single collection without a duration, of ZGC, was shown with 0 % of time without pauses."""
    report = ObserveReport(tmp_path)
    times: dict[str, Any] = {"started_ns": EPOCH, "ended_ns": EPOCH, "seconds": None}
    sizes = {"before_bytes": 90, "after_bytes": 40, "capacity_bytes": 100, "freed_bytes": 50}
    event = {"log": "gc.log", "collector": "ZGC", "kind": "collection", "name": ""}
    report.add({GC: [event | times | sizes]})
    shown = dict(report._gc_rows())
    assert (shown["gc.log ZGC throughput"], shown["gc.log ZGC freed/min"]) == ("-", "-")
    assert shown["gc.log ZGC pauses"] == "0 ns"


def test_a_figure_that_was_always_negative_has_no_highest_of_0(tmp_path: Path) -> None:
    """MirrorMaker 2's latency is negative where the destination's clock is behind."""
    report = ObserveReport(tmp_path)
    row = {"endpoint": "mirror", "topic": "t", "partition": "", "records_per_second": 1.0}
    for seconds in (-0.5, -0.25):
        report.add({MIRROR: [row | {"replication_latency_seconds": seconds}]})
    (figures,) = report.to_json()["mirror"].values()
    assert figures["replication_latency_seconds"] == {"mean": -0.375, "max": -0.25}
    assert report.to_json()["mirror"].keys() == {"mirror t"}


def test_the_command_observes_this_machine(tmp_path: Path) -> None:
    """Each interval is a row; the JSON result has the columns' names."""
    answer = observed(
        *("--csv", "--interval", "100ms", "--duration", "450ms", "--output", tmp_path),
        *("--run", "nightly", "--name", "here"),
    )
    assert answer["intervals"] >= 1
    assert 0 <= answer["host"][""]["cpu_ratio"]["mean"] <= 1
    (folder,) = tmp_path.iterdir()
    noted = Observation.model_validate_json((folder / OBSERVATION_FILE).read_bytes())
    assert (noted.name, noted.run) == ("here", "nightly")
    host = pq.read_table(folder / "host.parquet")
    assert host.num_rows == answer["intervals"]
    started, ended = host["started_ns"].to_pylist(), host["ended_ns"].to_pylist()
    assert started[1:] == ended[:-1]
    assert started[0] == noted.started_ns
    assert all(end > start for start, end in zip(started, ended, strict=True))


def test_every_table_and_column_has_its_own_name_and_meaning() -> None:
    """Names are unique, and meanings are sentences."""
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert len({each.name for each in table.columns}) == len(table.columns)
        assert all(each.meaning.endswith(".") for each in table.columns)
