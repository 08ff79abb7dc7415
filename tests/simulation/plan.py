"""What happens in a history, read from a tape of bytes; zeros are the simplest choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.oracle.tape import Tape

RUN = "sim"
LEDGER, STATES = "mirrortest.ledger", "mirrortest.state"
STRANGER = "t9"
FEATURES = frozenset({"second_run", "second_group", "idle_share", "stranger", "successor"})
"""Options that are not faults, but can be left out like faults: another run in the same topics, a
group that starts later, a share without a consumer, a topic that only matches the pattern, and a
second process with a producer's name while the first one is cut off."""
LENGTH = 64
"""Bytes that a plan may use."""
_MOST_STRIKES = 5
_LAST_STRIKE = 12.0
"""Virtual seconds; no fault begins later."""


@dataclass(frozen=True)
class Strike:
    """A fault: its kind, start and duration (virtual seconds), and two choices."""

    kind: str
    at: float
    lasts: float = 0.0
    which: int = 0
    much: int = 0


@dataclass(frozen=True)
class Plan:
    """One history; times are virtual seconds."""

    partitions: int = 1
    topics: int = 1
    messages: int = 20
    rate: float = 20.0
    producers: int = 1
    consumers: int = 1
    group: bool = False
    direct_ledger: bool = False
    source_role: bool = False
    read_committed: bool = False
    transactional: bool = False
    compacted: bool = False
    copies_alone: bool = False
    """Whether only the copies are compacted, and not the source's topics."""
    policy_lapses: float = 0.0
    """When the judged topics' policy is reset, so that compaction ends; 0: never."""
    rehash: bool = False
    folded: bool = False
    """Whether copies have one partition fewer than their sources, so that lanes share one."""
    mirror_lag: float = 0.0
    drop_every: int = 0
    consumer_starts: float = 0.0
    deadline: float = 5.0
    linger_ms: int = 200
    idempotent: bool = True
    second_run: bool = False
    skewed: bool = False
    detailed: bool = False
    """Whether logs have a row for each message."""
    second_group: bool = False
    idle_share: bool = False
    stranger: str = ""
    """What happens to the topic `STRANGER`; empty: consumers name their topics."""
    stamps: str = ""
    """On which side brokers stamp records (LogAppendTime): `source`, `destination`, or neither."""
    any_every: int = 0
    """Every n-th consumer session judges with `--expect-partition any`; 0: none."""
    successor: float = 0.0
    """When a second process named p0 starts; 0: never."""
    strikes: tuple[Strike, ...] = ()

    @property
    def faults(self) -> set[str]:
        """The kinds of its strikes."""
        return {strike.kind for strike in self.strikes}


def make_plan(tape: Tape, kinds: Collection[str]) -> Plan:
    """Read a plan from a tape, with only these kinds of faults and features."""
    partitions = 1 + tape.below(3)
    topics = 1 + (tape.below(4) == 3)
    messages = (20, 8, 30, 50)[tape.below(4)]
    rate = (20.0, 10.0, 40.0, 80.0)[tape.below(4)]
    producers = 1 + tape.one_in(4)
    consumers = 1 + (tape.below(5) >= 3)
    group = bool(tape.below(2))
    ways = tape.below(256)
    more = tape.below(256)
    source_role = bool(ways & 8 and ways & 16 and ways & 128)
    transactional = bool(ways & 1 and ways & 32) and not source_role
    compacted = bool(ways & 2 and ways & 64)
    lag = (0.0, 0.3, 1.0, 3.0)[tape.below(4)]
    drop_every = (0, 0, 0, 0, 7, 13)[tape.below(6)]
    starts = (0.0, 0.5, 2.0, 4.0)[tape.below(4)]
    ordered = sorted(set(kinds) - FEATURES)
    strikes = []
    for _ in range(tape.below(_MOST_STRIKES + 1) if ordered else 0):
        kind = ordered[tape.below(len(ordered))]
        at = tape.below(120) / 120 * _LAST_STRIKE
        lasts = (0.2, 1.0, 3.0, 8.0)[tape.below(4)] * (1 + tape.below(4) / 4)
        strikes.append(Strike(kind, at, lasts, tape.below(16), tape.below(256)))
    stamps = (*[""] * 14, "source", "destination")[tape.below(16)]
    any_every = (*[0] * 12, 1, 1, 2, 2)[tape.below(16)]
    others = tape.below(256)
    succeeded = tape.below(256)
    befalls = ("nothing", "deleted", "recreated", "leaderless")[others & 3]
    policy = tape.below(8) if compacted else 0
    folded = tape.below(8) == 7 and partitions > 1 and not source_role
    if folded:
        # No producer says that the copy has fewer partitions: after growth that no consumer saw,
        # its messages are misrouted by all that can be known.
        strikes = [strike for strike in strikes if strike.kind != "partitions_added"]
    return Plan(
        partitions=partitions,
        topics=topics,
        messages=messages,
        rate=rate,
        producers=producers,
        consumers=consumers,
        group=group,
        direct_ledger=bool(ways & 4),
        source_role=source_role,
        read_committed=transactional or bool(more & 1 and more & 2),
        transactional=transactional,
        compacted=compacted,
        copies_alone=bool(policy & 4),
        policy_lapses=(0.0, 0.0, 3.0, 8.0)[policy & 3],
        rehash=bool((more & 4 and more & 8) or any_every or folded) and not source_role,
        folded=folded,
        mirror_lag=lag,
        drop_every=drop_every,
        consumer_starts=starts,
        idempotent=not (more & 16 and more & 32),
        skewed=bool(more & 64),
        detailed=bool(more & 8 and more & 32 and ways & 4),
        second_run=bool(more & 128 and more & 1) and "second_run" in kinds,
        second_group="second_group" in kinds and group and others & 28 == 4,
        idle_share="idle_share" in kinds and not group and consumers == 1 and others & 60 == 8,
        stranger=befalls if "stranger" in kinds and others & 224 == 32 else "",
        stamps=stamps,
        any_every=0 if source_role else any_every,
        successor=1.0 + (succeeded >> 5) if "successor" in kinds and succeeded & 31 == 16 else 0.0,
        strikes=tuple(sorted(strikes, key=lambda strike: strike.at)),
    )
