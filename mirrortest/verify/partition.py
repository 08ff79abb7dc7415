"""The checker of one destination partition: order and findings, stream by stream.

Its state depends only on the rows below its next offset and on the unread ranges, whatever restarts
happened in between. So the online verdict equals the offline one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.model.findings import STREAM_FINDINGS, Finding
from mirrortest.model.intervals import NOTHING, IntervalSet
from mirrortest.verify import untrusted
from mirrortest.verify.fragment import ALWAYS, Fragment, last_minute
from mirrortest.verify.untrusted import RecordError
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.verify.row import SeenRow

MAX_INTERVALS = 1_000_000
"""About 100 MB of intervals per partition."""
_MOST_KEYS = 1024
"""How many lanes `PartitionChecker.keys` has at most; a partition has few lanes."""
_VERSION = 1
_STREAMLESS = {
    finding.label: finding for finding in (Finding.FOREIGN, Finding.OTHER_RUN, Finding.CORRUPTED)
}
_UNTRACKED = {"seen", *(finding.label for finding in STREAM_FINDINGS)}


class KeySeen(NamedTuple):
    """The place where a key was seen, and how many holes precede it."""

    place: int
    holes: int


NEVER_SEEN = KeySeen(-1, 0)


class PartitionChecker:
    """Judges the records of one destination partition.

    `max_intervals` bounds memory over all streams. Past it, the largest fragments are collapsed.
    Past half as many streams, messages of further streams are only counted (`untracked`).
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        next_offset: int = 0,
        max_intervals: int = MAX_INTERVALS,
    ) -> None:
        self.topic = topic
        """The source topic's name."""
        self.partition = partition
        self.next_offset = next_offset
        """All offsets below it are judged, none at or above it."""
        self.before = 0
        """How many offsets of earlier incarnations of the partition were passed. A place is this
        plus an offset: places keep ascending when a topic is deleted and recreated."""
        self.fragments: dict[StreamId, Fragment] = {}
        self.unread_offsets = IntervalSet()
        """The places of unread ranges."""
        self.unread_minute = -1
        """The last minute of intended time of messages that may be in them."""
        self.streamless: Counter[Finding] = Counter()
        """Messages without a stream: foreign, other run, or corrupted with the id unknown."""
        self.keys: dict[int, KeySeen] = {}
        """Lane -> where its key was last seen on a message without a stream."""
        self.keys_beyond = NEVER_SEEN
        """The same for all lanes that are not in `keys`, because it is full."""
        self.holes = 0
        """How many passed offsets had no record, no transaction marker and no message of an aborted
        transaction. Compaction leaves such holes."""
        self._new_holes = IntervalSet()
        """Holes that `take_new_holes` has not returned yet."""
        self._markers = IntervalSet()
        """Offsets from `next_offset` on that have no record to judge, but are not holes."""
        self.untracked: Counter[str] = Counter()
        """Messages of streams past the memory bound, under `seen` and under findings' labels."""
        self._max_intervals = max_intervals
        self._size = 0

    @property
    def messages(self) -> int:
        """How many messages of the run were judged, copies included."""
        tracked = sum(fragment.messages for fragment in self.fragments.values())
        return tracked + self.untracked["seen"]

    @property
    def proves_topic(self) -> bool:
        """Whether any message proves that it was written to the topic of this name."""
        return any(
            fragment.seen - fragment.by_finding.get(Finding.UNPROVEN, NOTHING)
            for fragment in self.fragments.values()
        )

    @property
    def fullness(self) -> float:
        """The share of the memory bound in use; from 1 on, ids are given up."""
        streams = len(self.fragments) / max(self._max_intervals // 2, 1)
        return max(self._size / self._max_intervals, streams)

    @property
    def unsure(self) -> bool:
        """Whether the partition may have contained streams of which it has no fragment."""
        return bool(self.unread_offsets or self.untracked)

    def apply(self, row: SeenRow) -> IntervalSet:
        """Judge a row; skip the part of it below the next offset, which has been judged.

        Returns which of the judged seqs were seen here before, as far as ids are kept.

        Raises:
            ValueError: the row's stream is of another topic.
        """
        if row.stream is not None and row.stream.topic != self.topic:
            raise ValueError(f"a row of {row.stream.topic} for the checker of {self.topic}")
        if row.offset_hi <= self.next_offset:
            return NOTHING
        skip = self.next_offset - row.offset_lo
        if skip > 0:
            row = row._replace(
                offset_lo=self.next_offset,
                seq_lo=row.seq_lo + skip if row.stream is not None else 0,
            )
        elif skip < 0:
            self._pass_gap(row.offset_lo)
        self.next_offset = row.offset_hi
        if row.stream is not None:
            return self._apply_to_stream(row.stream, row)
        self._count_streamless(row)
        return NOTHING

    def expect_markers(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note offsets ahead that have markers, or records of aborted transactions.

        This holds until the next call of `advance`.
        """
        self._markers = IntervalSet(ranges)

    def advance(self, next_offset: int) -> None:
        """Pass offsets without records to judge: markers, aborted or compacted records."""
        if next_offset > self.next_offset:
            self._pass_gap(next_offset)
            self.next_offset = next_offset
        self._markers = IntervalSet()

    def _pass_gap(self, to: int) -> None:
        holes = self._markers.missing(self.next_offset, to)
        self.holes += holes.count
        self._new_holes.update(holes)

    def take_new_holes(self) -> list[tuple[int, int]]:
        """The ranges of this incarnation's offsets that became `holes` since the last call."""
        taken, self._new_holes = self._new_holes, IntervalSet()
        return list(taken.intervals())

    def unread(self, lo: int, hi: int, found_ns: int | None = None) -> None:
        """Pass offsets [lo, hi) that cannot be read, for example because they were deleted.

        `found_ns` is when that was found, by the wall clock in ns since the epoch. Without it, no
        message that may have been here is ever lost.
        """
        lo = max(lo, self.next_offset)
        if lo >= hi:
            return
        self.unread_offsets.add(self.before + lo, self.before + hi)
        self.next_offset = hi
        self.unread_minute = max(self.unread_minute, last_minute(found_ns))
        for fragment in self.fragments.values():
            fragment.pass_unread(self.unread_minute)

    def begin_incarnation(self, found_ns: int | None = None, offset: int = 0) -> None:
        """Continue with the partition's next incarnation; the rest of this one is unread.

        The length of the rest is unknown; it counts as one offset. What was seen stays seen, and
        precedes all that follows. A truncated log continues at `offset`: what is below it was
        judged. `found_ns` is as for `unread`.
        """
        self.unread(self.next_offset, self.next_offset + 1, found_ns)
        self.before += self.next_offset
        self.next_offset = offset
        self._new_holes = IntervalSet()

    def fragment(self, stream: StreamId) -> Fragment | None:
        """The fragment of a stream, seen here or not; None: the stream was certainly not here.

        For a stream not seen, unread offsets give a fragment that doubts all of its seqs, and
        untracked streams give one whose ids are given up.
        """
        found = self.fragments.get(stream)
        if found is not None or not self.unsure:
            return found
        return self._new_fragment(inconclusive=bool(self.untracked))

    def forget(self, finding: Finding) -> None:
        """Forget a finding of `STREAM_FINDINGS` for all messages so far."""
        self.untracked.pop(finding.label, None)
        for fragment in self.fragments.values():
            self._size += fragment.forget(finding)

    def key_seen(self, lane: int) -> KeySeen:
        """Where a lane's key was last seen on a message without a stream.

        If `keys` is full, this may be the later place of another lane's key.
        """
        return self.keys.get(lane, self.keys_beyond)

    def _count_streamless(self, row: SeenRow) -> None:
        count = row.offset_hi - row.offset_lo
        if row.key_lane >= 0:
            self._note_key(row.key_lane, self.before + row.offset_hi - 1)
        for finding in _STREAMLESS.values():
            if row.findings & finding:
                self.streamless[finding] += count
                return
        # Without a finding it is not one of our messages.
        self.streamless[Finding.FOREIGN] += count

    def _note_key(self, lane: int, place: int) -> None:
        seen = KeySeen(place, self.holes)
        if lane in self.keys or len(self.keys) < _MOST_KEYS:
            self.keys[lane] = seen
        else:
            self.keys_beyond = seen

    def _apply_to_stream(self, stream: StreamId, row: SeenRow) -> IntervalSet:
        fragment = self.fragments.get(stream)
        if fragment is None:
            if len(self.fragments) >= self._max_intervals // 2:
                self._count_untracked(row)
                return NOTHING
            fragment = self.fragments[stream] = self._new_fragment()
            self._size += fragment.size
        repeated, grown = fragment.apply(row, self.before, self.holes)
        self._size += grown
        if self._size > self._max_intervals:
            self._make_room()
        return repeated

    def _new_fragment(self, *, inconclusive: bool = False) -> Fragment:
        fragment = Fragment()
        if self.unread_offsets:
            fragment.pass_unread(self.unread_minute)
        if inconclusive:
            fragment.collapse()
        return fragment

    def _count_untracked(self, row: SeenRow) -> None:
        count = row.offset_hi - row.offset_lo
        self.untracked["seen"] += count
        for finding in STREAM_FINDINGS:
            if row.findings & finding:
                self.untracked[finding.label] += count

    def _make_room(self) -> None:
        """Collapse the largest fragments first, down to 90 % of the bound, so this is rare."""
        costs = sorted(
            (
                (-fragment.size, at)
                for at, fragment in self.fragments.items()
                if not fragment.inconclusive
            ),
        )
        for _, stream in costs:
            if self._size * 10 <= self._max_intervals * 9:
                return
            fragment = self.fragments[stream]
            self._size -= fragment.size
            fragment.collapse()
            self._size += fragment.size

    def to_state(self) -> dict[str, Any]:
        """The complete state as JSON types, position included."""
        return {
            "v": _VERSION,
            "topic": self.topic,
            "partition": self.partition,
            "next": self.next_offset,
            "before": self.before,
            "unread": self.unread_offsets.to_list(),
            "unread_minute": self.unread_minute,
            "streamless": {finding.label: n for finding, n in self.streamless.items()},
            "untracked": dict(self.untracked),
            "keys": [[lane, seen.place] for lane, seen in self.keys.items()],
            "keys_beyond": self.keys_beyond.place,
            "holed": self.holes > 0,
            "holes": [self.holes, self.keys_beyond.holes, *(k.holes for k in self.keys.values())],
            "streams": [
                [*stream[1:], fragment.to_state()] for stream, fragment in self.fragments.items()
            ],
        }

    @classmethod
    def from_state(cls, state: object, *, max_intervals: int = MAX_INTERVALS) -> PartitionChecker:
        """Restore a checker from what `to_state` wrote.

        Raises:
            RecordError: the state is invalid, of another version, or contradicts itself.
        """
        fields = untrusted.mapped(state)
        if untrusted.entry(fields, "v") != _VERSION:
            raise RecordError(f"a checker's state of version {fields['v']!r:.80}, not {_VERSION}")
        checker = cls(
            untrusted.topic(untrusted.entry(fields, "topic")),
            untrusted.number(untrusted.entry(fields, "partition"), 0, untrusted.COUNTS_END),
            next_offset=untrusted.number(untrusted.entry(fields, "next")),
            max_intervals=max_intervals,
        )
        checker.before = untrusted.number(fields.get("before", 0))
        places = checker.before + checker.next_offset
        checker.unread_offsets = untrusted.intervals(untrusted.entry(fields, "unread"), places)
        for label, count in untrusted.mapped(untrusted.entry(fields, "streamless")).items():
            checker.streamless[untrusted.entry(_STREAMLESS, label)] = untrusted.number(count)
        checker.untracked.update(untrusted.counts(untrusted.entry(fields, "untracked"), _UNTRACKED))
        streams = untrusted.listed(untrusted.entry(fields, "streams"))
        for run, producer, incarnation, lane, saved in (untrusted.listed(s, 5) for s in streams):
            stream = StreamId(
                checker.topic,
                untrusted.run(run),
                untrusted.name(producer),
                untrusted.incarnation(incarnation),
                untrusted.lane(lane),
            )
            fragment = checker.fragments[stream] = Fragment.from_state(saved)
            if fragment.last_place >= places:
                raise RecordError("a message beyond what was read")
            if checker.unread_offsets and fragment.read_below is None:
                # The previous version did not note when ranges were found deleted.
                fragment.read_below, fragment.unread_minute = 0, ALWAYS
        checker._restore_places(fields, places)
        checker._size = sum(fragment.size for fragment in checker.fragments.values())
        checker._check(len(streams), places)
        return checker

    def _restore_places(self, fields: dict[str, Any], places: int) -> None:
        """Restore what the previous version did not write; without it, assume the worst."""
        unknown = ALWAYS if self.unread_offsets else -1
        self.unread_minute = untrusted.number(fields.get("unread_minute", unknown), -1, ALWAYS + 1)
        keys = untrusted.listed(fields.get("keys", []))
        if len(keys) > _MOST_KEYS:
            raise RecordError(f"{len(keys):,} keys")
        seen = [
            (untrusted.lane(lane), untrusted.number(place, 0, places))
            for lane, place in (untrusted.listed(key, 2) for key in keys)
        ]
        beyond = fields.get("keys_beyond", places - 1 if self.streamless else -1)
        beyond = untrusted.number(beyond, -1, max(places, 0))
        if "holes" in fields:
            holes = untrusted.listed(fields["holes"], 2 + len(seen))
            self.holes, of_beyond, *of_keys = (untrusted.number(n, 0, places + 1) for n in holes)
        else:
            # Any offset without a message that the previous version passed may be a hole.
            holed = untrusted.flag(fields.get("holed", True))
            self.holes = max(places - self._filled, 0) if holed else 0
            of_beyond, of_keys = self.holes, [self.holes] * len(seen)
            self._new_holes.add(0, self.next_offset if self.holes else 0)
        self.keys_beyond = KeySeen(beyond, of_beyond)
        for (lane, place), count in zip(seen, of_keys, strict=True):
            self.keys[lane] = KeySeen(place, count)

    @property
    def _filled(self) -> int:
        """How many offsets certainly had a message, or were not read."""
        return self.messages + self.streamless.total() + self.unread_offsets.count

    def _check(self, streams: int, places: int) -> None:
        """Raise RecordError if a state has a stream twice, or more messages than places."""
        if len(self.fragments) != streams or self._filled > places:
            raise RecordError("a duplicate stream, or more messages than offsets")
