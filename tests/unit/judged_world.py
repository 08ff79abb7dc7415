"""A consumer's judging rounds; objects that return offsets play Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mirrortest.config.run_naming import TopicMapping
from mirrortest.config.threshold import thresholds
from mirrortest.consume.assigned_partition import AssignedPartition, JudgedBatch, JudgedUpTo
from mirrortest.consume.consumer_metrics import ConsumerMetrics
from mirrortest.consume.context import ConsumerContext
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.judging_rounds import JudgingRounds
from mirrortest.consume.ledger_follower import LedgerFollower
from mirrortest.consume.outage import Outage
from mirrortest.consume.shared_state import SharedState
from mirrortest.consume.topic_judge import TopicJudge
from mirrortest.kafka.fetched import End
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.verify.ledger_record import LaneRecord, Registration
from mirrortest.verify.loss import Losses
from mirrortest.verify.partition import PartitionChecker
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import SeenRow
from mirrortest.wire.stream import StreamId
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.batch_judge import BatchJudge
    from mirrortest.consume.consume_report import ConsumeReport
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.saves import Saves
    from mirrortest.consume.state_store import StateStore
    from mirrortest.errors import UnreachableError
    from mirrortest.kafka.admin import Admin
    from mirrortest.kafka.fetched import ReadPosition
    from mirrortest.kafka.follower import FollowedTopic
    from mirrortest.kafka.reader import Reader
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.verify.ledger import Ledger

MINUTE = 60 * 10**9
STREAM = StreamId("t", "r1", "p", 1, 0)


class Log:
    """A consumer's log that keeps what tests check."""

    def record(self, interval: object) -> None:
        """Tests do not check the figures."""

    where = "nowhere"
    durable_rows = 0

    def __init__(self) -> None:
        self.tails: list[tuple[int, int]] = []
        self.judged: list[int] = []
        self.looked_ns = 0

    async def update_topics(self, topics: object) -> None:
        """There are no other topics."""

    def ends_asked(self, at_ns: int) -> None:
        self.looked_ns = at_ns

    def tail(self, reached: JudgedUpTo, end: int) -> None:
        assert (reached.topic, reached.identity) == ("t", 0)
        self.tails.append((reached.partition, end))
        self.judged.append(reached.next_offset)

    def clocks_set(self, by_ns: int) -> None:
        """Not checked."""

    def claimed(self, stream: StreamId, numbers: StreamVerdict) -> None:
        """Not checked."""

    verdict = expired = claimed

    def vouched(self, ledger: Ledger) -> None:
        """Not checked."""


async def never_asked() -> bool:
    raise AssertionError("the ledger is there")


class World:
    """One topic `A.t`, and one consumer, which owns its partition 0."""

    def __init__(
        self,
        *seqs: int,
        ends: dict[tuple[str, int], int] | UnreachableError | None = None,
        topics: tuple[str, ...] = ("A.t",),
        stream: StreamId = STREAM,
    ) -> None:
        self.options = consume_options(
            mapping=TopicMapping.parse(source_alias="A"),
            thresholds=thresholds((), exactly_once=False),
            topics=topics,
        )
        checker = PartitionChecker("t", 0)
        for offset, seq in enumerate(seqs):
            checker.apply(SeenRow(stream, seq, seq + 1, offset, offset + 1, 0, 1, 1, 1, 1, 2, 2))
        self.assigned = AssignedPartition(
            at=TopicPartition("A.t", 0),
            source="t",
            run="r1",
            generation=1,
            policy=ExpectPartition.ANY,
            counts=[1],
            checker=checker,
        )
        self.ends: dict[tuple[str, int], int] | UnreachableError = (
            {("A.t", 0): len(seqs)} if ends is None else ends
        )
        self.follower = LedgerFollower(
            cast("FollowedTopic", None),
            never_asked,
            where="'ledger'",
            now_ns=lambda: self.elapsed_ns,
        )
        self.elapsed_ns = 0
        """The monotonic time of the ledger's follower."""
        self.follower.present = True
        self.log = Log()
        self.outage = Outage("destination")
        self.states: dict[TopicPartition, tuple[int, dict[str, Any]]] = {}
        self.partitions = {self.assigned.at: self.assigned}
        self.assignment = SimpleNamespace(rebalancing=False, released=[])
        self.sees_topic_ids = True
        self.logs: dict[tuple[str, int], End] = {}
        """Ends that replace those made from `ends`, which are offsets only."""
        self.policy_hidden: set[str] = set()
        self.taken_in = 0
        self.while_asked: Callable[[], object] = lambda: None
        """Called during each request for the ends."""

    async def no_more_topics(self) -> None:
        """All topics exist from the beginning."""

    async def buffer_arrived(self) -> None:
        self.taken_in += 1

    async def given_ends(
        self, read: Mapping[tuple[str, int], ReadPosition]
    ) -> dict[tuple[str, int], End]:
        self.while_asked()
        if isinstance(self.ends, Exception):
            raise self.ends
        return {at: self.logs.get(at, End(end, end)) for at, end in self.ends.items()}

    def vouch(
        self,
        *acked: tuple[int, int],
        unknown: Sequence[tuple[int, int]] = (),
        end: int | None = None,
    ) -> World:
        """Add a producer that has registered and, with `end`, has ended."""
        numbers, unsure = IntervalSet(acked), IntervalSet(unknown)
        reserved = max(numbers.end, unsure.end, end or 0)
        ledger = self.follower.ledger
        ledger.add_registration(Registration("r1", "p", 1, "s", {"t": (0,)}))
        ledger.merge(LaneRecord(STREAM, reserved, numbers, unknown=unsure, end=end))
        return self

    def rounds(self, latencies: Sequence[int] = ()) -> JudgingRounds:
        measures = ConsumerMetrics(self.options)
        measures.count(
            "t",
            JudgedBatch(
                [],
                np.array(latencies, np.int64),
                np.empty(0, np.int64),
                np.empty(0, np.int64),
                0,
                0,
            ),
        )
        judges = {
            topic: TopicJudge(topic.removeprefix("A."), "r1", ExpectPartition.ANY, Losses(MINUTE))
            for topic in self.options.topics
        }
        counts: dict[str, int] = {}
        for topic, number in [("A.t", 0)] if isinstance(self.ends, Exception) else self.ends:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        topics = JudgedTopics(self.options, cast("Admin", None), self.follower.ledger)
        topics.judges, topics.counts, topics.policy_hidden = judges, counts, self.policy_hidden
        topics.discover = self.no_more_topics  # type: ignore[method-assign]
        store = SimpleNamespace(
            serials=lambda: {at: serial for at, (serial, _) in self.states.items()},
            state=lambda at: self.states[at][1],
            written=lambda topic: [],  # no other consumer writes
            written_elsewhere=lambda topic: [],
        )
        reader = SimpleNamespace(ends=self.given_ends, sees_topic_ids=self.sees_topic_ids)
        context = ConsumerContext(
            options=self.options,
            admin=cast("Admin", None),
            reader=cast("Reader", reader),
            topics=topics,
            ledger=self.follower,
            store=cast("StateStore", store),
            shared=SharedState(topics, cast("StateStore", store)),
            log=cast("ConsumerLog", self.log),
            metrics=measures,
            outage=self.outage,
            partitions=self.partitions,
        )
        return JudgingRounds(
            context,
            cast("Assignment", self.assignment),
            cast(
                "BatchJudge",
                SimpleNamespace(buffer_arrived=self.buffer_arrived, end_backlogs=lambda _: None),
            ),
            cast("Saves", SimpleNamespace(request=lambda: None)),
        )

    async def report(self, latencies: Sequence[int] = ()) -> ConsumeReport:
        return await self.rounds(latencies).conclude()


def reasons(report: ConsumeReport) -> str:
    """Why a report is inconclusive, as one text."""
    return " | ".join(report.inconclusive)
