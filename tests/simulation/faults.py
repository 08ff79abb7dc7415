"""A history's faults: each is counted, and counted again if it took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .topic_faults import TopicFaults

if TYPE_CHECKING:
    from .cluster import Cluster
    from .plan import Strike


class Faults(TopicFaults):
    """Faults of processes, network and mirror, too; each public method is a kind."""

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
        process = victim.process
        process.pause()
        return self._heal(strike, process.resume, lambda: process.waits)

    def consumer_paused(self, strike: Strike) -> bool:
        return self._pause("consume", strike)

    def producer_paused(self, strike: Strike) -> bool:
        return self._pause("produce", strike)

    def log_fails(self, strike: Strike) -> bool:
        victim = self._victim(("consume", "produce")[strike.much % 2], strike.which)
        if victim is None:
            return False
        fails, failed = self._world.log_fails, self._grows(f"log write of {victim.name} failed")
        fails[victim.name] = 0
        return self._heal(strike, lambda: fails.pop(victim.name, None), failed)

    def log_slow(self, strike: Strike) -> bool:
        self._world.log_slow = 2.0
        slowed = self._grows("log write slowed")
        return self._heal(strike, lambda: setattr(self._world, "log_slow", 0.0), slowed)

    def clock_set(self, strike: Strike) -> bool:
        victim = self._victim(("consume", "produce")[strike.much % 2], strike.which)
        if victim is None:
            return False
        seconds = (-75, -3, 3, 75)[strike.much // 2 % 4] * (48 if strike.much >= 192 else 1)
        victim.process.wall_offset_ns += seconds * 1_000_000_000
        return True

    # -- the network ------------------------------------------------------------------------------

    def _down(self, cluster: Cluster, strike: Strike) -> bool:
        cluster.down = True
        refused = self._grows(f"request refused by {cluster.name}")
        return self._heal(strike, lambda: setattr(cluster, "down", False), refused)

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

        return self._heal(strike, heal, self._grows(f"request of {victim.name} refused"))

    def _net(self, strike: Strike, name: str, value: float, happens: str) -> bool:
        net = self._world.net
        setattr(net, name, value)
        return self._heal(strike, lambda: setattr(net, name, 0.0), self._grows(happens))

    def answers_lost(self, strike: Strike) -> bool:
        share = 0.1 + 0.1 * (strike.much % 5)
        return self._net(strike, "lose_answers", share, "answer lost")

    def requests_lost(self, strike: Strike) -> bool:
        share = 0.1 + 0.2 * (strike.much % 5)
        return self._net(strike, "lose_requests", share, "request lost")

    def slow_answers(self, strike: Strike) -> bool:
        return self._net(strike, "slow", 1.0, "answer slowed")

    # -- the mirror -------------------------------------------------------------------------------

    def mirror_killed(self, strike: Strike) -> bool:
        mirror = self._stage.mirror
        forgotten = mirror.kill()
        return self._heal(strike, lambda: setattr(mirror, "running", True), lambda: forgotten)

    def transaction_aborted(self, strike: Strike) -> bool:
        self._stage.mirror.abort_next = True
        return False  # counted where it happens


KINDS = frozenset(
    name for kind in (TopicFaults, Faults) for name in vars(kind) if not name.startswith("_")
)
"""The names of all kinds."""
