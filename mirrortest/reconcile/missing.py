"""What was not delivered and what was found, by id: all of it written, the first of it shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.intervals import IntervalSet
from mirrortest.reconcile import attribution, result_tables
from mirrortest.reconcile.attribution import Evidence
from mirrortest.reconcile.compact import Zone
from mirrortest.reconcile.interval_rows import DAMAGE, INTERVALS
from mirrortest.reconcile.parts import OBSERVED, SHOWN_RANGES, STRADDLING, Attributing
from mirrortest.reconcile.result_files import MOST_ROWS, write_parts, write_table
from mirrortest.reconcile.session_topics import compacted_topics, hidden_topics
from mirrortest.reconcile.source import reading
from mirrortest.results.summary import Attributed, Missing
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS, STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirrortest.reconcile.bundle import Parts
    from mirrortest.reconcile.facts import Facts
    from mirrortest.reconcile.lookup import LookedUp, LookUp
    from mirrortest.reconcile.plan import Plan
    from mirrortest.reconcile.steps import Bundles, Engine
    from mirrortest.seqlog.location import Location

_NOT_OBSERVED = (
    "no source observer logged this run (mirrortest consume --role source): whether the "
    "source or the mirror lost a message is unknown"
)
_NOT_LOOKED = (
    "the destination was not searched (--bootstrap-server): messages that were mirrored but not "
    "consumed cannot be distinguished from lost ones"
)
_HIDDEN = (
    "{}: no source observer could see whether the topic is compacted (grant them DescribeConfigs "
    "on it): whether a message was never in the source's log is unknown"
)
_SEVERAL_SOURCES = (
    "the run's producers wrote to several clusters: whether a message was never in its source's "
    "log is unknown"
)


@dataclass
class Undelivered:
    """The part of the summary on messages that were not delivered."""

    notes: list[str] = field(default_factory=list)
    first: list[Missing] = field(default_factory=list)
    ranges: int = 0
    attribution: list[Attributed] = field(default_factory=list)


@dataclass
class Ids:
    """The exact ids of a judgement, from the bundles `scanned` and `judged`."""

    engine: Engine
    plan: Plan
    known: Facts
    parts: Parts
    scanned: Bundles
    judged: Bundles

    def write_findings(self, place: Location) -> None:
        """Write the table of what was found. Raises SequenceLogError."""
        _write(self.judged, result_tables.FINDINGS_BY_ID, place.child("findings.parquet"))

    def write_undelivered(
        self, place: Location, look_up: LookUp | None, *, later: bool, any_missing: bool
    ) -> Undelivered:
        """Write the table of what was not delivered, with how far it came where that is known.

        If nothing is missing, nothing more is read. Raises SequenceLogError.
        """
        undelivered = Undelivered()
        bundles = self.judged
        if later:
            bundles = self._attributed(look_up if any_missing else None, any_missing, undelivered)
        elif any_missing:
            undelivered.notes += [_NOT_OBSERVED, _NOT_LOOKED]
        undelivered.ranges = _write(
            bundles, result_tables.ABSENT, place.child("undelivered.parquet")
        )
        if undelivered.ranges:
            first = attribution.first(_collected(bundles, result_tables.FIRST), SHOWN_RANGES)
            names = list(Missing.model_fields)
            undelivered.first = [Missing(**row) for row in first.select(names).to_pylist()]
            undelivered.attribution = _totals(_collected(bundles, result_tables.TOTALS))
        return undelivered

    def _attributed(
        self, look_up: LookUp | None, any_missing: bool, undelivered: Undelivered
    ) -> Bundles:
        """Bundles with the attributions of what is missing."""
        looked_up = look_up.read(self.known.observed) if look_up is not None else None
        observed: Bundles | None = None
        read: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = {}
        one_log: frozenset[str] = frozenset()
        if self.plan.observers and any_missing:
            observed, one_log, read = self._observed(undelivered.notes)
        elif any_missing:
            undelivered.notes.append(_NOT_OBSERVED)
        if looked_up is not None:
            undelivered.notes += looked_up.notes
        elif any_missing:
            undelivered.notes.append(_NOT_LOOKED)
        evidence = Evidence(
            read,
            one_log,
            None if looked_up is None else _found(looked_up),
            frozenset(looked_up.incomplete) if looked_up is not None else frozenset(),
            self._doubted(),
        )
        bundles = self._attributing(self.scanned, observed, evidence)
        if bundles.largest_part(STRADDLING) < 1:
            return bundles
        # Scan the producers' logs again, and cut chains at the bounds of what was read.
        bounds = {
            Zone(topic, partition, 0, at, at)
            for (topic, partition), ranges in read.items()
            for each in ranges
            for at in each
        }
        work = reading(self.plan.producing, self.engine.cores, placed=True, parts=self.parts)
        work = work._replace(zones=tuple(sorted(bounds)))
        rescanned = self.engine.scan(range(len(work.tasks)), work.read)
        return self._attributing(rescanned, observed, evidence)

    def _doubted(self) -> frozenset[str]:
        """`Evidence.doubted`."""
        if self.known.consumer_damaged:
            return frozenset(self.known.topics)
        unseen = {*compacted_topics(self.plan), *hidden_topics(self.plan)}
        unnamed = {topic for topic, _ in self.known.unnamed_holes}
        return frozenset({topic for topic, _ in self.known.holes} | (unnamed & unseen))

    def _attributing(self, sent: Bundles, observed: Bundles | None, evidence: Evidence) -> Bundles:
        every = self.judged.named(result_tables.ABSENT).with_(sent)
        if observed is not None:
            every = every.with_(observed)
        work = Attributing(self.plan.run, evidence, self.parts)
        return every.map_parts(self.parts.number, work.attribute)

    def _observed(
        self, notes: list[str]
    ) -> tuple[Bundles, frozenset[str], Mapping[tuple[str, int], Sequence[tuple[int, int]]]]:
        """What the observers saw, then `Evidence.one_log` and `Evidence.source_read`."""
        work = reading(self.plan.observed, self.engine.cores, placed=False, parts=self.parts)
        bundles = self.engine.scan(range(len(work.tasks)), work.read)
        rows = bundles.driver_rows()
        damage = [
            str(each) for found in self.plan.observers for each in found.damage if not each.harmless
        ]
        missing_rows = pc.and_(pc.equal(rows["kind"], DAMAGE), pc.equal(rows["outcome"], 1))
        damage += rows.filter(missing_rows)["text"].to_pylist()
        observed = bundles.renamed(OBSERVED)
        if damage:
            # The missing rows may have shown any message in the source.
            notes += [f"source observer's log damaged: {each}" for each in damage]
            return observed, frozenset(), {}
        if len(self.plan.sources) > 1:
            notes.append(_SEVERAL_SOURCES)
            return observed, frozenset(), {}
        hidden = hidden_topics(self.plan.observed, Role.SOURCE)
        notes += map(_HIDDEN.format, hidden)
        return observed, *_source_read(self.plan, rows, hidden)


def _source_read(
    plan: Plan, rows: pa.Table, hidden: Collection[str]
) -> tuple[frozenset[str], dict[tuple[str, int], list[tuple[int, int]]]]:
    """`Evidence.one_log` and `Evidence.source_read`.

    An observer that names no topic id, as with brokers that have none, may have read several logs.
    A partition that was truncated is left out: other messages got its offsets. So are topics that
    are compacted or, with a `hidden` policy, may be: what they lack may have been removed.
    """
    ids: dict[str, set[str]] = {}
    cut, compacted = set(), set(hidden)
    for found in plan.observers:
        for name, topic in found.session.topics.items():
            ids.setdefault(name, set()).update(each.topic_id for each in topic.incarnations)
            for each in topic.incarnations:
                cut |= {(name, partition) for partition in each.partitions if each.cuts}
            if topic.compacted:
                compacted.add(name)
    read: dict[tuple[str, int], list[tuple[int, int]]] = {}
    names = ("kind", "session", "topic", "partition", "offset_lo", "offset_hi")
    for row in rows.select(names).to_pylist():
        name, partition = row["topic"], row["partition"]
        if row["kind"] == Kind.UNREAD.value and row["offset_hi"] >= ENDLESS:
            cut.add((name, partition))
        if row["kind"] == Kind.READ.value:
            read.setdefault((name, partition), []).append((row["offset_lo"], row["offset_hi"]))
            about = plan.observers[row["session"]].session.topics.get(name)
            if about is None or not about.incarnations:
                ids.setdefault(name, set()).add("")
    one_log = frozenset(name for name, known in ids.items() if len(known) == 1 and "" not in known)
    return one_log, {
        place: list(IntervalSet(ranges).intervals())
        for place, ranges in read.items()
        if place[0] in one_log - compacted and place not in cut
    }


def _found(looked_up: LookedUp) -> pa.Table:
    """What was found in the destination where no consumer read, as rows of intervals."""
    rows = [
        {
            "kind": Kind.EXPIRED.value,
            **dict(zip(STREAM, (of.topic, of.producer, of.incarnation, of.lane), strict=True)),
            "seq_lo": lo,
            "seq_hi": hi,
        }
        for of, numbers in looked_up.found.items()
        for lo, hi in numbers.intervals()
    ]
    return pa.Table.from_pylist(rows, INTERVALS)


def _collected(bundles: Bundles, name: str) -> pa.Table:
    schema = result_tables.SCHEMAS[result_tables.ABSENT if name == result_tables.FIRST else name]
    every = [table.select(schema.names).cast(schema) for _, table in bundles.tables(name)]
    return pa.concat_tables([schema.empty_table(), *every]).combine_chunks()


def _totals(table: pa.Table) -> list[Attributed]:
    sums: dict[tuple[str, str], int] = {}
    for row in table.to_pylist():
        key = (row["verdict"], row["attribution"])
        sums[key] = sums.get(key, 0) + row["messages"]
    order = result_tables.VERDICTS
    return [
        Attributed(verdict=verdict, attribution=how, messages=messages)
        for (verdict, how), messages in sorted(
            sums.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1])
        )
    ]


def _write(bundles: Bundles, name: str, place: Location) -> int:
    """Write the ids in bundles of this name; returns how many rows they have."""
    count = bundles.count(name)
    if count > MOST_ROWS:
        write_parts(bundles.named(name), result_tables.SCHEMAS[name], place)
    else:
        keys = [(column, "ascending") for column in (*STREAM, "seq_lo")]
        write_table(_collected(bundles, name).sort_by(keys), place)
    return count
