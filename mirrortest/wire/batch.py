"""Encodes batches of messages: the same bytes as `message`, without one object per message.

`LaneEncoder` writes the messages of one lane. `batch_decoder.BatchDecoder` reads any batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirrortest.wire import descriptor as descriptors
from mirrortest.wire import message_columns, record_batch
from mirrortest.wire.batch_header import HEADER_SIZE
from mirrortest.wire.descriptor import Descriptor
from mirrortest.wire.digits import SEQ_DIGITS, SEQ_LIMIT, TIME_DIGITS
from mirrortest.wire.form import HEADER_NAMES, Form
from mirrortest.wire.lanes import lane_key
from mirrortest.wire.message import NS_PER_MS, value_size
from mirrortest.wire.payload import OWN, VARYING, phase_of, windows
from mirrortest.wire.varint import varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from mirrortest.wire.own_payloads import Payloads
    from mirrortest.wire.stream import ProducerId


_WORDS_AT, _CHECK_AT = (0, 8, 16, descriptors.SIZE), 24
"""The positions in a descriptor of its words and the digest, and of the check value."""


@dataclass(slots=True)  # not frozen: that would triple the cost of creating one
class EncodedBatch:
    """A batch to be sealed and sent; its buffer must not change until it is acknowledged."""

    buffer: memoryview
    count: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.buffer)

    def seal(
        self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool = False
    ) -> None:
        """Write Kafka's producer id, epoch and base sequence, and the CRC."""
        record_batch.seal(
            self.buffer, producer_id, epoch, base_sequence, transactional=transactional
        )

    def compressed(self, codec: int, compress: Callable[[bytes], bytes]) -> EncodedBatch:
        """The same batch with compressed records, if that saves bytes; not sealed yet.

        `codec` is Kafka's number: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        """
        return EncodedBatch(record_batch.compress_records(self.buffer, codec, compress), self.count)


class LaneEncoder:
    """Encodes the messages of one lane of one incarnation.

    `size` is the bytes of each record value, or of the largest. `compressibility` is in percent of
    the fill. With `own`, the values are the user's payloads, in header form. Raises ValueError if a
    number is out of its field's range.
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
        compressibility: int = 0,
        *,
        own: bool = False,
    ) -> None:
        if own and form is Form.BODY:
            raise ValueError("user payloads need header form")
        raw_id = producer_id.encode()
        self._form, self._size = form, size
        self._value_size, fill_size = value_size(len(raw_id), form, size)
        self._value_sizes = np.array([self._value_size])
        self._fill_size = fill_size or 0
        self._proven = fill_size is not None
        self._seed = descriptors.identity_hash(topic, raw_id)
        self._compressibility = compressibility
        content = Descriptor(
            source_partition, lane, self._value_size, destination_partitions, 0, compressibility
        )
        self._words = descriptors.constant_words(content, topic)[:2]
        varying = content._replace(generator=(OWN if own else VARYING).number)
        self._varying_place = descriptors.constant_words(varying, topic)[0]
        self._phase = phase_of(topic, raw_id, lane)
        self._key = lane_key(lane)
        seq, time = b"0" * SEQ_DIGITS, b"0" * TIME_DIGITS
        proof_size = descriptors.SIZE + descriptors.DIGEST_SIZE * own if self._proven else 0
        self._proof_size = proof_size
        if form is Form.BODY:
            self._head = raw_id + b";" + seq + b";" + time + b";"
            self._least = len(self._head) + descriptors.SIZE
            self._after = b"\0"
            self._seq_at = len(raw_id) + 1
            self._time_at = self._seq_at + SEQ_DIGITS + 1
            self._proof_at = len(self._head)
        else:
            parts = [varint(len(HEADER_NAMES))]
            for name, field in zip(HEADER_NAMES, (raw_id, seq, time, b""), strict=True):
                length = len(field) or proof_size
                parts.append(varint(len(name)) + name.encode() + varint(length) + field)
            self._head = b""
            self._least = 0
            self._after = b"".join(parts)
            self._seq_at = sum(map(len, parts[:3])) - SEQ_DIGITS
            self._time_at = sum(map(len, parts[:4])) - TIME_DIGITS
            self._proof_at = len(self._after)
        in_headers = proof_size if form is Form.HEADERS else 0
        self._record_size = record_batch.record_size(
            self._key, self._value_size, len(self._after) + in_headers, 64
        )

    @property
    def framing(self) -> int:
        """The most bytes of a batch that a message takes in addition to its value."""
        return self._record_size + 1 - self._value_size

    def most_within(self, batch_bytes: int) -> int:
        """How many messages fit into a batch of `batch_bytes`; at least one."""
        return max(1, (batch_bytes - HEADER_SIZE) // (self._record_size + 1))

    def encode(
        self,
        seq_lo: int,
        intended_ns: NDArray[np.int64],
        sent_ns: int,
        sizes: NDArray[np.int64] | None = None,
        payloads: Payloads | None = None,
    ) -> EncodedBatch:
        """Encode messages seq_lo, seq_lo + 1, ..., one for each intended time (ns, not empty).

        `sizes` is the bytes of each value, at most the lane's `size`; None: all have that size.
        `payloads` are the values, of these sizes, if they are the user's. Raises ValueError if a
        seq, a time or a size is out of range.
        """
        count = len(intended_ns)
        if not 0 <= seq_lo <= SEQ_LIMIT - count:
            raise ValueError(f"seq {seq_lo} and {count} on are not in [0, {SEQ_LIMIT})")
        # numpy's function, because the array's method goes through two Python functions.
        if count and np.minimum.reduce(intended_ns) < 0:
            raise ValueError("an intended time is negative")
        value_sizes = self._value_size if sizes is None else self._checked(sizes, count)
        seqs = np.arange(seq_lo, seq_lo + count, dtype=np.uint64)
        times = intended_ns.astype(np.uint64)
        numbers = [(self._seq_at, SEQ_DIGITS, seqs), (self._time_at, TIME_DIGITS, times)]
        head, after = self._head, self._after
        window = None
        if self._proven:
            proof, states, words = self._proof(sent_ns, value_sizes, payloads)
            checks = message_columns.check_values(states, times, seqs)
            numbers += [(self._proof_at + at, 0, column) for at, column in words]
            numbers.append((self._proof_at + _CHECK_AT, 0, checks))
            size = self._value_size if sizes is None else None
            if payloads is None:
                window = windows(self._phase, seq_lo, size, self._fill_size, self._compressibility)
            else:
                window = payloads.window()
            if self._form is Form.BODY:
                head += proof
            else:
                after += proof
        buffer = record_batch.encode_records(
            self._key,
            head,
            window,
            after,
            self._value_sizes if sizes is None else value_sizes,
            numbers,
            count,
            sent_ns // NS_PER_MS,
        )
        return EncodedBatch(buffer, count)

    def value_sizes(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bytes of each message's value, given these sizes (`message.value_size`)."""
        return np.where(sizes < self._least, len(self._head), sizes)

    def _checked(self, sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The sizes of the values; ValueError if they do not fit `count` messages of this lane."""
        if len(sizes) != count:
            raise ValueError(f"{len(sizes)} sizes for {count} messages")
        # If a lane's size is too small for a header, its values have the header's size.
        largest = max(self._size, self._value_size)
        if count and not 0 <= int(sizes.min()) <= int(sizes.max()) <= largest:
            raise ValueError(f"a size is not in [0, {largest}]")
        return self.value_sizes(sizes)

    def _proof(
        self, sent_ns: int, value_sizes: int | NDArray[np.int64], payloads: Payloads | None
    ) -> tuple[bytes, NDArray[np.uint64], list[tuple[int, NDArray[np.uint64]]]]:
        """The part of the descriptor that all messages share, and the hash states after its words.

        Also the words in which messages of different sizes differ, with their offsets.
        """
        place, content = self._words
        if not -1 << 63 <= sent_ns < 1 << 63:
            raise ValueError(f"time {sent_ns} does not fit a message")
        sent = sent_ns & ((1 << 64) - 1)
        if isinstance(value_sizes, int):
            words = (place, content, sent)
            proof = struct.pack("<QQQQ", *descriptors.masked(words), 0)
            return proof, np.array([descriptors.mix(self._seed, words)], np.uint64), []
        place = self._varying_place
        contents = descriptors.sized(content, value_sizes)
        digests = () if payloads is None else (payloads.digests,)
        states = descriptors.mix_arrays(
            descriptors.mix(self._seed, (place,)), (contents, np.array(sent, np.uint64), *digests)
        )
        written = (*descriptors.masked_arrays((place, contents, sent)), *digests)
        return bytes(self._proof_size), states, list(zip(_WORDS_AT, written, strict=False))
