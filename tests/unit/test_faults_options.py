"""Which topics the faulty mirror mirrors."""

from __future__ import annotations

from typing import Any

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.faults.options import FaultyMirrorOptions


def options(source_alias: str, separator: str = ".", **changes: Any) -> FaultyMirrorOptions:
    client = ClientConfig.load(bootstrap_server="127.0.0.1:1")
    mapping = TopicMapping.parse(source_alias=source_alias, separator=separator)
    return FaultyMirrorOptions(source=client, destination=client, mapping=mapping, **changes)


@pytest.mark.parametrize(
    ("aliases", "in_a", "in_b"),
    [
        ({}, {"orders", "B.clicks", "B.A.orders"}, {"clicks", "A.orders"}),
        ({"destination_alias": "A"}, {"orders", "B.clicks"}, {"clicks", "A.orders"}),
    ],
    ids=["without the aliases", "with both aliases"],
)
def test_mirrors_in_both_directions_copy_no_copies_without_end(
    aliases: dict[str, str], in_a: set[str], in_b: set[str]
) -> None:
    """A copy's name shows where it came from; once there were more copies after each refresh."""
    to_b, to_a = options("A"), options("B", **aliases)
    a, b = {"orders"}, {"clicks"}
    for _ in range(6):
        b |= {to_b.mapping.destination_of(topic) for topic in a if to_b.mirrors(topic)}
        a |= {to_a.mapping.destination_of(topic) for topic in b if to_a.mirrors(topic)}
    assert (a, b) == (in_a, in_b)


@pytest.mark.parametrize(
    ("topic", "mirrored"),
    [
        ("dc2-orders", False),
        ("dc3-dc2-orders", False),
        ("dc2", True),
        ("dc2.orders", True),
        ("xdc2-orders", True),
        ("orders-dc2", True),
        ("dc3-orders", True),
    ],
)
def test_a_topic_that_came_from_the_destination_is_not_mirrored(topic: str, mirrored: bool) -> None:
    """Its name has the destination's alias before a separator."""
    assert options("dc1", "-", destination_alias="dc2").mirrors(topic) is mirrored


def test_names_show_nothing_if_mirrors_keep_them() -> None:
    """Such a topic has a name with a dot."""
    assert options("").mirrors("B.orders")
