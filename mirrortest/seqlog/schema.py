"""The columns of a sequence log, the same on both sides and in both details.

A row is an interval within which seq *and* offset both step by one. All intervals are half-open:
``seq_lo <= seq < seq_hi``, ``offset_lo <= offset < offset_hi``. Times are nanoseconds since the
epoch, UTC. What does not apply to a row's kind is null.

| kind | written by | meaning |
|---|---|---|
| reserved | producer | these numbers may be sent: durable before the first send |
| sent | producer | how the sends of these numbers ended (`outcome`), and at which source offsets |
| end | producer | the lane is closed: `seq_hi` numbers were used in all |
| seen | consumer | these messages were at these offsets (`findings`: of each of them; \
`outcome` 1: they arrived over five minutes before they were to be sent) |
| read | consumer | these offsets were read, with records there or not (`findings` compacted: \
some are holes) |
| hole | consumer | these offsets were read, and had no record, nor a transaction's marker or \
aborted message: compaction leaves such |
| backlog | consumer | these offsets were there when it took the partition, or after it stood \
still: no latencies, but of what had been sent before the partition was there |
| unread | consumer | these offsets were deleted before they were read; they had no message with \
an intended time after the minute of `intended_first` |
| tail | consumer | the partition ended at `offset_hi`, judged before `offset_lo` |
| vouched | consumer | the ledger records these numbers with this `outcome` (0: reserved only) |
| claimed | consumer | these numbers were claimed lost online (a later `seen` makes them late) |
| expired | consumer | these numbers' deadline had passed at its last end-offset snapshot |
| found | consumer | the online verdict `findings` on these numbers, as of next offset `offset_hi` |

In a `seen` row with findings foreign, other run, or corrupted with its id unknown, the stream's
columns are null (topic apart) and seq_lo = seq_hi = null; `lane` is the one whose key the messages
have, null where no lane has it.

`topic_identity` counts the incarnations of a partition, from 0, as consumers of one group do; of
which topic each is stands in session.json (`incarnations`).

A reader skips rows of a kind that it does not have: a new kind needs no new
`SCHEMA_VERSION` as long as the other rows mean the same without it.
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
"""The end of a range of offsets without an end."""

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
"""`negative` and the sparse latency histogram are of the latency from the intended time; null in
`seen` rows without one: of a backlog, or of further copies.

On the producer's side `partition` and offsets are the source's and `arrived_*` is when the
acknowledgement came; on the consumer's side they are the destination's. `topic` is the source
topic's name on both. `latency_bucket` has indices of `timing.histogram.Histogram`.
"""
