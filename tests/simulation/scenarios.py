"""Scripted histories: each reproduces exactly one bug that was once found.

A script is a coroutine of the world: it acts in place of the mirror, and the judge finds problems.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.errors import FencedError

from .batch import Record, encoded, rows_of
from .history import Stage, simulating
from .judge import Judge
from .plan import LEDGER, RUN, STATES, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable

    from .cluster import Partition
    from .history import Session

_TOPIC = "t0"


class Script:
    """The steps of scripts, on a stage with one topic, `t0`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.world = stage.world
        self.world.destination.create(
            _TOPIC,
            stage.plan.partitions,
            stamps=stage.plan.stamps == "destination",
            now_ns=self.world.now_ns,
        )

    @property
    def copy(self) -> Partition:
        """Partition 0 of the topic's copy."""
        return self.world.destination.topics[_TOPIC].partitions[0]

    async def until(
        self, what: Callable[[], object], seconds: float = 60.0, *, every: float = 0.02
    ) -> None:
        """Wait until a condition holds; check it every `every` seconds."""
        for _ in range(int(seconds / every)):
            if what():
                return
            await asyncio.sleep(every)
        raise AssertionError("the script waits for what does not happen")

    async def produced(self, name: str = "p0") -> None:
        """Start a producer, and wait for its end."""
        self.stage.supervise("produce", name)
        await self.until(lambda: name in self.stage.current)
        await self.until(lambda: self.stage.current[name].ended_ns is not None)

    async def only_produced(self) -> None:
        """Send all messages without mirroring them: the script writes the copy."""
        self.stage.mirror.running = False
        await self.produced()

    async def consumed(self, seqs: Collection[int]) -> Session:
        """Send all messages unmirrored, write these, and wait until a consumer has read them."""
        await self.only_produced()
        consumer = await self.consuming()
        self.write(seqs)
        await self.read(len(seqs))
        return consumer

    async def consuming(self, name: str = "c0") -> Session:
        """Start a consumer, and give it time to look at the topic."""
        self.stage.supervise("consume", name)
        await self.until(lambda: name in self.stage.current)
        await asyncio.sleep(1.5)
        return self.stage.current[name]

    async def read(self, upto: int) -> None:
        """Wait until all below an offset was fetched, and give the consumer time to judge it."""
        await self.until(lambda: self.copy.fetched_to >= upto)
        await asyncio.sleep(0.5)

    def write(self, numbers: Iterable[int]) -> None:
        """Write messages of the source's partition 0 to the copy, by their seqs."""
        for seq in numbers:
            message, row = self._sent()[seq]
            raw = encoded([row[1:]])
            self.copy.append(raw, [Record(0, row[2], message)], self.world.now_ns)
        self.world.news("destination", _TOPIC)

    def write_others(self, count: int) -> None:
        """Write foreign records to the copy."""
        for _ in range(count):
            raw = encoded([(0, b"other", b"somebody else's", ())])
            self.copy.append(raw, [Record(0, b"other", None)], self.world.now_ns)

    def recreate(self, topic: str = _TOPIC) -> None:
        """Delete a topic of the destination, and create it again at once."""
        now = self.world.now_ns
        before = self.world.destination.delete(topic, now)
        assert before is not None
        self.world.destination.create(
            topic, len(before.partitions), compacted=before.compacted, now_ns=now
        )

    def _sent(self) -> dict[int, tuple[Any, Any]]:
        partition = self.world.source.topics[_TOPIC].partitions[0]
        found = {}
        for batch in partition.log:
            rows = {row[0]: row for row in rows_of(batch)}
            for record in batch.records:
                if record.message is not None and record.message.sender.startswith(f"p0@{RUN}."):
                    found[record.message.seq] = (record.message, rows[record.offset])
        return found


_SMALL = Plan(messages=15, rate=100.0, direct_ledger=True)


async def recreated_behind_a_stalled_consumer(stage: Stage) -> None:
    """When a paused consumer resumes, the new topic is longer than what it read before."""
    script = Script(stage)
    consumer = await script.consumed(range(5))
    consumer.process.pause()
    script.recreate()
    script.write(range(5, 15))
    await asyncio.sleep(8)
    consumer.process.resume()


async def unclean_election_behind_the_position(stage: Stage) -> None:
    """A consumer continues after the point where the log diverges from what it read."""
    script = Script(stage)
    await script.consumed(range(10))
    script.copy.elect_unclean(6, script.world.now_ns)
    script.write((10, 11, 12, 13))
    script.write_others(1)
    script.write((6, 7, 8, 9, 14))


async def recreated_twice_and_killed_before_its_state(stage: Stage) -> None:
    """The logs of a killed session and its successor number a topic's incarnations alike."""
    script = Script(stage)
    consumer = await script.consumed(range(10))
    await asyncio.sleep(3)
    # Its log is written, but not its states, all that it produces to the destination.
    stage.world.net.refused.add(("c0", "produce"))
    script.recreate()
    script.write((10, 11, 12))
    await asyncio.sleep(3)
    script.recreate()
    script.write((13,))
    await asyncio.sleep(10)
    consumer.process.kill()
    stage.world.net.refused.clear()
    script.write((14,))


async def sender_that_dies(stage: Stage) -> None:
    """A sender dies; the next incarnation starts later, and none of it is mirrored."""
    script = Script(stage)
    world, mirror = stage.world, stage.mirror
    source = world.source.topics[_TOPIC].partitions[0]
    stage.supervise("produce", "p0")
    stage.supervise("consume", "c0")
    await script.until(lambda: source.end >= 3)
    mirror.drops_incarnations_from = 2
    source.leaderless = True
    world.net.refused.add(("p0", "producer id"))
    await asyncio.sleep(6)
    source.leaderless = False
    await asyncio.sleep(10)
    world.net.refused.clear()


async def shard_that_goes_while_another_run_writes(stage: Stage) -> None:
    """One of two fixed shards ends or is paused before the other; another run writes on.

    The seed decides how their saves of states interleave.
    """
    random = stage.world.random
    stage.supervise("produce", "p0")
    stage.supervise("produce", "q0", run="other", num_records=400)
    stage.supervise("consume", "c0", state_interval=4.0)
    stage.supervise("consume", "c1", 3.0 * random.random(), state_interval=4.0)
    await asyncio.sleep(3 + 3.0 * random.random())
    stalled = stage.current["c0"].process
    stalled.pause()
    await asyncio.sleep(5)
    stalled.resume()


async def state_topic_created_again(stage: Stage) -> None:
    """A claim in a recreated state topic fences the consumer that owns the partition."""
    script = Script(stage)
    stage.mirror.running = False
    await script.produced()
    for _ in range(2):
        session = asyncio.ensure_future(stage.session("consume", "c0"))
        await asyncio.sleep(3)
        stage.current["c0"].process.kill()
        await session
    older = stage.world.task(stage.session("consume", "c0"))
    await asyncio.sleep(3)
    first = stage.current["c0"]
    script.recreate(STATES)
    stage.supervise("consume", "c0")
    await asyncio.sleep(6)
    script.write(range(15))
    await older
    if not isinstance(first.error, FencedError):
        stage.complaints.append("the consumer that held the partition before was not fenced")


async def out_of_order_and_deleted_unread(stage: Stage) -> None:
    """A message that was out of order is deleted before any consumer reads it."""
    script = Script(stage)
    consumer = await script.consumed((1, 2))
    consumer.process.pause()
    await asyncio.sleep(0.2)
    script.write((0,))
    script.copy.retain_from(3, script.world.now_ns)
    script.write(range(3, 15))
    consumer.process.resume()


async def old_ledger_record_that_compaction_keeps(stage: Stage) -> None:
    """Acknowledgements are not lost if an old record is the newest of its key."""
    script = Script(stage)
    stage.mirror.running = False
    await script.produced()
    ledger = script.world.source.topics[LEDGER].partitions[0]
    lanes = [b for b in ledger.log if b.records and (b.records[0].key or b"")[:6] == b'["lane']
    old = lanes[0]
    ledger.append(old.raw, [Record(0, r.key, None) for r in old.records], script.world.now_ns)
    ledger.compact(ledger.end, script.world.now_ns)
    script.write(range(10))
    await script.consuming()


async def recreated_up_to_the_position(stage: Stage) -> None:
    """The new topic ends exactly at the offset up to which the old one was read."""
    script = Script(stage)
    consumer = await script.consumed(range(5))
    consumer.process.pause()
    script.recreate()
    script.write(range(5, 10))
    await asyncio.sleep(2)
    consumer.process.resume()


async def recreated_behind_a_shard_that_has_ended(stage: Stage) -> None:
    """The topic is recreated after one of two fixed shards ended; the other reads both shares."""
    script = Script(stage)
    stage.supervise("produce", "p0")
    stage.supervise("consume", "c0")
    stage.supervise("consume", "c1", settle_time=8.0)
    await script.until(lambda: "c0" in stage.current)
    await script.until(lambda: stage.current["c0"].ended_ns is not None)
    stage.mirror.running = False
    script.recreate()


async def recreated_before_its_partitions_are_assigned(stage: Stage) -> None:
    """A group's member has seen the topic's ends, but joins for its partitions later."""
    script = Script(stage)
    stage.mirror.running = False
    stage.world.destination.delete(_TOPIC, stage.world.now_ns)
    await script.produced()
    await script.consuming()
    stage.world.net.refused.add(("c0", "metadata"))
    stage.world.destination.create(_TOPIC, stage.plan.partitions, now_ns=stage.world.now_ns)
    script.write(range(10))
    await script.until(lambda: stage.world.destination.topics[_TOPIC].learned_ns)
    script.recreate()
    stage.world.net.refused.clear()


class Scenario(NamedTuple):
    """A plan and a script that reproduce a bug; for some bugs the seed matters."""

    plan: Plan
    script: Callable[[Stage], Coroutine[Any, Any, None]]
    seed: str = "1"


_SCENARIOS = [
    Scenario(_SMALL, recreated_behind_a_stalled_consumer),
    Scenario(_SMALL, unclean_election_behind_the_position),
    # This bug is only offline: `offline_problems` finds it.
    Scenario(replace(_SMALL, deadline=30.0), recreated_twice_and_killed_before_its_state),
    Scenario(Plan(messages=40, rate=10.0), sender_that_dies),
    Scenario(
        Plan(messages=20, partitions=2, consumers=2),
        shard_that_goes_while_another_run_writes,
        seed="F5/5",
    ),
    Scenario(replace(_SMALL, deadline=30.0), state_topic_created_again),
    Scenario(_SMALL, out_of_order_and_deleted_unread),
    Scenario(_SMALL, old_ledger_record_that_compaction_keeps),
    Scenario(_SMALL, recreated_up_to_the_position),
    Scenario(replace(_SMALL, partitions=2, consumers=2), recreated_behind_a_shard_that_has_ended),
    Scenario(replace(_SMALL, group=True), recreated_before_its_partitions_are_assigned),
]
SCENARIOS = {each.script.__name__.replace("_", "-"): each for each in _SCENARIOS}


def played(plan: Plan, script: Callable[[Stage], Coroutine[Any, Any, None]]) -> Stage:
    """Play a script to its end, in virtual time."""
    with simulating():
        stage = Stage(plan, "1")
        stage.run(script)
    return stage


def play_scenario(name: str) -> tuple[Stage, list[str]]:
    """Play one; return its stage, and the problems that script and judge found."""
    plan, script, seed = SCENARIOS[name]
    stage = Stage(plan, seed)
    stage.run(script)
    return stage, [*stage.complaints, *Judge(stage).judge()]
