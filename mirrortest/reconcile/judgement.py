"""The judgement: one pure function over all rows of some lanes; no I/O.

It takes complete (topic, lane) groups, any number of them, and judges them together by array
operations. It shares no code with `verify`, because it checks it. Step by step:

1. **Copies** are chains of a stream in a partition, each (seq, offset) in exactly one, however
   often an offset was read.
2. **Disorder** is where a stream went back in a partition: a number is *reordered* if its first
   copy there comes after a greater number of its stream. All messages of a recreated topic come
   after those of the topic before it, unless their order is unknown (`unordered`).
3. **Doubts** (`unread`): up to which number a stream may be in offsets that no consumer read.
4. **Segments** are between two neighbouring bounds of all that is known of a stream's numbers.
   Nothing changes within one, so each has one verdict:

   | is | if |
   |---|---|
   | acked | the producer's log, or a ledger record in a consumer's log, says so |
   | failed | one of them says so, none says acked, and no producer's log says unknown |
   | sent | acked; or reserved, and not after the stream's end mark |
   | lost | acked, not seen; and claimed lost, or due, not in doubt, topic read to its end |
   | inconclusive | acked, not seen, not claimed, and in doubt |
   | in flight | acked, not seen, none of these; and not due, or topic not read to its end |
   | late | seen, and claimed lost before |
   | phantom | seen, its id proven, its producer's log complete; and not sent, or failed. Not if \
the log has no end and lacks the number: it may have been copied before |
   | duplicated | more than one copy |

   A claim does not count if a consumer may have seen the message later whose log is missing or \
damaged (`UnreadRange.unlogged`).
   *Due* is what was acknowledged a deadline before a consumer read the end offsets, by that
   consumer's log (`expired`) or by both hosts' clocks (`horizons`).
5. What compaction explains is `compacted` (`compaction`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.model.findings import STREAM_FINDINGS, Finding, Outcome
from mirrortest.reconcile.chain import codes, firsts
from mirrortest.reconcile.compaction import explained
from mirrortest.reconcile.homes import anywhere, homes_by_stream
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, Sweep, highest_before, united
from mirrortest.reconcile.unread import Doubts, doubts
from mirrortest.seqlog.schema import ENDLESS, Kind
from mirrortest.verify.placement import counts_in_force

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirrortest.reconcile.coverage import UnreadRange
    from mirrortest.reconcile.given import Given, Sender
    from mirrortest.reconcile.stream_rows import StreamRows
    from mirrortest.reconcile.stretch import Flags, Longs

_MASK = int(sum(STREAM_FINDINGS))


class Copies(NamedTuple):
    """Chains of streams in partitions, from offset `offset` on; their key codes both.

    `stream_of` and `partition_of` are those of each such code; `of_rows` is the code of each `seen`
    row; `above` as in `StreamRows`.
    """

    spans: Spans
    identity: Longs
    offset: Longs
    stream_of: Longs
    partition_of: Longs
    of_rows: Longs
    above: Longs


@dataclass(frozen=True)
class SeenSegments:
    """Segments of streams as seen in partitions; `found`: the findings that this shows, as bits."""

    spans: Spans
    copies: Longs
    found: Longs


@dataclass(frozen=True)
class Judged:
    """Segments of streams, with their verdict; all arrays have one value per segment.

    `findings` are bits; `claimed`: a consumer claimed it lost. `accounted`: the log of its producer
    is here, and complete as far as that; `unlogged`: only a ledger records its acknowledgement;
    `acked_rows` is how many rows of the log record it.
    """

    spans: Spans
    copies: Longs
    is_acked: Flags
    is_failed: Flags
    is_sent: Flags
    accounted: Flags
    unlogged: Flags
    acked_rows: Longs
    findings: Longs
    claimed: Flags

    @property
    def messages(self) -> Longs:
        """How many messages each has."""
        return self.spans.lengths

    @property
    def seen(self) -> Flags:
        """Whether there is a copy."""
        return self.copies > 0

    @property
    def is_unknown(self) -> Flags:
        """Whether it was sent, and its outcome is unknown."""
        return self.is_sent & ~self.is_acked & ~self.is_failed

    def has(self, finding: Finding) -> Flags:
        """Whether it has a finding."""
        flags: Flags = self.findings & int(finding) != 0
        return flags

    def take(self, which: Longs) -> Judged:
        """Some of them."""
        others = (getattr(self, each.name)[which] for each in fields(self)[1:])
        return Judged(self.spans.take(which), *others)


class Judgement(NamedTuple):
    """The segments with their verdicts, and what else the tables and the comparison need."""

    rows: StreamRows
    copies: Copies
    seen_segments: SeenSegments
    judged: Judged


def judge(rows: StreamRows, given: Given) -> Judgement:
    """Judge complete lanes."""
    rows = _drop_inapplicable(rows, given)
    seen = rows.of(Kind.SEEN)
    copies = copies_of(rows, seen, overlapping=given.overlapping)
    doubt = doubts(rows, seen, copies, given, given.unread)
    disorder = _disorder(rows, given, copies, doubt)
    seen_segments = segment_seen(rows, seen, copies, disorder)
    judged = _segments(rows, given, seen, copies, disorder, doubt, seen_segments)
    return Judgement(rows, copies, seen_segments, explained(rows, copies, judged, given))


def _drop_inapplicable(rows: StreamRows, given: Given) -> StreamRows:
    """The rows without findings by rules that do not apply to the run."""
    streams, findings = rows.streams, rows.findings
    for code, topic in enumerate(streams.topics):
        if others := given.rerouted.get(topic):
            by_others = np.isin(rows.session, [*others]) & (streams.topic[rows.stream] == code)
            findings = np.where(by_others, findings & ~int(Finding.MISROUTED), findings)
    if given.stamped.intersection(streams.topics):
        stamped = np.array([topic in given.stamped for topic in streams.topics], dtype=bool)
        there = stamped[streams.topic[rows.stream]]
        findings = np.where(there, findings & ~int(Finding.ALTERED_TIMESTAMP), findings)
    return replace(rows, findings=findings)


def judge_partitions(
    rows: StreamRows, given: Given, seen: Longs, unread: Sequence[UnreadRange]
) -> tuple[Copies, SeenSegments]:
    """What the rows `seen` show of partitions by themselves, with these unread ranges."""
    copies = copies_of(rows, seen, overlapping=given.overlapping)
    disorder = _disorder(rows, given, copies, doubts(rows, seen, copies, given, unread))
    return copies, segment_seen(rows, seen, copies, disorder)


def copies_of(rows: StreamRows, seen: Longs, *, overlapping: bool) -> Copies:
    """The copies in the rows `seen`; where offsets were read more than once, copies are merged.

    There chains are dense (`compact.Zone`): those with the same distance of seq and offset match.
    """
    stream, partition = rows.stream[seen], rows.partition[seen]
    key = codes(stream, partition).astype(np.int64)
    first = firsts(key)
    lo, hi = rows.seq_lo[seen], rows.seq_hi[seen]
    identity, offset, of_rows = rows.identity[seen], rows.offset_lo[seen], key
    above = rows.above[seen]
    if overlapping and len(seen):
        distance, tail = offset - lo, rows.offset_hi[seen] - hi
        line = codes(key, identity, distance, tail).astype(np.int64)
        at, lo, hi = united(line, lo, hi)
        key, identity, offset, above = key[at], identity[at], lo + distance[at], above[at]
    return Copies(
        Spans(key, lo, hi), identity, offset, stream[first], partition[first], of_rows, above
    )


def _disorder(rows: StreamRows, given: Given, copies: Copies, doubt: Doubts) -> Spans:
    """Reordered numbers, by stream and partition; not if a first copy may be in unread offsets."""
    order = np.lexsort((copies.offset, copies.identity, copies.spans.key))
    key, lo, hi = copies.spans.take(order)
    line = key
    if given.unordered:
        topics = rows.streams.names(rows.streams.topic[copies.stream_of])
        places = zip(topics, copies.partition_of.tolist(), strict=True)
        apart = np.array([place in given.unordered for place in places], dtype=bool)
        identity = copies.identity[order]
        line = key * (int(identity.max(initial=0)) + 1) + np.where(apart[key], identity, 0)
    above = np.maximum(highest_before(line, hi), copies.above[order])
    went_back = np.zeros(len(copies.stream_of), dtype=bool)
    went_back[key[lo < above]] = True
    here = went_back[key]
    if not here.any():
        return Spans.none()
    troubled = Spans(key, lo, hi).take(here)
    in_order = Spans(key, np.maximum(lo, above), hi).take(here & (hi > above))
    sweep = Sweep(seen=troubled, in_order=in_order, following=doubt.following)
    certain = (sweep.sum("following") == 0) | (sweep.sum("following", doubt.sure) > 0)
    return sweep.spans((sweep.sum("seen") > 0) & (sweep.sum("in_order") == 0) & certain)


def segment_seen(rows: StreamRows, seen: Longs, copies: Copies, disorder: Spans) -> SeenSegments:
    """Segment what was seen in each partition, with the findings that it shows by itself."""
    marked = rows.findings[seen] & _MASK != 0
    flagged = seen[marked]
    marked = Spans(copies.of_rows[marked], rows.seq_lo[flagged], rows.seq_hi[flagged])
    sweep = Sweep(copies=copies.spans, disorder=disorder, marked=marked)
    number = sweep.sum("copies")
    found = _found(sweep, number, rows.findings[flagged])
    some = (number > 0) | (found != 0)
    return SeenSegments(sweep.segments.take(some), number[some], found[some])


def _found(sweep: Sweep, copies: Longs, marked: Longs) -> Longs:
    found = np.where(copies > 1, int(Finding.DUPLICATED), 0)
    found |= np.where(sweep.sum("disorder") > 0, int(Finding.REORDERED), 0)
    for finding in STREAM_FINDINGS:
        has = marked & int(finding) != 0
        if has.any():
            found |= np.where(sweep.sum("marked", has) > 0, int(finding), 0)
    return found


def homes(copies: Copies, seen_segments: SeenSegments, streams: int) -> Longs:
    """By stream, the partition with the most of its messages; see `fullest`."""
    return fullest(copies.stream_of, copies.partition_of, _messages(copies, seen_segments), streams)


def fullest(stream: Longs, partition: Longs, messages: Longs, streams: int) -> Longs:
    """By stream, the partition with the most messages, the lowest of several; `NONE`: none."""
    order = np.lexsort((-partition, messages, stream))
    order = order[messages[order] > 0]
    found = np.full(streams, NONE, dtype=np.int64)
    found[stream[order]] = partition[order]  # the last of a stream stays
    return found


def _messages(copies: Copies, seen_segments: SeenSegments) -> Longs:
    """By stream and partition, the number of messages, each counted once."""
    here = seen_segments.copies > 0
    messages = np.zeros(len(copies.stream_of), dtype=np.int64)
    np.add.at(messages, seen_segments.spans.key[here], seen_segments.spans.lengths[here])
    return messages


def _rank(copies: Copies, seen_segments: SeenSegments) -> Longs:
    """By stream and partition: how many partitions have more of it, or as much and are lower."""
    order = np.lexsort((copies.partition_of, -_messages(copies, seen_segments), copies.stream_of))
    stream = copies.stream_of[order]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(stream, stream)
    return rank


def _segments(
    rows: StreamRows,
    given: Given,
    seen: Longs,
    copies: Copies,
    disorder: Spans,
    doubt: Doubts,
    seen_segments: SeenSegments,
) -> Judged:
    streams = rows.streams
    sent, vouched, flagged = (
        rows.of(Kind.SENT),
        rows.of(Kind.VOUCHED),
        seen[rows.findings[seen] & _MASK != 0],
    )
    every = np.arange(len(streams))
    nothing = np.zeros(len(streams), dtype=np.int64)
    endless = np.full(len(streams), ENDLESS)
    sweep = Sweep(
        reserved=rows.spans(rows.of(Kind.RESERVED)),
        sent=rows.spans(sent),
        unused=_after_end(rows),
        vouched=rows.spans(vouched),
        claimed=rows.spans(rows.of(Kind.CLAIMED)),
        expired=rows.spans(rows.of(Kind.EXPIRED)),
        doubtful=Spans(every, nothing, doubt.up_to).take(doubt.up_to > 0),
        beyond=Spans(every, nothing, endless).take(doubt.beyond),
        copies=Spans(copies.stream_of[copies.spans.key], *copies.spans[1:]),
        disorder=Spans(copies.stream_of[disorder.key], *disorder[1:]),
        marked=rows.spans(flagged),
        away=_away(rows, copies, seen_segments, given),
    )
    number = sweep.sum("copies")
    claimed, doubtful, beyond = (sweep.sum(each) > 0 for each in ("claimed", "doubtful", "beyond"))
    by_outcome = {
        outcome: (
            sweep.sum("sent", rows.outcome[sent] == int(outcome)),
            sweep.sum("vouched", rows.outcome[vouched] == int(outcome)) > 0,
        )
        for outcome in Outcome
    }
    acked_rows, acked_in_ledger = by_outcome[Outcome.ACKED]
    acked = (acked_rows > 0) | acked_in_ledger
    failed_rows, failed_in_ledger = by_outcome[Outcome.FAILED]
    failed = ~acked & (by_outcome[Outcome.UNKNOWN][0] == 0)
    failed &= (failed_rows > 0) | failed_in_ledger
    named = (sweep.sum("reserved") + sweep.sum("sent") + sweep.sum("vouched")) > 0
    unused = sweep.sum("unused") > 0
    used = (named & ~unused) | acked
    due = (sweep.sum("sent", _is_due(rows, sent, given)) + sweep.sum("expired")) > 0
    complete, unended = (
        _are_of(rows, each)[sweep.segments.key] for each in (given.complete, given.unended)
    )
    accounted = complete & (used | unused | ~unended)
    seen_at = number > 0
    missing = acked & ~seen_at
    standing = claimed & ~doubt.unlogged[sweep.segments.key]
    found = _found(sweep, number, rows.findings[flagged])
    proven = found & int(Finding.UNPROVEN) == 0
    away = (sweep.sum("away") > 0) & (proven | anywhere(rows, given)[sweep.segments.key])
    found |= np.where(away, int(Finding.MISROUTED), 0)
    for finding, holds in (
        (Finding.LOST, missing & (standing | (due & ~doubtful & ~beyond))),
        (Finding.INCONCLUSIVE, missing & ~standing & doubtful),
        (Finding.IN_FLIGHT, missing & ~claimed & ~doubtful & (beyond | ~due)),
        (Finding.LATE, seen_at & claimed),
        (Finding.PHANTOM, seen_at & accounted & proven & (failed | ~used)),
    ):
        found |= np.where(holds, int(finding), 0)
    some = (seen_at | named | claimed) & (seen_at | used | failed)
    return Judged(
        sweep.segments.take(some),
        number[some],
        acked[some],
        failed[some],
        used[some],
        accounted[some],
        (accounted & (acked_rows == 0) & acked_in_ledger)[some],
        acked_rows[some],
        found[some],
        claimed[some],
    )


def _after_end(rows: StreamRows) -> Spans:
    """The numbers that producers did not use: those after the last end mark of each stream."""
    ends = rows.of(Kind.END)
    last = np.full(len(rows.streams), NONE, dtype=np.int64)
    np.maximum.at(last, rows.stream[ends], rows.seq_hi[ends])
    ended = np.flatnonzero(last != NONE)
    return Spans(ended, last[ended], np.full(len(ended), ENDLESS))


def _is_due(rows: StreamRows, sent: Longs, given: Given) -> Flags:
    """Which rows' messages were all acknowledged before the horizon of their topic."""
    horizon = np.array([given.horizons.get(topic, NONE) for topic in rows.streams.topics])
    mine, last = horizon[rows.streams.topic[rows.stream[sent]]], rows.last_ns[sent]
    acked = rows.outcome[sent] == int(Outcome.ACKED)
    due: Flags = acked & (last != NONE) & (last <= mine)
    return due


def _are_of(rows: StreamRows, senders: Collection[Sender]) -> Flags:
    """Which streams are of these senders."""
    columns = (
        rows.streams.table[name].to_pylist() for name in ("producer", "incarnation", "topic")
    )
    return np.array([each in senders for each in zip(*columns, strict=True)], dtype=bool)


def _away(rows: StreamRows, copies: Copies, seen_segments: SeenSegments, given: Given) -> Spans:
    """The numbers of streams seen in partitions where they do not belong, and never belonged.

    (Rows mark misrouted messages, too, by the policy of the consumer that read them, and more
    strictly: by the counts of that time.) With policy `any`, a stream belongs in as many partitions
    as there were counts in force.
    """
    streams = rows.streams
    if not given.policies or not len(copies.stream_of):
        return Spans.none()
    most = np.array([len(counts_in_force(given.counts.get(t, ()))) or 1 for t in streams.topics])
    belongs = np.where(
        anywhere(rows, given)[copies.stream_of],
        _rank(copies, seen_segments) < most[streams.topic[copies.stream_of]],
        homes_by_stream(rows, given).admit(copies.stream_of, copies.partition_of),
    )
    key = seen_segments.spans.key
    away = (seen_segments.copies > 0) & ~belongs[key]
    return Spans(copies.stream_of[key], *seen_segments.spans[1:]).take(away)
