"""What producers vouch for: the records of the ledger's topic, merged.

Lanes are merged by union, so that repeated, reordered or old records are harmless. A claim is a
producer's incarnation; the first one applied under a number wins, and the loser tombstones its
own. A claim closes every earlier incarnation of its producer: what those had reserved and given
no outcome is unknown for ever, and they send nothing more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrortest.check.ledger_record import (
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
    from collections.abc import Iterable

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


class Ledger:
    """The merged ledger, of all runs in its topic."""

    def __init__(self) -> None:
        self.lanes: dict[StreamId, LaneRecord] = {}
        """All known lanes, those of closed incarnations with their end and unknown numbers."""
        self.malformed = 0
        """Records that are none of the ledger's, or damaged."""
        self._records: dict[StreamId, LaneRecord] = {}
        self._claims: dict[tuple[str, str], dict[int, dict[str, Claim]]] = {}
        """(run, producer) -> incarnation -> session -> claim, in the order they were applied"""
        self._streams: dict[tuple[str, str], set[StreamId]] = {}
        """(run, producer) -> all its streams that a lane's record or a claim names"""
        self._marks: dict[StreamId, int] = {}
        """What a later claim knew to be reserved; true whether that claim won or not."""

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
        self._streams.setdefault((stream.run, stream.producer), set()).add(stream)
        self._resolve(stream)

    def add_claim(self, claim: Claim) -> None:
        """Take in a claim; one of the same session again adds lanes."""
        whose = (claim.run, claim.producer)
        sessions = self._claims.setdefault(whose, {}).setdefault(claim.incarnation, {})
        known = sessions.get(claim.session)
        sessions[claim.session] = claim if known is None else known.merge(claim)
        streams = self._streams.setdefault(whose, set())
        streams.update(claim.streams())
        for stream, reserved in claim.closed_streams():
            streams.add(stream)
            self._marks[stream] = max(self._marks.get(stream, 0), reserved)
        self._resolve_all(whose)

    def claims(self, run: str) -> list[Claim]:
        """The winning claims of a run, by producer and incarnation."""
        return [
            next(iter(sessions.values()))
            for (of_run, _), incarnations in sorted(self._claims.items())
            if of_run == run
            for _, sessions in sorted(incarnations.items())
        ]

    def winner(self, run: str, producer: str, incarnation: int) -> Claim | None:
        """The claim that was first under this number; None: it is free."""
        sessions = self._claims.get((run, producer), {}).get(incarnation, {})
        return next(iter(sessions.values()), None)

    def latest(self, run: str, producer: str) -> Claim | None:
        """The winning claim of the producer's newest incarnation."""
        return self.winner(run, producer, self._newest((run, producer)))

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
        return {producer for of_run, producer in self._claims if of_run == run}

    def complete(self, run: str, expect_producers: Iterable[str] = ()) -> bool:
        """Whether nothing more is to come: every lane has ended or is closed, nobody is missing.

        A ledger that says nothing of the run is never complete.
        """
        known = [stream for stream in self.lanes if stream.run == run]
        if any(self.lanes[stream].end is None for stream in known):
            return False
        claims = self.claims(run)
        if not claims or not self.producers(run).issuperset(expect_producers):
            return False
        return all(stream in self.lanes for claim in claims for stream in claim.streams())

    def _newest(self, whose: tuple[str, str]) -> int:
        return max(self._claims.get(whose, ()), default=0)

    def _resolve_all(self, whose: tuple[str, str]) -> None:
        for stream in self._streams.get(whose, ()):
            self._resolve(stream)

    def _resolve(self, stream: StreamId) -> None:
        """Bring `lanes` up to date with all that is known of a stream."""
        whose = (stream.run, stream.producer)
        record = self._records.get(stream)
        if record is not None and not record.whole:
            # It has ended, and what it told is not all here: it may be wherever the rest is.
            self.lanes[stream] = replace(record, end=None)
        elif stream.incarnation < self._newest(whose):
            self.lanes[stream] = (record or LaneRecord(stream)).closed(self._marks.get(stream, 0))
        elif record is not None:
            self.lanes[stream] = record if record.end is None else record.closed(0)
        else:
            self.lanes.pop(stream, None)

    def _withdraw(self, key: bytes) -> None:
        """A tombstone withdraws a claim; of a lane, what was vouched for stays."""
        found = parse_claim_key(key)
        if found is None:
            return
        run, producer, incarnation, session = found
        incarnations = self._claims.get((run, producer), {})
        sessions = incarnations.get(incarnation, {})
        if sessions.pop(session, None) is None:
            return
        if not sessions:
            del incarnations[incarnation]
        if not incarnations:
            del self._claims[run, producer]
        self._resolve_all((run, producer))
