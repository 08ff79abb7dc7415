"""Reading whole batches of messages, equal to `message.decode` of every record.

Records that are laid out like one of them, its producer's id included, are read together by a
compiled loop; then those like one of the others. What is left is read one by one: foreign messages,
the ancestor's, and layouts of which there are too few to be worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.model.findings import Finding
from mirrortest.wire import message_columns
from mirrortest.wire.descriptor import identity_hash
from mirrortest.wire.layout import layout_of
from mirrortest.wire.message import Record, decode
from mirrortest.wire.payload import MAX_SIZE, PERIOD, block, phase_of
from mirrortest.wire.record_headers import parse_headers
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.wire.record_batch import RecordArrays
    from mirrortest.wire.stream import ProducerId

WORTH_IT = 16
"""Records, from which on reading those together that are alike is quicker than one by one."""
_ALONE = 500
"""So many records are looked at in vain in the time in which one is read by itself."""
_VAIN = 32
"""So often may each record be looked at in vain before what is left is read one by one."""
_SCATTER = 0x9E3779B1
"""Its multiples are spread evenly over any number of places (Knuth's multiplicative hashing)."""
_STRETCH = 8
"""Where strangers stand, so many records are read one by one before others are looked for."""


@dataclass(frozen=True, slots=True)
class MessageArrays:
    """The messages of one batch, an element each, in the batch's order.

    `id_index` points into `ids`, though maybe not to all of them; it is -1, as are `lane` and
    `seq`, where the message is in no stream: foreign, or corrupted with its id unknown.
    `intended_ns` and `sent_ns` are 0 where nothing trustworthy tells them; `source_partition` is -1
    and `destination_partitions` 0 where there is no descriptor. `findings` are bits of `Finding`.
    """

    ids: list[ProducerId]
    id_index: NDArray[np.int32]
    lane: NDArray[np.int64]
    seq: NDArray[np.int64]
    offset: NDArray[np.int64]
    intended_ns: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    source_partition: NDArray[np.int32]
    destination_partitions: NDArray[np.int32]
    findings: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def unread(cls, offset: NDArray[np.int64]) -> MessageArrays:
        """Room for the messages at these offsets; nothing is known of them yet."""
        count = len(offset)
        return cls(
            [],
            np.full(count, -1, np.int32),
            np.full(count, -1, np.int64),
            np.full(count, -1, np.int64),
            offset,
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.full(count, -1, np.int32),
            np.zeros(count, np.int32),
            np.zeros(count, np.uint32),
        )


def record_at(records: RecordArrays, row: int) -> Record | None:
    """One of the records, by itself; None where its headers cannot be read."""
    try:
        headers = parse_headers(records.raw_headers(row))
    except MalformedBatchError:
        return None
    stamp = int(records.timestamps[row])
    return Record(records.key(row), records.value(row), headers, stamp)


@dataclass(slots=True)
class BatchDecoder:
    """Reads batches of the copy of one source topic. Nothing that a record holds makes it raise."""

    topic: str
    worth_it: int = WORTH_IT
    _index: dict[ProducerId, int] = field(default_factory=dict, init=False, repr=False)

    def decode(self, records: RecordArrays) -> MessageArrays:
        """Read the messages of the records, be they of one batch or of several."""
        messages = MessageArrays.unread(records.offsets)
        self._index = {}
        # What is longer is no message of ours, or none that was sent as it is.
        fills = block(PERIOD + min(int(records.value_len.max(initial=0)), MAX_SIZE))
        rows = np.arange(len(records))
        vain, stretch, tries = 0, 1, 0
        while len(rows) >= self.worth_it and vain < _VAIN * len(records):
            # Here and there: of what is frequent one is found soon, wherever the rest stands.
            tries += _SCATTER
            at = tries % len(rows)
            row = int(rows[at])
            layout = layout_of(records, row)
            others = rows
            if layout is not None:
                others = message_columns.read(
                    records,
                    rows,
                    row,
                    layout,
                    identity_hash(self.topic, layout.raw_id),
                    partial(phase_of, self.topic, layout.raw_id),
                    fills,
                    self.index_of(layout.id),
                    messages,
                )
            taken = len(rows) - len(others)
            if taken:
                vain += max(0, len(rows) - _ALONE * taken)
                rows, stretch = others, 1
                continue
            for each in rows[at : at + stretch].tolist():
                self._decode_one(records, each, messages)
            rows = np.concatenate((rows[:at], rows[at + stretch :]))
            stretch = min(2 * stretch, _STRETCH)
        for row in rows.tolist():
            self._decode_one(records, row, messages)
        messages.ids.extend(self._index)
        return messages

    def _decode_one(self, records: RecordArrays, row: int, messages: MessageArrays) -> None:
        record = record_at(records, row)
        if record is None:
            messages.findings[row] = Finding.FOREIGN
            return
        decoded = decode(record, self.topic)
        messages.findings[row] = decoded.findings
        if decoded.id is None or decoded.lane is None or decoded.seq is None:
            return
        messages.id_index[row] = self.index_of(decoded.id)
        messages.lane[row] = decoded.lane
        messages.seq[row] = decoded.seq
        messages.intended_ns[row] = decoded.intended_ns or 0
        messages.sent_ns[row] = decoded.sent_ns or 0
        if decoded.source_partition is not None:
            messages.source_partition[row] = decoded.source_partition
        messages.destination_partitions[row] = decoded.destination_partitions or 0

    def index_of(self, producer_id: ProducerId) -> int:
        """The id's place in this batch's table."""
        return self._index.setdefault(producer_id, len(self._index))
