"""A topic's judge, with a ledger and partitions of one stream, for the tests of its claims."""

from __future__ import annotations

from mirrortest.consume.topic_judge import (
    TopicJudge,
    TopicRound,
)
from mirrortest.model.intervals import IntervalSet
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.verify.loss import Losses
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId

STREAM = StreamId("t", "r1", "p", 1, 0)
DEADLINE = 1000


def topic_judge() -> TopicJudge:
    return TopicJudge("t", "r1", ExpectPartition.ANY, Losses(DEADLINE))


def ledger_of(acked: list[tuple[int, int]], *, end: int | None = None) -> Ledger:
    ledger = Ledger()
    numbers = IntervalSet(acked)
    ledger.merge(LaneRecord(STREAM, numbers.end, numbers, end=end))
    return ledger


def checker_of(*seqs: int, partition: int = 0, start: int = 0) -> PartitionChecker:
    checker = PartitionChecker("t", partition, next_offset=start)
    for offset, seq in enumerate(seqs, start=start):
        checker.apply(SeenRow(STREAM, seq, seq + 1, offset, offset + 1, 0, 1, 1, 1, 1, 2, 2))
    return checker


def note_lanes(judge: TopicJudge, ledger: Ledger, elapsed_ns: int) -> None:
    for lane in judge.lanes(ledger).values():
        judge.note(lane, elapsed_ns)


def judged_round(
    judge: TopicJudge,
    ledger: Ledger,
    checkers: dict[int, PartitionChecker],
    elapsed_ns: int = 0,
    *,
    closed: bool = False,
) -> TopicRound:
    return TopicRound(judge, ledger, checkers, elapsed_ns, closed=closed).completed()


def claimed_now(
    judge: TopicJudge, ledger: Ledger, checkers: dict[int, PartitionChecker]
) -> dict[StreamId, IntervalSet]:
    """The newly claimed losses, which are then no longer in flight."""
    topic_round = judged_round(judge, ledger, checkers)
    news = judge.claim_losses(topic_round, checkers)
    assert not any(topic_round.in_flight(stream) & numbers for stream, numbers in news.items())
    return news


def row_of(seq: int, offset: int, intended_ns: int) -> SeenRow:
    return SeenRow(STREAM, seq, seq + 1, offset, offset + 1, 0, *[intended_ns] * 6)
