"""The small facts that the driver needs, of sessions, offsets and producers; never a sequence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.reconcile.coverage import ReadOffsets, Span, UnreadRange, unlogged
from mirrortest.reconcile.given import Given, Sender
from mirrortest.reconcile.hole_ranges import HoleRange, Holes
from mirrortest.reconcile.incarnations import unmatched, unordered
from mirrortest.reconcile.interval_rows import ACKED, DAMAGE, LATENCY, OVERVIEW, RANGE
from mirrortest.reconcile.overlap import Cut, SeenRange, online_cuts, unread_but_seen
from mirrortest.reconcile.session_topics import (
    compacted_topics,
    hidden_topics,
    judged_by_others,
    policies_of,
    stamped_at_source,
    unjudged_timestamps,
)
from mirrortest.results.words import several_processes
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.verify.placement import ExpectPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirrortest.reconcile.incarnations import Place
    from mirrortest.reconcile.plan import Plan


@dataclass
class Facts:
    """The facts of a run besides its sequences.

    `complete` are senders whose logs are here and complete, `unended` those whose logs have no end,
    `contested` the producers that several processes sent as. `horizons` is, by topic, the time (ns)
    up to which acknowledged messages are due; it lacks topics of which a log records what was due.
    """

    observed: ReadOffsets
    topics: set[str]
    sent_to: set[str]
    """Topics that records of the run's producers name, in their logs or in the ledger."""
    complete: set[Sender]
    unended: set[Sender]
    contested: list[str]
    horizons: dict[str, int]
    consumer_damaged: bool
    ranges: list[SeenRange]
    cuts: list[Cut]
    holes: dict[Place, list[HoleRange]]
    """The offsets that consumers found empty."""
    unnamed_holes: dict[Place, list[HoleRange]]
    """Offsets that may include holes, from logs of the previous version, which do not name the
    holes. Empty offsets there may also be transactions' markers."""
    last_verdicts: dict[str, int]
    """topic -> the session whose online verdict on it is the last."""
    counts: dict[str, set[int]]
    """By topic, every partition count of its destination that producers and consumers recorded."""
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_SENDING = ("reserved", "sent", "end")


def gather(plan: Plan, table: pa.Table) -> Facts:
    """Collect the facts from the rows for the driver (`bundle.DRIVER`) and the sessions."""
    reasons, notes = plan.doubts(), list[str]()
    overview = _overview(table)
    damaged: set[int] = set()
    damages = [
        (number, str(damage), damage.harmless)
        for number, found in enumerate(plan.sessions)
        for damage in found.damage
    ] + [
        (row["session"], row["text"], not row["outcome"])
        for row in overview
        if row["kind"] == DAMAGE
    ]
    for number, text, harmless in damages:
        (notes if harmless else reasons).append(f"log damaged: {text}")
        if not harmless:
            damaged.add(number)
    for number, where in unsalvaged(plan):
        reasons.append(
            f"{where}: its producer did not exit cleanly, and the journal with its last rows is "
            "not here: copy it, too, or upload its spool with mirrortest salvage"
        )
        damaged.add(number)
    notes += [
        f"{found.location.shown}: its {found.session.role.value} did not exit cleanly"
        for found in plan.sessions
        if not found.session.clean
    ]
    notes += [
        f"messages were judged by --expect-partition {', '.join(others)} before: their "
        f"partition was judged again by --expect-partition {policy}"
        for *others, policy in sorted({*map(tuple, policies_of(plan).values())})
        if others
    ]
    complete, unended, missing, contested = _producers(overview, plan, damaged)
    reasons += [several_processes(contested)] if contested else []
    reasons += [f"the log of producer {name}.{number} is missing" for name, number in missing]
    unproven = sum(
        file.unproven for found in (*plan.sessions, *plan.observers) for file in found.files
    )
    if unproven:
        notes.append(
            f"{unproven:,} log files have no digest, as an earlier version of mirrortest wrote "
            "them: later changes of these files may go unnoticed"
        )
    notes += unjudged_timestamps(plan)
    notes += [
        f"{found.location.shown}: its source observer read cluster "
        f"{found.session.clusters['source']}; the producers wrote to "
        f"{', '.join(sorted(plan.sources))}: it is left out"
        for found in plan.elsewhere
    ]
    sent_to = {row["topic"] for row in overview if row["kind"] in {*_SENDING, "vouched"}}
    sent_to |= {topic for _, session in plan.of(Role.PRODUCER) for topic in session.topics}
    topics = sent_to | {row["topic"] for row in overview if row["kind"] in {"tail", "read"}}
    spans: dict[str, list[Any]] = {"read": [], "unread": [], "tail": [], RANGE: []}
    for row in overview:
        if row["kind"] in spans:
            row_type: Any = SeenRange if row["kind"] == RANGE else Span
            spans[row["kind"]].append(row_type(*(row[name] for name in row_type._fields)))
    ranges, tails = spans[RANGE], spans["tail"]
    found = [
        (row["topic"], row["partition"], row["identity"], row["hi"])
        for row in overview
        if row["kind"] == "found" and row["partition"] is not None and row["hi"] is not None
    ]
    # A session that counts from a later incarnation on has no verdict on the earlier ones.
    recounted = {place for numbers in plan.renumbered.values() for place in numbers}
    observed = ReadOffsets(
        read=spans["read"],
        unread=spans["unread"],
        tails=tails,
        partitions={topic: _partition_count(plan, topic) for topic in sorted(topics)},
        started_ns={number: s.started_ns for number, s in plan.of(Role.CONSUMER)},
    )
    return Facts(
        observed,
        topics,
        sent_to,
        complete,
        unended,
        contested,
        _horizons(plan, tails),
        any(plan.sessions[number].session.role is Role.CONSUMER for number in damaged),
        ranges,
        online_cuts(found, tails, left_out=recounted | unread_but_seen(spans["unread"], ranges)),
        *_holes(overview),
        _last_verdicts(plan, overview),
        _counts(plan),
        reasons,
        notes,
    )


def unmatched_sessions(plan: Plan, facts: Facts) -> set[int]:
    """The consumers' sessions that cannot be judged with the others (`incarnations.unmatched`)."""
    newest: dict[tuple[int, str], int] = {}
    numbers: dict[tuple[int, str], set[tuple[int, int]]] = {}
    observed = facts.observed
    for span in (*observed.read, *observed.unread, *observed.tails):
        at = (span.session, span.topic)
        newest[at] = max(span.newest, newest.get(at, 0))
    for seen in facts.ranges:
        at = (seen.session, seen.topic)
        newest[at] = max(seen.identity, newest.get(at, 0))
    every: tuple[Span | SeenRange, ...] = (*observed.read, *observed.unread, *facts.ranges)
    for each in every:
        at = (each.session, each.topic)
        numbers.setdefault(at, set()).add((each.partition, each.identity))
    return unmatched([found.session for found in plan.sessions], newest, numbers)


def unsalvaged(plan: Plan) -> list[tuple[int, str]]:
    """Producers' sessions whose last journal is not here: (number, where), by number.

    What they reserved is unknown, so none of their messages is a phantom. (What consumers' logs
    lack shows as offsets that no log covers.)
    """
    return [
        (number, found.location.shown)
        for number, found in enumerate(plan.sessions)
        if found.session.spooled and found.session.role is Role.PRODUCER
    ]


def _overview(table: pa.Table) -> list[dict[str, Any]]:
    """The rows; those of an overview have the kind that they summarise."""
    names = (
        "kind", "topic", "producer", "incarnation", "session", "task", "turn", "partition",
        "identity", "text", "offset_lo", "offset_hi", "minute", "outcome", "findings", "messages",
    )  # fmt: skip
    sums = pa.array([LATENCY, ACKED])
    table = table.filter(pc.invert(pc.is_in(table["kind"], sums)))
    found: list[dict[str, Any]] = table.select(names).to_pylist()
    for row in found:
        if row["kind"] == OVERVIEW:
            row["kind"] = row["text"]
        row["hi"] = row["offset_hi"]
        row["lo"] = row["offset_hi"] if row["offset_lo"] is None else row["offset_lo"]
    return found


def given(plan: Plan, facts: Facts, unread: Sequence[UnreadRange], *, overlapping: bool) -> Given:
    """Collect what the judgement needs besides rows of streams."""
    ranges: list[UnreadRange] = [*unread]
    if facts.consumer_damaged:
        # The missing rows may have shown any message: no missing message is proven lost.
        ranges += [
            unlogged(topic, partition, identity, -1, ENDLESS)
            for (topic, partition), identity in sorted(_partitions(facts.observed).items())
        ]
    policies = {topic: ExpectPartition(last) for topic, (*_, last) in policies_of(plan).items()}
    compacted = compacted_topics(plan)
    found = dict(facts.holes)
    for place, unnamed in facts.unnamed_holes.items():
        if place[0] in compacted or place[0] in hidden_topics(plan):
            found[place] = [*found.get(place, ()), *unnamed]
    holes: dict[str, dict[int, Holes]] = {}
    for (topic, partition), some in found.items():
        holes.setdefault(topic, {})[partition] = Holes.of(some)
    at_source = [topic for topic, source in compacted.items() if source]
    touched: dict[str, set[int]] = {}
    every: Sequence[SeenRange | Span] = [*facts.ranges, *facts.observed.read]
    for each in every:
        touched.setdefault(each.topic, set()).add(each.partition)
    return Given(
        complete=frozenset(facts.complete),
        unended=frozenset(facts.unended),
        horizons=facts.horizons,
        last_verdicts=facts.last_verdicts,
        cuts=tuple(facts.cuts),
        unread=tuple(ranges),
        policies=policies,
        rerouted={
            topic: numbers
            for topic, policy in policies.items()
            if (numbers := judged_by_others(plan, topic, policy))
        },
        counts=facts.counts,
        stamped=frozenset(stamped_at_source(plan)),
        overlapping=overlapping,
        unordered=frozenset(unordered([found.session for found in plan.sessions])),
        explaining={
            topic: Finding.COMPACTED if topic in compacted else Finding.INCONCLUSIVE
            for topic in (*holes, *at_source)
        },
        holes=holes,
        source_compacted={topic: frozenset(touched.get(topic, ())) for topic in at_source},
    )


def _holes(
    overview: Sequence[Mapping[str, Any]],
) -> tuple[dict[Place, list[HoleRange]], dict[Place, list[HoleRange]]]:
    """`Facts.holes` and `Facts.unnamed_holes`."""
    found: dict[Place, list[HoleRange]] = {}
    for row in overview:
        if row["kind"] == "hole":
            hole = (row["identity"], row["lo"], row["hi"], row["messages"])
            found.setdefault((row["topic"], row["partition"]), []).append(hole)
    naming = {row["session"] for row in overview if row["kind"] == "hole"}
    read: dict[tuple[Place, int], tuple[IntervalSet, IntervalSet]] = {}
    for row in overview:
        if row["kind"] == "read":
            at = (row["topic"], row["partition"]), row["identity"]
            known, unknown = read.setdefault(at, (IntervalSet(), IntervalSet()))
            named = row["findings"] == 0 or row["session"] in naming
            (known if named else unknown).add(row["lo"], row["hi"])
    unnamed: dict[Place, list[HoleRange]] = {}
    for (place, identity), (known, unknown) in read.items():
        for lo, hi in (unknown - known).intervals():
            unnamed.setdefault(place, []).append((identity, lo, hi, hi - lo))
    return found, unnamed


def _partitions(observed: ReadOffsets) -> dict[tuple[str, int], int]:
    """All partitions, each with its last incarnation."""
    last = {
        (topic, number): 0
        for topic, count in observed.partitions.items()
        for number in range(count or 1)
    }
    for span in (*observed.read, *observed.unread, *observed.tails):
        at = (span.topic, span.partition)
        last[at] = max(span.newest, last.get(at, 0))
    return last


def _producers(
    overview: Sequence[Mapping[str, Any]], plan: Plan, damaged: set[int]
) -> tuple[set[Sender], set[Sender], list[tuple[str, int]], list[str]]:
    """The complete and the unended senders, incarnations only in the ledger, and contested ids.

    One id may be used by several processes, with ledgers of their own and for other topics.
    """
    logged: dict[tuple[str, int, int], set[str]] = {}
    for number, session in plan.of(Role.PRODUCER):
        if session.incarnation is not None:
            logged[session.name, session.incarnation, number] = {*session.topics}
    for row in overview:
        if row["kind"] in _SENDING:
            at = (row["producer"], row["incarnation"], row["session"])
            topics = plan.sessions[row["session"]].session.topics
            logged.setdefault(at, {*topics}).add(row["topic"])
    senders = [
        ((name, incarnation, topic), number)
        for (name, incarnation, number), topics in logged.items()
        for topic in topics
    ]
    here = {sender for sender, _ in senders}
    broken = {sender for sender, number in senders if number in damaged}
    unended = {each for each, at in senders if plan.sessions[at].session.ended_ns is None}
    vouched = {
        (row["producer"], row["incarnation"], row["topic"])
        for row in overview
        if row["kind"] == "vouched"
    }
    missing = {(name, incarnation) for name, incarnation, _ in vouched - here}
    processes = Counter(sender for sender, _ in senders)
    contested = {name for (name, *_), count in processes.items() if count > 1}
    return here - broken, unended, sorted(missing), sorted(contested)


def _partition_count(plan: Plan, topic: str) -> int | None:
    """The destination's partition count as consumers saw it, else as producers assumed it."""
    for role in (Role.CONSUMER, Role.PRODUCER):
        counted = [
            session.topics[topic].destination_partitions
            for _, session in plan.of(role)
            if topic in session.topics
        ]
        counts = [count for count in counted if count is not None]
        if counts:
            return max(counts)
    return None


def _counts(plan: Plan) -> dict[str, set[int]]:
    counts: dict[str, set[int]] = {}
    for role in (Role.CONSUMER, Role.PRODUCER):
        for _, session in plan.of(role):
            for name, topic in session.topics.items():
                last = topic.destination_partitions
                known = counts.setdefault(name, set())
                known.update(
                    topic.earlier_counts if last is None else (*topic.earlier_counts, last)
                )
    return counts


def _last_verdicts(plan: Plan, overview: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By topic, the session that ended last of those with its `tail` or `vouched` rows."""
    ends = {
        (row["topic"], plan.sessions[row["session"]].session.ended_ns or 0, row["session"])
        for row in overview
        if row["kind"] in {"tail", "vouched"}
    }
    return {topic: number for topic, _, number in sorted(ends)}


def _horizons(plan: Plan, tails: Collection[Span]) -> dict[str, int]:
    """By topic, the earliest horizon (`Plan.horizons`) of its partitions, of each the latest.

    Only of topics of which no consumer logged what was due: two hosts' wall clocks are compared.
    """
    logged = {tail.topic for tail in tails if plan.sessions[tail.session].session.expiry_logged}
    by_session = plan.horizons
    looked: dict[tuple[str, int], int] = {}
    for tail in tails:
        if tail.topic not in logged:
            at = by_session.get(tail.session, 0)
            key = (tail.topic, tail.partition)
            looked[key] = max(at, looked.get(key, 0))
    horizons: dict[str, int] = {}
    for (topic, _), at in looked.items():
        horizons[topic] = min(at, horizons.get(topic, at))
    return horizons
