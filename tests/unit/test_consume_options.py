"""Which options a consumer accepts, and which it refuses with a helpful message."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mirrortest.consume.options import Shard, checked_pattern
from mirrortest.consume.source_names import alias_of
from mirrortest.errors import UsageError
from tests.unit.consuming import consume_options


def test_shards_part_the_partitions() -> None:
    """Each partition is in exactly one of five shards."""
    shards = [Shard.parse(f"{index}/5") for index in range(1, 6)]
    for partition in range(23):
        assert sum(partition in shard for shard in shards) == 1


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "a/b", "1/0", "-1/3", "1/2/3", "1 / 2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    """The message names the option."""
    with pytest.raises(UsageError, match="--shard"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/0", "OF must be at least 1, for example 1/1"),
        ("2/1", "the index of a single shard is 1"),
        ("6/5", "the index runs from 1 to 5"),
    ],
)
def test_it_is_told_which_shards_there_are(text: str, message: str) -> None:
    """With a single shard, the message gives no range from 1 to 1."""
    with pytest.raises(UsageError, match=f"--shard '{text}': {message}"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"topics": ()}, "--topics"),
        ({"topics": ("t",), "topic_pattern": "x.*"}, "--topic-pattern"),
        ({"group": "g", "shard": Shard(1, 2)}, "exclude each other"),
        ({"deadline": -1.0}, "--deadline"),
        ({"settle_time": -1.0}, "--settle-time"),
        ({"state_interval": -1.0}, "--state-interval"),
    ],
)
def test_contradictions_are_refused(changed: dict[str, Any], words: str) -> None:
    """One line names the options."""
    with pytest.raises(UsageError, match=words):
        consume_options(**changed)


@pytest.mark.parametrize("text", ["(?i)a[.]ORDERS", "(?is)A[.]o.*", "A[.](?i:ORDERS)"])
def test_a_pattern_may_begin_with_flags(text: str) -> None:
    """It becomes part of other expressions, in which flags are not allowed."""
    pattern = checked_pattern(text, option="--topic-pattern")
    assert re.fullmatch(f"(?!x)(?:{pattern})", "A.orders")
    assert checked_pattern(pattern, option="--topic-pattern") == pattern
    found = alias_of(
        consume_options(topics=(), topic_pattern=pattern), ["A.orders", "A.mirrortest.ledger"]
    )
    assert found is not None
    assert found.source_alias == "A"


@pytest.mark.parametrize("text", ["(", "a(?i)b", "(?x)a # b"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """The message names the option."""
    with pytest.raises(UsageError, match="--topic-pattern"):
        checked_pattern(text, option="--topic-pattern")


def test_all_shards_share_the_place_of_their_states() -> None:
    """States are found again after the shard count changes; a group has its own place."""
    assert (
        consume_options(shard=Shard(1, 2)).reader_name
        == consume_options(shard=Shard(2, 3)).reader_name
    )
    assert consume_options(group="g").reader_name == "g"
