"""The tables of a judgement: sums by stream, partition and minute, and exact ids; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import DEFINITIONS, IN_PARTITION, MISSING, OF_STREAM, Finding, Scope
from mirrortest.reconcile.chain import codes, firsts
from mirrortest.reconcile.interval_rows import INTERVALS
from mirrortest.reconcile.judgement import homes
from mirrortest.reconcile.stream_rows import coded
from mirrortest.reconcile.stretch import NONE, numbers
from mirrortest.reconcile.sweep import Spans, Sweep, joined, united
from mirrortest.seqlog.schema import STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirrortest.reconcile.judgement import Judged, Judgement
    from mirrortest.reconcile.stream_rows import Streams
    from mirrortest.reconcile.stretch import Flags, Longs

JUDGED = tuple(finding for finding in OF_STREAM if finding is not Finding.COMPACTED)
"""The findings of a judged segment, before `compaction` has explained what it can."""
FINDINGS = (*JUDGED, Finding.COMPACTED)
MESSAGES = ("sent", "acked", "failed", "unknown", "unknown_seen", "seen", "delivered", "surplus")
"""Counts of messages that are not findings; `surplus` are copies beyond the first."""
COUNTED = (*MESSAGES, "unlogged", "unaccounted", *(finding.label for finding in FINDINGS))
"""What is counted of segments, by stream and by minute."""
STREAMLESS = ("foreign", "other_run", "corrupted_unknown_id")
"""Messages in no stream: each counts under one name, as online."""
OF_PARTITION = (
    "seen",
    "surplus",
    *(finding.label for finding in (*IN_PARTITION, *MISSING)),
    *STREAMLESS,
)
"""What is counted by partition. A missing message counts under the partition with the most of its
stream; null: none has any."""

BY_STREAM, BY_PARTITION, BY_MINUTE = "by_stream", "by_partition", "by_minute"
COMPARED, FINDINGS_BY_ID, ABSENT = "compared", "findings", "absent"
TOTALS, FIRST = "totals", "first"


def _schema(keys: dict[str, pa.DataType], *counts: str) -> pa.Schema:
    return pa.schema([*keys.items(), *((name, pa.int64()) for name in counts)])


_STREAM = {name: INTERVALS.field(name).type for name in STREAM}
_KEYS = {
    BY_STREAM: _STREAM,
    BY_PARTITION: {"topic": pa.string(), "partition": pa.int32()},
    BY_MINUTE: {"topic": pa.string(), "minute": pa.int64()},
    COMPARED: {"topic": pa.string(), "partition": pa.int32(), "finding": pa.string()},
}
"""The key columns of the tables of `SUMS`."""
_ID = {"topic": pa.string(), "run": pa.string(), **{n: _STREAM[n] for n in STREAM[1:]}}
_VERDICT = {"verdict": pa.string(), "attribution": pa.string()}
SCHEMAS = {
    BY_STREAM: _schema(_KEYS[BY_STREAM], *COUNTED),
    BY_PARTITION: _schema(_KEYS[BY_PARTITION], *OF_PARTITION),
    BY_MINUTE: _schema(_KEYS[BY_MINUTE], *COUNTED),
    COMPARED: _schema(_KEYS[COMPARED], "only_online", "only_offline", "decided"),
    FINDINGS_BY_ID: _schema({**_ID, "finding": pa.string()}, "seq_lo", "seq_hi"),
    ABSENT: _schema({**_ID, **_VERDICT}, "seq_lo", "seq_hi"),
    TOTALS: _schema(_VERDICT, "messages"),
}

SUMS = tuple(_KEYS)
"""The tables of the judgement's parts that the driver adds up."""

_MISSING = tuple(each.finding for each in DEFINITIONS if each.scope is Scope.MISSING)
VERDICTS = (*(finding.label for finding in _MISSING), "failed", "unknown")
"""The verdicts on messages that were not delivered, the worst first."""


def facts(judged: Judged, messages: Longs) -> dict[str, Longs]:
    """The counts that `COUNTED` names, of segments with so many messages."""
    seen, copies = judged.seen, judged.copies
    flags = {
        "sent": judged.is_sent,
        "acked": judged.is_acked,
        "failed": judged.is_failed,
        "unknown": judged.is_unknown,
        "unknown_seen": judged.is_unknown & seen,
        "seen": seen,
        "delivered": judged.is_acked & seen,
        "surplus": np.where(copies > 1, copies - 1, 0),
        "unlogged": judged.unlogged,
        "unaccounted": seen & ~judged.accounted & ~judged.is_sent,
        **{finding.label: judged.has(finding) for finding in FINDINGS},
    }
    return {name: flags[name] * messages for name in COUNTED}


def summed(group: Longs, count: int, columns: Mapping[str, Longs]) -> dict[str, Longs]:
    """Sums by group."""
    found = {}
    for name, values in columns.items():
        found[name] = np.zeros(count, dtype=np.int64)
        some = np.flatnonzero(values)
        np.add.at(found[name], group[some], values[some])
    return found


def by_stream(judgement: Judgement) -> pa.Table:
    """The sums of each stream that has any messages."""
    judged, streams = judgement.judged, judgement.rows.streams
    there = np.zeros(len(streams), dtype=bool)
    there[judged.spans.key] = True
    sums = summed(judged.spans.key, len(streams), facts(judged, judged.messages))
    table = streams.table
    for name, values in sums.items():
        table = table.append_column(name, pa.array(values))
    return table.filter(pa.array(there))


def _by_partition(topic: list[str], partition: Longs, sums: Mapping[str, Longs]) -> pa.Table:
    """Sums by topic and partition; those that are not named are 0."""
    places = pa.array(partition, pa.int32(), mask=partition == NONE)
    columns = {"topic": pa.array(topic, pa.string()), "partition": places}
    zeros = np.zeros(len(topic), dtype=np.int64)
    return pa.table(columns | {name: sums.get(name, zeros) for name in OF_PARTITION})


def by_partition(judgement: Judgement) -> pa.Table:
    """What was seen and found in each partition, and what is missing: partial sums."""
    rows, copies, seen_segments, judged = judgement
    streams, key, number = rows.streams, seen_segments.spans.key, seen_segments.copies
    messages = seen_segments.spans.lengths
    here = {
        "seen": (number > 0) * messages,
        "surplus": np.where(number > 1, number - 1, 0) * messages,
        **{f.label: (seen_segments.found & int(f) != 0) * messages for f in IN_PARTITION},
    }
    missing = {f.label: judged.has(f) * judged.messages for f in MISSING}
    home = np.where(rows.home == NONE, homes(copies, seen_segments, len(streams)), rows.home)
    absent = np.flatnonzero(judged.findings & int(sum(MISSING)) != 0)
    stream = judged.spans.key[absent]
    topic = np.append(streams.topic[copies.stream_of[key]], streams.topic[stream])
    partition = np.append(copies.partition_of[key], home[stream])
    group = codes(topic, partition).astype(np.int64)
    first = firsts(group)
    sums = summed(group[: len(key)], len(first), here)
    more = {name: values[absent] for name, values in missing.items()}
    sums |= summed(group[len(key) :], len(first), more)
    names = streams.names(topic[first])
    return _by_partition(names, partition[first], sums)


def streamless(table: pa.Table) -> pa.Table:
    """Sums by partition of messages in no stream, from `seen` rows without a number."""
    which = pc.and_(pc.equal(table["kind"], Kind.SEEN.value), pc.is_null(table["seq_lo"]))
    table = table.filter(which)
    partition, findings = numbers(table, "partition"), numbers(table, "findings")
    findings = np.maximum(findings, 0)
    topic = coded(table["topic"])
    place = codes(topic, partition).astype(np.int64)
    line = codes(place, numbers(table, "identity"), findings).astype(np.int64)
    at, lo, hi = united(line, numbers(table, "offset_lo"), numbers(table, "offset_hi"))
    place, found, messages = place[at], findings[at], hi - lo
    first = firsts(place)
    other_run = found & int(Finding.OTHER_RUN) != 0
    corrupted = found & int(Finding.CORRUPTED) != 0
    foreign = ~other_run & ((found & int(Finding.FOREIGN) != 0) | ~corrupted)
    sums = summed(
        place,
        len(first),
        {
            "foreign": foreign * messages,
            "other_run": other_run * messages,
            "corrupted_unknown_id": (~other_run & ~foreign) * messages,
        },
    )
    names = table["topic"].take(pa.array(at[first])).to_pylist()
    return _by_partition(names, partition[at[first]], sums)


def without_others(table: pa.Table, sent_to: Collection[str]) -> tuple[pa.Table, dict[str, int]]:
    """`BY_PARTITION` without what seems corrupted in other topics than the run's.

    The run's topics are those that its producers wrote to, or that have its messages. Others only
    match a consumer's pattern: there it may be another application's copy of another topic. Returns
    also how much that is, by topic.
    """
    name = "corrupted_unknown_id"
    seen = table.filter(pc.greater(table["seen"], 0))["topic"].to_pylist()
    of_run = pc.is_in(table["topic"], pa.array({*sent_to, *seen}, pa.string()))
    counts = pc.if_else(of_run, table[name], pa.scalar(0, pa.int64()))
    others = table.filter(pc.and_(pc.invert(of_run), pc.greater(table[name], 0)))
    left_out = dict.fromkeys(others["topic"].to_pylist(), 0)
    for row in others.select(["topic", name]).to_pylist():
        left_out[row["topic"]] += row[name]
    return table.set_column(table.schema.get_field_index(name), name, counts), left_out


def findings(judgement: Judgement) -> pa.Table:
    """The exact ids of every finding: (stream, finding, seq_lo, seq_hi), in order."""
    judged, parts = judgement.judged, []
    for finding in FINDINGS:
        which = judged.has(finding)
        if which.any():
            found, _ = joined(judged.spans.take(which))
            parts.append(ids(judgement.rows.streams, found, finding=finding.label))
    if not parts:
        return ids(judgement.rows.streams, Spans.none(), finding="")
    return pa.concat_tables(parts)


class Absent(NamedTuple):
    """Numbers that were not delivered; `rank` is the index of their verdict in `VERDICTS`.

    `logged`: the complete log of their producer records their acknowledgement.
    """

    spans: Spans
    rank: Longs
    logged: Flags


def absent(judged: Judged) -> Absent:
    """What was not delivered."""
    which = ~judged.seen
    rank = np.where(judged.is_unknown, len(VERDICTS) - 1, len(VERDICTS) - 2)
    for place in reversed(range(len(_MISSING))):
        rank = np.where(judged.has(_MISSING[place]), place, rank)
    logged = judged.is_acked & judged.accounted & ~judged.unlogged
    return Absent(judged.spans.take(which), rank[which], logged[which])


def ids(streams: Streams, found: Spans, **columns: str | pa.Array) -> pa.Table:
    """A table of exact ids, with further columns: one text for all rows, or values."""
    table = streams.table.take(pa.array(found.key))
    for name, values in columns.items():
        if isinstance(values, str):
            values = pa.repeat(pa.scalar(values, pa.string()), len(found.key))  # noqa: PLW2901
        table = table.append_column(name, values)
    return table.append_column("seq_lo", pa.array(found.lo)).append_column(
        "seq_hi", pa.array(found.hi)
    )


def by_minute(judgement: Judgement) -> pa.Table:
    """Partial sums by topic and minute of intended time of all messages that are not clean.

    Clean messages were acknowledged and are in the destination once, with nothing wrong. They are
    most of a run. Their count is what tasks counted as acknowledged (`interval_rows.ACKED`), minus
    the acknowledged messages here: these are subtracted from the counts in `CLEAN`.
    """
    rows, _, _, judged = judgement
    clean = (judged.acked_rows == 1) & (judged.copies == 1) & (judged.findings == 0)
    rest = np.flatnonzero(~clean)
    concerned = np.zeros(len(rows.streams), dtype=bool)
    concerned[judged.spans.key[rest]] = True
    sides = {kind: rows.of(kind) for kind in (Kind.SENT, Kind.SEEN)}
    pieces = {kind: rows.minutes(at[concerned[rows.stream[at]]]) for kind, at in sides.items()}
    sweep = Sweep(rest=judged.spans.take(rest), **{k.value: p[1] for k, p in pieces.items()})
    within = sweep.sum("rest", np.arange(1, len(rest) + 1))
    minute = np.full(len(within), NONE, dtype=np.int64)
    known = np.zeros(len(within), dtype=bool)
    acked_rows = rows.outcome[pieces[Kind.SENT][0]] == 1
    proven = rows.findings[pieces[Kind.SEEN][0]] & int(Finding.UNPROVEN) == 0
    for kind, weight in ((Kind.SENT, acked_rows), (Kind.SENT, 1), (Kind.SEEN, proven)):
        count = sweep.sum(kind.value, weight)
        total = sweep.sum(kind.value, pieces[kind][2] * weight)
        new = ~known & (count > 0)
        minute[new] = total[new] // count[new]
        known |= new
    # Copies whose times are not proven may contradict each other.
    unproven = sweep.lowest(Kind.SEEN.value, pieces[Kind.SEEN][2], ~proven)
    minute = np.where(known, minute, unproven)
    some = within > 0
    minute, segments = minute[some], sweep.segments.take(some)
    messages = segments.lengths
    part = judged.take(rest[within[some] - 1])
    streams = rows.streams
    topic = streams.topic[segments.key]
    group = codes(topic, minute).astype(np.int64)
    first = firsts(group)
    sums = summed(group, len(first), facts(part, messages))
    less = summed(group, len(first), {"acked": part.acked_rows * messages})["acked"]
    for name in CLEAN:
        sums[name] = sums[name] - less
    names = pa.array(streams.names(topic[first]), pa.string())
    minutes = pa.array(minute[first], mask=minute[first] == NONE)
    return pa.table({"topic": names, "minute": minutes, **sums})


CLEAN = ("sent", "acked", "seen", "delivered")
"""The counts to which each clean message adds one."""


def sums_of(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """Add up the partial sums of a table of `SUMS`, in the order of their keys."""
    every, keys = pa.concat_tables(tables), [*_KEYS[name]]
    names = SCHEMAS[name].names[len(keys) :]
    found = every.group_by(keys).aggregate([(name, "sum") for name in names])
    columns = {name: found[f"{name}_sum"] for name in names}
    table = pa.table({**{key: found[key] for key in keys}, **columns})
    # Null comes first.
    there = {f"has {key}": pc.is_valid(table[key]) for key in keys}
    sorting = pa.table({**there, **{key: table[key] for key in keys}})
    names = [name for key in keys for name in (f"has {key}", key)]
    order = pc.sort_indices(sorting, [(name, "ascending") for name in names])
    return table.take(order).combine_chunks()
