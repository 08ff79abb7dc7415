"""The load over time, from the reporting intervals that each process recorded.

An interval's counts are assumed to be evenly spread over it, and its levels (lag, memory) to be
constant. Its latencies belong to the step that contains its middle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.config.units import number
from mirrortest.report.html.latencies import Latencies
from mirrortest.report.html.timeline import Slots, times_of, topic_numbers
from mirrortest.seqlog.interval_log import read_intervals
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirrortest.report.html.timeline import Steps
    from mirrortest.report.result import Result
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.session import Session

MOST_ROWS = 1_000_000
_COUNTS = {
    Role.PRODUCER: (
        "asked", "sent", "acked", "failed", "unknown", "value_bytes", "batches", "batch_messages",
        "batch_bytes",
    ),
    Role.CONSUMER: ("arrived", "value_bytes"),
    Role.SOURCE: ("arrived",),
}  # fmt: skip
_LEVELS = {
    Role.PRODUCER: ("in_flight", "debt_messages"),
    Role.CONSUMER: ("lag",),
    Role.SOURCE: (),
}


@dataclass(frozen=True)
class Load:
    """Sums of a run's intervals, by role and figure, each an array [topic, step].

    Attributes:
        seconds: how long a role was at work in each step.
        sums: counts, and levels times seconds; divided by the role's seconds they are means.
        processes: the same by process, not topic, arrays [step]: CPU seconds, bytes times seconds.
        acknowledgements: producers' latencies, from the actual send; None without a producer.
        readings: how often each message was read, if several consumers read all of them. Arrivals
            and lag are means over these consumers.
    """

    slots: Slots
    topics: tuple[str, ...]
    seconds: Mapping[Role, Steps]
    sums: Mapping[tuple[Role, str], Steps]
    processes: Mapping[tuple[Role, str], Steps]
    acknowledgements: Latencies | None
    readings: int = 1

    def total(self, role: Role, figure: str, topics: Sequence[int]) -> Steps:
        """A figure of these topics by step; NaN if no process recorded it."""
        found = self.sums.get((role, figure))
        if found is None:
            return np.full(self.slots.count, np.nan)
        summed: Steps = found[list(topics)].sum(axis=0)
        return summed

    def mean(self, role: Role, figure: str, topics: Sequence[int]) -> Steps:
        """A count per second, or a level's mean, by step; NaN while the role was not at work."""
        return self._by_second(role, self.total(role, figure, topics))

    def of_processes(self, role: Role, figure: str) -> Steps:
        """The same for all processes of a role, whatever their topics."""
        found = self.processes.get((role, figure))
        return self._by_second(role, np.full(self.slots.count, np.nan) if found is None else found)

    def _by_second(self, role: Role, amounts: Steps) -> Steps:
        seconds = self.seconds.get(role, np.zeros(self.slots.count))
        divided = np.full(self.slots.count, np.nan)
        np.divide(amounts, seconds, out=divided, where=seconds > 0)
        return divided


@dataclass
class _Rows:
    """A role's intervals: in `tables` by topic, in `processes` once for all topics."""

    tables: list[pa.Table] = field(default_factory=list)
    processes: list[pa.Table] = field(default_factory=list)


def read_load(result: Result) -> tuple[Load | None, list[str]]:
    """The load of a run, None if no log has intervals; and what could not be shown."""
    notes = [each.session.intervals for each in result.sessions]
    noted = sum(note.rows for note in notes if note is not None)
    if noted > MOST_ROWS:
        rows = number(noted, "row")
        most = number(MOST_ROWS, "row")
        return None, [f"the files of intervals have {rows}: the load is shown for at most {most}"]
    damage: list[Damage] = []
    load = load_of((each.session, read_intervals(each, damage)) for each in result.sessions)
    return load, [f"the load is incomplete: {each}" for each in damage]


def load_of(logs: Iterable[tuple[Session, pa.Table]]) -> Load | None:
    """The load of processes from the rows of their intervals; None without rows."""
    found: dict[Role, _Rows] = {}
    readers: dict[str, set[tuple[str, str]]] = {}
    for session, rows in logs:
        if not rows.num_rows:
            continue
        its = found.setdefault(session.role, _Rows())
        its.tables.append(rows)
        _, first = np.unique(rows["started_ns"].to_numpy(), return_index=True)
        its.processes.append(rows.take(first))
        if session.role is Role.CONSUMER:
            for topic in rows["topic"].unique().to_pylist():
                readers.setdefault(topic, set()).add(_reader(session))
    if not found:
        return None
    return _load(found, {topic: len(each) for topic, each in readers.items()})


def _reader(session: Session) -> tuple[str, str]:
    """A key of the consumers that share states, and so the messages: its group, or all without."""
    return session.settings.get("consumer group", ""), session.settings.get("state topic", "")


def _load(found: Mapping[Role, _Rows], readings: Mapping[str, int]) -> Load:
    tables = {role: pa.concat_tables(rows.tables) for role, rows in found.items()}
    topics = tuple(sorted({t for rows in tables.values() for t in rows["topic"].to_pylist()}))
    times = {role: times_of(rows) for role, rows in tables.items()}
    lengths = np.concatenate([end - begin for begin, end in times.values()])
    slots = Slots.over_intervals(times.values(), float(np.median(lengths)))
    seconds: dict[Role, Steps] = {}
    sums: dict[tuple[Role, str], Steps] = {}
    processes: dict[tuple[Role, str], Steps] = {}
    acknowledgements = None
    for role, rows in tables.items():
        begin, end = times[role]
        topic = topic_numbers(rows["topic"], topics)
        at_work = slots.cuts(np.array([begin.min()]), np.array([end.max()]))
        seconds[role] = np.bincount(at_work.slot, at_work.seconds, slots.count).astype(float)
        readers_of = readings if role is Role.CONSUMER else {}
        weight = 1 / np.array([readers_of.get(name, 1) for name in topics])[topic]
        cuts = slots.cuts(begin, end)
        for name in (*_COUNTS[role], *_LEVELS[role]):
            share = cuts.seconds if name in _LEVELS[role] else cuts.share
            amounts = (_floats(rows[name]) * weight)[cuts.row] * share
            sums[role, name] = np.zeros((len(topics), slots.count))
            np.add.at(sums[role, name], (topic[cuts.row], cuts.slot), amounts)
        own = pa.concat_tables(found[role].processes)
        cuts = slots.cuts(*times_of(own))
        for name, share in (("cpu_seconds", cuts.share), ("memory_bytes", cuts.seconds)):
            amounts = _floats(own[name])[cuts.row] * share
            processes[role, name] = np.bincount(cuts.slot, amounts, slots.count).astype(float)
        if role is Role.PRODUCER:
            measured = pc.is_valid(rows["latency_bucket"])
            here = measured.to_numpy()
            acknowledgements = Latencies.of_rows(
                topic[here],
                slots.of((begin + end) // 2)[here],
                rows.filter(measured),
                shape=(len(topics), slots.count),
            )
    return Load(
        slots, topics, seconds, sums, processes, acknowledgements,
        max(readings.values(), default=1),
    )  # fmt: skip


def _floats(column: pa.ChunkedArray) -> Steps:
    values: Steps = column.cast(pa.float64()).fill_null(0.0).to_numpy()
    return values
