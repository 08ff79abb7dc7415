"""The comparison with the online verdict: by partition, stream, finding and id; pure functions.

A partition's `found` rows are what its checker had found as of a next offset. Here the rows below
that offset are judged again: the two disagree on each id that only one of them names. Where the
online judge could not decide, they do not disagree: on ids that it had given up, and on what was
missing when the last consumer ended before the deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from mirrortest.model.findings import IN_PARTITION, Finding
from mirrortest.reconcile.judgement import judge_partitions
from mirrortest.reconcile.result_tables import COMPARED, SCHEMAS, sums_of
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.sweep import Spans, Sweep
from mirrortest.seqlog.batches import batch_with
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.reconcile.given import Given
    from mirrortest.reconcile.judgement import Copies, Judgement, SeenSegments
    from mirrortest.reconcile.stream_rows import StreamRows
    from mirrortest.reconcile.stretch import Longs

_AGREED = (*IN_PARTITION, Finding.LOST)
"""The findings that both sides must agree on."""


class Disagreement(NamedTuple):
    """Messages with a finding that only one side names; `partition` is None for all together."""

    topic: str
    partition: int | None
    finding: str
    only_online: int
    only_offline: int

    def __str__(self) -> str:
        at = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return (
            f"{at}: {self.finding}: {self.only_online:,} messages only online, "
            f"{self.only_offline:,} only offline"
        )


class Comparison(NamedTuple):
    """How many partitions could be compared, and where the two differ.

    `decided` is, by topic, how many messages are lost that the last consumer left undecided.
    """

    partitions: int
    disagreements: tuple[Disagreement, ...]
    decided: tuple[tuple[str, int], ...] = ()


def comparison(table: pa.Table, topics: Collection[str], partitions: int) -> Comparison:
    """The comparison, from the sums of all parts of `compared`.

    `topics` are those whose losses are compared: of a topic that was not read to its end, those
    that are proven all the same. It is empty where no log has an end. `partitions` is how many have
    an online verdict.
    """
    places = {finding.label: place for place, finding in enumerate(_AGREED)}
    rows = sorted(
        table.to_pylist(),
        key=lambda r: (
            r["partition"] is None,
            r["topic"],
            r["partition"] or 0,
            places[r["finding"]],
        ),
    )
    differing, decided = [], []
    for row in rows:
        topic, online, offline = row["topic"], row["only_online"], row["only_offline"]
        if row["partition"] is None and topic not in topics:
            online = offline = 0
        if online or offline:
            differing.append(Disagreement(topic, row["partition"], row["finding"], online, offline))
        if row["decided"] and topics:
            decided.append((topic, row["decided"]))
    return Comparison(partitions, tuple(differing), tuple(decided))


def compared(judgement: Judgement, given: Given) -> pa.Table:
    """What only one of the two sides names: partial sums by topic, partition and finding."""
    found = [_lost(judgement, given)]
    if given.cuts:
        found.append(_by_partition(judgement, given))
    return pa.concat_tables(found)


def _by_partition(judgement: Judgement, given: Given) -> pa.Table:
    rows = judgement.rows
    streams = rows.streams
    cuts = {(cut.topic, cut.partition): (cut.identity, cut.cut) for cut in given.cuts}
    seen, reports = rows.of(Kind.SEEN), rows.of(Kind.FOUND)
    reports = reports[rows.partition[reports] != NONE]
    identity, cut = _cuts_of(rows, seen, cuts)
    before = (rows.identity[seen] < identity) | (
        (rows.identity[seen] == identity) & (rows.offset_hi[seen] <= cut)
    )
    judged_there = identity != NONE
    # The usual case: the last online verdict is on all that was read.
    judged = judgement.copies, judgement.seen_segments
    beyond = (judged_there & ~before).any()
    if beyond:
        judged = judge_partitions(rows, given, seen[before], given.unread)
    # A consumer may have known less than all logs together of what may be in unread ranges.
    less = [each._replace(minute=each.latest) for each in given.unread]
    least = judged
    if less != [*given.unread]:
        least = judge_partitions(rows, given, seen[before] if beyond else seen, less)
    identity, cut = _cuts_of(rows, reports, cuts)
    reports = reports[(rows.identity[reports] == identity) & (rows.offset_hi[reports] == cut)]
    width = int(rows.partition.max(initial=0)) + 1
    ours, at_least = (
        _placed(*each, streams.topic, streams.topics, cuts, width) for each in (judged, least)
    )
    online = Spans(
        rows.stream[reports] * width + rows.partition[reports],
        rows.seq_lo[reports],
        rows.seq_hi[reports],
    )
    sweep = Sweep(ours=ours.spans, at_least=at_least.spans, online=online)
    decided = sweep.sum("online", rows.findings[reports] & int(Finding.INCONCLUSIVE) != 0) == 0
    rerouted = np.array([topic in given.rerouted for topic in streams.topics], dtype=bool)
    tables = []
    for finding in IN_PARTITION:
        bit = int(finding)
        found = sweep.sum("online", rows.findings[reports] & bit != 0) > 0
        only_online = found & (sweep.sum("ours", ours.found & bit != 0) == 0)
        only_offline = ~found & (sweep.sum("at_least", at_least.found & bit != 0) > 0)
        differ = (only_online | only_offline) & decided
        if finding is Finding.MISROUTED:
            # Findings by several policies cannot be compared.
            differ &= ~rerouted[streams.topic[sweep.segments.key // width]]
        differ = np.flatnonzero(differ)
        if len(differ):
            segments = sweep.segments.take(differ)
            key, messages = segments.key, segments.lengths
            names = streams.names(streams.topic[key // width])
            tables.append(
                _table(
                    names,
                    pa.array((key % width).astype(np.int32)),
                    finding,
                    only_online[differ] * messages,
                    only_offline[differ] * messages,
                )
            )
    return pa.concat_tables([SCHEMAS[COMPARED].empty_table(), *tables])


class _Placed(NamedTuple):
    spans: Spans
    found: Longs


def _placed(
    copies: Copies,
    seen_segments: SeenSegments,
    topic_of: Longs,
    topics: list[str],
    cuts: dict[tuple[str, int], tuple[int, int]],
    width: int,
) -> _Placed:
    """What was found in partitions that have an online verdict, by stream and partition."""
    of = zip(topic_of[copies.stream_of].tolist(), copies.partition_of.tolist(), strict=True)
    there = np.array([(topics[topic], number) in cuts for topic, number in of], dtype=bool)
    mine = there[seen_segments.spans.key] if len(there) else np.zeros(0, dtype=bool)
    place = copies.stream_of * width + copies.partition_of
    key, lo, hi = seen_segments.spans.take(mine)
    return _Placed(Spans(place[key], lo, hi), seen_segments.found[mine])


def _cuts_of(
    rows: StreamRows, at: Longs, cuts: dict[tuple[str, int], tuple[int, int]]
) -> tuple[Longs, Longs]:
    """The incarnation and offset of the cut of each row's partition; `NONE`: it has none."""
    width = int(rows.partition.max(initial=0)) + 1
    key = rows.streams.topic[rows.stream[at]] * width + rows.partition[at]
    distinct, inverse = np.unique(key, return_inverse=True)
    found = np.array(
        [
            cuts.get((rows.streams.topics[each // width], each % width), (NONE, NONE))
            for each in distinct.tolist()
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    return found[inverse, 0], found[inverse, 1]


def _lost(judgement: Judgement, given: Given) -> pa.Table:
    """By topic, what only one side calls lost, and what only the logs could decide."""
    rows, judged = judgement.rows, judgement.judged
    streams = rows.streams
    reports = rows.of(Kind.FOUND)
    reports = reports[rows.partition[reports] == NONE]
    last = np.array([given.last_verdicts.get(topic, NONE) for topic in streams.topics])
    open_bits = int(Finding.IN_FLIGHT | Finding.INCONCLUSIVE)
    undecided = reports[rows.findings[reports] & open_bits != 0]
    undecided = undecided[rows.session[undecided] == last[streams.topic[rows.stream[undecided]]]]
    claims = np.append(
        rows.of(Kind.CLAIMED), reports[rows.findings[reports] & int(Finding.LOST) != 0]
    )
    lost = judged.has(Finding.LOST)
    # A claim that came too early: the message is there, or may be.
    explained = judged.seen | judged.has(Finding.INCONCLUSIVE)
    sweep = Sweep(
        lost=judged.spans.take(lost),
        explained=judged.spans.take(explained),
        online=rows.spans(claims),
        undecided=rows.spans(undecided),
    )
    offline, online = sweep.sum("lost") > 0, sweep.sum("online") > 0
    is_open = sweep.sum("undecided") > 0
    alone = online & ~offline & (sweep.sum("explained") == 0)
    ours = offline & ~online
    some = np.flatnonzero(alone | ours)
    segments = sweep.segments.take(some)
    messages = segments.lengths
    names = streams.names(streams.topic[segments.key])
    return _table(
        names,
        pa.nulls(len(some), pa.int32()),
        Finding.LOST,
        alone[some] * messages,
        (ours & ~is_open)[some] * messages,
        (ours & is_open)[some] * messages,
    )


def _table(
    topics: list[str],
    partition: pa.Array,
    finding: Finding,
    only_online: Longs,
    only_offline: Longs,
    decided: Longs | None = None,
) -> pa.Table:
    columns = {
        "topic": topics,
        "partition": partition,
        "finding": finding.label,
        "only_online": only_online,
        "only_offline": only_offline,
        "decided": 0 if decided is None else decided,
    }
    batch = batch_with(SCHEMAS[COMPARED], len(topics), columns)
    return sums_of(COMPARED, [pa.Table.from_batches([batch])])
