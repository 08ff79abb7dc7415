"""What a consumer writes into its log: session.json, and rows about partitions."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.errors import SequenceLogError
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.session_directory import SessionDirectory
from mirrortest.seqlog.writer import SequenceLog
from mirrortest.verify.placement import ExpectPartition
from mirrortest.verify.row import MINUTE_NS, SeenRow
from mirrortest.wire.stream import StreamId
from tests.topics_seen import topics_seen
from tests.unit.consuming import consume_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.seqlog.rows import Row

STREAM = StreamId("t", "r1", "p", 1, 0)


@pytest.fixture
def before_rows(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What session.json contains each time that rows begin to become durable."""
    contents: list[bytes] = []
    sync = SequenceLog.sync

    async def watched(log: SequenceLog) -> None:
        contents.append((Path(log.where) / "session.json").read_bytes())
        await sync(log)

    monkeypatch.setattr(SequenceLog, "sync", watched)
    return contents


async def test_topics_and_partitions_that_come_later_are_in_the_session(tmp_path: Path) -> None:
    """The reconciliation judges by the counts that consumers saw, the last ones included."""
    options = consume_options(
        mapping=TopicMapping.parse(source_alias="A"),
        topic_pattern="A[.].*",
        log_dir=str(tmp_path),
    )
    topics = topics_seen({"A.t": 3})
    log = await ConsumerLog.open(options, session="s", cluster="x", topics=topics)

    def session_topics() -> dict[str, tuple[int, bool]]:
        found = json.loads((Path(log.where) / "session.json").read_text())["topics"]
        return {
            topic: (about["destination_partitions"], about["compacted"])
            for topic, about in found.items()
        }

    async with log:
        assert session_topics() == {"t": (3, False)}
        topics.counts = {"A.t": 5, "A.u": 2}
        await log.update_topics(topics)
        assert session_topics() == {"t": (5, False), "u": (2, False)}
        topics.counts, topics.compacted = {"A.u": 2}, {"A.u"}
        await log.update_topics(topics)
        assert session_topics() == {"t": (5, False), "u": (2, True)}
        topics.counts = {"A.t": 7}
        await log.update_topics(topics)
        found = json.loads((Path(log.where) / "session.json").read_text())["topics"]
        # A lane may have been where it belonged by any of these counts.
        earlier = {topic: about["earlier_counts"] for topic, about in found.items()}
        assert earlier == {"t": [3, 5], "u": []}
        topics.counts = {"A.t": 5}
        await log.update_topics(topics)
    assert session_topics() == {"t": (5, False), "u": (2, True)}


async def test_what_was_read_uncommitted_is_in_the_session_before_the_rows(
    tmp_path: Path, before_rows: list[bytes]
) -> None:
    """It is in doubt offline, too; a session of the previous version lacks the entry."""
    options = consume_options(
        mapping=TopicMapping.parse(source_alias="A"), topics=("A.t", "A.u"), log_dir=str(tmp_path)
    )
    topics = topics_seen({"A.t": 3, "A.u": 3})
    async with await ConsumerLog.open(options, session="s", cluster="x", topics=topics) as log:
        log.uncommitted("A.t")
        await log.sync()
        (raw,) = before_rows
        decoded = Session.decode(raw, "here").topics
        assert [name for name, about in decoded.items() if about.uncommitted] == ["t"]
    before = json.loads(raw)
    for topic in before["topics"].values():
        del topic["uncommitted"]
    old = Session.decode(json.dumps(before).encode(), "here")
    assert not any(topic.uncommitted for topic in old.topics.values())


@pytest.mark.parametrize("at", ["sync", "update_topics"])
async def test_what_the_session_lacks_after_a_failed_write_is_written_at_the_end(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are sealed then, and the session says what they rest on."""
    options = consume_options(
        mapping=TopicMapping.parse(source_alias="A"), topics=("A.t",), log_dir=tmp_path
    )
    log = await ConsumerLog.open(options, session="s", cluster="x", topics=topics_seen({"A.t": 3}))
    revise, errors = SessionDirectory.revise, [OSError(errno.ENOSPC, "No space left on device")]

    def failing_once(directory: SessionDirectory, change: Callable[[Session], Session]) -> None:
        if errors:
            raise errors.pop()
        revise(directory, change)

    monkeypatch.setattr(SessionDirectory, "revise", failing_once)
    async with log:
        log.claimed(STREAM, IntervalSet([(0, 1)]))
        if at == "sync":
            log.uncommitted("A.t")
        writing = log.sync() if at == "sync" else log.update_topics(topics_seen({"A.t": 4}))
        with pytest.raises(SequenceLogError, match="No space left"):
            await writing
    found = Session.decode((Path(log.where) / "session.json").read_bytes(), "here").topics["t"]
    assert (found.uncommitted, found.destination_partitions) == (
        (True, 3) if at == "sync" else (False, 4)
    )
    assert log.durable_rows == 1


async def test_which_topic_an_incarnation_is_of_is_in_the_session_before_its_rows(
    tmp_path: Path, before_rows: list[bytes]
) -> None:
    """Once it is proven; a session of the previous version lacks the entry."""
    options = consume_options(
        mapping=TopicMapping.parse(source_alias="A"), topics=("A.t",), log_dir=str(tmp_path)
    )
    topics = topics_seen({"A.t": 3})
    partitions = [
        AssignedPartition.fresh(
            TopicPartition("A.t", number), 1, source="t", run="r1", policy=ExpectPartition.ANY,
            counts=[3], topic_id="old", read_from=0,
        )
        for number in (2, 0)
    ]  # fmt: skip
    async with await ConsumerLog.open(options, session="s", cluster="x", topics=topics) as log:

        async def noted() -> list[tuple[int, str, int, tuple[int, ...]]]:
            for each in partitions:
                each.read_from = 0
                each.checker.next_offset += 1
                log.read(each)
            await log.sync()
            found = Session.decode(before_rows[-1], "here").topics["t"].incarnations
            return [(each.number, each.topic_id, each.cuts, each.partitions) for each in found]

        partitions[0].resumed = True
        assert await noted() == [(0, "old", 0, (0,))]
        partitions[0].resumed = False
        assert await noted() == [(0, "old", 0, (0, 2))]
        partitions[0].start_over(1, "old", 0)
        partitions[1].start_over(1, "new")
        first = (0, "old", 0, (0, 2))
        assert await noted() == [first, (1, "new", 0, (0,)), (1, "old", 1, (2,))]
    before = json.loads(before_rows[-1])
    del before["topics"]["t"]["incarnations"]
    assert not Session.decode(json.dumps(before).encode(), "here").topics["t"].incarnations


def test_an_end_says_how_far_was_judged_be_it_by_others() -> None:
    """An owner with nothing left to read still logs how far earlier owners judged."""
    written: list[Row] = []
    log = SimpleNamespace(append=written.extend)
    book = ConsumerLog(
        cast("SequenceLog", log),
        cast("ConsumeOptions", None),
        topics_seen(),
    )
    assigned = AssignedPartition.fresh(
        TopicPartition("A.t", 3), 2, source="t", run="r1", policy=ExpectPartition.ANY, counts=[4]
    )
    assigned.checker.advance(7)
    assigned.read_from = 7
    book.read(assigned)
    for end in (7, 9):
        book.tail(assigned.reached, end)
    assert [(row.kind, row.partition, row.offset_lo, row.offset_hi) for row in written] == [
        ("tail", 3, 7, 7),
        ("tail", 3, 7, 9),
    ]


def test_a_topic_made_again_is_told_apart_from_the_one_before() -> None:
    """The old topic's unread range has no end; findings are as of the new topic's offsets.

    An end below what was judged does not belong to the judged topic.
    """
    written: list[Row] = []
    log = SimpleNamespace(append=written.extend)
    topics = topics_seen()
    book = ConsumerLog(cast("SequenceLog", log), cast("ConsumeOptions", None), topics)
    assigned = AssignedPartition.fresh(
        TopicPartition("A.t", 0), 1, source="t", run="r1", policy=ExpectPartition.ANY, counts=[1]
    )
    assigned.read_from = 0
    assigned.checker.apply(SeenRow(STREAM, 0, 9, 0, 9, 0, 1, 1, 1, 1, 2, 2))
    book.tail(assigned.reached, 4)
    book.left(assigned, 5 * MINUTE_NS)
    assigned.start_over(5 * MINUTE_NS)
    assigned.read_from = 0
    assigned.checker.apply(SeenRow(STREAM, 8, 12, 0, 4, 0, 1, 1, 1, 1, 2, 2))
    book.read(assigned)
    book.found(assigned)
    book.tail(assigned.reached, 4)
    assert [(row.kind, row.topic_identity, row.offset_lo, row.offset_hi) for row in written] == [
        ("read", "0", 0, 9),
        ("unread", "0", 9, ENDLESS),
        ("read", "1", 0, 4),
        ("found", "1", None, 4),
        ("tail", "1", 4, 4),
    ]
    # A message sent five minutes later cannot have been there; no offset lacked a record.
    assert written[1].intended_first == 10 * MINUTE_NS
    assert [row.findings for row in written if row.kind == "read"] == [0, 0]
    assigned.checker.expect_markers([(5, 6)])
    assigned.checker.advance(9)
    book.read(assigned)
    assert [
        (row.kind, row.topic_identity, row.offset_lo, row.offset_hi) for row in written[-3:]
    ] == [
        ("hole", "1", 4, 5),
        ("hole", "1", 6, 9),
        ("read", "1", 4, 9),
    ]
    assert written[-1].findings == Finding.COMPACTED
    assigned.checker.apply(SeenRow(STREAM, 12, 13, 9, 10, 0, 1, 1, 1, 1, 2, 2))
    book.read(assigned)
    assert (written[-2].kind, written[-1].findings) == ("read", 0)
    assert (written[3].seq_lo, written[3].seq_hi, written[3].findings) == (8, 9, Finding.DUPLICATED)


async def test_a_log_in_an_object_store_keeps_its_journals_in_the_spool(tmp_path: Path) -> None:
    """A consumer's log may be at any URI, like a producer's."""
    options = consume_options(
        log_dir="mock:///bucket/logs",
        log_spool=str(tmp_path / "spool"),
    )
    topics = topics_seen({"t": 1})
    async with await ConsumerLog.open(options, session="s", cluster="x", topics=topics) as log:
        assert log.where.startswith("mock:///bucket/logs/run=r1/")
        assert [file.name for file in (tmp_path / "spool").rglob("session.json")]
