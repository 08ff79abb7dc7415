"""What compaction explains: missing, and a later message of its key was seen.

A lane is a key. In a compacted topic a message may be removed once one of the same key follows
it: of its own stream; or of any other, this run's or not, behind what was seen of its stream in the
same partition; or of a later incarnation of its producer in a partition where the stream was seen
or belongs; where nothing was seen of it, any but an earlier incarnation's. The last message of a
key stays, so that it is lost if it is missing. What compaction took from the destination left holes
in the offsets that were read; what it took from the source did not. (As
`verify.fragment_index.FragmentIndex.explained_below` has it online.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.reconcile.stream_rows import coded
from mirrortest.reconcile.stretch import NONE
from mirrortest.reconcile.unread import homes_by_stream
from mirrortest.seqlog.schema import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.reconcile.judgement import Copies, Given, Judged
    from mirrortest.reconcile.stream_rows import StreamRows

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_EXPLAINED = int(Finding.LOST | Finding.IN_FLIGHT | Finding.INCONCLUSIVE)


class _Stored(NamedTuple):
    """What was stored in partitions where compaction may have taken messages, by lane and stream.

    `stream` is `NONE` of what is of no stream of the run; `last` orders the places of the last
    messages.
    """

    group: Longs
    partition: Longs
    stream: Longs
    last: Longs
    seq_hi: Longs


def explained(rows: StreamRows, copies: Copies, judged: Judged, given: Given) -> Judged:
    """The judgement with what compaction explains."""
    streams = rows.streams
    as_what = np.zeros(len(streams.topics), dtype=np.int64)
    for code, topic in enumerate(streams.topics):
        if topic in given.explaining:
            as_what[code] = int(given.explaining[topic][0])
    if not as_what.any():
        return judged
    stored = _stored(rows, given)
    seen_hi = np.zeros(len(streams), dtype=np.int64)
    of_run = stored.stream != NONE
    np.maximum.at(seen_hi, stored.stream[of_run], stored.seq_hi[of_run])
    superseded = _superseded(rows, copies, given, stored)
    key = judged.spans.key
    finding = as_what[streams.topic[key]]
    holds = judged.is_acked & ~judged.seen & (finding != 0)
    holds &= superseded[key] | (judged.spans.hi <= seen_hi[key])
    findings = np.where(holds, (judged.findings & ~_EXPLAINED) | finding, judged.findings)
    return replace(judged, findings=findings)


def _stored(rows: StreamRows, given: Given) -> _Stored:
    streams, strangers = rows.streams, rows.strangers
    seen = rows.of(Kind.SEEN)
    group = np.append(streams.group[rows.stream[seen]], strangers.group)
    partition = np.append(rows.partition[seen], strangers.partition)
    identity = np.append(rows.identity[seen], strangers.identity)
    offset = np.append(rows.offset_hi[seen], strangers.offset_hi)
    order = np.lexsort((offset, identity))
    new = np.append(
        True,
        (identity[order][1:] != identity[order][:-1]) | (offset[order][1:] != offset[order][:-1]),
    )[: len(order)]
    last = np.empty(len(order), dtype=np.int64)
    last[order] = np.cumsum(new)
    topic_of = np.full(int(streams.group.max(initial=0)) + 1, NONE, dtype=np.int64)
    topic_of[streams.group] = streams.topic
    explaining = np.zeros(len(group), dtype=bool)
    for code, name in enumerate(streams.topics):
        partitions = given.explaining.get(name, (0, ()))[1]
        mine = np.isin(partition, np.array([*partitions], dtype=np.int64))
        explaining |= (topic_of[group] == code) & mine
    stranger = np.full(len(strangers.group), NONE, dtype=np.int64)
    found = _Stored(
        group,
        partition,
        np.append(rows.stream[seen], stranger),
        last,
        np.append(rows.seq_hi[seen], stranger),
    )
    return _Stored(*(each[explaining] for each in found))


def _superseded(rows: StreamRows, copies: Copies, given: Given, stored: _Stored) -> Flags:
    """Streams of which a message of another stream with their key stands behind."""
    streams = rows.streams
    superseded = np.zeros(len(streams), dtype=bool)
    producer = coded(streams.table["producer"]).astype(np.int64)
    homes = homes_by_stream(rows, given)
    nowhere = ~homes.known
    nowhere[copies.stream_of] = False
    for topic, (_, partitions) in given.explaining.items():
        of_topic = streams.topic == (streams.topics.index(topic) if topic in streams.topics else -1)
        for partition in partitions if of_topic.any() else ():
            there = np.flatnonzero(stored.partition == partition)
            there = there[np.isin(stored.group[there], streams.group[of_topic])]
            here = np.zeros(len(streams), dtype=bool)
            here[copies.stream_of[copies.partition_of == partition]] = True
            mine = of_topic & (here | homes.has(partition) | nowhere)
            superseded |= mine & _behind(rows, producer, stored, there)
    return superseded


def _behind(rows: StreamRows, producer: Longs, stored: _Stored, there: Longs) -> Flags:
    """Which streams, of all, others supersede in one partition."""
    streams = rows.streams
    groups = len(set(streams.group.tolist()))
    group, stream, last = stored.group[there], stored.stream[there], stored.last[there]
    of_run = stream != NONE
    greatest = np.zeros(groups, dtype=np.int64)
    np.maximum.at(greatest, group, last)
    own = np.zeros(len(streams), dtype=np.int64)
    np.maximum.at(own, stream[of_run], last[of_run])
    # Of each producer in a lane: its greatest incarnation there.
    key = streams.group * (int(producer.max(initial=0)) + 1) + producer
    newest = np.zeros(int(key.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(newest, key[stream[of_run]], streams.incarnation[stream[of_run]])
    everybody = np.bincount(group, minlength=groups)
    ours = np.bincount(key[stream[of_run]], minlength=len(newest))
    others = everybody[streams.group] > ours[key]
    found: Flags = (own > 0) & (greatest[streams.group] > own)
    found |= newest[key] > streams.incarnation
    found |= (own == 0) & others
    return found
