"""Repeats of a run: their figures, counts, verdicts and settings, as the processes wrote them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mirrortest.compare.figures import BY_NAME, STATISTICS, Unit, statistic
from mirrortest.compare.settings import settings_of
from mirrortest.config.threshold import Series
from mirrortest.config.units import SECOND_NS
from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import ALL_TOPICS
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from mirrortest.compare.observed import RunObservation
    from mirrortest.compare.settings import Settings
    from mirrortest.seqlog.session import Session


_MOST_MESSAGES = 1 << 63


class ProcessLog(NamedTuple):
    """A process's log: its session, and the rows of its reporting intervals."""

    session: Session
    intervals: pa.Table


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One repeat of a run.

    `figures` are by the names of `figures.FIGURES`, `counts` by findings and outcomes of sends,
    `verdicts` by command.
    """

    run: str
    started_ns: int
    """ns since the epoch; 0: unknown."""
    figures: Mapping[str, float]
    counts: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    doubts: Collection[str] = ()
    """The commands that could not decide everything, whatever their verdicts are."""
    clocks_off: bool = False
    """Whether wall clocks were set during the run, or disagree by more than a latency. The figures
    that this distorts are left out."""
    incomplete: Collection[Role] = ()
    """Of whom no summaries have all that was counted: a process was restarted, and its summary has
    only what it counted since; or it was killed, and has none. Figures of summaries are left out.
    """
    settings: Settings = field(default_factory=dict)
    point: str = ""
    """The name of its point in a scenario; empty: it has none."""
    logs: Sequence[ProcessLog] = ()
    """The logs for charts over time; empty unless they were asked for."""

    @property
    def judge(self) -> str:
        """The command whose findings count: the reconciliation, else the consumers."""
        return "reconcile" if "reconcile" in self.verdicts else "consume"

    def undecided(self, command: str) -> bool:
        """Whether a command could not decide everything."""
        return command in self.doubts or self.verdicts.get(command) is Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class Side:
    """All repeats that an argument names; `damage` is what could not be read of their logs."""

    shown: str
    repeats: Sequence[Repeat]
    damage: Sequence[str] = ()

    @property
    def runs(self) -> list[str]:
        """The run ids of its repeats."""
        return [each.run for each in self.repeats]

    @property
    def points(self) -> list[str]:
        """The points of a scenario that its repeats belong to, each once."""
        return [*dict.fromkeys(each.point for each in self.repeats)]

    def at(self, point: str) -> Side:
        """The repeats of one point."""
        return replace(self, repeats=[each for each in self.repeats if each.point == point])

    def figure(self, name: str) -> list[float]:
        """The values of those repeats that have the figure."""
        return [each.figures[name] for each in self.repeats if name in each.figures]

    def count(self, name: str) -> list[int]:
        """The counts of those repeats that have it."""
        return [each.counts[name] for each in self.repeats if name in each.counts]

    def verdict(self, command: str) -> list[Verdict]:
        """The verdicts of those repeats that have one of this command."""
        return [each.verdicts[command] for each in self.repeats if command in each.verdicts]


def repeat(
    run: str,
    documents: Sequence[Mapping[str, Any]],
    logs: Sequence[ProcessLog] = (),
    observed: Sequence[RunObservation] = (),
    *,
    started_ns: int = 0,
) -> Repeat:
    """Build a repeat from the summaries of its commands and the logs of its processes.

    `observed` is what observers recorded of it. `started_ns` is used if no log or summary has a
    start. Findings, and latencies from the intended time, are the reconciliation's if there is one,
    else the consumers'. Raises KeyError, TypeError, ValueError, OverflowError or AttributeError if
    a summary lacks a required field or has an impossible number.
    """
    by_kind = {
        kind: [each for each in documents if _kind(each) == kind]
        for kind in ("produce", "consume", "source observer", "reconcile")
    }
    sessions = {(each.session.role, each.session.name, each.session.session) for each in logs}
    starts = Counter((role, name) for role, name, _ in sessions)
    silent = _without_summary(by_kind, [each.session for each in logs])
    incomplete = {role for (role, _), count in starts.items() if count > 1}
    incomplete |= {each.role for each in silent}
    produce = [] if Role.PRODUCER in incomplete else by_kind["produce"]
    consume = [] if Role.CONSUMER in incomplete else by_kind["consume"]
    judged = {stream["topic"] for each in by_kind["consume"] for stream in each["streams"]}
    unjudged = {topic for each in silent if each.role is Role.CONSUMER for topic in each.topics}
    unjudged -= judged
    values: dict[str, list[float]] = defaultdict(list)
    for document in produce:
        _add(values, _produced(document))
    for document in consume:
        _add(values, _consumed(document))
    judges = by_kind["reconcile"] or consume
    for measured, latencies in ((consume, _sent_latencies), (judges, _latencies)):
        # What remains of some topics would be taken for the slowest of all.
        for document in () if _clocks_off(measured) else measured:
            _add(values, latencies(document))
    for role in Role:
        _add(values, _from_intervals(role, [each for each in logs if each.session.role is role]))
    for each in observed:
        _add(values, each.throttles(logs))
    began = [each.session.started_ns for each in logs] or _start_times(documents)
    return Repeat(
        run=run,
        started_ns=min(began, default=started_ns),
        figures={
            name: sum(found) if BY_NAME[name].added else max(found)
            for name, found in values.items()
        },
        counts=_counts(by_kind, produce),
        verdicts={
            kind: max((Verdict(each["verdict"]) for each in found), key=list(Verdict).index)
            for kind, found in by_kind.items()
            if found
        },
        doubts={
            kind
            for kind, found in by_kind.items()
            if any(each.get("inconclusive") for each in found)
            or (kind == "consume" and found and (unjudged or not _by_topics(found)))
        },
        clocks_off=_clocks_off([*by_kind["consume"], *by_kind["reconcile"]]),
        incomplete=incomplete,
        settings=settings_of(
            [each.session for each in logs],
            [each.get("settings", {}) for each in by_kind["produce"]],
            [each.recorded for each in observed],
        ),
    )


def _without_summary(
    by_kind: Mapping[str, Sequence[Mapping[str, Any]]], sessions: Sequence[Session]
) -> list[Session]:
    """The sessions of killed processes: they have no summary, though others of their role have."""
    found = []
    for role, kind in ((Role.PRODUCER, "produce"), (Role.CONSUMER, "consume")):
        known = {
            each[role.value]
            for command in by_kind[kind]
            for each in (command, *command.get("workers", ()))
        }
        found += [
            each for each in sessions if known and each.role is role and each.name not in known
        ]
    return found


def _start_times(documents: Sequence[Mapping[str, Any]]) -> list[int]:
    """The starts of producers' sessions and of consumers' reading, ns since the epoch."""
    texts = [
        each["session"].partition("-")[0] if each["kind"] == "produce" else each["reading"]["start"]
        for each in documents
        if each["kind"] in {"produce", "consume"}
    ]
    found = [int(datetime.fromisoformat(text).timestamp()) * SECOND_NS for text in texts]
    return [each for each in found if each]


def _kind(document: Mapping[str, Any]) -> str:
    # An observer of the source judges the source's brokers, not the mirror.
    observes = document["kind"] == "consume" and document.get("role") == Role.SOURCE.value
    return "source observer" if observes else str(document["kind"])


def _add(values: dict[str, list[float]], found: Iterable[tuple[str, float | None]]) -> None:
    for name, value in found:
        if value is None:
            continue
        # Only times can be below zero: clocks may have been set.
        if not isfinite(value) or (value < 0 and BY_NAME[name].unit is not Unit.SECONDS):
            raise ValueError(f"{name} is {value}")
        values[name].append(float(value))


def _statistics(
    series: Series, measured: Mapping[str, float]
) -> Iterable[tuple[str, float | None]]:
    for name in STATISTICS:
        if name in measured:
            yield statistic(series, name), measured[name]


def _produced(document: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    """A producer's figures, without its warm-up."""
    tally = document["steady_state"] or document["whole"]
    if tally["acked"]:
        yield "produce_rate", tally["records_per_second"]
        yield "produce_bytes_rate", tally["mib_per_second"]
    yield from _statistics(Series.ACK_LATENCY, tally["latency_seconds"]["from_sent"])
    yield from _statistics(Series.SCHEDULE_LAG, tally["schedule_lag_seconds"])
    for topic in document["topics"].values():
        yield "produce_behind", topic["behind_seconds"]


def _consumed(document: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    """A consumer's rates and durations of reading."""
    reading = document["reading"]
    if reading["records"]:
        yield "consume_rate", reading["records_per_second"]
        yield "consume_bytes_rate", reading["mib_per_second"]
        yield "consume_seconds", reading["seconds"]
        yield "rebalance_seconds", reading["rebalance_seconds"]


def _sent_latencies(document: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    """A consumer's latencies from the actual send."""
    for topic in document["latency_seconds"].values():
        yield from _statistics(Series.SENT_LATENCY, topic["from_sent"])


def _latencies(document: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    """The latency from the intended time, of all topics together if the document has that."""
    topics = document["latency_seconds"]
    # Only a reconciliation adds topics up: a consumer has a topic of this name.
    every = ALL_TOPICS in topics and document["kind"] == "reconcile"
    for topic in [topics[ALL_TOPICS]] if every else topics.values():
        yield from _statistics(Series.LATENCY, _from_intended(topic))


def _from_intended(topic: Mapping[str, Any]) -> Mapping[str, float]:
    if "quantiles" not in topic:
        return topic["from_intended"]  # type: ignore[no-any-return]
    return {"mean": topic["mean"], **topic["quantiles"]}


def _clocks_off(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Whether latencies are distorted: clocks were set, or a latency is below zero."""
    topics = [topic for each in documents for topic in each["latency_seconds"].values()]
    every = [
        value
        for topic in topics
        for value in (*_from_intended(topic).values(), *topic.get("from_sent", {}).values())
    ]
    set_back = any(topic.get("off") for topic in topics)
    return set_back or any(value is not None and value < 0 for value in every)


def _from_intervals(role: Role, logs: Sequence[ProcessLog]) -> Iterable[tuple[str, float | None]]:
    """CPU, memory, batches and lag of one side's processes."""
    if role is Role.SOURCE:
        return
    prefix, done = ("produce", "acked") if role is Role.PRODUCER else ("consume", "arrived")
    cpu = messages = batches = in_batches = 0.0
    highest: dict[tuple[str, str], float] = defaultdict(float)
    for session, rows in logs:
        if not rows.num_rows:
            continue
        column = {
            name: rows[name].to_numpy(zero_copy_only=False).astype(float)
            for name in rows.column_names
            if name != "topic" and not name.startswith("latency_")
        }
        # CPU and memory are the process's: the rows of all topics repeat them.
        _, first = np.unique(column["started_ns"], return_index=True)
        cpu += float(np.nansum(column["cpu_seconds"][first]))
        messages += float(np.nansum(column[done]))
        batches += float(np.nansum(column["batches"]))
        in_batches += float(np.nansum(column["batch_messages"]))
        levels = {}
        if not np.isnan(column["memory_bytes"]).all():  # without /proc
            levels[f"{prefix}_memory"] = float(np.nanmax(column["memory_bytes"]))
        if role is Role.CONSUMER and not np.isnan(column["lag"]).all():
            _, interval = np.unique(column["started_ns"], return_inverse=True)
            lag = np.bincount(interval, weights=np.nan_to_num(column["lag"]))
            levels["lag"] = float(lag.max())
        # The starts of one process follow each other: their levels do not add up.
        for name, level in levels.items():
            highest[name, session.name] = max(highest[name, session.name], level)
    for (name, _), level in highest.items():
        yield name, level
    if messages:
        yield f"{prefix}_cpu", cpu / messages
    if batches:
        yield "batch_messages", in_batches / batches


def _counts(
    by_kind: Mapping[str, Sequence[Mapping[str, Any]]], produce: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Findings and outcomes of sends.

    Without a reconciliation, findings are those of all topics that consumers judge, and outcomes
    those of the summaries `produce`, or of the consumers if there are none.
    """
    counts: Counter[str] = Counter()
    for group in [by_kind["reconcile"]] if by_kind["reconcile"] else _by_topics(by_kind["consume"]):
        highest: dict[str, int] = {}
        for document in group:
            for name, count in document["counts"].items():
                highest[name] = max(_count(name, count), highest.get(name, 0))
        counts.update(highest)
    if not by_kind["reconcile"]:
        for name in ("acked", "failed", "unknown"):
            if produce:
                counts[name] = sum(_count(name, each["whole"][name]) for each in produce)
    return dict(counts)


def _by_topics(consumers: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The consumers in groups of different topics: each counts all messages of its own topics.

    Empty if topics overlap in part: then no sum counts each topic once.
    """
    judged = [frozenset(stream["topic"] for stream in each["streams"]) for each in consumers]
    widest = {topics for topics in judged if not any(topics < other for other in judged)}
    if sum(map(len, widest)) > len(frozenset().union(*widest)):
        return []
    return [
        [each for each, topics in zip(consumers, judged, strict=True) if topics <= of]
        for of in widest
    ]


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_MESSAGES:
        raise ValueError(f"{name} is {value}")
    return value
