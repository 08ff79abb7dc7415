"""A wrong source name is not the mirror's fault: the user gets the right one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.source_names import alias_of
from mirrortest.errors import UsageError
from mirrortest.kafka.fetched import FetchedBatches
from mirrortest.wire.batch import LaneEncoder
from mirrortest.wire.form import Form
from mirrortest.wire.stream import ProducerId
from tests.unit.consuming import consume_options
from tests.unit.played_cluster import Played, consumer_of

if TYPE_CHECKING:
    from mirrortest.consume.consumer import Consumer

LEDGER = "mirrortest.ledger"


def _options(*topics: str, **changed: Any) -> Any:
    return consume_options(topics=topics, **changed) if topics else consume_options(**changed)


@pytest.mark.parametrize(
    ("present", "topics", "prefix"),
    [
        (("A.mirrortest.ledger", "A.orders"), ("A.orders",), "A."),
        (("A-mirrortest.ledger",), ("A-orders", "A-clicks.eu"), "A-"),
        (("A_mirrortest.ledger",), ("A_orders",), "A_"),
        (("dc.1.mirrortest.ledger",), ("dc.1.orders",), "dc.1."),
        (("A.mirrortest.ledger", "B.mirrortest.ledger"), ("B.orders",), "B."),
        # The mirror keeps names, or both sides have a ledger: the messages will show it.
        (("mirrortest.ledger", "A.mirrortest.ledger"), ("A.orders",), None),
        (("mirrortest.ledger",), ("orders",), None),
        (("A.mirrortest.ledger",), ("A.orders", "orders"), None),
        (("Amirrortest.ledger",), ("Aorders",), None),
        ((), ("A.orders",), None),
    ],
)
def test_the_ledgers_copy_shows_the_alias(
    present: tuple[str, ...], topics: tuple[str, ...], prefix: str | None
) -> None:
    """If all named topics have its prefix, and no topic has the ledger's own name."""
    found = alias_of(_options(*topics), present)
    assert (found and found.prefix) == prefix
    if found is not None:
        assert [found.destination_of(found.source_of(topic)) for topic in topics] == [*topics]


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("A[.].*", "A."), ("A[.]orders", "A."), (".*", None), ("B[.].*", None)],
)
def test_a_pattern_shows_it_by_what_it_matches(pattern: str, prefix: str | None) -> None:
    """Topics of mirrors and of mirrortest do not count; others without the prefix do."""
    present = (
        *("A.mirrortest.ledger", "mirrortest.state", "A.heartbeats", "heartbeats"),
        *("A.orders", "A.clicks", "local", "mm2-offset-syncs.A.internal"),
    )
    found = alias_of(_options(topic_pattern=pattern), present)
    assert (found and found.prefix) == prefix


def test_of_several_aliases_none_is_chosen() -> None:
    """The error lists all that fit, as the options that choose them."""
    present = ("A.mirrortest.ledger", "A.B.mirrortest.ledger", "A.B-mirrortest.ledger")
    with pytest.raises(UsageError) as caught:
        alias_of(_options("A.B.orders"), present)
    assert str(caught.value).endswith(
        "choose the source with --source-alias A or --source-alias A.B"
    )


def _fetched(
    written_to: str, *, topic: str, count: int = 3, offset: int = 0, run: str = "r1"
) -> FetchedBatches:
    """Messages as the producer wrote them to a topic of the source."""
    encoder = LaneEncoder(written_to, ProducerId("p", run, 1), 0, 0, 1, Form.BODY, 200)
    buffer = encoder.encode(offset, np.full(count, 1_000), 1_000).buffer
    struct.pack_into(">q", buffer, 0, offset)
    return FetchedBatches(topic, 0, offset, offset + count, 1, memoryview(bytes(buffer)), count)


def _damaged(batch: FetchedBatches) -> FetchedBatches:
    """The batch with a bit of each message's descriptor flipped."""
    assert batch.buffer is not None
    data = bytearray(batch.buffer)
    at = data.find(b"\xd1\x02")
    while at >= 0:
        data[at + 30] ^= 1
        at = data.find(b"\xd1\x02", at + 1)
    batch.buffer = memoryview(bytes(data))
    return batch


async def _consumer(topic: str, **mapping: Any) -> tuple[Consumer, Played]:
    played = Played({topic: 1})
    consumer, topics = consumer_of(played, (topic,), mapping=TopicMapping.parse(**mapping))
    await topics.discover()
    await consumer.assignment.begin()
    return consumer, played


async def _judge(consumer: Consumer, played: Played, *batches: FetchedBatches) -> None:
    played.fetched = list(batches)
    await consumer.batches.read(0.0)
    await consumer.batches.judge_all()


@pytest.mark.parametrize(
    ("topic", "mapping", "written_to", "advice"),
    [
        ("A.orders", {}, "orders", "did you mean --source-alias A?"),
        ("A-orders", {}, "orders", "did you mean --source-alias A --separator -?"),
        ("A.B.orders", {"source_alias": "A"}, "orders", "did you mean --source-alias A.B?"),
        ("A.orders", {"source_alias": "A"}, "A.orders", "omit --source-alias"),
        (
            "A.orders",
            {"topic_map": ["A.orders=clicks"]},
            "orders",
            "did you mean --topic-map A.orders=orders?",
        ),
    ],
)
@pytest.mark.parametrize("run", ["r1", "another"])
async def test_messages_show_a_wrong_name_before_anything_is_counted(
    topic: str, mapping: dict[str, Any], written_to: str, advice: str, run: str
) -> None:
    """All were `corrupted`, with exit code 99. Now nothing is logged or saved."""
    consumer, played = await _consumer(topic, **mapping)
    with pytest.raises(UsageError) as caught:
        await _judge(consumer, played, _fetched(written_to, topic=topic, run=run))
    assert f"written to topic {written_to!r}, not " in str(caught.value)
    assert advice in str(caught.value)
    assert (played.judged, played.saved) == ([], [])


async def test_what_is_truly_corrupted_is_no_wrong_name() -> None:
    """It proves no name; and once a message has proven ours, one of another name is a finding."""
    consumer, played = await _consumer("A.orders", source_alias="A")
    await _judge(consumer, played, _damaged(_fetched("orders", topic="A.orders")))
    await _judge(consumer, played, _fetched("orders", topic="A.orders", offset=3))
    await _judge(consumer, played, _fetched("A.orders", topic="A.orders", offset=6))
    assert [taken.messages for taken in played.judged] == [3, 3, 3]
    [assigned] = consumer.context.partitions.values()
    assert sum(assigned.checker.streamless.values()) == 6


async def test_a_state_of_another_name_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a corrected alias, the same run goes on, without what was judged before."""
    wrong, played = await _consumer("A.orders")
    [assigned] = wrong.context.partitions.values()
    assigned.checker.advance(7)
    state = assigned.to_state()

    async def claim(_: Any) -> tuple[int, Any]:
        return 2, state

    for mapping, reached in (({}, 7), ({"source_alias": "A"}, 0)):
        played = Played({"A.orders": 1})
        consumer, topics = consumer_of(played, ("A.orders",), mapping=TopicMapping.parse(**mapping))
        monkeypatch.setattr(played, "claim", claim)
        await topics.discover()
        await consumer.assignment.begin()
        [assigned] = consumer.context.partitions.values()
        assert assigned.checker.next_offset == reached


@pytest.mark.parametrize(
    ("topic", "advice"),
    [
        ("A-orders", "did you mean --separator -?"),
        ("orders", "omit --source-alias if the mirror keeps names"),
    ],
)
def test_an_alias_that_does_not_fit_the_topics_is_told_with_what_may(
    topic: str, advice: str
) -> None:
    """The reverse mistake: an alias although the copy has no prefix, or another separator."""
    with pytest.raises(UsageError) as caught:
        TopicMapping(source_alias="A").source_of(topic)
    assert advice in str(caught.value)
