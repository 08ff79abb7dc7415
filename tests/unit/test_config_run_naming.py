"""A run's id and its topics' names on both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.config.run_naming import TopicMapping, run_id
from mirrortest.errors import UsageError
from mirrortest.wire.stream import RUN_PATTERN

NAMES = st.text("ab.-_0", min_size=1, max_size=12)


@given(st.binary(min_size=8, max_size=16))
def test_a_runs_id_is_one_that_messages_can_carry(entropy: bytes) -> None:
    """It is eight lower-case letters and digits, the same for the same eight bytes."""
    assert RUN_PATTERN.fullmatch(run_id(entropy))
    assert len(run_id(entropy)) == 8
    assert run_id(entropy) == run_id(entropy[:8])


def test_too_little_entropy_is_refused() -> None:
    """Seven bytes do not make an id."""
    with pytest.raises(ValueError, match="random bytes"):
        run_id(bytes(7))


@given(NAMES, NAMES, NAMES)
def test_there_and_back(alias: str, separator: str, source: str) -> None:
    """A name that is mapped to the destination and back is the same."""
    mapping = TopicMapping(source_alias=alias, separator=separator)
    assert mapping.source_of(mapping.destination_of(source)) == source


@given(NAMES)
def test_without_an_alias_names_are_the_same(name: str) -> None:
    """A name with dots keeps them: a prefix is never guessed."""
    assert TopicMapping().source_of(name) == name == TopicMapping().destination_of(name)


@pytest.mark.parametrize("name", ["t", "A", "A.", "AB.t", "a.t", "x.A.t"])
def test_a_name_without_the_prefix_is_refused(name: str) -> None:
    """It must begin with the complete alias and separator, and have a name after them."""
    with pytest.raises(UsageError, match="--topic-map"):
        TopicMapping(source_alias="A").source_of(name)


def test_only_one_prefix_is_stripped() -> None:
    """The source of a copy of a copy is the first copy."""
    assert TopicMapping(source_alias="A").source_of("A.A.t") == "A.t"


def test_explicit_names_stand_before_the_rule() -> None:
    """They do so in both directions."""
    mapping = TopicMapping.parse(source_alias="A", topic_map=["copy = t", "A.u=u"])
    assert mapping.source_of("copy") == "t"
    assert mapping.destination_of("t") == "copy"
    assert mapping.destination_of("mirrortest.ledger") == "A.mirrortest.ledger"
    assert mapping.sources_of(["copy", "A.u", "A.v"]) == {"copy": "t", "A.u": "u", "A.v": "v"}


@pytest.mark.parametrize("topic_map", [["t"], ["=t"], ["t="], ["a=t", "b=t"], ["a=t", "a=u"]])
def test_an_unsound_map_is_refused(topic_map: list[str]) -> None:
    """It has an incomplete pair, or a topic that is mapped twice."""
    with pytest.raises(UsageError, match="--topic-map"):
        TopicMapping.parse(topic_map=topic_map)


def test_two_copies_of_one_source_are_refused() -> None:
    """Their streams would merge and look duplicated."""
    mapping = TopicMapping.parse(source_alias="A", topic_map=["copy=t"])
    with pytest.raises(UsageError, match="two runs of the consumer"):
        mapping.sources_of(["copy", "A.t"])


def test_an_empty_separator_is_refused() -> None:
    """With it, every name that begins with the alias would be a copy."""
    with pytest.raises(UsageError, match="--separator"):
        TopicMapping(source_alias="A", separator="")
