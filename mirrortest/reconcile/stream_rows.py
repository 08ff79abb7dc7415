"""All rows of some lanes as arrays: the input of `judgement`.

They are built from `INTERVALS` rows of complete (topic, lane) groups. Chains with packed holes are
cut at these, and packed claims are unpacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.reconcile.chain import codes, firsts
from mirrortest.reconcile.holes import unpacked_chains, unpacked_claims
from mirrortest.reconcile.stretch import NONE, numbers
from mirrortest.reconcile.sweep import Spans
from mirrortest.seqlog.batches import filled, positions
from mirrortest.seqlog.schema import STREAM, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirrortest.reconcile.stretch import Flags, Longs

KINDS = (
    Kind.SEEN, Kind.SENT, Kind.RESERVED, Kind.VOUCHED, Kind.END, Kind.CLAIMED, Kind.EXPIRED,
    Kind.FOUND,
)  # fmt: skip
"""The kinds of rows of streams; `StreamRows.kind` is an index into these."""
_NUMBERS = (
    "partition", "identity", "seq_lo", "seq_hi", "offset_lo", "offset_hi", "outcome", "findings",
    "last_ns", "session",
)  # fmt: skip


@dataclass(frozen=True)
class Streams:
    """Streams by their codes; `topic` and `group` (a topic's lane) are codes, too.

    `table` has a row for each stream: topic, producer, incarnation, lane.
    """

    table: pa.Table
    topics: list[str]
    topic: Longs
    lane: Longs
    group: Longs
    incarnation: Longs

    def __len__(self) -> int:
        """How many there are."""
        return len(self.topic)

    def names(self, topic: Longs) -> list[str]:
        """The names of topics, by their codes."""
        return [self.topics[code] for code in topic.tolist()]


class Streamless(NamedTuple):
    """Messages seen that are in no stream; `topic` and `group` as in `Streams`.

    `group` is `NONE` where the key is of no lane.
    """

    topic: Longs
    group: Longs
    partition: Longs
    identity: Longs
    offset_lo: Longs
    offset_hi: Longs


@dataclass(frozen=True)
class StreamRows:
    """Rows of streams as arrays, `NONE` for null; row n has the marks [first_mark[n], [n + 1]).

    Slices have two columns that rest on all rows of the stream. `above` is one more than the
    greatest number before a copy in its partition, else 0; `home` is, by stream, the partition with
    the most of it, else `NONE`.
    """

    streams: Streams
    streamless: Streamless
    kind: Longs
    stream: Longs
    partition: Longs
    identity: Longs
    seq_lo: Longs
    seq_hi: Longs
    offset_lo: Longs
    offset_hi: Longs
    outcome: Longs
    findings: Longs
    last_ns: Longs
    session: Longs
    above: Longs
    home: Longs
    first_mark: Longs
    mark_seq: Longs
    mark_minute: Longs

    def of(self, kind: Kind) -> Longs:
        """The indices of the rows of one kind."""
        return np.flatnonzero(self.kind == KINDS.index(kind))

    def spans(self, rows: Longs) -> Spans:
        """The numbers of these rows, by stream."""
        return Spans(self.stream[rows], self.seq_lo[rows], self.seq_hi[rows])

    def minutes(self, rows: Longs) -> tuple[Longs, Spans, Longs]:
        """Rows cut where the minute changes: each piece's row, its numbers, its minute."""
        counts = self.first_mark[rows + 1] - self.first_mark[rows]
        which, nth = positions(counts)
        row, ends = rows[which], np.cumsum(counts)
        mark = self.first_mark[row] + nth
        lo = self.mark_seq[mark]
        hi = np.append(lo[1:], 0)[: len(lo)]
        some = counts > 0
        hi[ends[some] - 1] = self.seq_hi[rows[some]]
        lo, hi = np.maximum(lo, self.seq_lo[row]), np.minimum(hi, self.seq_hi[row])
        kept = lo < hi
        row = row[kept]
        return row, Spans(self.stream[row], lo[kept], hi[kept]), self.mark_minute[mark][kept]

    @classmethod
    def of_table(
        cls, table: pa.Table, only: tuple[int, int] | None = None, home: int = NONE
    ) -> StreamRows:
        """Build them from `INTERVALS` rows, without other rows of no stream than `seen` ones.

        `only`: a slice, of these numbers; then the rows have `above`, and `home` is the stream's.
        """
        mine = pa.array(is_of_stream(table))
        others = table.filter(pc.invert(mine))
        table = _expanded(table.filter(mine))
        kinds = pa.array([kind.value for kind in KINDS])
        streams, stream = _streams(table)
        counts = filled(pc.list_value_length(table["mark_seq"]), 0)
        columns = {name: numbers(table, name) for name in _NUMBERS}
        columns["findings"] = np.maximum(columns["findings"], 0)
        if only is not None:
            _clip(columns, *only)
        there = "above" in table.column_names
        above = numbers(table, "above") if there else np.zeros(table.num_rows, dtype=np.int64)
        return cls(
            streams=streams,
            streamless=_streamless(others, streams),
            kind=pc.index_in(table["kind"], kinds).to_numpy().astype(np.int64),
            stream=stream,
            above=above,
            home=np.full(len(streams), home, dtype=np.int64),
            first_mark=np.append(0, np.cumsum(counts)),
            mark_seq=_flat(table["mark_seq"]),
            mark_minute=_flat(table["mark_minute"]),
            **columns,
        )


def _clip(columns: dict[str, Longs], begin: int, end: int) -> None:
    """Clip rows to these numbers; where they are dense, clip their offsets as well."""
    lo, hi = columns["seq_lo"], columns["seq_hi"]
    kept_lo, kept_hi = np.clip(lo, begin, end), np.clip(hi, begin, end)
    counted = lo != NONE  # (the end of a stream has no first number)
    dense = columns["offset_hi"] - columns["offset_lo"] == hi - lo
    for name, shift in (("offset_lo", kept_lo - lo), ("offset_hi", kept_hi - hi)):
        columns[name] = columns[name] + np.where(dense & counted, shift, 0)
    columns["seq_lo"] = np.where(counted, kept_lo, lo)
    columns["seq_hi"] = np.where(counted, kept_hi, hi)


def _streamless(table: pa.Table, streams: Streams) -> Streamless:
    table = table.filter(pc.equal(table["kind"], Kind.SEEN.value))
    table = table.filter(pc.is_in(table["topic"], pa.array(streams.topics, pa.string())))
    topic = pc.index_in(table["topic"], pa.array(streams.topics, pa.string())).to_numpy()
    lane = numbers(table, "lane")
    names = zip(streams.topic.tolist(), streams.lane.tolist(), streams.group.tolist(), strict=True)
    groups = {(code, number): group for code, number, group in names}
    key = codes(topic, lane)
    first = firsts(key)
    keys = zip(topic[first].tolist(), lane[first].tolist(), strict=True)
    group = np.array([groups.get(each, NONE) for each in keys], dtype=np.int64)[key]
    columns = (numbers(table, name) for name in ("partition", "identity", "offset_lo", "offset_hi"))
    return Streamless(topic.astype(np.int64), group, *columns)


def is_of_stream(table: pa.Table) -> Flags:
    """Which rows have numbers of a stream, or its end mark."""
    found = pc.is_in(table["kind"], pa.array([kind.value for kind in KINDS]))
    for name in STREAM:
        found = pc.and_(found, pc.is_valid(table[name]))
    numbered = pc.or_(pc.is_valid(table["seq_lo"]), pc.equal(table["kind"], Kind.END.value))
    flags: Flags = pc.and_(found, numbered).to_numpy()
    return flags


def coded(values: pa.ChunkedArray) -> NDArray[np.int32]:
    """A number for each value; `NONE` for null."""
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return filled(encoded.indices, NONE).astype(np.int32)


def _streams(table: pa.Table) -> tuple[Streams, Longs]:
    own = codes(*(coded(table[name]) for name in STREAM))
    first = firsts(own)
    keys = table.select(list(STREAM)).take(pa.array(first)).combine_chunks()
    # In the order in which tables show them.
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in STREAM]).to_numpy()
    keys = keys.take(pa.array(order))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    topic = coded(keys["topic"])
    lane = numbers(keys, "lane")
    streams = Streams(
        keys,
        keys["topic"].unique().to_pylist(),
        topic.astype(np.int64),
        lane,
        codes(topic, lane).astype(np.int64),
        numbers(keys, "incarnation"),
    )
    return streams, place[own]


def _expanded(table: pa.Table) -> pa.Table:
    """Unpack all that is packed."""
    packed = numbers(table, "holes") > 0
    if not packed.any():
        return table
    seen = pc.equal(table["kind"], Kind.SEEN.value).to_numpy()
    chains = table.filter(pa.array(packed & seen)).combine_chunks()
    claims = table.filter(pa.array(packed & ~seen)).combine_chunks()
    rest = table.filter(pa.array(~packed))
    return pa.concat_tables([rest, unpacked_chains(chains), unpacked_claims(claims)])


def _flat(lists: pa.ChunkedArray) -> Longs:
    found: Longs = pc.list_flatten(lists).to_numpy()
    return found
