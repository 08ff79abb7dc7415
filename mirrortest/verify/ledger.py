"""What producers vouch for: the records of the ledger's topic, merged.

Lanes are merged by union, so that repeated, reordered or old records are harmless. A claim is a
producer's incarnation; the first one applied under a number wins, and the loser tombstones its
own. A claim closes every earlier incarnation of its producer: what those had reserved and given
no outcome is unknown for ever, and they send nothing more. One that says that it failed closes its
own as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrortest.verify.ledger_record import (
    Claim,
    ClosedLane,
    LaneRecord,
    claim_key,
    claim_value,
    lane_key,
    lane_value,
    parse,
    parse_claim_key,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.wire.stream import StreamId

__all__ = [
    "Claim",
    "ClosedLane",
    "LaneRecord",
    "Ledger",
    "claim_key",
    "claim_value",
    "lane_key",
    "lane_value",
]


@dataclass
class _Producer:
    """What the ledger has of one producer of one run."""

    claims: dict[int, dict[str, Claim]] = field(default_factory=dict)
    """incarnation -> session -> claim, in the order they were applied"""
    streams: dict[int, set[StreamId]] = field(default_factory=dict)
    """incarnation -> its streams that a lane's record or a claim names"""
    newest: int = 0
    """The newest incarnation with a claim; 0: none has one."""
    over: int = 0
    """Incarnations below it send nothing more."""
    stale: range = range(0)
    """Incarnations of whose streams the lanes are to be found anew: claims came or went."""

    def touch(self, incarnation: int, end: int) -> None:
        """Have the streams of the incarnations [incarnation, end) found anew."""
        if self.stale:
            incarnation, end = min(incarnation, self.stale.start), max(end, self.stale.stop)
        self.stale = range(incarnation, end)

    @property
    def failed(self) -> bool:
        """Whether its newest incarnation ended by an error."""
        return any(claim.failed for claim in [*self.claims.get(self.newest, {}).values()][:1])

    def changed(self) -> None:
        """After a claim came or went: it closes or opens incarnations."""
        self.newest = max(self.claims, default=0)
        before, self.over = self.over, self.newest + self.failed
        if before != self.over:
            self.touch(min(before, self.over), max(before, self.over))


class Ledger:
    """The merged ledger, of all runs in its topic.

    A record costs what it holds, be it a lane's or a claim. What a claim does to the lanes of
    other incarnations is found when they are asked for, once for all claims that came since.
    """

    def __init__(self) -> None:
        self.malformed = 0
        """Records that are none of the ledger's, or damaged."""
        self._lanes: dict[StreamId, LaneRecord] = {}
        self._of_run: dict[str, dict[StreamId, LaneRecord]] = {}
        self._open: dict[str, set[StreamId]] = {}
        """run -> its lanes without an end"""
        self._partial: dict[str, set[StreamId]] = {}
        """run -> those of them that have ended, but of which a part is missing"""
        self._records: dict[StreamId, LaneRecord] = {}
        self._producers: dict[str, dict[str, _Producer]] = {}
        """run -> name -> producer"""
        self._stale: list[_Producer] = []
        self._marks: dict[StreamId, int] = {}
        """What a later claim knew to be reserved; true whether that claim won or not."""

    @property
    def lanes(self) -> Mapping[StreamId, LaneRecord]:
        """All known lanes, those of closed incarnations with their end and unknown numbers."""
        self._settle()
        return self._lanes

    def lanes_of(self, run: str) -> Mapping[StreamId, LaneRecord]:
        """The lanes of one run."""
        self._settle()
        return self._of_run.get(run, {})

    def partial(self, run: str) -> Collection[StreamId]:
        """The lanes of a run that have ended, though not all of their parts are here."""
        return self._partial.get(run, ())

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Merge a record of the topic; what cannot be read is counted. Never raises."""
        if value is None:
            self._withdraw(key)
            return
        record = parse(key, value)
        if record is None:
            self.malformed += 1
        elif isinstance(record, LaneRecord):
            self.merge(record)
        else:
            self.add_claim(record)

    def merge(self, record: LaneRecord) -> None:
        """Merge what a producer says of a lane."""
        stream = record.stream
        known = self._records.get(stream)
        self._records[stream] = record if known is None else known.merge(record)
        producer = self._producer(stream.run, stream.producer)
        producer.streams.setdefault(stream.incarnation, set()).add(stream)
        self._resolve(stream, producer)

    def add_claim(self, claim: Claim) -> None:
        """Take in a claim; one of the same session again adds lanes."""
        producer = self._producer(claim.run, claim.producer)
        sessions = producer.claims.setdefault(claim.incarnation, {})
        known = sessions.get(claim.session)
        sessions[claim.session] = claim if known is None else known.merge(claim)
        producer.streams.setdefault(claim.incarnation, set()).update(claim.streams())
        for stream, reserved in claim.closed_streams():
            producer.streams.setdefault(stream.incarnation, set()).add(stream)
            self._marks[stream] = max(self._marks.get(stream, 0), reserved)
        producer.touch(claim.incarnation - 1, claim.incarnation + 1)
        producer.changed()
        self._stale.append(producer)

    def claims(self, run: str) -> list[Claim]:
        """The winning claims of a run, by producer and incarnation."""
        return [
            next(iter(sessions.values()))
            for _, producer in sorted(self._producers.get(run, {}).items())
            for _, sessions in sorted(producer.claims.items())
        ]

    def winner(self, run: str, producer: str, incarnation: int) -> Claim | None:
        """The claim that was first under this number; None: it is free."""
        known = self._producers.get(run, {}).get(producer)
        return next(iter(known.claims.get(incarnation, {}).values()), None) if known else None

    def latest(self, run: str, producer: str) -> Claim | None:
        """The winning claim of the producer's newest incarnation."""
        known = self._producers.get(run, {}).get(producer)
        return self.winner(run, producer, known.newest) if known else None

    def closed_by_claims(self, run: str, producer: str) -> list[LaneRecord]:
        """The lanes of a producer without end marks of their own, as later claims closed them."""
        return [
            lane
            for stream, lane in self.lanes.items()
            if (stream.run, stream.producer) == (run, producer) and lane.end is not None
            if (record := self._records.get(stream)) is None or record.end is None
        ]

    def producers(self, run: str) -> set[str]:
        """The names that have claimed an incarnation within a run."""
        return {name for name, known in self._producers.get(run, {}).items() if known.claims}

    def failed(self, run: str) -> list[str]:
        """The producers that ended by an error and have not come back: more was to come."""
        return sorted(name for name, known in self._producers.get(run, {}).items() if known.failed)

    def complete(
        self,
        run: str,
        expect_producers: Iterable[str] = (),
        *,
        given_up: Collection[StreamId] = (),
    ) -> bool:
        """Whether nothing more is to come: every lane has ended or is closed, nobody is missing.

        A ledger that says nothing of the run is never complete. `given_up` are lanes that count
        as ended whatever is missing of them.
        """
        lanes = self.lanes_of(run)
        if any(stream not in given_up for stream in self._open.get(run, ())):
            return False
        producers = self.producers(run)
        if not producers or not producers.issuperset(expect_producers):
            return False
        return all(stream in lanes for claim in self.claims(run) for stream in claim.streams())

    def _producer(self, run: str, name: str) -> _Producer:
        return self._producers.setdefault(run, {}).setdefault(name, _Producer())

    def _settle(self) -> None:
        """Bring the lanes up to date with the claims that came or went."""
        stale, self._stale = self._stale, []
        for producer in stale:
            touched, producer.stale = producer.stale, range(0)
            if touched:
                for incarnation, streams in producer.streams.items():
                    if incarnation in touched:
                        for stream in streams:
                            self._resolve(stream, producer)

    def _resolve(self, stream: StreamId, producer: _Producer) -> None:
        """Bring a lane up to date with all that is known of its stream."""
        record = self._records.get(stream)
        partial, lane = False, None
        if record is not None and not record.whole:
            # It has ended, and what it told is not all here: it may be wherever the rest is.
            partial, lane = True, replace(record, end=None)
        elif stream.incarnation < producer.over:
            lane = (record or LaneRecord(stream)).closed(self._marks.get(stream, 0))
        elif record is not None:
            lane = record if record.end is None else record.closed(0)
        of_run = self._of_run.setdefault(stream.run, {})
        if lane is None:
            self._lanes.pop(stream, None)
            of_run.pop(stream, None)
        else:
            self._lanes[stream] = of_run[stream] = lane
        for of_runs, there in (
            (self._open, lane is not None and lane.end is None),
            (self._partial, partial),
        ):
            streams = of_runs.setdefault(stream.run, set())
            (streams.add if there else streams.discard)(stream)

    def _withdraw(self, key: bytes) -> None:
        """A tombstone withdraws a claim; of a lane, what was vouched for stays."""
        claim = parse_claim_key(key)
        producer = claim and self._producers.get(claim.run, {}).get(claim.producer)
        if not claim or not producer:
            return
        sessions = producer.claims.get(claim.incarnation, {})
        if sessions.pop(claim.session, None) is None:
            return
        if not sessions:
            del producer.claims[claim.incarnation]
        producer.touch(claim.incarnation - 1, claim.incarnation + 1)
        producer.changed()
        self._stale.append(producer)
