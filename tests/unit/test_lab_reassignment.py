"""A broker that leaves for good gives its partitions to the others."""

from __future__ import annotations

import json

from mirrortest.lab.reassignment import Replicas, is_done, parse_description, plan_without

PRINTED = """\
Topic: orders\tTopicId: x\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: a=b
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,3\tIsr: 1,3\tElr: \tLastKnownElr: \n\
\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2\tIsr: \tElr: 2\tLastKnownElr: \n\
"""


def test_what_kafkas_tool_prints_is_read() -> None:
    """Only lines of partitions are read; one without a leader has no replica in sync."""
    assert parse_description(PRINTED) == [
        Replicas("orders", 0, (1, 3), frozenset({1, 3})),
        Replicas("orders", 1, (2,), frozenset()),
    ]


def test_another_broker_takes_the_place_of_one_that_leaves() -> None:
    """It takes the same position; if no other broker is left, there is one replica less."""
    partitions = [
        Replicas("a", 0, (3, 1), frozenset({1, 3})),
        Replicas("a", 1, (1, 2, 3), frozenset({1, 2, 3})),
        Replicas("a", 2, (1, 2), frozenset({1, 2})),
        Replicas("b", 0, (3,), frozenset({3})),
    ]
    plan = json.loads(plan_without(3, partitions, (1, 2)))
    assert plan["version"] == 1
    found = {(each["topic"], each["partition"]): each["replicas"] for each in plan["partitions"]}
    assert found == {("a", 0): [2, 1], ("a", 1): [1, 2], ("b", 0): [2]}


def test_it_is_done_once_all_replicas_are_up_to_date() -> None:
    """And once the leaving broker has no replica."""
    here = Replicas("a", 0, (1, 2), frozenset({1, 2}))
    assert is_done(3, [here])
    assert not is_done(2, [here])
    assert not is_done(3, [here, Replicas("a", 1, (1, 2), frozenset({1}))])
