"""Faults of topics and partitions: of the judged ones, and of the applications' own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .batch import Record, encoded, rows_of
from .mirror import grow
from .plan import LEDGER, STATES
from .striking import Striking

if TYPE_CHECKING:
    from .cluster import Cluster, Partition, Topic
    from .plan import Strike


class TopicFaults(Striking):
    """Each public method is a kind of fault, by its own name."""

    def _judged(self, strike: Strike) -> tuple[Cluster, Topic | None]:
        """A judged topic, and the cluster where consumers read it."""
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
            self._world.happened["records that were read removed by an unclean election"] += 1
        return bool(removed)

    def unclean_election(self, strike: Strike) -> bool:
        return self._cut(self._partition(strike), strike)

    def unclean_election_refilled(self, strike: Strike) -> bool:
        """Foreign records take the offsets of the records that an unclean election removes."""
        partition = self._partition(strike)
        if partition is None:
            return False
        end = partition.end
        if not self._cut(partition, strike):
            return False
        self._foreign(partition, end - partition.end)
        return True

    def unclean_election_resent(self, strike: Strike) -> bool:
        """The mirror sends again what an unclean election removed."""
        _, topic = self._judged(strike)
        partition = self._partition(strike)
        if topic is None or partition is None:
            return False
        end = partition.end
        before = [r for b in partition.log for r in b.records]
        if not self._cut(partition, strike):
            return False
        if strike.much & 8:
            self._foreign(partition, end - partition.end)
        removed = [r for r in before if r.removed_by == "truncation" and r.message is not None]
        again = self._stage.mirror.send_again
        self._world.later(0.1 + strike.lasts / 4, again, topic, partition.number, removed)
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
        return partition is not None and self._cut_off(partition, "consume", strike)

    def _cut_off(self, partition: Partition, readers_are: str, strike: Strike) -> bool:
        """The old leader still answers these applications; writes go to the new leader."""
        readers = [s.name for s in self._stage.current.values() if s.application == readers_are]
        if partition.stale is not None or not readers:
            return False
        partition.cut_off(readers, alone=bool(strike.much & 1))
        end = partition.end

        return self._heal(
            strike, lambda: setattr(partition, "stale", None), lambda: partition.end > end
        )

    def leaderless(self, strike: Strike) -> bool:
        partition = self._partition(strike)
        return partition is not None and self._take_leader(partition, strike)

    def source_leaderless(self, strike: Strike) -> bool:
        name = self._stage.topics[strike.which % len(self._stage.topics)]
        topic = self._world.source.topics.get(name)
        if topic is None:  # deleted, not recreated yet: consumers read the source
            return False
        partition = topic.partitions[strike.which // 4 % len(topic.partitions)]
        return self._take_leader(partition, strike)

    def _take_leader(self, partition: Partition, strike: Strike) -> bool:
        if partition.leaderless:
            return False
        partition.leaderless = True

        def heal() -> None:
            partition.leaderless = False
            partition.elect()

        missed = partition.missed
        return self._heal(strike, heal, lambda: partition.missed > missed)

    def retention(self, strike: Strike) -> bool:
        return bool(self._retain(strike))

    def _retain(self, strike: Strike) -> list[Record]:
        """Delete all but at most three of the newest batches of a partition."""
        partition = self._partition(strike)
        if partition is None or not partition.log:
            return []
        at = max(0, len(partition.log) - strike.much % 4)
        start = partition.log[at].base if at < len(partition.log) else partition.end
        return partition.retain_from(start, self._world.now_ns)

    def compaction(self, strike: Strike) -> bool:
        _, topic = self._judged(strike)
        if topic is None or not topic.compacted:
            return False
        return self._compact(topic)

    def own_topics_compacted(self, strike: Strike) -> bool:
        """Ledger and states are compacted while they are in use."""
        return sum([self._compact(topic) for _, topic in self._own_topics()]) > 0

    def own_topic_cut(self, strike: Strike) -> bool:
        """An unclean election removes the newest records of the ledger, its copy or the states."""
        return self._cut_own(self._own_topic(strike), strike)

    def own_topic_cut_refilled(self, strike: Strike) -> bool:
        """The same, and foreign records take the removed offsets at once."""
        if (found := self._own_topic(strike)) is None:
            return False
        cluster, topic = found
        partition = topic.partitions[0]
        end = partition.end
        if not self._cut_own(found, strike):
            return False
        self._foreign(partition, end - partition.end + strike.much % 3)
        self._world.news(cluster.name, topic.name)
        return True

    def _cut_own(self, found: tuple[Cluster, Topic] | None, strike: Strike) -> bool:
        if found is None or not self._cut(found[1].partitions[0], strike):
            return False
        self._stage.mirror.cut_back(found[1], found[1].partitions[0].end)
        return True

    def own_topic_leaderless(self, strike: Strike) -> bool:
        found = self._own_topic(strike)
        return found is not None and self._take_leader(found[1].partitions[0], strike)

    def own_topic_stale_leader(self, strike: Strike) -> bool:
        """An old leader still answers the readers of the ledger, its copy or the states."""
        found, readers_are = self._own_topic(strike), ("consume", "produce")[strike.much // 2 % 2]
        return found is not None and self._cut_off(found[1].partitions[0], readers_are, strike)

    def own_topic_stops(self, strike: Strike) -> bool:
        """The follower replicas of the ledger, its copy or the states stop fetching."""
        found = self._own_topic(strike)
        return found is not None and self._freeze(*found, found[1].partitions[0], strike)

    def _own_topics(self) -> list[tuple[Cluster, Topic]]:
        clusters = (self._world.source, self._world.destination)
        found = [(cluster, cluster.topics.get(n)) for cluster in clusters for n in (LEDGER, STATES)]
        return [(cluster, topic) for cluster, topic in found if topic is not None]

    def _own_topic(self, strike: Strike) -> tuple[Cluster, Topic] | None:
        topics = self._own_topics()
        return topics[strike.which % len(topics)] if topics else None

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
        """Recreate a judged topic; the mirror continues where it was, or copies all again."""
        cluster, topic = self._judged(strike)
        if topic is None:
            return False
        self._stage.mirror.pause_for(strike.lasts + 0.05)
        if strike.much & 1:
            self._stage.mirror.start_over(topic.name)
        return self._recreate(cluster, topic.name, strike, create=True)

    def topic_recreated_unseen(self, strike: Strike) -> bool:
        """Recreate a judged topic while all consumers are paused."""
        paused = self._pause_consumers(2.0 + strike.lasts)
        again = replace(strike, lasts=0.1 + 0.4 * (strike.which % 4))
        return self.topic_recreated(again) and paused

    def _pause_consumers(self, seconds: float) -> bool:
        """Pause all consumers for this time; return whether any was running."""
        running = [
            session.process
            for session in self._stage.current.values()
            if session.application == "consume"
            and session.ended_ns is None
            and session.process.running
        ]
        for process in running:
            process.pause()
            self._world.later(seconds, process.resume)
        return bool(running)

    def held_back(self, strike: Strike) -> bool:
        """The mirror holds back one or two messages, and writes them after later ones."""
        self._stage.mirror.delay_next(0.3 + 0.2 * (strike.much % 4), 1 + strike.which % 2)
        return False  # counted by the mirror

    def retention_unseen(self, strike: Strike) -> bool:
        """Retention leaves at most three batches of a partition, while consumers are paused."""
        paused = self._pause_consumers(1.0 + strike.lasts)

        def delete() -> None:
            partition = self._partition(strike)
            read = 0 if partition is None else partition.fetched_to
            removed = self._retain(strike)
            if paused and any(record.offset >= read for record in removed):
                self._world.count("retention_unseen took effect")

        self._world.later(0.9 + strike.lasts, delete)
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
        """An old record of the ledger is appended again, after the newest."""
        return self._once_more(self._stage.ledger_cluster, LEDGER, strike)

    def old_state_record(self, strike: Strike) -> bool:
        """An old claim, state or shared record of consumers is appended again."""
        return self._once_more(self._stage.read_cluster, STATES, strike)

    def _once_more(self, cluster: Cluster, name: str, strike: Strike) -> bool:
        """Append an old record of a topic after the newest; compaction may then keep it."""
        topic = cluster.topics.get(name)
        if topic is None or not topic.partitions[0].log:
            return False
        partition = topic.partitions[0]
        batch = partition.log[strike.much % len(partition.log)]
        rows = rows_of(batch)
        # It comes from another producer, or brokers would recognize the repetition.
        raw = encoded([row[1:] for row in rows])
        records = [Record(0, key, None, once_more=True) for _, _, key, *_ in rows]
        partition.append(raw, records, self._world.now_ns)
        self._world.news(cluster.name, name)
        if strike.much & 64:
            partition.compact(partition.end, self._world.now_ns)
        return True

    def followers_stop(self, strike: Strike) -> bool:
        """Followers stop fetching: the high watermark does not advance."""
        cluster, topic = self._judged(strike)
        partition = self._partition(strike)
        return (
            topic is not None
            and partition is not None
            and self._freeze(cluster, topic, partition, strike)
        )

    def _freeze(self, cluster: Cluster, topic: Topic, partition: Partition, strike: Strike) -> bool:
        if partition.frozen_at is not None:
            return False
        end = partition.frozen_at = partition.end

        def heal() -> None:
            partition.thaw(self._world.now_ns)
            self._world.news(cluster.name, topic.name)

        return self._heal(strike, heal, lambda: partition.end > end)

    def open_transaction(self, strike: Strike) -> bool:
        """A foreign open transaction holds the last stable offset back."""
        partition = self._partition(strike)
        if partition is None or partition.leaderless:
            return False
        producer = 900_000 + self._world.faults["open_transaction"]
        stamp = self._world.now_ns // 1_000_000
        raw = encoded(
            [(stamp, b"other", b"somebody else's", ())], producer=producer, transactional=True
        )
        partition.append(raw, [Record(0, b"other", None)], self._world.now_ns)
        end = partition.end

        def finish() -> None:
            partition.finish(producer, commit=bool(strike.much & 1), now_ns=self._world.now_ns)

        return self._heal(strike, finish, lambda: partition.end > end)
