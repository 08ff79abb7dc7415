"""What the sessions of a run record of its topics: policies, compaction, stamps, clocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirrortest.results.words import stamped
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from mirrortest.reconcile.plan import Plan


def policies_of(plan: Plan) -> dict[str, list[str]]:
    """By source topic, its consumers' policies; the last one is the one to judge by.

    Topics may be mirrored in different ways, and have consumers of their own. The policy to judge
    by is one whose states no consumer took over to judge by another; of several such policies, the
    one with which a consumer began last.
    """
    last: dict[str, dict[str, int]] = {}
    replaced: dict[str, set[tuple[str, str]]] = {}
    for _, session in plan.of(Role.CONSUMER):
        if (policy := session.expect_partition) is not None:
            for topic in session.topics:
                began = last.setdefault(topic, {})
                began[policy] = max(session.started_ns, began.get(policy, 0))
                by = replaced.setdefault(topic, set())
                by |= {(before, policy) for before in session.judged_before}
    found = {}
    for topic, began in last.items():
        by = replaced[topic]
        for_good = {before for before, after in by if (after, before) not in by}
        order = [(each not in for_good, at_ns, each) for each, at_ns in began.items()]
        found[topic] = [policy for *_, policy in sorted(order)]
    return found


def judged_by_others(plan: Plan, topic: str, policy: str) -> frozenset[int]:
    """The sessions that judged a topic by another policy."""
    return frozenset(
        number
        for number, session in plan.of(Role.CONSUMER)
        if topic in session.topics and session.expect_partition not in {None, policy}
    )


def hidden_topics(plan: Plan, role: Role = Role.CONSUMER) -> list[str]:
    """The source topics of which no session of a role could see whether what it read is compacted.

    Consumers read the copies, source observers the topics themselves.
    """
    hidden_by_topic: dict[str, set[bool]] = {}
    for _, session in plan.of(role):
        for source, topic in session.topics.items():
            hidden_by_topic.setdefault(source, set()).add(
                topic.policy_hidden and not topic.compacted
            )
    return sorted(source for source, hidden in hidden_by_topic.items() if hidden == {True})


def compacted_topics(plan: Plan) -> dict[str, bool]:
    """The source topics seen to be compacted, themselves (True) or only their copies (False)."""
    found: dict[str, bool] = {}
    for role in (Role.CONSUMER, Role.PRODUCER):
        for _, session in plan.of(role):
            for source, topic in session.topics.items():
                if topic.compacted:
                    found[source] = found.get(source, False) or role is Role.PRODUCER
    return found


def stamped_at_source(plan: Plan) -> set[str]:
    """The source topics whose records the source's brokers stamp, as some session found."""
    return {
        source
        for role in (Role.PRODUCER, Role.CONSUMER)
        for _, session in plan.of(role)
        for source, topic in session.topics.items()
        if topic.stamped_at_source
    }


def below_zero(plan: Plan) -> Counter[str]:
    """By source topic, how far below zero the lowest latency was that consumers measured, in ns."""
    found: Counter[str] = Counter()
    for _, session in plan.of(Role.CONSUMER):
        for source, topic in session.topics.items():
            found[source] = max(found[source], topic.below_zero_ns)
    return found


def clocks_set_ns(plan: Plan) -> int:
    """By how much latencies may be off because clocks were set, in ns."""
    return max((session.clocks_set_ns for _, session in plan.of(Role.CONSUMER)), default=0)


def unjudged_timestamps(plan: Plan) -> list[str]:
    """Notes on topics whose timestamps are not judged, or not all of them."""
    copies = plan.copies(lambda topic: topic.stamped)
    return [
        *(stamped(topic, "destination") for topic in copies),
        *(stamped(topic, "source") for topic in sorted(stamped_at_source(plan))),
    ]
