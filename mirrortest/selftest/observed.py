"""What was found: online by the consumers, offline by the reconciliation, as keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrortest.model.findings import Finding
from mirrortest.report.summary import Summary
from mirrortest.selftest.sent import SHIFT, STREAM, spans
from mirrortest.seqlog.files import find_sessions, read_file
from mirrortest.seqlog.schema import Kind, Role
from mirrortest.verify.judge import COUNTED
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from mirrortest.selftest.expected import Keys
    from mirrortest.selftest.sent import Numbers, Place
    from mirrortest.seqlog.damage import Damage

STREAMLESS = (Finding.FOREIGN, Finding.OTHER_RUN, Finding.CORRUPTED)
"""What records without an id are counted as."""


@dataclass
class Observed:
    """Findings by one way.

    What several tell must be the same: `agreed` is told by all of them, `told` by any.

    Attributes:
        agreed, told: by finding, keys of messages.
        agreed_records, told_records: by finding, keys of records.
        counts: of records without an id by finding; by partition where that is told, else under
            None together with the messages of the same finding. One of each who tells.
    """

    agreed: Keys = field(default_factory=dict)
    told: Keys = field(default_factory=dict)
    agreed_records: Keys = field(default_factory=dict)
    told_records: Keys = field(default_factory=dict)
    counts: list[tuple[str, Mapping[Place | None, Counter[Finding]]]] = field(default_factory=list)


def online(reports: Mapping[str, Mapping[str, Any]], records: Keys, numbers: Numbers) -> Observed:
    """What the consumers' reports (by name, as JSON tells them) and their logs say."""
    found = [_of_streams(report["streams"], numbers) for report in reports.values()]
    observed = Observed(
        _combined(found, all_of_them=True), _combined(found, all_of_them=False), records, records
    )
    for name, report in reports.items():
        counts = report["counts"]
        total = Counter({finding: counts.get(finding.label, 0) for finding in STREAMLESS})
        observed.counts.append((name, {None: total}))
    return observed


def _of_streams(streams: Iterable[Mapping[str, Any]], numbers: Numbers) -> Keys:
    found: dict[Finding, list[tuple[int, int]]] = defaultdict(list)
    for stream in streams:
        base = numbers.message(StreamId(*(stream[name] for name in STREAM)))
        for finding in COUNTED:
            found[finding] += [(base | lo, base | hi) for lo, hi in stream.get(finding.label, ())]
    return {finding: spans(intervals) for finding, intervals in found.items()}


def offline(result: Path, run: str, records: Keys, numbers: Numbers) -> Observed:
    """What a reconciliation's tables say."""
    found = _of_table(result / "findings.parquet", "finding", numbers)
    missing = _of_table(result / "undelivered.parquet", "verdict", numbers)
    # Loss stands in two tables, which must say the same.
    twice = [found, {**found, Finding.LOST: missing.get(Finding.LOST, np.zeros(0, np.int64))}]
    observed = Observed(
        _combined(twice, all_of_them=True), _combined(twice, all_of_them=False), records, records
    )
    summary = Summary.model_validate_json((result / "summary.json").read_bytes())
    labels = {**{f: f.label for f in STREAMLESS}, Finding.CORRUPTED: "corrupted_unknown_id"}
    by_place: dict[Place | None, Counter[Finding]] = {}
    for each in summary.partitions:
        if each.partition is not None:
            told = Counter({f: each.counts.get(label, 0) for f, label in labels.items()})
            by_place[each.topic, each.partition] = told
    observed.counts.append((f"the reconciliation of {run}", by_place))
    return observed


def _of_table(path: Path, column: str, numbers: Numbers) -> Keys:
    found: dict[Finding, list[tuple[int, int]]] = defaultdict(list)
    named = {finding.label: finding for finding in Finding}
    for row in pq.read_table(path).to_pylist():
        finding = named.get(row[column])
        if finding is not None:
            base = numbers.message(StreamId(*(row[name] for name in STREAM)))
            found[finding].append((base | row["seq_lo"], base | row["seq_hi"]))
    return {finding: spans(intervals) for finding, intervals in found.items()}


def records_without_id(logs: Path, run: str, numbers: Numbers) -> tuple[Keys, list[str]]:
    """From the consumers' logs: those records by their offsets, and what of the logs is missing."""
    damage: list[Damage] = []
    found: dict[Finding, list[tuple[int, int]]] = defaultdict(list)
    for session in find_sessions(logs, run):
        if session.session.role is not Role.CONSUMER:
            continue
        damage += session.damage
        for file in session.files:
            for batch in read_file(file, damage, columns=_COLUMNS):
                seen = pc.equal(batch["kind"], Kind.SEEN.value)
                for row in batch.filter(pc.and_(seen, pc.is_null(batch["seq_lo"]))).to_pylist():
                    base = numbers.record((row["topic"], row["partition"]))
                    told = _streamless(row["findings"])
                    found[told].append((base | row["offset_lo"], base | row["offset_hi"]))
    keys = {finding: spans(intervals) for finding, intervals in found.items()}
    return keys, [f"a consumer's log is not whole: {each}" for each in damage]


_COLUMNS = (*("kind", "topic", "partition", "seq_lo", "offset_lo", "offset_hi", "findings"),)


def _streamless(findings: int) -> Finding:
    """The one finding that counts, as the partition's checker has it."""
    for finding in (Finding.OTHER_RUN, Finding.FOREIGN, Finding.CORRUPTED):
        if findings & finding:
            return finding
    return Finding.FOREIGN


def _combined(found: list[Keys], *, all_of_them: bool) -> Keys:
    combine = np.intersect1d if all_of_them else np.union1d
    result: Keys = {}
    for finding in {finding for keys in found for finding in keys}:
        first, *rest = (keys.get(finding, np.zeros(0, np.int64)) for keys in found)
        for other in rest:
            first = combine(first, other)
        result[finding] = first
    return result


def by_place(keys: NDArray[np.int64], numbers: Numbers) -> dict[Place | None, int]:
    """How many records of each partition these are."""
    places, counts = np.unique(keys >> SHIFT, return_counts=True)
    return {
        numbers.place_of(int(place) << SHIFT): int(count)
        for place, count in zip(places, counts, strict=True)
    }
