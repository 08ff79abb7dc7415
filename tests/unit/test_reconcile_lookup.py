"""The look-up reads the destination's offsets that no consumer read, and nothing else."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import TopicMissingError, UnreachableError, UsageError
from mirrortest.kafka.fetched import FetchedBatches, OutOfRange
from mirrortest.model.intervals import IntervalSet
from mirrortest.reconcile import lookup
from mirrortest.reconcile.coverage import ReadOffsets, Span
from mirrortest.reconcile.lookup import LookedUp, LookUp, OffsetRange, never_read
from mirrortest.reconcile.options import MOST_OFFSETS
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId, StreamId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirrortest.model.topic_partition import TopicPartition
    from mirrortest.reconcile.plan import Plan

RUN = "r1"
CLIENT = ClientConfig.load(bootstrap_server="localhost:1")


def observed(
    read: Sequence[tuple[int, int, int]] = (),
    *,
    identity: int = 0,
    tails: Sequence[tuple[int, int]] = (),
    topics: tuple[str, ...] = ("t",),
) -> ReadOffsets:
    """What consumers read: (partition, lo, hi) of the topic t."""
    spans = [Span("t", partition, identity, lo, hi, 0) for partition, lo, hi in read]
    ends = [Span("t", partition, identity, end, end, 0) for partition, end in tails]
    return ReadOffsets(spans, (), ends, dict.fromkeys(topics), {})


def batch(
    offset: int, seq: int, count: int, *, run: str = RUN, position: int | None = None
) -> FetchedBatches:
    """A fetched batch of one lane's messages seq, seq + 1, ... at consecutive offsets."""
    encoder = LaneEncoder("t", ProducerId("p", run, 1), 0, 0, 1, Form.BODY, 100)
    encoded = encoder.encode(seq, np.full(count, 10**18), 10**18)
    struct.pack_into(">q", encoded.buffer, 0, offset)
    at = offset if position is None else position
    return FetchedBatches("A.t", 0, at, offset + count, 1, memoryview(encoded.buffer), count)


class Played:
    """A destination with one copy, `A.t`; it replaces admin client and reader."""

    def __init__(
        self,
        *batches: FetchedBatches,
        begin: int = 0,
        cluster: str = "B",
        missing_from: int | None = None,
        expiring: int = 0,
        generation: int = 1,
        refusing: str = "",
        refusing_from: int = 0,
    ) -> None:
        self.batches = batches
        self.refusing, self.refusing_from = refusing, refusing_from
        """The request that is refused; fetches are, from this offset on."""
        self.generation = generation
        self.begin, self.cluster, self.missing_from = begin, cluster, missing_from
        self.expiring = expiring
        """All offsets below this one are deleted before anything is fetched."""
        self.position: int | None = None
        self.sought: list[int] = []

    def __call__(self, client: ClientConfig) -> Played:
        self.isolation = client.isolation_level
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def cluster_id(self) -> str:
        return self.cluster

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: 1 for topic in topics if topic == "A.t" and self.batches}

    async def beginning_offsets(
        self, partitions: dict[TopicPartition, str]
    ) -> dict[TopicPartition, int]:
        if self.refusing == "offsets":
            raise TopicMissingError("topic A.t does not exist")
        return dict.fromkeys(partitions, self.begin)

    async def end_offsets(self, partitions: dict[TopicPartition, str]) -> dict[TopicPartition, int]:
        end = self.batches[-1].next_offset if self.batches else 0
        return dict.fromkeys(partitions, end)

    async def assign(self, _: dict[TopicPartition, list[OffsetRange]]) -> None:
        pass

    async def topic_id(self, topic: str) -> str:
        return f"{topic}/{self.generation}"

    def seek(self, at: TopicPartition, offset: int, *, topic_id: str) -> None:
        assert (*at, topic_id) == ("A.t", 0, f"A.t/{self.generation}")
        self.position = offset
        self.sought.append(offset)

    def pause(self, _: list[TopicPartition]) -> None:
        self.position = None

    async def next(self, _: float) -> list[FetchedBatches | OutOfRange]:
        if self.position is None:
            return []
        if self.refusing == "fetch" and self.position >= self.refusing_from:
            raise UnreachableError("no broker answers")
        self.begin = max(self.begin, self.expiring)
        if self.position < self.begin or (
            self.missing_from is not None and self.position >= self.missing_from
        ):
            return [OutOfRange("A.t", 0, self.position)]
        # Several batches at a time: the look-up must ignore those after its range's end.
        found: list[FetchedBatches | OutOfRange] = []
        position = self.position
        for each in self.batches:
            if each.next_offset > position and len(found) < 3:
                found.append(
                    FetchedBatches(
                        **{name: getattr(each, name) for name in each.__slots__}
                        | {"fetched_from": position}
                    )
                )
                position = each.next_offset
        self.position = position
        return found


def look(
    monkeypatch: pytest.MonkeyPatch,
    played: Played,
    seen: ReadOffsets,
    *,
    most: int = MOST_OFFSETS,
    copies: tuple[str, ...] = ("t",),
    levels: Sequence[str] = (),
) -> LookedUp:
    """Look up what `seen` leaves open."""
    monkeypatch.setattr(lookup, "Admin", played)
    monkeypatch.setattr(lookup, "Reader", played)
    plan = SimpleNamespace(
        run=RUN,
        destinations={topic: f"A.{topic}" for topic in copies},
        last_ids={("t", 0): "A.t/1"},
        of=lambda role: (
            [
                (at, SimpleNamespace(clusters={"destination": "B"}, client=client, topics=copies))
                for at, client in enumerate([{}, *({"isolation.level": each} for each in levels)])
            ]
            if role is Role.CONSUMER
            else []
        ),
    )
    made = LookUp(CLIENT, cast("Plan", plan), most)
    made.check()
    return made.read(seen)


STREAM = StreamId("t", RUN, "p", 1, 0)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(1, 9)), max_size=8),
    st.integers(0, 1),
)
def test_what_was_never_read_is_the_rest(spans: list[tuple[int, int, int]], identity: int) -> None:
    """Every offset is either read in the topic's last incarnation or returned, never both."""
    read = [(partition, lo, lo + length) for partition, lo, length in spans]
    rest = never_read(observed(read, identity=identity), {"t": 2})
    for partition in range(2):
        left = {n for at in rest if at.partition == partition for n in range(at.lo, min(at.hi, 60))}
        covered = {n for p, lo, hi in read if p == partition for n in range(lo, hi)}
        assert left == set(range(60)) - covered
        assert [at.hi for at in rest if at.partition == partition][-1] == ENDLESS


def test_a_topic_made_again_was_read_in_its_last_incarnation_only() -> None:
    """The same offsets of the incarnation before had other records."""
    before, after = Span("t", 0, 0, 0, 50, 0), Span("t", 0, 1, 0, 10, 1)
    seen = ReadOffsets([before, after], (), (), {"t": 1}, {})
    assert never_read(seen, {"t": 1}) == [OffsetRange("t", 0, 10, ENDLESS)]
    unread = Span("t", 0, 1, 10, ENDLESS, 1)
    seen = ReadOffsets([before, after], [unread], (), {"t": 1}, {})
    assert never_read(seen, {"t": 1}) == [OffsetRange("t", 0, 0, ENDLESS)]


def test_exactly_the_unread_offsets_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges may begin and end within batches; other runs' messages are ignored."""
    played = Played(
        *(batch(at, at, 10) for at in range(0, 60, 10)),
        batch(60, 0, 10, run="other"),
        batch(70, 500, 5),
    )
    looked = look(monkeypatch, played, observed([(0, 0, 13), (0, 17, 38), (0, 41, 52)]))
    assert looked.found == {STREAM: IntervalSet([(13, 17), (38, 41), (52, 60), (500, 505)])}
    assert looked.offsets == 4 + 3 + 23
    assert (looked.incomplete, looked.notes) == (set(), [])
    assert played.sought == [13, 38, 52]


def test_what_cannot_be_looked_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted or out of range, beyond the limit; a topic whose copy is unknown or deleted."""
    batches = [batch(at, at, 10) for at in range(0, 40, 10)]
    looked = look(monkeypatch, Played(*batches, begin=20), observed([(0, 0, 5), (0, 30, 40)]))
    assert looked.found == {STREAM: IntervalSet([(20, 30)])}
    assert "offsets 5 to 19 no longer exist" in looked.notes[0]

    looked = look(monkeypatch, Played(*batches), observed(), most=15)
    assert looked.found == {STREAM: IntervalSet([(0, 15)])}
    assert "offsets 15 to 39 are beyond the limit" in looked.notes[0]

    looked = look(monkeypatch, Played(*batches, missing_from=30), observed([(0, 0, 20)]))
    assert looked.found == {STREAM: IntervalSet([(20, 40)])}
    looked = look(monkeypatch, Played(*batches, missing_from=20), observed([(0, 0, 20)]))
    assert (looked.found, looked.incomplete) == ({}, {"t"})

    looked = look(monkeypatch, Played(*batches), observed([(0, 0, 40)], topics=("t", "u")))
    assert looked.incomplete == {"u"}
    # A copy that never existed had no messages; one that was read and then deleted may have.
    assert not look(monkeypatch, Played(), observed()).incomplete
    assert look(monkeypatch, Played(), observed([(0, 0, 5)])).incomplete == {"t"}


def test_what_is_deleted_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets after the deleted ones were not read, and were reported as deleted."""
    played = Played(*(batch(at, at, 10) for at in range(0, 60, 10)), expiring=25)
    looked = look(monkeypatch, played, observed([(0, 0, 5), (0, 10, 20), (0, 30, 40)]))
    assert looked.found == {STREAM: IntervalSet([(25, 30), (40, 60)])}
    assert looked.notes == [
        "look-up: t: partition 0: offsets 5 to 9 no longer exist",
        "look-up: t: partition 0: offsets 20 to 24 no longer exist",
    ]


def test_a_cluster_that_no_longer_answers_ends_the_look_up_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that is deleted, or brokers that die, after the check: what was found counts."""
    batches = [batch(at, at, 10) for at in range(0, 60, 10)]
    seen = observed([(0, 0, 10)], topics=("t", "u"))
    copies = ("t", "u")
    looked = look(monkeypatch, Played(*batches, refusing="offsets"), seen, copies=copies)
    assert (looked.found, looked.incomplete) == ({}, {"t", "u"})
    assert looked.notes == ["look-up: not finished: topic A.t does not exist"]

    refused = Played(*batches, refusing="fetch", refusing_from=40)
    looked = look(monkeypatch, refused, seen, copies=copies)
    assert (looked.found, looked.incomplete) == ({STREAM: IntervalSet([(10, 40)])}, {"t", "u"})
    assert looked.notes == ["look-up: not finished: no broker answers"]


def test_a_copy_that_was_recreated_since_is_looked_at_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets have other records; what was unread in the old topic cannot be read."""
    batches = [batch(at, at + 20, 10) for at in range(0, 40, 10)]
    seen = observed([(0, 0, 30)])
    for played in (Played(*batches, generation=2), Played(*batches[:2])):
        looked = look(monkeypatch, played, seen)
        assert looked.found == {STREAM: IntervalSet([(20, 20 + played.batches[-1].next_offset)])}
        assert (looked.incomplete, len(looked.notes)) == ({"t"}, 1)
    looked = look(monkeypatch, Played(*batches), seen)
    assert (looked.found, looked.notes) == ({STREAM: IntervalSet([(50, 60)])}, [])


def test_what_stood_unread_before_a_copy_was_recreated_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers have read the present topic; what the one before contained is unknown."""
    looked = look(monkeypatch, Played(batch(0, 0, 10)), observed([(0, 0, 10)], identity=1))
    assert looked.incomplete == {"t"}


@pytest.mark.parametrize(
    ("levels", "used"),
    [
        ([], "read_uncommitted"),
        (["read_uncommitted"], "read_uncommitted"),
        (["read_committed"], "read_committed"),
        (["read_committed", "read_uncommitted"], "read_committed"),
    ],
)
def test_what_consumers_would_have_read_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, levels: list[str], used: str
) -> None:
    """An aborted message is not a copy that the consumers missed."""
    played = Played(batch(0, 0, 10))
    look(monkeypatch, played, observed(), levels=levels)
    assert played.isolation.value == used


def test_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source's brokers, given by mistake, have the same ids at other offsets."""
    with pytest.raises(UsageError, match="name the destination"):
        look(monkeypatch, Played(cluster="A"), observed())
