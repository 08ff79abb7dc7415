"""Many small histories in one run, each with its own topics, reconciled once for all tests.

A reconciliation costs the same for one small history and for ten. Test modules add their scenes
here; their tests look up their topics in the one result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tests.spark.spark_history import RUN, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.results.summary import Summary
    from mirrortest.seqlog.rows import Row

_scenes: list[Callable[[], History]] = []
look_ups: list[LookUp] = []
"""The look-up of offsets that no consumer read: at most one."""


def scene(lay: Callable[[], History]) -> Callable[[], History]:
    """Add this history to the run; no other may have its topics."""
    _scenes.append(lay)
    return lay


def joined(parts: Iterable[History]) -> History:
    """Merge histories: their first consumers become one consumer, and so on."""
    merged = History({})
    for part in parts:
        assert not merged.topics.keys() & part.topics.keys()
        merged.topics |= part.topics
        merged.compacted += part.compacted
        merged.producer += part.producer
        _add(merged.consumers, part.consumers)
        _add(merged.observers, part.observers)
    return merged


def together() -> History:
    """All the scenes as one history."""
    return joined(lay() for lay in _scenes)


def _add(logs: list[list[Row]], more: list[list[Row]]) -> None:
    for number, log in enumerate(more):
        if number == len(logs):
            logs.append([])
        logs[number] += log


@dataclass
class Result:
    """The result of a reconciliation."""

    logs: Path
    summary: Summary

    def rows(self, table: str, topic: str | None = None) -> list[dict[str, Any]]:
        """A result table's rows, or those of one topic."""
        place = self.logs / f"run={RUN}" / "result" / f"{table}.parquet"
        rows = pq.read_table(place).to_pylist()
        return [row for row in rows if topic is None or row["topic"] == topic]

    def count(self, name: str, topic: str) -> int:
        """A count of one topic, summed over its streams, else over its partitions."""
        streams = self.rows("by_stream", topic)
        if name in streams[0]:
            return sum(row[name] for row in streams)
        return sum(each.counts[name] for each in self.summary.partitions if each.topic == topic)

    def disagreements(self, topic: str) -> list[str]:
        """The disagreements between online and offline on a topic."""
        assert self.summary.online is not None
        return [
            line
            for line in self.summary.online.disagreements
            if line.partition(":")[0].partition("-")[0] == topic
        ]

    def attribution(self, topic: str) -> dict[tuple[str, str | None], int]:
        """(verdict, attribution) -> messages."""
        counts: dict[tuple[str, str | None], int] = {}
        for row in self.rows("undelivered", topic):
            key = row["verdict"], row["attribution"]
            counts[key] = counts.get(key, 0) + row["seq_hi"] - row["seq_lo"]
        return counts
