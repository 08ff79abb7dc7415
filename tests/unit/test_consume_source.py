"""A source observer reads the source, and is never mistaken for a consumer of the copy."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.consume_report import ConsumeReport
from mirrortest.consume.consume_status import ConsumeStatus
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.consume.judged_topics import JudgedTopics
from mirrortest.consume.statistics import ReadFigures
from mirrortest.errors import UsageError
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.options import Role
from mirrortest.verify.ledger import Ledger
from mirrortest.verify.placement import ExpectPartition
from tests.topics_seen import topics_seen
from tests.unit.consuming import consume_options
from tests.unit.memory_topic import P0, SCOPE, MemoryTopic, following

if TYPE_CHECKING:
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.kafka.admin import Admin


def _options(**changed: Any) -> ConsumeOptions:
    return consume_options(**{"name": "s", "role": Role.SOURCE, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mapping": TopicMapping.parse(source_alias="A")}, "--source-alias"),
        ({"mapping": TopicMapping.parse(topic_map=("A.t=t",))}, "--topic-map"),
        ({"expect_partition": ExpectPartition.MURMUR2}, "--expect-partition"),
    ],
)
def test_the_source_needs_no_mapping(
    changed: dict[str, ExpectPartition | TopicMapping], words: str
) -> None:
    """Topics have their own names there, and messages their own partitions."""
    assert _options().expect_partition is ExpectPartition.SOURCE
    with pytest.raises(UsageError, match=words):
        _options(**changed)


async def test_its_log_lies_apart_and_says_that_it_is_the_sources(tmp_path: Path) -> None:
    """The session's role and directory, cluster and partition counts are the source's."""
    topics = topics_seen({"t": 3})
    log = await ConsumerLog.open(
        _options(log_dir=str(tmp_path)),
        session="x",
        cluster="id",
        topics=topics,
    )
    async with log:
        pass
    about = json.loads((Path(log.where) / "session.json").read_text())
    assert "role=source" in log.where
    assert about["clusters"] == {"source": "id"}
    assert about["topics"]["t"]["source_partitions"] == 3
    assert about["topics"]["t"]["destination_partitions"] is None
    (found,) = find_sessions(tmp_path, "r1")
    assert found.session.role is Role.SOURCE


async def test_its_log_tells_where_it_cannot_see_whether_the_topic_is_compacted(
    tmp_path: Path,
) -> None:
    """Messages that compaction may have removed counted as lost by the source's brokers."""
    topics = topics_seen({"t": 3})
    topics.policy_hidden.add("t")
    options = _options(log_dir=str(tmp_path))
    async with await ConsumerLog.open(options, session="x", cluster="id", topics=topics):
        pass
    (found,) = find_sessions(tmp_path, "r1")
    assert found.session.topics["t"].policy_hidden


async def test_a_state_of_the_source_copied_along_is_not_the_consumers() -> None:
    """In one topic, for one partition, claims and states of the two are not mixed up."""
    topic = MemoryTopic()
    source = SCOPE._replace(role=Role.SOURCE.value)
    async with following(topic, "one", source) as theirs, following(topic, "two") as ours:
        generation, _ = await theirs.claim(P0)
        await theirs.save(P0, generation, {"next": 500})
        assert await ours.claim(P0) == (1, None)
        assert ours.serials() == {}
        assert not theirs.fenced(P0, generation)


@pytest.mark.parametrize(("alias", "copied"), [("A", "A.mirrortest.state"), ("", "heartbeats")])
def test_a_pattern_leaves_out_copies_of_our_own_topics(alias: str, copied: str) -> None:
    """The state topic of a source observer is mirrored, too, and must not be judged."""
    options = _options(
        role=Role.CONSUMER,
        mapping=TopicMapping.parse(source_alias=alias),
        topics=(),
        topic_pattern=".*",
    )
    pattern = JudgedTopics(options, cast("Admin", None), Ledger()).pattern
    assert not re.fullmatch(pattern, copied)
    assert not re.fullmatch(pattern, "mirrortest.state")
    assert re.fullmatch(pattern, "A.orders")


def test_its_words_are_not_those_of_a_verdict_on_the_mirror() -> None:
    """A message that is lost there was lost by the source's brokers; programs read the role."""
    counts = {"acked": 10, "delivered": 9, "lost": 1}
    status = ConsumeStatus(run="r1", name="s", role=Role.SOURCE, counts=counts)
    assert "messages: 9 in the source of 10 acknowledged" in str(status)
    assert "findings: lost by the source 1" in str(status)
    report = ConsumeReport(
        "r1", "s", counts, 0, {}, {}, (), (), (), ReadFigures(), "somewhere", role=Role.SOURCE
    )
    assert report.to_json()["role"] == "source"
    out = io.StringIO()
    Console(file=out, width=120).print(report.result().view())
    assert "run r1, source observer s: passed" in out.getvalue()
    assert "acknowledged these messages and do not have them" in out.getvalue()
    assert "consumer" not in out.getvalue()
