"""How the run was set up, by its sessions: which processes, against which clusters, how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.config.units import number, readable_number, span
from mirrortest.results.words import moment
from mirrortest.seqlog.events import Event
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.report.result import Result
    from mirrortest.seqlog.files import SessionFiles

_ROLES = {Role.PRODUCER: "producer", Role.CONSUMER: "consumer", Role.SOURCE: "source observer"}
MOST_SESSIONS = 60
_MOST_CHANGES = 20
_TOGETHER_NS = 10 * 10**9
"""A start (end) this close to its role's first start (last end) is not a change of its own."""


@dataclass(frozen=True)
class ProcessRun:
    """One process's session; `facts` are the other values that it logged, by name."""

    role: str
    name: str
    began: str
    lasted: str
    ended: str
    facts: dict[str, str]


@dataclass(frozen=True)
class MappedTopic:
    """A source topic, its copy's name and both partition counts, as far as they are known."""

    name: str
    copy: str | None = None
    source_partitions: int | None = None
    destination_partitions: int | None = None


@dataclass(frozen=True)
class Setting:
    """The run's set-up; `clusters` are ids by side; times are ns since the epoch, 0: unknown."""

    sessions: list[ProcessRun] = field(default_factory=list)
    sessions_left_out: int = 0
    topics: list[MappedTopic] = field(default_factory=list)
    clusters: dict[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    began_ns: int = 0
    ended_ns: int = 0


def setting(result: Result) -> Setting:
    """Collect the set-up from the sessions."""
    sessions = [each.session for each in result.sessions]
    if not sessions:
        return Setting()
    clusters: dict[str, set[str]] = {}
    for each in sessions:
        for side, cluster in each.clusters.items():
            clusters.setdefault(side, set()).add(cluster)
    in_order = sorted(result.sessions, key=lambda each: list(_ROLES).index(each.session.role))
    return Setting(
        [_process_run(each, result.reports) for each in in_order[:MOST_SESSIONS]],
        max(len(in_order) - MOST_SESSIONS, 0),
        _topics(result),
        {side: ", ".join(sorted(ids)) for side, ids in sorted(clusters.items(), reverse=True)},
        tuple(sorted({each.mirrortest for each in sessions})),
        min(each.started_ns for each in sessions),
        max((each.ended_ns or 0) for each in sessions),
    )


def run_events(result: Result) -> list[Event]:
    """The first start of producers and of consumers, and their last end once each has ended."""
    found: list[Event] = []
    for role, part in ((Role.PRODUCER, "producers"), (Role.CONSUMER, "consumers")):
        own = [each.session for each in result.sessions if each.session.role is role]
        if not own:
            continue
        found.append(Event(time_ns=min(s.started_ns for s in own), what="began", part=part))
        # In order of their starts: a process that was killed may have been started again.
        ends = {session.name: session.ended_ns for session in own}
        known = [end for end in ends.values() if end is not None]
        if len(known) == len(ends):
            found.append(Event(time_ns=max(known), what="ended", part=part))
    return sorted(found, key=lambda event: event.time_ns)


def changes(result: Result) -> list[Event]:
    """Processes that began or ended while others of their role were at work, as in restarts."""
    found: list[Event] = []
    for role, name in _ROLES.items():
        own = [each.session for each in result.sessions if each.session.role is role]
        first = min((session.started_ns for session in own), default=0)
        last = max((session.ended_ns or 0 for session in own), default=0)
        for session in own:
            part = f"{name} {session.name}"
            if session.started_ns - first > _TOGETHER_NS:
                found.append(Event(time_ns=session.started_ns, what="began", part=part))
            if session.ended_ns is not None and last - session.ended_ns > _TOGETHER_NS:
                found.append(Event(time_ns=session.ended_ns, what="ended", part=part))
    return sorted(found, key=lambda event: event.time_ns)[:_MOST_CHANGES]


def _process_run(found: SessionFiles, reports: Mapping[str, dict[str, Any]]) -> ProcessRun:
    session = found.session
    facts: dict[str, str] = {}
    if session.deadline_ns is not None:
        facts["deadline"] = span(session.deadline_ns)
    if session.expect_partition is not None:
        facts["expected partition"] = session.expect_partition
    facts |= _measured(reports.get(session.session, {}))
    facts |= session.settings
    facts["log"] = f"{session.detail.value}, {_rows(found)}"
    if session.incarnation is None:
        name = session.name
    else:
        name = f"{session.name}, incarnation {session.incarnation}"
    if session.clean:
        ended = "in order"
    else:
        ended = "still running, or crashed" if session.ended_ns is None else "its log is incomplete"
    return ProcessRun(
        _ROLES[session.role],
        name,
        moment(session.started_ns),
        span(session.ended_ns - session.started_ns) if session.ended_ns is not None else "unknown",
        ended,
        facts,
    )


def _measured(report: Mapping[str, Any]) -> dict[str, str]:
    """The load in a producer's own summary; empty without one."""
    figures = report.get("whole")
    if not isinstance(figures, dict):
        return {}
    measures = {}
    if isinstance(records := figures.get("records"), int):
        measures["messages"] = f"{records:,}"
    if isinstance(rate := figures.get("records_per_second"), int | float):
        measures["messages/s"] = _rate(rate)
    if isinstance(rate := figures.get("mib_per_second"), int | float):
        measures["MiB/s"] = _rate(rate)
    return measures


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else readable_number(value, 3)


def _rows(found: SessionFiles) -> str:
    rows = [file.rows for file in found.files]
    if any(count is None for count in rows):
        return "rows not counted"
    return number(sum(count or 0 for count in rows), "row")


def _topics(result: Result) -> list[MappedTopic]:
    merged: dict[str, MappedTopic] = {}
    for found in result.sessions:
        for name, topic in found.session.topics.items():
            before = merged.get(name, MappedTopic(name))
            merged[name] = MappedTopic(
                name,
                topic.destination or before.copy,
                topic.source_partitions or before.source_partitions,
                topic.destination_partitions or before.destination_partitions,
            )
    return [merged[name] for name in sorted(merged)]
