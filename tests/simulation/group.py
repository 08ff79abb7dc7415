"""Consumer groups: the coordinator at the brokers, and each member's own task (eager protocol)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirrortest.config.client_config import ClientConfig
    from mirrortest.kafka.ports import RebalanceListener

    from .clients import SimulatedConsumer
    from .world import World

_MEMBER_POLL_SECONDS = 0.5


@dataclass
class _Member:
    name: str
    session_seconds: float
    heard_ns: int
    joined: int = 0
    """The generation that it has joined."""
    assigned: list[Any] = field(default_factory=list)


class Coordinator:
    """One group at the brokers. A rebalance starts a generation that members must join."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.members: dict[str, _Member] = {}
        self.generation = 0
        self.began_ns = 0
        self.settled = True
        self.partitions: list[Any] = []

    def rebalance(self) -> None:
        """Make all members join again."""
        self.generation += 1
        self.settled = False
        self.began_ns = self._world.now_ns

    def heartbeat(self, name: str) -> int:
        """Record that a member is alive; return the generation that it should be in.

        Raises:
            RequestError: it was removed.
        """
        self.expire()
        member = self.members.get(name)
        if member is None:
            raise RequestError(Code.UNKNOWN_MEMBER_ID)
        member.heard_ns = self._world.now_ns
        return self.generation

    def join(self, name: str, session_seconds: float, partitions: list[Any]) -> int:
        """Join; in a settled group a new member or other partitions start a new generation."""
        self.expire()
        if name not in self.members:
            self.members[name] = _Member(name, session_seconds, self._world.now_ns)
            if self.settled:
                self.rebalance()
        if self.settled and partitions != self.partitions:
            self.rebalance()
        member = self.members[name]
        member.heard_ns = self._world.now_ns
        member.joined = self.generation
        self.partitions = partitions
        return self.generation

    def sync(self, name: str, generation: int, patience_ns: int) -> list[Any] | None:
        """A member's assignment once all have joined, or are late; None until then.

        Raises:
            RequestError: it must join again.
        """
        self.heartbeat(name)
        if generation != self.generation:
            raise RequestError(Code.ILLEGAL_GENERATION)
        if not self.settled:
            late = self._world.now_ns - self.began_ns > patience_ns
            behind = [m for m in self.members.values() if m.joined != self.generation]
            if behind and not late:
                return None
            for member in behind:
                del self.members[member.name]
            self._share_out()
        return self.members[name].assigned

    def leave(self, name: str) -> None:
        """Remove a member that leaves."""
        if self.members.pop(name, None) is not None and self.members:
            self.rebalance()

    def expire(self) -> None:
        """Remove members that were silent for their session timeout."""
        now = self._world.now_ns
        expired = [
            m.name for m in self.members.values() if now - m.heard_ns > m.session_seconds * 1e9
        ]
        for name in expired:
            self._world.note("member expired", name)
            self._world.happened["member expired"] += 1
            del self.members[name]
        if expired and self.members:
            self.rebalance()

    def _share_out(self) -> None:
        self.settled = True
        names = sorted(self.members)
        for member in self.members.values():
            member.assigned = []
        for index, at in enumerate(self.partitions):
            self.members[names[index % len(names)]].assigned.append(at)
        self._world.note("group settled", self.generation, *names)


class Membership:
    """A consumer's membership in its group: sends heartbeats, joins, calls the listener."""

    def __init__(
        self,
        client: SimulatedConsumer,
        config: ClientConfig,
        group: str,
        listener: RebalanceListener,
        *,
        topics: Iterable[str] = (),
        pattern: str | None = None,
    ) -> None:
        self._client = client
        self._listener = listener
        self._topics = list(topics)
        self._pattern = None if pattern is None else re.compile(pattern)
        self._session = config.session_timeout_ms / 1000
        self._beat = config.heartbeat_interval_ms / 1000
        self._patience_ns = config.max_poll_interval_ms * 1_000_000
        world = client.world
        self._coordinator = world.coordinators.setdefault(
            (client.cluster.name, group), Coordinator(world)
        )
        self._name = f"{client.process.name}#{client.process.random.randrange(1 << 30)}"
        self._generation = 0
        self._joined_for: list[Any] = []
        self._task: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._again = asyncio.Event()

    def begin(self) -> None:
        """Join, and stay a member."""
        self._task = asyncio.create_task(self._live())
        self._beating = asyncio.create_task(self._heartbeats())

    async def leave(self) -> None:
        """Leave the group."""
        for task in (self._task, self._beating):
            if task is not None:
                task.cancel()
        try:
            await self._client.ask("leave", lambda: self._coordinator.leave(self._name))
        except RequestError:
            return

    async def commit(self, positions: Mapping[Any, int]) -> None:
        """Commit offsets, which are not stored here.

        Raises:
            RequestError: the group has a newer generation, or the member was removed.
        """

        def serve() -> None:
            if self._coordinator.heartbeat(self._name) != self._generation:
                raise RequestError(Code.COMMIT_FAILED)

        await self._client.ask("commit", serve)

    def _wanted(self) -> list[Any]:
        """The partitions of the subscribed topics."""
        cluster, now = self._client.cluster, self._client.world.now_ns
        return [
            TopicPartition(name, number)
            for name in sorted(cluster.topics)
            if (topic := cluster.known(name, now)) is not None
            and (self._pattern.match(name) if self._pattern else name in self._topics)
            for number in range(len(topic.partitions))
        ]

    async def _heartbeats(self) -> None:
        """Run apart from the callbacks: a slow callback must not expire the member."""
        while True:
            await asyncio.sleep(self._beat)
            try:
                generation = await self._client.ask(
                    "heartbeat", lambda: self._coordinator.heartbeat(self._name)
                )
                wanted = await self._client.ask("metadata", self._wanted)
            except RequestError as error:
                if error.code == Code.UNKNOWN_MEMBER_ID:
                    self._again.set()
                continue
            if generation != self._generation or wanted != self._joined_for:
                self._again.set()

    async def _live(self) -> None:
        client = self._client
        while True:
            revoked = list(client.positions)
            await self._listener.on_partitions_revoked(revoked)
            client.positions = {}
            assigned = await self._joined()
            client.positions = dict.fromkeys(assigned)
            client.paused.clear()
            client.world.note("assigned", client.process.name, *assigned)
            await self._listener.on_partitions_assigned(assigned)
            await self._again.wait()
            self._again.clear()

    async def _joined(self) -> list[Any]:
        """Join and wait for an assignment; repeat until that succeeds."""
        client = self._client
        while True:
            try:
                wanted = self._joined_for = await client.ask("metadata", self._wanted)
                self._generation = await client.ask(
                    "join", partial(self._coordinator.join, self._name, self._session, wanted)
                )
                while True:
                    share = await client.ask(
                        "sync",
                        lambda: self._coordinator.sync(
                            self._name, self._generation, self._patience_ns
                        ),
                    )
                    if share is not None:
                        return list(share)
                    await asyncio.sleep(_MEMBER_POLL_SECONDS)
            except RequestError:
                await asyncio.sleep(client.backoff)
