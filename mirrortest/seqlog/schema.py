"""The columns of a sequence log, the same on both sides and for each `Detail`.

A row is an interval within which seq *and* offset both step by one. All intervals are half-open:
``seq_lo <= seq < seq_hi``, ``offset_lo <= offset < offset_hi``. Times are nanoseconds since the
epoch, UTC. Columns that do not apply to a row's kind are null.

| kind | written by | meaning |
|---|---|---|
| reserved | producer | these seqs may be sent: durable before the first send |
| sent | producer | how the sends of these seqs ended (`outcome`), and at which source offsets |
| end | producer | the lane is closed: `seq_hi` seqs were used in all |
| seen | consumer | these messages were read at these offsets (`findings`: of each message; \
`outcome` 1: they arrived over five minutes before their intended time) |
| read | consumer | these offsets were read, whether or not they had records (`findings` \
compacted: some are holes) |
| hole | consumer | these offsets were read and had no record, no transaction marker and no \
aborted message: compaction leaves such holes |
| backlog | consumer | these offsets existed when the consumer took the partition, or after it \
was stalled: only messages sent before the partition existed have latencies |
| unread | consumer | these offsets were deleted before they were read; they had no message with \
an intended time after the minute of `intended_first` |
| tail | consumer | the partition ended at `offset_hi`; all offsets below `offset_lo` were judged |
| vouched | consumer | the ledger records these seqs with this `outcome` (0: reserved only) |
| claimed | consumer | these seqs were claimed lost online (a later `seen` makes them late) |
| expired | consumer | the deadline of these seqs had passed at the last end-offset snapshot |
| found | consumer | the online verdict `findings` on these seqs, as of next offset `offset_hi` |

A `seen` row of messages that are foreign, of another run, or corrupted with an unknown id has no
stream: `run`, `producer`, `incarnation`, `seq_lo` and `seq_hi` are null. Its `lane` is the lane
whose key the messages have, null if no lane has it.

`topic_identity` is the number of the partition's incarnation, from 0. The consumers of a group
count alike; session.json (`incarnations`) has each one's topic id.

A reader skips rows of kinds that its version lacks: a new kind needs no new `SCHEMA_VERSION` as
long as the other rows mean the same without it.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Kind(StrEnum):
    """What a row means; see the module's table."""

    RESERVED = "reserved"
    SENT = "sent"
    END = "end"
    SEEN = "seen"
    READ = "read"
    HOLE = "hole"
    BACKLOG = "backlog"
    UNREAD = "unread"
    TAIL = "tail"
    VOUCHED = "vouched"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    FOUND = "found"


SCHEMA_VERSION = 1
STREAM = ("topic", "producer", "incarnation", "lane")
"""The columns that name a stream, within a run."""
TOTALLED = ("negative", "latency_bucket", "latency_count")
"""The columns that are totals over a row's messages."""
ENDLESS = 1 << 62
"""The `offset_hi` of a range of offsets without an end."""

ROWS = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("run", pa.string()),
        pa.field("producer", pa.string()),
        pa.field("incarnation", pa.int32()),
        pa.field("lane", pa.int64()),
        pa.field("seq_lo", pa.int64()),
        pa.field("seq_hi", pa.int64()),
        pa.field("partition", pa.int32()),
        pa.field("offset_lo", pa.int64()),
        pa.field("offset_hi", pa.int64()),
        pa.field("topic_identity", pa.string()),
        pa.field("outcome", pa.int8()),
        pa.field("findings", pa.int32()),
        pa.field("intended_first", pa.int64()),
        pa.field("intended_last", pa.int64()),
        pa.field("sent_first", pa.int64()),
        pa.field("sent_last", pa.int64()),
        pa.field("arrived_first", pa.int64()),
        pa.field("arrived_last", pa.int64()),
        pa.field("negative", pa.int64()),
        pa.field("latency_bucket", pa.list_(pa.int32())),
        pa.field("latency_count", pa.list_(pa.int64())),
    ]
)
"""`negative`, `latency_bucket` and `latency_count` are a sparse histogram of the latency from the
intended time. They are null in `seen` rows without latencies: of a backlog, or of further copies.

In a producer's rows `partition` and offsets are the source's, and `arrived_*` is when the
acknowledgement came; in a consumer's rows they are the destination's. `topic` is the source
topic's name on both sides. `latency_bucket` has indices of `timing.histogram.Histogram`.
"""
