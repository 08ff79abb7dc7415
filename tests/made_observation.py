"""Synthetic observations: the files that `mirrortest observe` writes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from mirrortest.model.load import INT, TEXT
from mirrortest.model.observed import GC, LOG, TABLES
from mirrortest.seqlog.observation import Observation, Recording
from tests.made_result import RUN, START

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirrortest.model.observed import Observed

SECOND = 1_000_000_000
Rows = dict["Observed", list[dict[str, Any]]]
_SUBJECTS: Mapping[str, Sequence[Sequence[Any]]] = {
    "device": [["vda"]],
    "interface": [["eth0"], ["lo"]],
    "process": [["/lab/config/A1.properties", 11], ["/lab/config/B1.properties", 12], ["java", 13]],
    "broker": [["A1"], ["B1"]],
    "request": [["A1", "Produce"], ["A1", "FetchConsumer"], ["B1", "Produce"]],
    "mirror": [["mirror", "orders", ""]],
    "partition": [],
}


def at(begin: float, end: float, **figures: Any) -> dict[str, Any]:
    """A row of an interval, its times in seconds from the run's start."""
    times = [int((START + each) * SECOND) for each in (begin, end)]
    return {"started_ns": times[0], "ended_ns": times[1], **figures}


def entries(begin: float, end: float, count: int, name: str, **more: Any) -> dict[str, Any]:
    """Entries of a log: warnings of a logger in server.log, unless `more` says otherwise."""
    row = at(begin, end, log="/lab/logs/server.log", kind="warning", type=name, count=count)
    row |= {"first_ns": row["started_ns"], "last_ns": row["ended_ns"], "example": f"{name} failed"}
    return row | more


def pause(
    begin: float, seconds: float, after: int, log: str = "/lab/logs/A1-gc.log"
) -> dict[str, Any]:
    """A young collection in a heap of 100 MB."""
    sizes = {"before_bytes": 80_000_000, "after_bytes": after, "capacity_bytes": 100_000_000}
    rest = {"name": "Pause Young", "cause": "Allocation Failure", "number": 1}
    return at(
        begin, begin + seconds, log=log, collector="G1", kind="young pause", seconds=seconds,
        freed_bytes=80_000_000 - after, **sizes, **rest,
    )  # fmt: skip


def everything(seconds: int, step: int) -> Rows:
    """A row of each table and subject for each step, with numbers that vary by both."""
    rows: Rows = {}
    for table in TABLES:
        for subject in () if table in (GC, LOG) else _SUBJECTS.get(table.name, [[]]):
            keys = dict(zip((key.name for key in table.keys), subject, strict=True))
            for begin in range(0, seconds, step):
                wave = 1 + (zlib.crc32(f"{table.name} {subject}".encode()) + begin // step) % 7
                figures = {
                    figure.name: wave * (1 << 20 if "bytes" in figure.name else 1)
                    if figure.type == INT
                    else wave / 10
                    for figure in table.figures
                    if figure.type != TEXT
                }
                rows.setdefault(table, []).append(at(begin, begin + step, **keys, **figures))
    rows[GC] = [pause(begin, 0.02, 30_000_000) for begin in range(0, seconds, 4 * step)]
    rows[LOG] = [
        entries(begin, begin, 2, "kafka.server.ReplicaManager")
        for begin in range(0, seconds, 5 * step)
    ]
    return rows


def requests(
    begin: float, endpoint: str, request: str, rate: float, throttle: float
) -> dict[str, Any]:
    """A second of a broker's requests of one type."""
    return at(begin, begin + 1, endpoint=endpoint, request=request) | {
        "requests_per_second": rate,
        "throttle_seconds": throttle,
    }


def write_observation(
    base: Path, rows: Rows, *, name: str = "m1", run: str | None = RUN, finish: bool = True,
    session: str = "s", started: int = 0, left_out: Mapping[str, str] | None = None,
) -> Path:  # fmt: skip
    """Write an observation below a directory; unfinished, it looks killed. Returns its path."""
    observation = Observation(
        session=f"{session}-{name}",
        name=name,
        run=run,
        started_ns=(START + started) * SECOND,
        interval_seconds=1.0,
    )
    with Recording(base, observation, csv=False) as recording:
        for table, its in rows.items():
            recording.write(table, its)
        recording.flush()
        if finish:
            recording.finish((START + started + 60) * SECOND, left_out=left_out or {})
        return recording.path
