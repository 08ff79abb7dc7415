"""What the last round says: when a run passed, and when nothing was proven.

Kafka is played by objects that tell offsets; judge, ledger, holdings and states are the real ones.
"""

from __future__ import annotations

from types import SimpleNamespace

from mirrortest.check.deadline import Deadlines
from mirrortest.check.intervals import IntervalSet
from mirrortest.check.ledger import Claim, LaneRecord
from mirrortest.check.partition import PartitionChecker
from mirrortest.check.routing import ExpectPartition
from mirrortest.check.row import SeenRow
from mirrortest.config.client import ClientConfig
from mirrortest.config.run import TopicMapping
from mirrortest.config.threshold import thresholds
from mirrortest.consume.assigned import AssignedPartition
from mirrortest.consume.judging import TopicJudge
from mirrortest.consume.measuring import Measures
from mirrortest.consume.options import ConsumeOptions
from mirrortest.consume.rounds import Rounds
from mirrortest.consume.state import Partition
from mirrortest.consume.vouching import LedgerFollower
from mirrortest.wire.stream import StreamId

MINUTE = 60 * 10**9
STREAM = StreamId("t", "r1", "p", 1, 0)


class Log:
    """A logbook that keeps what it is told."""

    where = "nowhere"

    def __init__(self):
        self.tails = []

    def tail(self, held, end):
        self.tails.append((held.at.partition, end))

    def claimed(self, stream, numbers):
        """Not looked at."""

    lost = claimed

    def vouched(self, ledger):
        """Not looked at."""


class World:
    """One topic `A.t`, one consumer that holds its partition 0."""

    def __init__(self, *seqs, ends=None, topics=("A.t",), stream=STREAM):
        self.options = ConsumeOptions(
            run="r1",
            name="c",
            client=ClientConfig.load(bootstrap_server="localhost:1"),
            mapping=TopicMapping.parse(source_alias="A"),
            thresholds=thresholds((), exactly_once=False),
            topics=topics,
        )
        checker = PartitionChecker("t", 0)
        for offset, seq in enumerate(seqs):
            checker.apply(SeenRow(stream, seq, seq + 1, offset, offset + 1, 0, 1, 1, 1, 1, 2, 2))
        self.held = AssignedPartition(
            at=Partition("A.t", 0),
            source="t",
            run="r1",
            generation=1,
            policy=ExpectPartition.ANY,
            counts=[1],
            checker=checker,
        )
        self.ends = {("A.t", 0): len(seqs)} if ends is None else ends
        self.follower = LedgerFollower(None, None, where="'ledger'", now_ns=lambda: 0)
        self.follower.present = True
        self.log = Log()
        self.states = {}

    async def end_offsets(self, _):
        return self.ends

    def vouch(self, *acked, unknown=(), end=None):
        """One producer that has come and, with `end`, gone."""
        numbers, unsure = IntervalSet(acked), IntervalSet(unknown)
        reserved = max(numbers.end, unsure.end, end or 0)
        ledger = self.follower.ledger
        ledger.add_claim(Claim("r1", "p", 1, "s", {"t": (0,)}))
        ledger.merge(LaneRecord(STREAM, reserved, numbers, unknown=unsure, end=end))
        return self

    async def report(self):
        judges = {
            topic: TopicJudge(
                topic.removeprefix("A."), "r1", ExpectPartition.ANY, Deadlines(MINUTE)
            )
            for topic in self.options.topics
        }
        counts = {}
        for topic, number in self.ends:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        return await Rounds(
            self.options,
            topics=SimpleNamespace(judges=judges, counts=counts),
            holdings=SimpleNamespace(partitions={self.held.at: self.held}, notes=[]),
            store=SimpleNamespace(states=lambda: self.states),
            ledger=self.follower,
            reader=self,
            log=self.log,
            measures=Measures(self.options),
        ).conclude()


def _told(report):
    return " | ".join(report.inconclusive)


async def test_what_was_vouched_for_and_seen_passes():
    """Read to the end, every acknowledged number seen, every lane ended: nothing is in doubt."""
    report = await World(0, 1, 2).vouch((0, 3), end=3).report()
    assert (report.verdict, report.inconclusive) == ("passed", [])


async def test_nothing_acknowledged_proves_nothing():
    """With acks=0 all is unknown: a mirror that copies nothing must not pass."""
    report = await World().vouch(unknown=[(0, 9)], end=9).report()
    assert report.verdict == "inconclusive"
    assert "the outcome of 9 is unknown" in _told(report)


async def test_a_named_topic_of_which_the_ledger_says_nothing_is_not_passed_over():
    """A misspelt topic or alias is found here; otherwise nothing at all would be judged of it."""
    ends = {("A.t", 0): 1, ("A.other", 0): 0}
    report = await World(0, ends=ends, topics=("A.t", "A.other")).vouch((0, 1), end=1).report()
    assert report.verdict == "inconclusive"
    assert "A.other: the ledger says nothing of 'other'" in _told(report)


async def test_a_producer_that_the_ledger_does_not_know_yet_is_no_phantom():
    """The ledger's copy may lag behind the topic's: within a deadline nobody is accused."""
    world = World(0, stream=STREAM._replace(producer="q"), ends={("A.t", 0): 1})
    report = await world.vouch(end=0).report()
    assert report.counts["phantom"] == 0
    assert report.verdict == "inconclusive"
    assert "nothing of 1 streams" in _told(report)


async def test_a_topic_that_is_gone_at_the_end_is_told():
    """Without its ends nothing is lost, nothing passes, and no tail is made up for the log."""
    world = World(0, ends={}).vouch((0, 2), end=2)
    report = await world.report()
    assert world.log.tails == []
    assert report.counts["lost"] == 0
    assert report.verdict == "inconclusive"
    assert "A.t does not exist" in _told(report)


async def test_what_another_consumer_claimed_is_late_for_all():
    """Claims travel in the states: whoever sees the message in the end calls it late."""
    world = World(0, 1).vouch((0, 2), end=2)
    other = AssignedPartition.fresh(
        Partition("A.t", 1), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[2]
    )
    other.claimed = {STREAM: IntervalSet([(1, 2)])}
    world.states = {other.at: (1, other.to_state())}
    world.ends[tuple(other.at)] = 0
    report = await world.report()
    assert (report.counts["late"], report.counts["lost"]) == (1, 0)
