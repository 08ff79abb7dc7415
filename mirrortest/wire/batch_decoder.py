"""Reading whole batches of messages, equal to `message.decode` of every record.

Records of one shape (lengths of key, value and headers) whose structure and id are those of the
first among them are read together, column by column. What is left is read one by one: foreign
messages, the ancestor's, and shapes of which there are too few to be worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mirrortest.check.verdict import Finding
from mirrortest.wire import descriptor as descriptors
from mirrortest.wire import kernels
from mirrortest.wire.digits import SEQ_DIGITS, TIME_DIGITS, TIME_LIMIT
from mirrortest.wire.lanes import MAX_LANE
from mirrortest.wire.layout import layout_of
from mirrortest.wire.message import NS_PER_MS, Form, Record, decode
from mirrortest.wire.payload import PERIOD, differing, phase_of
from mirrortest.wire.record_headers import parse_headers
from mirrortest.wire.varint import MalformedBatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.wire.layout import Layout
    from mirrortest.wire.record_batch import RecordArrays
    from mirrortest.wire.stream import ProducerId

    Where = slice | NDArray[np.int64]

WORTH_IT = 16
"""Records of one shape, from which on array work is quicker than reading one by one."""
_ATTEMPTS = 16
"""Ids (or failures) tried in one shape before the rest of it is read one by one."""
# Shape codes: value length + 1 below bit 33, key length + 1 above it, headers' length above bit 39.
_KEY_BITS, _VALUE_BITS, _HEADER_BITS = 6, 33, 20


@dataclass(frozen=True, slots=True)
class MessageArrays:
    """The messages of one batch, an element each, in the batch's order.

    `id_index` points into `ids`; it is -1, as are `lane` and `seq`, where the message is in no
    stream: foreign, or corrupted with its id unknown. `intended_ns` and `sent_ns` are 0 where
    nothing trustworthy tells them; `source_partition` is -1 and `destination_partitions` 0 where
    there is no descriptor. `findings` are bits of `Finding`.
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
        for rows in _shapes(records):
            self._decode_shape(records, rows, messages)
        messages.ids.extend(self._index)
        return messages

    def _decode_shape(
        self, records: RecordArrays, rows: NDArray[np.int64], messages: MessageArrays
    ) -> None:
        for _ in range(_ATTEMPTS):
            if len(rows) < self.worth_it:
                break
            layout = layout_of(records, int(rows[0]))
            if layout is None:
                self._decode_one(records, int(rows[0]), messages)
                rows = rows[1:]
                continue
            where = _where(rows)
            alike = layout.matches(records, where)
            # Sections that are very long have one code, whatever their lengths.
            alike &= records.headers_len[where] == records.headers_len[rows[0]]
            if bool(alike.all()):
                _Reading(self, records, layout, rows, messages).run()
                return
            _Reading(self, records, layout, rows[alike], messages).run()
            rows = rows[~alike]
        for row in rows.tolist():
            self._decode_one(records, row, messages)

    def _decode_one(self, records: RecordArrays, row: int, messages: MessageArrays) -> None:
        try:
            headers = parse_headers(records.raw_headers(row))
        except MalformedBatchError:
            messages.findings[row] = Finding.FOREIGN
            return
        stamp = int(records.timestamps[row])
        record = Record(records.key(row), records.value(row), headers, stamp)
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


def _where(rows: NDArray[np.int64]) -> Where:
    """The rows as a slice, if they are neighbours: quicker to read and to write."""
    lo, hi = int(rows[0]), int(rows[-1]) + 1
    return slice(lo, hi) if hi - lo == len(rows) else rows


def _shapes(records: RecordArrays) -> list[NDArray[np.int64]]:
    """The records by the lengths of their parts: rows of one shape each, in order."""
    count = len(records)
    if not count:
        return []
    key, value, headers = records.key_len, records.value_len, records.headers_len
    codes = (
        (value + 1)
        | (np.minimum(key + 1, (1 << _KEY_BITS) - 1) << _VALUE_BITS)
        | (np.minimum(headers, (1 << _HEADER_BITS) - 1) << (_VALUE_BITS + _KEY_BITS))
    )
    if bool((codes == codes[0]).all()):
        return [np.arange(count)]
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, edges)


class _Reading:
    """Records of one layout (`rows`, at least one, ascending), read into `messages`."""

    def __init__(
        self,
        decoder: BatchDecoder,
        records: RecordArrays,
        layout: Layout,
        rows: NDArray[np.int64],
        messages: MessageArrays,
    ) -> None:
        self._decoder = decoder
        self._records = records
        self._layout = layout
        self._rows = rows
        self._messages = messages

    def run(self) -> None:
        layout, records = self._layout, self._records
        where = _where(self._rows)
        in_headers = layout.form is Form.HEADERS
        starts = (records.headers_start if in_headers else records.value_start)[where]
        seqs, times, sound = self._numbers(starts)
        if layout.proof_at is None:
            lanes = self._key_lanes(where)
            sound &= lanes >= 0
            findings = np.full(len(seqs), Finding.UNPROVEN | layout.altered, np.uint32)
            where, (lanes, seqs, times, findings) = self._keep(
                sound, (lanes, seqs, times, findings)
            )
            self._write(where, lanes, seqs, times, findings)
            return
        words = kernels.words(records.buffer, starts, layout.proof_at, 4)
        sound &= self._proves(words, times, seqs)
        where, (word0, word1, word2, seqs, times) = self._keep(
            sound, (words[0], words[1], words[2], seqs, times)
        )
        if not len(seqs):
            return
        lanes = (word0 >> np.uint64(32)).view(np.int64)
        sent_ns = word2.view(np.int64)
        findings = np.full(len(seqs), layout.altered, np.uint32)
        sizes = word1 & np.uint64(0xFFFFFFFF)
        damaged = sizes != np.uint64(layout.value_len)
        damaged |= self._fill_differs(where, lanes, seqs.view(np.int64))
        _mark(findings, damaged, Finding.CORRUPTED)
        _mark(findings, self._key_lanes(where) != lanes, Finding.ALTERED_KEY)
        restamped = records.timestamps[where] != sent_ns // NS_PER_MS
        _mark(findings, restamped, Finding.ALTERED_TIMESTAMP)
        messages = self._messages
        messages.sent_ns[where] = sent_ns
        messages.source_partition[where] = (word0 >> np.uint64(16)) & np.uint64(0xFFFF)
        messages.destination_partitions[where] = (word1 >> np.uint64(32)) & np.uint64(0xFFFF)
        self._write(where, lanes, seqs, times, findings)

    def _write(
        self,
        where: Where,
        lanes: NDArray[np.int64],
        seqs: NDArray[np.uint64],
        times: NDArray[np.uint64],
        findings: NDArray[np.uint32],
    ) -> None:
        if not len(seqs):
            return
        messages = self._messages
        messages.id_index[where] = self._decoder.index_of(self._layout.id)
        messages.lane[where] = lanes
        messages.seq[where] = seqs.view(np.int64)
        messages.intended_ns[where] = times.view(np.int64)
        messages.findings[where] = findings

    def _keep(
        self, sound: NDArray[np.bool_], columns: tuple[NDArray[Any], ...]
    ) -> tuple[Where, tuple[NDArray[Any], ...]]:
        """Mark what proves no identity as corrupted; go on with the others."""
        if bool(sound.all()):
            return _where(self._rows), columns
        self._messages.findings[self._rows[~sound]] = Finding.CORRUPTED
        return self._rows[sound], tuple(column[sound] for column in columns)

    def _numbers(
        self, starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.bool_]]:
        """Seqs and intended times, and whether both are what they should be, digit by digit."""
        data, seq_at, time_at = self._records.buffer, self._layout.seq_at, self._layout.time_at
        sound = np.ones(len(starts), np.bool_)
        kept = sound.view(np.uint8)
        seqs = kernels.numbers(data, starts, seq_at, SEQ_DIGITS, kept)
        times = kernels.numbers(data, starts, time_at, TIME_DIGITS, kept)
        sound &= times < np.uint64(TIME_LIMIT)
        if self._layout.form is Form.BODY:
            kernels.keep_equal(data, starts, seq_at + SEQ_DIGITS, b";", kept)
            kernels.keep_equal(data, starts, time_at + TIME_DIGITS, b";", kept)
        return seqs, times, sound

    def _proves(
        self,
        words: NDArray[np.uint64],
        times: NDArray[np.uint64],
        seqs: NDArray[np.uint64],
    ) -> NDArray[np.bool_]:
        """Whether the check value proves topic, id, time and seq."""
        state: int | NDArray[np.uint64]
        state = descriptors.identity_hash(self._decoder.topic, self._layout.raw_id)
        constant = words[:3]
        if bool((constant == constant[:, :1]).all()):
            state = descriptors.mix(state, constant[:, 0].tolist())
        else:
            state = descriptors.mix_arrays(state, list(constant))
        state = descriptors.mix_arrays(state, (times, seqs))
        proven: NDArray[np.bool_] = descriptors.finish_arrays(state) == words[3]
        proven &= (words[0] & np.uint64(0xFFFF)) == np.uint64(descriptors.TAG)
        return proven

    def _key_lanes(self, where: Where) -> NDArray[np.int64]:
        """The lanes that the record keys tell; -1 where a key is no lane's."""
        records = self._records
        starts = records.key_start[where]
        length = self._layout.key_len
        if not 1 <= length <= 10:
            return np.full(len(starts), -1, np.int64)
        sound = np.ones(len(starts), np.bool_)
        kept = sound.view(np.uint8)
        lanes = kernels.numbers(records.buffer, starts, 0, length, kept).view(np.int64)
        sound &= lanes <= MAX_LANE
        if length > 1:
            sound &= lanes >= 10 ** (length - 1)  # no zero leads
        lanes[~sound] = -1
        return lanes

    def _fill_differs(
        self, where: Where, lanes: NDArray[np.int64], seqs: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Where the fill is not that of the message's lane and seq."""
        size = self._layout.fill_size
        if not size:
            return np.zeros(len(seqs), np.bool_)
        topic, raw_id = self._decoder.topic, self._layout.raw_id
        phases: int | NDArray[np.int64]
        if bool((lanes == lanes[0]).all()):
            phases = phase_of(topic, raw_id, int(lanes[0]))
        else:
            # Lanes come in runs, or are few: neither needs a sort.
            begins = np.concatenate(([0], np.flatnonzero(lanes[1:] != lanes[:-1]) + 1))
            runs = lanes[begins].tolist()
            known = {lane: phase_of(topic, raw_id, lane) for lane in set(runs)}
            each = np.array([known[lane] for lane in runs], np.int64)
            phases = np.repeat(each, np.diff(begins, append=len(lanes)))
        at = self._records.value_start[where] + self._layout.fill_at
        return differing(self._records.buffer, at, (seqs + phases) % PERIOD, size)


def _mark(findings: NDArray[np.uint32], where: NDArray[np.bool_], finding: Finding) -> None:
    if bool(where.any()):
        findings[where] |= np.uint32(finding)
