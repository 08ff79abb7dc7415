"""What producers vouch for: the records of the ledger's topic, merged.

Lanes are merged by union, so that repeated, reordered or old records are harmless. A registration
announces a producer's incarnation; the first one applied under a number wins, and the loser
tombstones its own. It closes every earlier incarnation of its producer: what those had reserved and
given no outcome is unknown for ever, and they send nothing more. One that is marked failed closes
its own as well.
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
    """What the ledger has of one producer of one run."""

    registrations: dict[int, dict[str, Registration]] = field(default_factory=dict)
    """incarnation -> session -> registration, in the order they were applied"""
    streams: dict[int, set[StreamId]] = field(default_factory=dict)
    """incarnation -> its streams that a lane's record or a registration names"""
    newest: int = 0
    """The newest incarnation with a registration; 0: none has one."""
    over: int = 0
    """Incarnations below it send nothing more."""
    stale: range = range(0)
    """Incarnations of whose streams the lanes are to be found anew: registrations came or went."""

    def touch(self, incarnation: int, end: int) -> None:
        """Have the streams of the incarnations [incarnation, end) found anew."""
        if self.stale:
            incarnation, end = min(incarnation, self.stale.start), max(end, self.stale.stop)
        self.stale = range(incarnation, end)

    @property
    def failed(self) -> bool:
        """Whether its newest incarnation ended by an error."""
        return any(
            registration.failed
            for registration in [*self.registrations.get(self.newest, {}).values()][:1]
        )

    def changed(self) -> None:
        """After a registration came or went: it closes or opens incarnations."""
        self.newest = max(self.registrations, default=0)
        before, self.over = self.over, self.newest + self.failed
        if before != self.over:
            self.touch(min(before, self.over), max(before, self.over))


class Ledger:
    """The merged ledger, of all runs in its topic.

    A record costs what is in it, be it a lane's or a registration. What a registration does to the
    lanes of other incarnations is found when they are asked for, once for all that came since.
    """

    def __init__(self) -> None:
        self.malformed = 0
        """Records that are none of the ledger's, or damaged."""
        self._lanes: dict[str, dict[StreamId, LaneRecord]] = {}
        """run -> its lanes"""
        self._open: dict[str, set[StreamId]] = {}
        """run -> its lanes without an end"""
        self._partial: dict[str, set[StreamId]] = {}
        """run -> those of them that have ended, but of which a part is missing"""
        self._records: dict[StreamId, LaneRecord] = {}
        self._producers: dict[str, dict[str, _Producer]] = {}
        """run -> name -> producer"""
        self._stale: list[_Producer] = []
        self._marks: dict[StreamId, int] = {}
        """What a later registration has as reserved; true whether that one won or not."""

    @property
    def lanes(self) -> Mapping[StreamId, LaneRecord]:
        """All known lanes, those of closed incarnations with their end and unknown numbers."""
        self._settle()
        return {stream: lane for lanes in self._lanes.values() for stream, lane in lanes.items()}

    def lanes_of(self, run: str) -> Mapping[StreamId, LaneRecord]:
        """The lanes of one run."""
        self._settle()
        return self._lanes.get(run, {})

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
            self.add_registration(record)

    def merge(self, record: LaneRecord) -> None:
        """Merge what a producer says of a lane."""
        stream = record.stream
        known = self._records.get(stream)
        self._records[stream] = record if known is None else known.merge(record)
        producer = self._producer(stream.run, stream.producer)
        producer.streams.setdefault(stream.incarnation, set()).add(stream)
        self._resolve(stream, producer)

    def add_registration(self, registration: Registration) -> None:
        """Take in a registration; one of the same session again adds lanes."""
        producer = self._producer(registration.run, registration.producer)
        sessions = producer.registrations.setdefault(registration.incarnation, {})
        known = sessions.get(registration.session)
        sessions[registration.session] = (
            registration if known is None else known.merge(registration)
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
        """The registration that was first under this number; None: it is free."""
        known = self._producers.get(run, {}).get(producer)
        return (
            next(iter(known.registrations.get(incarnation, {}).values()), None) if known else None
        )

    def latest(self, run: str, producer: str) -> Registration | None:
        """The winning registration of the producer's newest incarnation."""
        known = self._producers.get(run, {}).get(producer)
        return self.winner(run, producer, known.newest) if known else None

    def newest_incarnation(self, run: str, producer: str) -> int:
        """The highest number that any record of a producer has, a lane's too; 0: there is none.

        A registration can be missing where the topic was cut, and the number is taken all the same.
        """
        known = self._producers.get(run, {}).get(producer)
        return max(known.streams, default=0) if known else 0

    def closed_by_registrations(self, run: str, producer: str) -> list[LaneRecord]:
        """The lanes of a producer that have no end mark, as later registrations closed them."""
        return [
            lane
            for stream, lane in self.lanes_of(run).items()
            if stream.producer == producer and lane.end is not None
            if (record := self._records.get(stream)) is None
            or (record.end is None and record.closed_at != lane.end)
        ]

    def producers(self, run: str) -> set[str]:
        """The names that have registered an incarnation within a run."""
        return {name for name, known in self._producers.get(run, {}).items() if known.registrations}

    def failed(self, run: str) -> list[str]:
        """The producers that ended by an error and have not come back: more was to come."""
        return sorted(name for name, known in self._producers.get(run, {}).items() if known.failed)

    def contested(self, run: str) -> list[str]:
        """The producers of which two processes have one incarnation, and write to one topic.

        They have ledgers of their own, which mirrors brought together, or the ledger was deleted
        between them. Their messages have the same ids.
        """
        return sorted(
            name
            for name, known in self._producers.get(run, {}).items()
            if any(map(_share_topics, known.registrations.values()))
        )

    def complete(
        self,
        run: str,
        expect_producers: Iterable[str] = (),
        *,
        given_up: Collection[StreamId] = (),
    ) -> bool:
        """Whether it is final: every lane has ended or is closed, and no producer is missing.

        A ledger without a record of the run is never complete. `given_up` are lanes that count
        as ended whatever is missing of them.
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
        """Bring the lanes up to date with the registrations that came or went."""
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
            # It has ended, and some of its parts have not been read yet.
            partial, lane = True, replace(record, end=None)
        elif stream.incarnation < producer.over or (record and record.closed_at is not None):
            # How it was sent is unknown where registrations alone name it.
            known = record or LaneRecord(stream, repeats=True)
            lane = known.closed(self._marks.get(stream, 0))
        elif record is not None:
            lane = record if record.end is None else record.closed(0)
        lanes = self._lanes.setdefault(stream.run, {})
        if lane is None:
            lanes.pop(stream, None)
        else:
            lanes[stream] = lane
        for of_runs, there in (
            (self._open, lane is not None and lane.end is None),
            (self._partial, partial),
        ):
            streams = of_runs.setdefault(stream.run, set())
            (streams.add if there else streams.discard)(stream)

    def _withdraw(self, key: bytes) -> None:
        """A tombstone withdraws a registration; of a lane, what was vouched for stays."""
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
    """Whether two processes that registered one incarnation write to one topic."""
    topics = [topic for each in sessions.values() for topic in each.lanes]
    return len(set(topics)) < len(topics)
