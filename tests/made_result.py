"""Synthetic results of a reconciliation: the same files, with the same columns.

`tests/spark/test_reconcile_report.py` compares the columns with those that a reconciliation writes.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.model.findings import OF_STREAM, Finding
from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import Latency, Missing, Partition, Summary, Threshold
from mirrortest.seqlog.interval_log import SCHEMA as INTERVALS
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import FileNote, Session, Topic
from mirrortest.timing.histogram import Histogram

if TYPE_CHECKING:
    from pathlib import Path

RUN = "made1"
START = 28_000_000 * 60
"""The first minute, in seconds since the epoch."""
JUDGED = tuple(each.label for each in OF_STREAM if each is not Finding.COMPACTED)
SUMS = (
    "sent", "acked", "failed", "unknown", "unknown_seen", "seen", "delivered", "surplus",
    "unlogged", "unaccounted", *JUDGED,
)  # fmt: skip
_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()
_MINUTE = pa.timestamp("us", tz="UTC")
_STREAM = [("topic", _TEXT), ("producer", _TEXT), ("incarnation", _INT), ("lane", _LONG)]
_IDS = [
    ("topic", _TEXT), ("run", _TEXT), ("producer", _TEXT), ("incarnation", _INT), ("lane", _LONG),
]  # fmt: skip
_QUANTILES = ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")
SCHEMAS = {
    "by_minute": pa.schema(
        [
            ("topic", _TEXT),
            ("minute", _MINUTE),
            *((name, _LONG) for name in (*SUMS, "latencies", *_QUANTILES)),
        ]
    ),
    "latency": pa.schema(
        [
            ("topic", _TEXT),
            ("minute", _MINUTE),
            ("negative", _LONG),
            ("latency_bucket", pa.list_(_INT)),
            ("latency_count", pa.list_(_LONG)),
        ]
    ),
    "by_stream": pa.schema([*_STREAM, *((name, _LONG) for name in SUMS)]),
    "undelivered": pa.schema(
        [*_IDS, ("verdict", _TEXT), ("seq_lo", _LONG), ("seq_hi", _LONG), ("attribution", _TEXT)]
    ),
    "findings": pa.schema([*_IDS, ("finding", _TEXT), ("seq_lo", _LONG), ("seq_hi", _LONG)]),
}


@dataclass
class Made:
    """A run to write: its minutes, its topics, and what went wrong in it.

    `wrong` maps a finding to (minute, topic, count) tuples; each is a range of ids.
    """

    minutes: int = 60
    topics: tuple[str, ...] = ("orders", "clicks.eu")
    partitions: int = 4
    rate: int = 1000
    """Messages per topic and minute."""
    wrong: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    outage: range = range(0)
    """The minutes in which latencies are long."""
    counts: dict[str, int] = field(default_factory=dict)
    """Counts in addition to those that follow from the rest."""
    thresholds: list[tuple[str, float | None, bool]] = field(
        default_factory=lambda: [("lost==0", 0.0, True)]
    )
    verdict: Verdict = Verdict.PASSED
    inconclusive: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    producer: str = "ann"
    latency: bool = True
    interval: int = 0
    """Seconds of a reporting interval; 0: the sessions recorded none."""

    def summary(self, place: Path) -> Summary:
        sent = self.minutes * len(self.topics) * self.rate
        found = {name: sum(count for *_, count in ranges) for name, ranges in self.wrong.items()}
        counts = dict.fromkeys([*SUMS, "foreign", "other_run", "corrupted_unknown_id"], 0)
        missing = sum(found.get(name, 0) for name in ("lost", "in_flight", "inconclusive"))
        seen = sent - missing
        counts |= {"sent": sent, "acked": sent, "seen": seen, "delivered": seen} | found
        counts |= self.counts
        del counts["unlogged"], counts["unaccounted"]
        return Summary(
            run=RUN,
            verdict=self.verdict,
            exit_code=self.verdict.exit_code,
            counts=counts,
            partitions=self._partitions(),
            latency_seconds=self._latencies(),
            thresholds=[
                Threshold(expression=text, value=value, passed=passed)
                for text, value, passed in self.thresholds
            ],
            inconclusive=self.inconclusive,
            notes=self.notes,
            undelivered=[
                Missing(
                    topic=self.topics[topic], producer=self.producer, incarnation=1, lane=0,
                    verdict="lost", seq_lo=0, seq_hi=count,
                )
                for _, topic, count in self.wrong.get("lost", [])
            ],
            tables=str(place),
        )  # fmt: skip

    def write(self, logdir: Path, *, sessions: bool = True) -> Path:
        """Write the result, and sessions without rows next to it; returns the result's path."""
        place = logdir / f"run={RUN}" / "result"
        place.mkdir(parents=True)
        (place / "summary.json").write_text(self.summary(place).encode())
        tables = {
            "by_minute": self._by_minute(),
            "by_stream": self._by_stream(),
            "undelivered": self._ids("verdict", {"lost", "in_flight", "inconclusive"}),
            "findings": self._ids("finding", set(JUDGED)),
            **({"latency": self._latency()} if self.latency else {}),
        }
        for name, rows in tables.items():
            pq.write_table(pa.Table.from_pylist(rows, SCHEMAS[name]), place / f"{name}.parquet")
        if sessions:
            self._write_sessions(logdir)
        return place

    def _partitions(self) -> list[Partition]:
        each = self.minutes * self.rate // self.partitions
        counts = {
            (topic, number): {"seen": each} | dict.fromkeys(JUDGED, 0)
            for topic in self.topics
            for number in range(self.partitions)
        }
        for name, ranges in self.wrong.items():
            for minute, topic, count in ranges:
                counts[self.topics[topic], minute % self.partitions][name] += count
        return [
            Partition(topic=topic, partition=number, counts=by_name)
            for (topic, number), by_name in counts.items()
        ]

    def _histogram(self, minute: int, topic: int) -> Histogram:
        random = np.random.default_rng([minute, topic])
        times = random.lognormal(np.log(40e6), 0.6, 400)
        if minute in self.outage:
            left = (self.outage.stop - minute) * 60e9
            times = np.linspace(left, max(left - 60e9, 50e6), 400)
        histogram = Histogram()
        histogram.add(times.astype(np.int64))
        return histogram

    def _latencies(self) -> dict[str, Latency]:
        found = {}
        total = Histogram()
        for number, topic in enumerate(self.topics):
            merged = Histogram()
            for minute in range(self.minutes):
                merged.merge(self._histogram(minute, number))
            found[topic] = Latency.of(merged)
            total.merge(merged)
        return {**found, "all": Latency.of(total)}

    def _by_minute(self) -> list[dict[str, Any]]:
        rows: dict[tuple[int, int], dict[str, Any]] = {
            (minute, topic): dict.fromkeys((*SUMS, "latencies", *_QUANTILES), 0)
            | {"topic": name, "minute": _at(minute), "sent": self.rate, "acked": self.rate}
            for minute in range(self.minutes)
            for topic, name in enumerate(self.topics)
        }
        for finding, ranges in self.wrong.items():
            for minute, topic, count in ranges:
                rows[minute, topic][finding] += count
        return list(rows.values())

    def _latency(self) -> list[dict[str, Any]]:
        rows = []
        for minute in range(self.minutes):
            for topic, name in enumerate(self.topics):
                _, buckets, counts = self._histogram(minute, topic).sparse()
                rows.append(
                    {
                        "topic": name,
                        "minute": _at(minute),
                        "negative": 0,
                        "latency_bucket": buckets,
                        "latency_count": counts,
                    }
                )
        return rows

    def _by_stream(self) -> list[dict[str, Any]]:
        rows = []
        for number, topic in enumerate(self.topics):
            found = {
                name: sum(count for _, of, count in ranges if of == number)
                for name, ranges in self.wrong.items()
            }
            sent = self.minutes * self.rate
            rows.append(
                dict.fromkeys(SUMS, 0)
                | {"topic": topic, "producer": self.producer, "incarnation": 1, "lane": 0}
                | {"sent": sent, "acked": sent, "delivered": sent - found.get("lost", 0)}
                | found
            )
        return rows

    def _ids(self, column: str, names: set[str]) -> list[dict[str, Any]]:
        return [
            {
                "topic": self.topics[topic],
                "run": RUN,
                "producer": self.producer,
                "incarnation": 1,
                "lane": 0,
                column: name,
                "seq_lo": minute * self.rate,
                "seq_hi": minute * self.rate + count,
                "attribution": "in the source and not mirrored",
            }
            for name, ranges in self.wrong.items()
            if name in names
            for minute, topic, count in ranges
        ]

    def _write_sessions(self, logdir: Path) -> None:
        topics = {
            name: Topic(destination=f"A.{name}", destination_partitions=self.partitions)
            for name in self.topics
        }
        for role, name in (("producer", self.producer), ("consumer", "carl")):
            session = Session.model_validate(
                {
                    "run": RUN, "role": role, "name": name, "session": f"s-{role}",
                    "incarnation": 1 if role == "producer" else None,
                    "started_ns": START * 10**9, "clean": True,
                    "ended_ns": (START + self.minutes * 60) * 10**9,
                    "topics": {key: topic.model_dump() for key, topic in topics.items()},
                    "deadline_ns": 60 * 10**9 if role == "consumer" else None,
                    "expect_partition": "source" if role == "consumer" else None,
                    "clusters": {"source" if role == "producer" else "destination": f"c-{role}"},
                    "files": (FileNote(name="000001.parquet", rows=10**9),),
                }
            )  # fmt: skip
            folder = logdir / session.folders[0] / session.folders[1] / f"s-{role}"
            folder.mkdir(parents=True)
            (folder / "session.json").write_bytes(session.encode())
            if self.interval:
                with closing(JournalWriter(folder / "intervals.journal")) as journal:
                    rows = self._intervals(session.role)
                    journal.append([pa.RecordBatch.from_pylist(rows, INTERVALS)])
                    journal.sync()

    def _intervals(self, role: Role) -> list[dict[str, Any]]:
        """Intervals that match the minutes; in the outage nothing arrives, and the lag rises."""
        rows, lag = [], dict.fromkeys(self.topics, 0)
        for second in range(0, self.minutes * 60, self.interval):
            minute, sent = second // 60, self.rate * self.interval // 60
            for number, topic in enumerate(self.topics):
                arrived = 0 if minute in self.outage else sent + lag[topic]
                lag[topic] += sent - arrived
                row: dict[str, Any] = {
                    "started_ns": (START + second) * 10**9,
                    "ended_ns": (START + second + self.interval) * 10**9,
                    "topic": topic,
                    "cpu_seconds": self.interval * (0.2 if role is Role.PRODUCER else 0.1),
                    "memory_bytes": 150 << 20,
                }
                if role is Role.PRODUCER:
                    _, buckets, counts = self._histogram(minute, number).sparse()
                    row |= dict.fromkeys(("asked", "sent", "acked", "batch_messages"), sent)
                    row |= {"failed": 0, "unknown": 0, "value_bytes": sent * 500}
                    row |= {"batches": -(-sent // 20), "batch_bytes": sent * 300, "negative": 0}
                    row |= {"in_flight": 40, "debt_messages": 0, "debt_ns": 0}
                    row |= {"latency_bucket": buckets, "latency_count": counts}
                else:
                    row |= {"arrived": arrived, "backlog": 0, "value_bytes": arrived * 500}
                    row |= {"lag": lag[topic]}
                rows.append(row)
        return rows


def note_events(logdir: Path, *events: tuple[float, str, str]) -> None:
    """Write events.jsonl: (minute, what, part)."""
    lines = [
        json.dumps({"time_ns": int((START + minute * 60) * 1e9), "what": what, "part": part})
        for minute, what, part in events
    ]
    (logdir / f"run={RUN}" / "events.jsonl").write_text("\n".join(lines) + "\n")


def _at(minute: int) -> int:
    return (START + minute * 60) * 10**6


def failed_run() -> Made:
    """Three hours of three topics: a mirror is killed, some messages are lost, many duplicated."""
    return Made(
        minutes=180,
        topics=("orders", "clicks.eu", "payments.settled"),
        partitions=16,
        rate=60_000,
        wrong={
            "lost": [(71, 0, 480), (72, 0, 31)],
            "corrupted": [(120, 2, 1)],
            "misrouted": [(33, 1, 3), (150, 1, 2)],
            "late": [(73, 0, 220), (74, 2, 41)],
            "duplicated": [
                (minute, topic, 9000 - 1000 * topic) for minute in range(66, 71) for topic in (0, 1)
            ],
            "reordered": [(70, 2, 77)],
        },
        outage=range(70, 77),
        counts={"foreign": 4},
        thresholds=[
            ("lost==0", 511.0, False),
            ("corrupted==0", 1.0, False),
            ("misrouted==0", 5.0, False),
            ("phantom==0", 0.0, True),
            ("duplicated<1%", 0.26, True),
            ("p(99)<2s", 312.0, False),
            ("ack_latency.p(99)<1s", None, True),
        ],
        verdict=Verdict.FAILED,
        inconclusive=["threshold ack_latency.p(99)<1s: nothing measured"],
        notes=["log damaged: s-producer/000007.journal: a torn frame at its end"],
    )
