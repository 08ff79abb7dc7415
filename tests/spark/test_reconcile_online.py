"""If the online judge could not decide, the reconciliation does not disagree with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.consume.assigned_partition import AssignedPartition
from mirrortest.consume.consumer_log import ConsumerLog
from mirrortest.model.findings import Finding
from mirrortest.model.intervals import IntervalSet
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.seqlog import rows
from mirrortest.seqlog.rows import Row
from mirrortest.seqlog.schema import ENDLESS
from mirrortest.verify.fragment import Fragment
from mirrortest.verify.judge import StreamVerdict
from mirrortest.verify.placement import ExpectPartition
from tests.spark.scenes import Result, scene
from tests.spark.spark_history import RUN, History, found, intended, seen, stream
from tests.topics_seen import topics_seen

if TYPE_CHECKING:
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.seqlog.writer import SequenceLog

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def log_rows(written: list[Row]) -> ConsumerLog:
    """A consumer's log that appends its rows to this list."""
    log = SimpleNamespace(append=written.extend)
    topics = topics_seen()
    return ConsumerLog(cast("SequenceLog", log), cast("ConsumeOptions", None), topics)


def ends(history: History, topic: str, *, in_flight: bool) -> None:
    """A consumer reads all and ends; to it what is missing is in flight, or unknown."""
    history.reads(8, topic=topic)
    of = stream(topic=topic)
    missing = StreamVerdict(of)
    if in_flight:
        missing.add(Finding.IN_FLIGHT, IntervalSet([(8, 10)]))
    log_rows(history.consumers[-1]).verdict(of, missing)


def early(topic: str) -> History:
    """A consumer ends before the deadline: two of ten are missing and not yet due by its clock."""
    history = History({topic: 1})
    of = stream(topic=topic)
    history.sends(of, 10)
    history.consumers[-1].append(seen(of, 0, 8, 0))
    ends(history, topic, in_flight=True)
    return history


@scene
def _early() -> History:
    return early("early")


@scene
def _blind() -> History:
    history = early("blind")
    history.consumers.append([])
    ends(history, "blind", in_flight=False)
    return history


def test_a_consumer_that_ends_before_the_deadline_is_not_contradicted(together: Result) -> None:
    """Messages that are not yet due by its clock may be lost by the logs: no disagreement.

    But the last consumer decides: if a later one ends without a verdict on them, it has overlooked
    them, which is a disagreement.
    """
    assert together.count("lost", "early") == together.count("lost", "blind") == 2
    assert together.disagreements("early") == []
    assert together.disagreements("blind") == [
        "blind: lost: 0 messages only online, 2 only offline"
    ]


@scene
def _given_up() -> History:
    kept, given_up = stream(topic="given"), stream(1, topic="given")
    history = History({"given": 1})
    for each in (kept, given_up):
        history.sends(each, 10)
    log = history.consumers[-1]
    log += [
        seen(kept, 0, 10, 0),
        seen(given_up, 0, 8, 10),
        seen(given_up, 3, 5, 18),
        seen(kept, 3, 4, 20),
    ]
    history.reads(21, topic="given")
    assigned = AssignedPartition.fresh(
        TopicPartition("given", 0),
        1,
        source="given",
        run=RUN,
        policy=ExpectPartition.SOURCE,
        counts=[1],
    )
    assigned.checker.next_offset = 21
    assigned.checker.fragments[given_up] = Fragment()
    assigned.checker.fragments[given_up].collapse()
    book = log_rows(log)
    book.found(assigned)
    book.verdict(
        given_up, StreamVerdict(given_up, found={Finding.INCONCLUSIVE: IntervalSet([(0, 10)])})
    )
    return history


def test_ids_that_were_given_up_for_memory_are_not_compared(together: Result) -> None:
    """A collapsed stream's findings are only offline; its neighbour's are still compared."""
    assert (together.count("lost", "given"), together.count("duplicated", "given")) == (2, 3)
    assert together.disagreements("given") == [
        "given-0: duplicated: 0 messages only online, 1 only offline"
    ]


@scene
def _made_again() -> History:
    """A copy is recreated after 9 offsets: some messages come again, others only now, late."""
    of = stream(topic="remade")
    history = History({"remade": 1})
    history.sends(of, 30)
    first, second = history.consumers[-1], list[Row]()
    history.consumers.append(second)
    first += [seen(of, 0, 8, 0), seen(of, 9, 10, 8), rows.read("remade", 0, 0, 9)]
    first += [rows.tail("remade", 0, 9)]
    second += [rows.unread("remade", 0, 9, ENDLESS, topic_identity="0")]
    second += [seen(of, 5, 20, 0, identity=1), seen(of, 25, 30, 15, identity=1)]
    second += [seen(of, 12, 13, 20, identity=1)]
    second += [rows.read("remade", 0, 0, 21, topic_identity="1")]
    second += [rows.tail("remade", 0, 21, topic_identity="1")]
    duplicates = (
        (5, 8, Finding.DUPLICATED),
        (9, 10, Finding.DUPLICATED),
        (12, 13, Finding.DUPLICATED),
    )
    for lo, hi, finding in (*duplicates, (8, 9, Finding.REORDERED)):
        second.append(found(of, lo, hi, finding, 21, identity=1))
    log_rows(second).verdict(of, StreamVerdict(of, found={Finding.LOST: IntervalSet([(20, 25)])}))
    return history


@scene
def _made_again_unnoticed() -> History:
    """The same, but the last consumer lost track of the old topic and of missing messages."""
    of = stream(topic="forgot")
    history = History({"forgot": 1})
    history.sends(of, 24)
    log = history.consumers[-1]
    log += [seen(of, 0, 10, 0), rows.read("forgot", 0, 0, 10)]
    log += [rows.unread("forgot", 0, 10, ENDLESS, topic_identity="0")]
    log += [seen(of, 5, 20, 0, identity=1), seen(of, 10, 11, 15, identity=1)]
    log += [rows.read("forgot", 0, 0, 16, topic_identity="1")]
    log += [rows.tail("forgot", 0, 16, topic_identity="1")]
    log.append(found(of, 10, 11, Finding.DUPLICATED, 16, identity=1))
    return history


def test_a_topic_made_again_is_compared_by_id_as_any_other(together: Result) -> None:
    """Its offsets occur twice; the findings continue from the old topic to the new one.

    A message that comes again is duplicated. One that comes only now, after later ones, is
    reordered. A missing one may have been in the old topic, unread: no log says when that topic was
    found deleted.
    """
    counts = {
        name: together.count(name, "remade")
        for name in ("seen", "duplicated", "reordered", "lost", "inconclusive")
    }
    assert counts == {"seen": 25, "duplicated": 5, "reordered": 1, "lost": 0, "inconclusive": 5}
    assert together.disagreements("remade") == []
    assert together.disagreements("forgot") == [
        "forgot-0: duplicated: 0 messages only online, 5 only offline",
    ]
    again = [why for why in together.summary.inconclusive if "recreated" in why]
    assert {"forgot-0", "remade-0"} <= {why.split(":")[0] for why in again}


@scene
def _half_read() -> History:
    """A killed consumer saw more than its `read` rows cover; the next finds the head deleted."""
    of = stream(topic="half")
    history = History({"half": 1})
    history.sends(of, 11)
    first, second = history.consumers[-1], list[Row]()
    history.consumers.append(second)
    first.append(seen(of, 0, 3, 8))
    second += [rows.unread("half", 0, 0, 9), rows.tail("half", 0, 41, judged_to=9)]
    return history


def test_what_a_log_shows_behind_what_no_log_covers_does_not_end_the_doubt(
    together: Result,
) -> None:
    """No log says when the range was found deleted: any missing message may have been in it.

    Other topics, read more than once, do not change that.
    """
    counts = {
        name: together.count(name, "half")
        for name in ("seen", "in_flight", "inconclusive", "lost", "reordered")
    }
    assert counts == {"seen": 3, "in_flight": 0, "inconclusive": 8, "lost": 0, "reordered": 0}


FOUND_DELETED = intended(599)
"""When offsets were found deleted, with clock tolerance: 600 and above were sent later."""


def made_again(topic: str, *, dated: bool, judged: bool = True) -> History:
    """A copy is recreated; some missing messages were sent before that was found, some later.

    `dated`: whether the log says when it was found. `judged`: whether the last consumer logs its
    verdict on what is missing.
    """
    of = stream(topic=topic)
    history = History({topic: 1})
    history.sends(of, 630)
    first, second = history.consumers[-1], list[Row]()
    history.consumers.append(second)
    first += [seen(of, 0, 590, 0), seen(of, 595, 599, 590)]
    first += [rows.read(topic, 0, 0, 594), rows.tail(topic, 0, 594)]
    latest_ns = FOUND_DELETED if dated else None
    second += [rows.unread(topic, 0, 594, ENDLESS, topic_identity="0", latest_ns=latest_ns)]
    second += [seen(of, 597, 599, 0, identity=1), seen(of, 602, 620, 2, identity=1)]
    second += [seen(of, 600, 601, 20, identity=1)]
    second += [rows.read(topic, 0, 0, 21, topic_identity="1")]
    second += [rows.tail(topic, 0, 21, topic_identity="1")]
    second.append(found(of, 597, 599, Finding.DUPLICATED, 21, identity=1))
    before, later = IntervalSet([(590, 595), (599, 600)]), IntervalSet([(601, 602), (620, 630)])
    verdict = StreamVerdict(of)
    if dated:
        second.append(found(of, 600, 601, Finding.REORDERED, 21, identity=1))
        verdict.found |= {Finding.LOST: later, Finding.INCONCLUSIVE: before}
    else:
        verdict.found[Finding.INCONCLUSIVE] = before | later
    if judged:
        log_rows(second).verdict(of, verdict)
    return history


@scene
def _made_again_at_a_known_time() -> History:
    return made_again("dated", dated=True)


@scene
def _made_again_at_an_unknown_time() -> History:
    return made_again("undated", dated=False)


@scene
def _made_again_and_overlooked() -> History:
    return made_again("overlooked", dated=True, judged=False)


def test_what_was_sent_after_a_topic_was_found_made_again_is_lost(together: Result) -> None:
    """It cannot have been in the old topic; if no log has the time, it may have been.

    This holds from the first later message that was seen in the new topic. That message, too, is
    reordered only if a log has the time.
    """
    counts = {
        topic: [together.count(name, topic) for name in ("lost", "inconclusive", "reordered")]
        for topic in ("dated", "overlooked", "undated")
    }
    assert counts == {"dated": [11, 6, 1], "overlooked": [11, 6, 1], "undated": [0, 17, 0]}
    assert together.disagreements("dated") == together.disagreements("undated") == []
    again = [why for why in together.summary.inconclusive if "recreated" in why]
    assert {f"{topic}-0" for topic in counts} <= {why.split(":")[0] for why in again}
    assert together.disagreements("overlooked") == [
        "overlooked: lost: 0 messages only online, 11 only offline"
    ]


def half_read(topic: str, *found_deleted: int | None) -> History:
    """A killed consumer's log shows messages after offsets that later ones found deleted.

    `found_deleted`: when each of them found that; None: its log does not say.
    """
    of = stream(topic=topic)
    history = History({topic: 1})
    history.sends(of, 611)
    history.consumers[-1].append(seen(of, 600, 603, 9))
    for latest_ns in found_deleted:
        log = [rows.unread(topic, 0, 0, 9, latest_ns=latest_ns)]
        history.consumers.append([*log, rows.tail(topic, 0, 41, judged_to=9)])
    return history


@scene
def _half_read_at_a_known_time() -> History:
    return half_read("behind", FOUND_DELETED)


@scene
def _half_read_at_an_unknown_time() -> History:
    return half_read("whenever", None)


@scene
def _half_read_twice() -> History:
    return half_read("either", FOUND_DELETED, None)


def test_what_was_sent_after_offsets_were_found_deleted_is_in_flight(together: Result) -> None:
    """The partition continues beyond what was read. One log with the time is enough proof."""
    counts = {
        topic: [together.count(name, topic) for name in ("in_flight", "inconclusive", "lost")]
        for topic in ("behind", "whenever", "either")
    }
    assert counts == {"behind": [8, 600, 0], "whenever": [0, 608, 0], "either": [8, 600, 0]}
