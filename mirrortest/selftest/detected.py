"""What was found, as keys: online by the consumers, offline by the reconciliation."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrortest.model.findings import OF_STREAM, Finding
from mirrortest.selftest.sent import NO_KEYS, SHIFT, keys_of, log_batches
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirrortest.results.summary import Summary
    from mirrortest.selftest.expected import Keys
    from mirrortest.selftest.sent import Numbers, Place
    from mirrortest.seqlog.damage import Damage

STREAMLESS = (Finding.OTHER_RUN, Finding.FOREIGN, Finding.CORRUPTED)
"""Findings of records without an id: a record counts as the first of these that it has."""
_COLUMNS = ("kind", "topic", "partition", "seq_lo", "offset_lo", "offset_hi", "findings")

Intervals = dict[Finding, list[tuple[int, int]]]


@dataclass
class Detected:
    """The findings of one way, online or offline.

    All sources of the same fact must agree: the consumers online, two tables offline.

    Attributes:
        by_all: by finding, keys of messages that all sources report; `by_any`: that any reports.
        records: by finding, keys of records without an id, from the consumers' logs.
        counts: numbers of records without an id, by source, partition and finding. A source that
            does not count by partition has the partition None, and counts messages, too.
    """

    by_all: Keys
    by_any: Keys
    records: Keys
    counts: list[tuple[str, Mapping[Place | None, Counter[Finding]]]] = field(default_factory=list)

    @classmethod
    def of(cls, sources: Sequence[Keys], records: Keys) -> Detected:
        """Combine what these sources report."""
        findings = {finding for keys in sources for finding in keys}
        found = {f: [keys.get(f, NO_KEYS) for keys in sources] for f in findings}
        return cls(
            {finding: reduce(np.intersect1d, keys) for finding, keys in found.items()},
            {finding: reduce(np.union1d, keys) for finding, keys in found.items()},
            records,
        )


def online(reports: Mapping[str, Mapping[str, Any]], records: Keys, numbers: Numbers) -> Detected:
    """The findings of the consumers' reports, which are JSON, by the consumer's name."""
    found = [_of_streams(report["streams"], numbers) for report in reports.values()]
    detected = Detected.of(found, records)
    for name, report in reports.items():
        counts = report["counts"]
        total = Counter({finding: counts.get(finding.label, 0) for finding in STREAMLESS})
        detected.counts.append((name, {None: total}))
    return detected


def _of_streams(streams: Iterable[Mapping[str, Any]], numbers: Numbers) -> Keys:
    found: Intervals = defaultdict(list)
    for stream in streams:
        base = numbers.message_of(stream)
        for finding in OF_STREAM:
            found[finding] += [(base | lo, base | hi) for lo, hi in stream.get(finding.label, ())]
    return _as_keys(found)


def offline(result: Path, summary: Summary, records: Keys, numbers: Numbers) -> Detected:
    """The findings of a reconciliation: its tables in a directory, and its summary."""
    found = _of_table(result / "findings.parquet", "finding", numbers)
    missing = _of_table(result / "undelivered.parquet", "verdict", numbers)
    # Two tables report losses, and must agree.
    other = {**found, Finding.LOST: missing.get(Finding.LOST, NO_KEYS)}
    detected = Detected.of([found, other], records)
    labels = {**{f: f.label for f in STREAMLESS}, Finding.CORRUPTED: "corrupted_unknown_id"}
    by_place: dict[Place | None, Counter[Finding]] = {
        (each.topic, each.partition): Counter(
            {finding: each.counts.get(label, 0) for finding, label in labels.items()}
        )
        for each in summary.partitions
        if each.partition is not None
    }
    detected.counts.append((f"the reconciliation of {summary.run}", by_place))
    return detected


def _of_table(path: Path, column: str, numbers: Numbers) -> Keys:
    found: Intervals = defaultdict(list)
    named = {finding.label: finding for finding in Finding}
    for row in pq.read_table(path).to_pylist():
        if row[column] in named:
            base = numbers.message_of(row)
            found[named[row[column]]].append((base | row["seq_lo"], base | row["seq_hi"]))
    return _as_keys(found)


def records_without_id(logs: Path, run: str, numbers: Numbers) -> tuple[Keys, list[str]]:
    """The records without an id that the consumers logged, and the damage of their logs."""
    damage: list[Damage] = []
    found: Intervals = defaultdict(list)
    for batch in log_batches(logs, run, Role.CONSUMER, _COLUMNS, damage):
        seen = pc.equal(batch["kind"], Kind.SEEN.value)
        for row in batch.filter(pc.and_(seen, pc.is_null(batch["seq_lo"]))).to_pylist():
            base = numbers.record((row["topic"], row["partition"]))
            finding = next((f for f in STREAMLESS if row["findings"] & f), Finding.FOREIGN)
            found[finding].append((base | row["offset_lo"], base | row["offset_hi"]))
    return _as_keys(found), [f"a consumer's log is damaged: {each}" for each in damage]


def _as_keys(found: Intervals) -> Keys:
    return {finding: keys_of(intervals) for finding, intervals in found.items()}


def by_place(keys: NDArray[np.int64], numbers: Numbers) -> dict[Place | None, int]:
    """The number of these records in each partition."""
    places, counts = np.unique(keys >> SHIFT, return_counts=True)
    return {
        numbers.place_of(int(place) << SHIFT): int(count)
        for place, count in zip(places, counts, strict=True)
    }
