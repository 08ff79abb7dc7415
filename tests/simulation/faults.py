"""The faults that strike a history, each counted, and counted again where it took effect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .batch import Record, encoded
from .mirror import grow
from .plan import LEDGER, STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cluster import Cluster, Partition, Topic
    from .history import Stage
    from .plan import Strike


class Faults:
    """Strikes at a stage; each method is a kind of fault, under its own name."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world

    def schedule(self) -> None:
        """Have every fault of the plan strike at its time."""
        for strike in self._stage.plan.strikes:
            self._world.later(strike.at, self.strike, strike)

    def strike(self, strike: Strike) -> None:
        """Let one strike."""
        if self._stage.over:
            return
        kind = strike.kind
        self._world.note("fault", kind, strike.which, strike.much, f"{strike.lasts:g} s")
        self._world.count(kind)
        if KINDS[kind](self, strike):
            self._world.count(f"{kind} took effect")

    def _heal(self, strike: Strike, heal: Callable[[], Any]) -> None:
        def healed() -> None:
            self._world.note("healed", strike.kind)
            heal()

        self._world.later(strike.lasts, healed)

    # -- processes --------------------------------------------------------------------------------

    def _victim(self, application: str, which: int) -> Any:
        alive = [
            s
            for s in self._stage.current.values()
            if s.application == application and s.ended_ns is None
        ]
        return alive[which % len(alive)] if alive else None

    def _kill(self, application: str, strike: Strike) -> bool:
        victim = self._victim(application, strike.which)
        if victim is None:
            return False
        victim.process.kill()
        return True

    def consumer_killed(self, strike: Strike) -> bool:
        return self._kill("consume", strike)

    def producer_killed(self, strike: Strike) -> bool:
        return self._kill("produce", strike)

    def _pause(self, application: str, strike: Strike) -> bool:
        victim = self._victim(application, strike.which)
        if victim is None or not victim.process.running:
            return False
        victim.process.pause()
        self._heal(strike, victim.process.resume)
        return True

    def consumer_paused(self, strike: Strike) -> bool:
        return self._pause("consume", strike)

    def producer_paused(self, strike: Strike) -> bool:
        return self._pause("produce", strike)

    def log_fails(self, strike: Strike) -> bool:
        victim = self._victim(("consume", "produce")[strike.much % 2], strike.which)
        if victim is None:
            return False
        self._world.log_fails[victim.name] = 0
        self._heal(strike, lambda: self._world.log_fails.pop(victim.name, None))
        return True

    def log_slow(self, strike: Strike) -> bool:
        self._world.log_slow = 2.0
        self._heal(strike, lambda: setattr(self._world, "log_slow", 0.0))
        return True

    def clock_set(self, strike: Strike) -> bool:
        victim = self._victim(("consume", "produce")[strike.much % 2], strike.which)
        if victim is None:
            return False
        victim.process.wall_offset_ns += (-75, -3, 3, 75)[strike.much // 2 % 4] * 1_000_000_000
        return True

    # -- the way to brokers -----------------------------------------------------------------------

    def _down(self, cluster: Cluster, strike: Strike) -> bool:
        cluster.down = True
        self._heal(strike, lambda: setattr(cluster, "down", False))
        return True

    def source_down(self, strike: Strike) -> bool:
        return self._down(self._world.source, strike)

    def destination_down(self, strike: Strike) -> bool:
        return self._down(self._world.destination, strike)

    def unreachable(self, strike: Strike) -> bool:
        victim = self._victim(("consume", "produce")[strike.much % 2], strike.which)
        if victim is None:
            return False
        clusters = (self._world.source, self._world.destination)
        for cluster in clusters:
            cluster.unreachable_for.add(victim.name)

        def heal() -> None:
            for cluster in clusters:
                cluster.unreachable_for.discard(victim.name)

        self._heal(strike, heal)
        return True

    def answers_lost(self, strike: Strike) -> bool:
        before = self._world.faults["answer lost"]
        self._world.net.lose_answers = 0.1 + 0.1 * (strike.much % 5)

        def heal() -> None:
            self._world.net.lose_answers = 0.0
            if self._world.faults["answer lost"] > before:
                self._world.count("answers_lost took effect")

        self._heal(strike, heal)
        return False

    def requests_lost(self, strike: Strike) -> bool:
        before = self._world.faults["request lost"]
        self._world.net.lose_requests = 0.1 + 0.2 * (strike.much % 5)

        def heal() -> None:
            self._world.net.lose_requests = 0.0
            if self._world.faults["request lost"] > before:
                self._world.count("requests_lost took effect")

        self._heal(strike, heal)
        return False

    def slow_answers(self, strike: Strike) -> bool:
        self._world.net.slow = 1.0
        self._heal(strike, lambda: setattr(self._world.net, "slow", 0.0))
        return True

    # -- the mirror -------------------------------------------------------------------------------

    def mirror_killed(self, strike: Strike) -> bool:
        self._stage.mirror.kill()
        self._heal(strike, lambda: setattr(self._stage.mirror, "running", True))
        return False  # counted where it forgets something

    def transaction_aborted(self, strike: Strike) -> bool:
        self._stage.mirror.abort_next = True
        return False  # counted where it happens

    # -- topics -----------------------------------------------------------------------------------

    def _judged(self, strike: Strike) -> tuple[Cluster, Topic | None]:
        """A judged topic, in the cluster that is read."""
        cluster = self._stage.read_cluster
        name = self._stage.topics[strike.which % len(self._stage.topics)]
        return cluster, cluster.topics.get(name)

    def _partition(self, strike: Strike) -> Partition | None:
        _, topic = self._judged(strike)
        if topic is None:
            return None
        return topic.partitions[strike.which // 4 % len(topic.partitions)]

    def _cut(self, partition: Partition | None, strike: Strike) -> bool:
        if partition is None or partition.stale is not None or not partition.log:
            return False
        batch = partition.log[max(0, len(partition.log) - 1 - strike.much % 6)]
        before = partition.fetched_to
        removed = partition.elect_unclean(batch.base, self._world.now_ns)
        self._world.note("cut back", partition.number, partition.end, len(removed))
        read = [record for record in removed if record.offset < before]
        if read:
            self._world.count("read records removed by an unclean election")
        return bool(removed)

    def unclean_election(self, strike: Strike) -> bool:
        return self._cut(self._partition(strike), strike)

    def unclean_election_refilled(self, strike: Strike) -> bool:
        """Others' records take the offsets of those that were removed."""
        partition = self._partition(strike)
        if partition is None:
            return False
        end = partition.end
        if not self._cut(partition, strike):
            return False
        self._foreign(partition, end - partition.end)
        return True

    def unclean_election_resent(self, strike: Strike) -> bool:
        """And the mirror sends again what was removed."""
        partition = self._partition(strike)
        if partition is None:
            return False
        end = partition.end
        before = [r for b in partition.log for r in b.records]
        if not self._cut(partition, strike):
            return False
        if strike.much & 8:
            self._foreign(partition, end - partition.end)
        gone = [r for r in before if r.removed_by == "truncation" and r.message is not None]
        self._world.later(0.1 + strike.lasts / 4, self._stage.mirror.send_again, partition, gone)
        return True

    def _foreign(self, partition: Partition, count: int) -> None:
        stamp = self._world.now_ns // 1_000_000
        for _ in range(count):
            raw = encoded([(stamp, b"other", b"somebody else's", ())])
            partition.append(raw, [Record(0, b"other", None)], self._world.now_ns)
        self._world.news(self._stage.read_cluster.name, self._stage.topics[0])

    def foreign_records(self, strike: Strike) -> bool:
        partition = self._partition(strike)
        if partition is None or partition.leaderless:
            return False
        self._foreign(partition, 1 + strike.much % 4)
        return True

    def stale_leader(self, strike: Strike) -> bool:
        partition = self._partition(strike)
        readers = [s.name for s in self._stage.current.values() if s.application == "consume"]
        if partition is None or partition.stale is not None or not readers:
            return False
        partition.cut_off(readers, alone=bool(strike.much & 1))
        end = partition.end

        def heal() -> None:
            if partition.end > end:
                self._world.count("stale_leader took effect")
            partition.stale = None

        self._heal(strike, heal)
        return False

    def leaderless(self, strike: Strike) -> bool:
        partition = self._partition(strike)
        return partition is not None and self._take_leader(partition, strike)

    def source_leaderless(self, strike: Strike) -> bool:
        name = self._stage.topics[strike.which % len(self._stage.topics)]
        topic = self._world.source.topics[name]
        partition = topic.partitions[strike.which // 4 % len(topic.partitions)]
        return self._take_leader(partition, strike)

    def _take_leader(self, partition: Partition, strike: Strike) -> bool:
        if partition.leaderless:
            return False
        partition.leaderless = True

        def heal() -> None:
            partition.leaderless = False
            partition.elect()

        self._heal(strike, heal)
        return True

    def retention(self, strike: Strike) -> bool:
        partition = self._partition(strike)
        if partition is None or not partition.log:
            return False
        at = max(0, len(partition.log) - strike.much % 4)
        start = partition.log[at].base if at < len(partition.log) else partition.end
        before = partition.fetched_to
        removed = partition.retain_from(start, self._world.now_ns)
        if any(r.offset >= before for r in removed):
            self._world.count("retention_unseen took effect")
        return bool(removed)

    def compaction(self, strike: Strike) -> bool:
        _, topic = self._judged(strike)
        if topic is None or not topic.compacted:
            return False
        return self._compact(topic)

    def own_topics_compacted(self, strike: Strike) -> bool:
        """Ledger and states are compacted while they are in use."""
        world = self._world
        topics = [
            c.topics.get(n) for c in (world.source, world.destination) for n in (LEDGER, STATES)
        ]
        return sum(self._compact(topic) for topic in topics if topic is not None) > 0

    def _compact(self, topic: Topic) -> bool:
        removed = 0
        for partition in topic.partitions:
            before = partition.log[-1].base if partition.log else 0
            removed += len(partition.compact(before, self._world.now_ns))
        return bool(removed)

    def _recreate(self, cluster: Cluster, name: str, strike: Strike, *, create: bool) -> bool:
        world = self._world
        topic = cluster.delete(name, world.now_ns)
        if topic is None:
            return False
        world.note("topic deleted", cluster.name, name)
        count = len(topic.partitions)

        def again() -> None:
            if name not in cluster.topics:
                cluster.create(name, count, compacted=topic.compacted, now_ns=world.now_ns)
                world.note("topic created again", cluster.name, name)

        if create:
            world.later(strike.lasts, again)
        return True

    def topic_recreated(self, strike: Strike) -> bool:
        """A judged topic; the mirror goes on where it was, or copies all again."""
        cluster, topic = self._judged(strike)
        if topic is None:
            return False
        self._stage.mirror.pause_for(strike.lasts + 0.05)
        if strike.much & 1:
            self._stage.mirror.start_over(topic.name)
        return self._recreate(cluster, topic.name, strike, create=True)

    def topic_recreated_unseen(self, strike: Strike) -> bool:
        """It happens while all its consumers stand still."""
        for session in list(self._stage.current.values()):
            process = session.process
            if session.application == "consume" and process.running:
                process.pause()
                self._world.later(2.0 + strike.lasts, process.resume)
        return self.topic_recreated(replace(strike, lasts=0.1 + 0.4 * (strike.which % 4)))

    def held_back(self, strike: Strike) -> bool:
        """The mirror keeps a message back, and writes it behind later ones."""
        self._stage.mirror.hold_back(0.3 + 0.2 * (strike.much % 4), 1 + strike.which % 2)
        return False  # counted where it is written

    def retention_unseen(self, strike: Strike) -> bool:
        """All that stands there is deleted while the consumers stand still."""
        for session in list(self._stage.current.values()):
            process = session.process
            if session.application == "consume" and process.running:
                process.pause()
                self._world.later(1.0 + strike.lasts, process.resume)
        self._world.later(0.9 + strike.lasts, self.retention, strike)
        return False

    def ledger_copy_recreated(self, strike: Strike) -> bool:
        self._stage.mirror.start_over(LEDGER)
        return self._recreate(self._world.destination, LEDGER, strike, create=False)

    def ledger_recreated(self, strike: Strike) -> bool:
        return self._recreate(self._world.source, LEDGER, strike, create=False)

    def states_recreated(self, strike: Strike) -> bool:
        return self._recreate(
            self._stage.read_cluster, STATES, strike, create=bool(strike.much & 1)
        )

    def partitions_added(self, strike: Strike) -> bool:
        _, topic = self._judged(strike)
        if topic is None:
            return False
        grow(topic, len(topic.partitions) + 1 + strike.much % 2)
        return True

    def old_ledger_record(self, strike: Strike) -> bool:
        """An old record of the ledger arrives once more, behind the newest."""
        topic = self._stage.ledger_cluster.topics.get(LEDGER)
        if topic is None or not topic.partitions[0].log:
            return False
        partition = topic.partitions[0]
        batch = partition.log[strike.much % len(partition.log)]
        records = [Record(0, r.key, None) for r in batch.records]
        if len(records) != batch.next - batch.base:
            return False
        partition.append(batch.raw, records, self._world.now_ns)
        self._world.news(self._stage.ledger_cluster.name, LEDGER)
        if strike.much & 64:
            partition.compact(partition.end, self._world.now_ns)
        return True

    def followers_stop(self, strike: Strike) -> bool:
        """The high watermark stays where it is."""
        partition = self._partition(strike)
        if partition is None or partition.frozen_at is not None:
            return False
        partition.frozen_at = partition.end

        def heal() -> None:
            partition.thaw(self._world.now_ns)
            self._world.news(self._stage.read_cluster.name, self._stage.topics[0])

        self._heal(strike, heal)
        return True

    def open_transaction(self, strike: Strike) -> bool:
        """Somebody's open transaction holds the last stable offset back."""
        partition = self._partition(strike)
        if partition is None or partition.leaderless:
            return False
        who = 900_000 + self._world.faults["open_transaction"]
        stamp = self._world.now_ns // 1_000_000
        raw = encoded([(stamp, b"other", b"somebody else's", ())], producer=who, transactional=True)
        partition.append(raw, [Record(0, b"other", None)], self._world.now_ns)
        self._heal(
            strike,
            lambda: partition.finish(who, commit=bool(strike.much & 1), now_ns=self._world.now_ns),
        )
        return True


KINDS: dict[str, Callable[[Faults, Strike], bool]] = {
    name: method
    for name, method in vars(Faults).items()
    if not name.startswith("_") and name not in {"schedule", "strike"}
}
"""Kind -> what it does."""
