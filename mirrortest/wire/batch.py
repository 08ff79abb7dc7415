"""Batches of messages: the same bytes as `message`, without one object a message.

`LaneEncoder` writes the messages of one lane, all of one size. `BatchDecoder` (in `batch_decoder`)
reads any batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.wire import descriptor as descriptors
from mirrortest.wire import message_columns, record_batch
from mirrortest.wire.batch_decoder import BatchDecoder, MessageArrays
from mirrortest.wire.descriptor import Descriptor
from mirrortest.wire.digits import SEQ_DIGITS, SEQ_LIMIT, TIME_DIGITS
from mirrortest.wire.form import Form
from mirrortest.wire.lanes import lane_key
from mirrortest.wire.message import HEADER_NAMES, NS_PER_MS, value_size
from mirrortest.wire.payload import phase_of, windows
from mirrortest.wire.varint import varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirrortest.wire.stream import ProducerId

__all__ = ["BatchDecoder", "EncodedBatch", "LaneEncoder", "MessageArrays"]

_CHECK = b"\0" * 8


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch to be sealed and sent; its buffer must not change until the acknowledgement."""

    buffer: memoryview
    count: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.buffer)

    def seal(
        self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool = False
    ) -> None:
        """Write Kafka's producer state and the CRC."""
        record_batch.seal(
            self.buffer, producer_id, epoch, base_sequence, transactional=transactional
        )

    def compressed(self, codec: int, compress: Callable[[bytes], bytes]) -> EncodedBatch:
        """The same batch with its records compressed, where that saves bytes; not sealed yet.

        `codec` is Kafka's number: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        """
        return EncodedBatch(record_batch.compress_records(self.buffer, codec, compress), self.count)


class LaneEncoder:
    """Writes the messages of one lane of one incarnation.

    `size` is bytes of record value. Raises ValueError where a number is out of its field's range.
    """

    def __init__(
        self,
        topic: str,
        producer_id: ProducerId,
        lane: int,
        source_partition: int,
        destination_partitions: int,
        form: Form,
        size: int,
    ) -> None:
        raw_id = producer_id.encode()
        value, self._fill_size = value_size(len(raw_id), form, size)
        self._seed = descriptors.identity_hash(topic, raw_id)
        self._descriptor = Descriptor(source_partition, lane, value, destination_partitions, 0)
        self._words = descriptors.constant_words(self._descriptor, topic)[:2]
        self._phase = phase_of(topic, raw_id, lane)
        key = lane_key(lane)
        self._before = varint(len(key)) + key + varint(value)
        self._form = form
        seq, time = b"0" * SEQ_DIGITS, b"0" * TIME_DIGITS
        fill_size = self._fill_size or 0
        if form is Form.BODY:
            self._head = raw_id + b";" + seq + b";" + time + b";"
            self._after = b"\0"
            self._seq_at = len(self._before) + len(raw_id) + 1
            self._time_at = self._seq_at + SEQ_DIGITS + 1
            self._check_at = self._time_at + TIME_DIGITS + 1 + 24
        else:
            parts = [varint(len(HEADER_NAMES))]
            for name, content in zip(HEADER_NAMES, (raw_id, seq, time, b""), strict=True):
                length = len(content) or descriptors.SIZE
                parts.append(varint(len(name)) + name.encode() + varint(length) + content)
            self._head = b""
            self._after = b"".join(parts)
            begin = len(self._before) + fill_size
            self._seq_at = begin + sum(map(len, parts[:3])) - SEQ_DIGITS
            self._time_at = begin + sum(map(len, parts[:4])) - TIME_DIGITS
            self._check_at = begin + len(self._after) + 24
        proof = descriptors.SIZE if self._fill_size is not None else 0
        body = len(self._before) + len(self._head) + proof + fill_size + len(self._after)
        self._record_size = record_batch.record_size(body, 64)

    def most_within(self, batch_bytes: int) -> int:
        """How many messages fit into a batch of so many bytes; at least one."""
        return max(1, (batch_bytes - record_batch.HEADER_SIZE) // (self._record_size + 1))

    def encode(self, seq_lo: int, intended_ns: NDArray[np.int64], sent_ns: int) -> EncodedBatch:
        """The messages seq_lo, seq_lo + 1, ..., one for each intended time (ns, not empty).

        Raises ValueError where a seq or time is out of range.
        """
        count = len(intended_ns)
        if not 0 <= seq_lo <= SEQ_LIMIT - count:
            raise ValueError(f"seq {seq_lo} and {count} on are not in [0, {SEQ_LIMIT})")
        if count and int(intended_ns.min()) < 0:
            raise ValueError("an intended time is negative")
        seqs = np.arange(seq_lo, seq_lo + count, dtype=np.uint64)
        times = intended_ns.astype(np.uint64)
        numbers = [(self._seq_at, SEQ_DIGITS, seqs), (self._time_at, TIME_DIGITS, times)]
        before, after = self._before + self._head, self._after
        window = None
        if self._fill_size is not None:
            words = (*self._words, sent_ns)
            try:
                proof = struct.pack("<QQq", *words) + _CHECK
            except struct.error:
                raise ValueError(f"time {sent_ns} does not fit a message") from None
            state = descriptors.mix(self._seed, (*words[:2], sent_ns & ((1 << 64) - 1)))
            checks = message_columns.check_values(state, times, seqs)
            numbers.append((self._check_at, 0, checks))
            window = windows(self._phase, seq_lo, count, self._fill_size)
            if self._form is Form.BODY:
                before += proof
            else:
                after += proof
        buffer = record_batch.encode_records(
            before, window, after, numbers, count, sent_ns // NS_PER_MS
        )
        return EncodedBatch(buffer, count)
