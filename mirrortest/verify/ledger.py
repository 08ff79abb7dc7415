"""The merged records of the ledger topic: what producers reserved and what was acknowledged.

Records of a lane are merged by union, so repeated, reordered or old records are harmless. A
registration announces a producer's incarnation. The first registration applied under an
incarnation number wins, and the loser tombstones its own. A registration closes all earlier
incarnations of its producer: they send nothing more, and what they had reserved without an outcome
stays unknown. A registration that is marked failed also closes its own incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrortest.verify.ledger_record import (
    LaneRecord,
    Registration,
    parse,
    parse_registration_key,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirrortest.wire.stream import StreamId


@dataclass
class _Producer:
    """The ledger's records of one producer in one run."""

    registrations: dict[int, dict[str, Registration]] = field(default_factory=dict)
    """incarnation -> session -> registration, in the order they were applied"""
    streams: dict[int, set[StreamId]] = field(default_factory=dict)
    """incarnation -> its streams that a lane record or a registration names"""
    newest: int = 0
    """The newest incarnation with a registration; 0: there is no registration."""
    over: int = 0
    """Incarnations below this number send nothing more."""
    stale: range = range(0)
    """Incarnations whose lanes must be resolved again, because registrations changed."""

    def touch(self, incarnation: int, end: int) -> None:
        """Mark the incarnations [incarnation, end) as stale."""
        if self.stale:
            incarnation, end = min(incarnation, self.stale.start), max(end, self.stale.stop)
        self.stale = range(incarnation, end)

    @property
    def failed(self) -> bool:
        """Whether its newest incarnation ended with an error."""
        return any(
            registration.failed
            for registration in [*self.registrations.get(self.newest, {}).values()][:1]
        )

    def changed(self) -> None:
        """Update after a registration was added or withdrawn: it closes or reopens incarnations."""
        self.newest = max(self.registrations, default=0)
        before, self.over = self.over, self.newest + self.failed
        if before != self.over:
            self.touch(min(before, self.over), max(before, self.over))


class Ledger:
    """The merged ledger of all runs in its topic.

    The cost of applying a record depends only on the record's size. How new registrations change
    the lanes of other incarnations is computed when lanes are next read, once for all of them.
    """

    def __init__(self) -> None:
        self.malformed = 0
        """How many records were damaged, or not ledger records."""
        self._lanes: dict[str, dict[StreamId, LaneRecord]] = {}
        """run -> its lanes"""
        self._open: dict[str, set[StreamId]] = {}
        """run -> its lanes that have not ended"""
        self._partial: dict[str, set[StreamId]] = {}
        """run -> those of its open lanes that have an end, but of which a part is missing"""
        self._records: dict[StreamId, LaneRecord] = {}
        self._producers: dict[str, dict[str, _Producer]] = {}
        """run -> name -> producer"""
        self._stale: list[_Producer] = []
        self._marks: dict[StreamId, int] = {}
        """The reserved mark in a later registration; it counts even if that registration lost."""

    @property
    def lanes(self) -> Mapping[StreamId, LaneRecord]:
        """All lanes, those of closed incarnations with their end and unknown seqs."""
        self._settle()
        return {stream: lane for lanes in self._lanes.values() for stream, lane in lanes.items()}

    def lanes_of(self, run: str) -> Mapping[StreamId, LaneRecord]:
        """The lanes of a run."""
        self._settle()
        return self._lanes.get(run, {})

    def partial(self, run: str) -> Collection[StreamId]:
        """The lanes of a run that have an end, but of which a part has not been read."""
        return self._partial.get(run, ())

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Merge a record of the topic. Never raises: counts records that cannot be read."""
        if value is None:
            self._withdraw(key)
            return
        record = parse(key, value)
        if record is None:
            self.malformed += 1
        elif isinstance(record, LaneRecord):
            self.merge(record)
        else:
            self.add_registration(record)

    def merge(self, record: LaneRecord) -> None:
        """Merge a lane record."""
        stream = record.stream
        entry = self._records.get(stream)
        self._records[stream] = record if entry is None else entry.merge(record)
        producer = self._producer(stream.run, stream.producer)
        producer.streams.setdefault(stream.incarnation, set()).add(stream)
        self._resolve(stream, producer)

    def add_registration(self, registration: Registration) -> None:
        """Add a registration; a further one of the same session adds lanes to it."""
        producer = self._producer(registration.run, registration.producer)
        sessions = producer.registrations.setdefault(registration.incarnation, {})
        entry = sessions.get(registration.session)
        sessions[registration.session] = (
            registration if entry is None else entry.merge(registration)
        )
        producer.streams.setdefault(registration.incarnation, set()).update(registration.streams())
        for stream, reserved in registration.closed_streams():
            producer.streams.setdefault(stream.incarnation, set()).add(stream)
            self._marks[stream] = max(self._marks.get(stream, 0), reserved)
        producer.touch(registration.incarnation - 1, registration.incarnation + 1)
        producer.changed()
        self._stale.append(producer)

    def registrations(self, run: str) -> list[Registration]:
        """The winning registrations of a run, by producer and incarnation."""
        return [
            next(iter(sessions.values()))
            for _, producer in sorted(self._producers.get(run, {}).items())
            for _, sessions in sorted(producer.registrations.items())
        ]

    def winner(self, run: str, producer: str, incarnation: int) -> Registration | None:
        """The registration that was first under this incarnation number; None: it is free."""
        entry = self._producers.get(run, {}).get(producer)
        return (
            next(iter(entry.registrations.get(incarnation, {}).values()), None) if entry else None
        )

    def latest(self, run: str, producer: str) -> Registration | None:
        """The winning registration of the producer's newest incarnation."""
        entry = self._producers.get(run, {}).get(producer)
        return self.winner(run, producer, entry.newest) if entry else None

    def newest_incarnation(self, run: str, producer: str) -> int:
        """The highest incarnation in any record of a producer, lane records included; 0: no record.

        A truncated topic may lack a registration, but its incarnation number is still taken.
        """
        entry = self._producers.get(run, {}).get(producer)
        return max(entry.streams, default=0) if entry else 0

    def closed_by_registrations(self, run: str, producer: str) -> list[LaneRecord]:
        """The lanes of a producer without an end mark, as later registrations closed them."""
        return [
            lane
            for stream, lane in self.lanes_of(run).items()
            if stream.producer == producer and lane.end is not None
            if (record := self._records.get(stream)) is None
            or (record.end is None and record.closed_at != lane.end)
        ]

    def producers(self, run: str) -> set[str]:
        """The names of the producers that registered an incarnation in a run."""
        return {name for name, entry in self._producers.get(run, {}).items() if entry.registrations}

    def failed(self, run: str) -> list[str]:
        """The producers that ended early with an error and have not registered again."""
        return sorted(name for name, entry in self._producers.get(run, {}).items() if entry.failed)

    def contested(self, run: str) -> list[str]:
        """The producers for which two processes use one incarnation number and write to one topic.

        The messages of both have the same ids. This happens if each had its own ledger and mirrors
        merged them, or if the ledger was deleted between the two registrations.
        """
        return sorted(
            name
            for name, entry in self._producers.get(run, {}).items()
            if any(map(_share_topics, entry.registrations.values()))
        )

    def complete(
        self,
        run: str,
        expect_producers: Iterable[str] = (),
        *,
        given_up: Collection[StreamId] = (),
    ) -> bool:
        """Whether it is final: every lane has ended or is closed, and no producer is missing.

        A ledger without a registration of the run is never complete. Lanes in `given_up` count as
        ended, whatever is missing of them.
        """
        lanes = self.lanes_of(run)
        if any(stream not in given_up for stream in self._open.get(run, ())):
            return False
        producers = self.producers(run)
        if not producers or not producers.issuperset(expect_producers):
            return False
        return all(
            stream in lanes
            for registration in self.registrations(run)
            for stream in registration.streams()
        )

    def _producer(self, run: str, name: str) -> _Producer:
        return self._producers.setdefault(run, {}).setdefault(name, _Producer())

    def _settle(self) -> None:
        """Bring the lanes of stale incarnations up to date."""
        stale, self._stale = self._stale, []
        for producer in stale:
            touched, producer.stale = producer.stale, range(0)
            if touched:
                for incarnation, streams in producer.streams.items():
                    if incarnation in touched:
                        for stream in streams:
                            self._resolve(stream, producer)

    def _resolve(self, stream: StreamId, producer: _Producer) -> None:
        """Bring a lane up to date with all records of its stream."""
        record = self._records.get(stream)
        partial, lane = False, None
        if record is not None and not record.has_all_parts:
            # The lane has an end, but some parts of its record have not been read yet.
            partial, lane = True, replace(record, end=None)
        elif stream.incarnation < producer.over or (record and record.closed_at is not None):
            # Without a lane record it is unknown how the lane was sent: assume without idempotence.
            entry = record or LaneRecord(stream, repeats=True)
            lane = entry.closed(self._marks.get(stream, 0))
        elif record is not None:
            lane = record if record.end is None else record.closed(0)
        lanes = self._lanes.setdefault(stream.run, {})
        if lane is None:
            lanes.pop(stream, None)
        else:
            lanes[stream] = lane
        for of_runs, is_member in (
            (self._open, lane is not None and lane.end is None),
            (self._partial, partial),
        ):
            streams = of_runs.setdefault(stream.run, set())
            (streams.add if is_member else streams.discard)(stream)

    def _withdraw(self, key: bytes) -> None:
        """Apply a tombstone: it withdraws a registration, but no record of a lane."""
        registration = parse_registration_key(key)
        producer = registration and self._producers.get(registration.run, {}).get(
            registration.producer
        )
        if not registration or not producer:
            return
        sessions = producer.registrations.get(registration.incarnation, {})
        if sessions.pop(registration.session, None) is None:
            return
        if not sessions:
            del producer.registrations[registration.incarnation]
        producer.touch(registration.incarnation - 1, registration.incarnation + 1)
        producer.changed()
        self._stale.append(producer)


def _share_topics(sessions: Mapping[str, Registration]) -> bool:
    """Whether two of these sessions write to the same topic."""
    topics = [topic for each in sessions.values() for topic in each.lanes]
    return len(set(topics)) < len(topics)
