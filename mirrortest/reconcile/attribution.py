"""How far each missing message is known to have come; pure functions.

They combine the source observers' logs (`Plan.observed`), the producers' acknowledgements, and what
`lookup` found in the destination at offsets that no consumer had read. They never change a verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.model.findings import Finding
from mirrortest.reconcile import result_tables
from mirrortest.reconcile.result_tables import VERDICTS
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, Sweep, joined
from mirrortest.seqlog.schema import STREAM, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.reconcile.judgement import Judgement
    from mirrortest.reconcile.stream_rows import StreamRows, Streams
    from mirrortest.reconcile.stretch import Flags, Longs


class Attribution(StrEnum):
    """How far a missing message came."""

    NEVER_IN_SOURCE = "never in the source log"
    """Acknowledged, but not in the log that acknowledged it. Observers saw earlier messages of its
    stream there. And one claimed it lost (overdue, with the source read to its end), or they read
    its offset and saw later messages of its stream."""
    NOT_MIRRORED = "in the source and not mirrored"
    """A source observer saw it; it is not in the destination."""
    NOT_CONSUMED = "mirrored and not consumed"
    """It is in the destination, at an offset that no consumer read."""
    ACKNOWLEDGED = "acknowledged, not observed in the source"
    """The producer's log has its acknowledgement; observers neither saw it nor prove it absent."""
    UNKNOWN = "unknown"
    """Only the ledger records its acknowledgement, not a complete producer's log."""


ATTRIBUTED = VERDICTS[:3]
_PHRASES = [each.value for each in Attribution]
_NOT_ATTRIBUTED = len(_PHRASES)
_INCONCLUSIVE = VERDICTS.index(Finding.INCONCLUSIVE.label)


class Evidence(NamedTuple):
    """Evidence of how far missing messages came.

    Attributes:
        source_read: by topic and source partition, the offsets that observers read, as ranges in
            order; without topics that are or may be compacted.
        one_log: the topics of which all observers read one and the same source log; only in these
            can a message be proven absent.
        found: what is in the destination where no consumer read; None: it was not searched.
        incomplete: topics of which not every such offset could be read.
        doubted: topics of which inconclusive messages may have been at offsets that consumers read:
            compaction emptied some, or a consumer's log is damaged.
    """

    source_read: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
    one_log: frozenset[str]
    found: pa.Table | None
    incomplete: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()


class Attributed(NamedTuple):
    """Undelivered numbers, by verdict and attribution.

    `straddling`: some chain of acknowledged messages crosses a bound of what was read, so it is
    unknown which of its numbers were read.
    """

    table: pa.Table
    straddling: bool


def assumed(judgement: Judgement) -> pa.Table:
    """What was not delivered, attributed without observers' logs and without a look-up."""
    found = result_tables.absent(judgement.judged)
    nowhere = np.zeros(len(found.rank), dtype=bool)
    phrase = _phrase_of(found.rank, found.logged, nowhere, nowhere, nowhere, ~nowhere)
    return _table(judgement.rows.streams, found.spans, found.rank, phrase)


def unattributed(judgement: Judgement) -> pa.Table:
    """What was not delivered, for `attribute`: `INTERVALS` rows of kind `found`.

    `findings` is the rank of the verdict; `outcome` is 1 where a log has the acknowledgement.
    """
    found = result_tables.absent(judgement.judged)
    code = found.rank * 2 + found.logged
    spans, at = joined(found.spans, code)
    code = code[at]
    return result_tables.ids(
        judgement.rows.streams,
        spans,
        kind=Kind.FOUND.value,
        findings=pa.array((code // 2).astype(np.int32)),
        outcome=pa.array((code % 2).astype(np.int32)),
    )


def attribute(rows: StreamRows, evidence: Evidence) -> Attributed:
    """Determine how far each missing message came.

    A recreated topic never gets its old log back. So if two messages of a stream are in one log,
    that log acknowledged all messages between them. A claim is about the log that the observer was
    reading.

    By kind, rows are: `found`: what is missing (`unattributed`); `sent`: the producers'; `seen` and
    `claimed`: the observers'; `expired`: what is in the destination where no consumer read.
    """
    missing, sent = rows.of(Kind.FOUND), rows.of(Kind.SENT)
    concerned = np.zeros(len(rows.streams), dtype=bool)
    concerned[rows.stream[missing]] = True
    looked_for, straddling = _looked_for(rows, sent[concerned[rows.stream[sent]]], evidence)
    streams = rows.streams
    comparable = np.array([topic in evidence.one_log for topic in streams.topics], dtype=bool)
    claimed, in_source = rows.of(Kind.CLAIMED), rows.spans(rows.of(Kind.SEEN))
    first = np.full(len(streams), np.iinfo(np.int64).max)
    last = np.zeros(len(streams), dtype=np.int64)
    np.minimum.at(first, in_source.key, in_source.lo)
    np.maximum.at(last, in_source.key, in_source.hi)
    sweep = Sweep(
        missing=rows.spans(missing),
        observed=in_source,
        looked_for=looked_for,
        claimed=rows.spans(claimed[comparable[streams.topic[rows.stream[claimed]]]]),
        found=rows.spans(rows.of(Kind.EXPIRED)),
    )
    there = sweep.sum("missing") > 0
    rank = sweep.sum("missing", rows.findings[missing])[there]
    logged = sweep.sum("missing", rows.outcome[missing])[there] > 0
    read, lost, observed, found = (
        sweep.sum(name)[there] > 0 for name in ("looked_for", "claimed", "observed", "found")
    )
    spans = sweep.segments.take(there)
    absent = (first[spans.key] < spans.lo) & (lost | (read & (last[spans.key] > spans.hi)))
    partly, doubted = (
        np.array([topic in some for topic in streams.topics], dtype=bool)[streams.topic[spans.key]]
        for some in (evidence.incomplete, evidence.doubted)
    )
    open_still = partly | (evidence.found is None) | (doubted & (rank == _INCONCLUSIVE))
    phrase = _phrase_of(rank, logged, observed, absent, found, open_still)
    return Attributed(_table(streams, spans, rank, phrase), straddling)


def _phrase_of(
    rank: Longs, logged: Flags, observed: Flags, absent: Flags, found: Flags, open_still: Flags
) -> Longs:
    """Each one's index in `Attribution`; `_NOT_ATTRIBUTED`: it has no attribution."""
    places = {each: place for place, each in enumerate(Attribution)}
    phrase = np.where(logged, places[Attribution.ACKNOWLEDGED], places[Attribution.UNKNOWN])
    phrase = np.where(observed, places[Attribution.NOT_MIRRORED], phrase)
    phrase = np.where((rank > 0) & open_still, _NOT_ATTRIBUTED, phrase)
    phrase = np.where(~observed & absent, places[Attribution.NEVER_IN_SOURCE], phrase)
    phrase = np.where(found, places[Attribution.NOT_CONSUMED], phrase)
    return np.where(rank >= len(ATTRIBUTED), _NOT_ATTRIBUTED, phrase)


def _looked_for(rows: StreamRows, sent: Longs, evidence: Evidence) -> tuple[Spans, bool]:
    """Numbers acknowledged at offsets that an observer read; whether some are undecided."""
    streams = rows.streams
    sent = sent[(rows.outcome[sent] == 1) & (rows.offset_lo[sent] != NONE)]
    topic, partition = streams.topic[rows.stream[sent]], rows.partition[sent]
    parts, straddling = [Spans.none()], False
    for (name, number), ranges in evidence.source_read.items():
        if name not in streams.topics:
            continue
        mine = sent[(topic == streams.topics.index(name)) & (partition == number)]
        lo, hi = rows.offset_lo[mine], rows.offset_hi[mine]
        first, last = rows.seq_lo[mine], rows.seq_hi[mine]
        dense = hi - lo == last - first
        for begin, end in ranges:
            over = (lo < end) & (hi > begin)
            inside = (lo >= begin) & (hi <= end)
            straddling |= bool((over & ~inside & ~dense).any())
            low = np.where(dense, np.maximum(lo, begin) - lo + first, first)
            high = np.where(dense, np.minimum(hi, end) - lo + first, last)
            found = Spans(rows.stream[mine], low, high)
            parts.append(found.take(over & (inside | dense)))
    return Spans(*(np.concatenate(each) for each in zip(*parts, strict=True))), straddling


def _table(streams: Streams, spans: Spans, rank: Longs, phrase: Longs) -> pa.Table:
    width = _NOT_ATTRIBUTED + 1
    code = rank * width + phrase
    spans, at = joined(spans, code)
    code = code[at]
    verdicts = pa.DictionaryArray.from_arrays(pa.array(code // width), pa.array(VERDICTS))
    which = code % width
    attributions = pa.DictionaryArray.from_arrays(
        pa.array(which, mask=which == _NOT_ATTRIBUTED), pa.array(_PHRASES)
    )
    return result_tables.ids(
        streams,
        spans,
        verdict=verdicts.cast(pa.string()),
        attribution=attributions.cast(pa.string()),
    )


def totals(table: pa.Table) -> pa.Table:
    """How many messages have each verdict and attribution; those without one are left out."""
    table = table.filter(pc.is_valid(table["attribution"]))
    messages = pc.subtract(table["seq_hi"], table["seq_lo"])
    sums = (
        table.select(["verdict", "attribution"])
        .append_column("messages", messages)
        .group_by(["verdict", "attribution"])
        .aggregate([("messages", "sum")])
    )
    return sums.rename_columns(["verdict", "attribution", "messages"])


def first(table: pa.Table, count: int) -> pa.Table:
    """The first `count` rows: the worst verdict first, then by stream and number."""
    rank = pc.index_in(table["verdict"], pa.array(VERDICTS))
    keys = [(name, "ascending") for name in ("rank", *STREAM, "seq_lo")]
    order = pc.sort_indices(table.append_column("rank", rank), keys)
    return table.take(order[:count])
