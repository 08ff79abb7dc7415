"""Logs that number a partition's incarnations differently get one numbering, by topic id."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.reconcile.incarnations import applied, renumbered, unmatched, unordered
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Incarnation, Session, Topic

_PLACE = ("t", 3)


class _Seen(NamedTuple):
    """The incarnations that a session met: its own numbers, and their true places."""

    numbers: list[int]
    true: list[int]


def _session(seen: _Seen, skew: int = 0) -> Session:
    met = tuple(
        Incarnation(number=own, topic_id=f"id{at}", since_ns=at + skew, partitions=(3,))
        for own, at in zip(seen.numbers, seen.true, strict=True)
    )
    return Session(
        run="r", role=Role.CONSUMER, name="c", session="s", started_ns=1,
        topics={"t": Topic(incarnations=met)},
    )  # fmt: skip


def _numbers(sessions: list[Session], at: int) -> dict[int, int]:
    """The common number for each of a session's own numbers."""
    changed = renumbered(sessions).get(at, {}).get(_PLACE, {})
    own = [each.number for each in sessions[at].topics["t"].incarnations]
    return {number: changed.get(number, number) for number in own}


@st.composite
def _sessions(draw: st.DrawFn) -> list[_Seen]:
    """Each session counts from its own first number, and may have missed any incarnation."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        true = sorted(draw(st.sets(st.integers(0, 6), min_size=1)))
        first = draw(st.integers(0, true[0]))
        found.append(_Seen([first + place for place in range(len(true))], true))
    return found


@given(_sessions())
def test_one_topic_has_one_number_and_a_later_one_a_greater(seen: list[_Seen]) -> None:
    """In all sessions; no number is below a session's own, which counts incarnations in no log."""
    sessions = [_session(each) for each in seen]
    by_topic: dict[int, int] = {}
    for at, each in enumerate(seen):
        numbers = _numbers(sessions, at)
        for own, true in zip(each.numbers, each.true, strict=True):
            assert numbers[own] >= own
            assert by_topic.setdefault(true, numbers[own]) == numbers[own]
    in_order = [by_topic[true] for true in sorted(by_topic)]
    assert in_order == sorted(set(in_order))


@given(_sessions(), st.lists(st.integers(-9, 9), min_size=4, max_size=4))
def test_a_session_decides_the_order_of_what_it_met_whatever_clocks_say(
    seen: list[_Seen], skews: list[int]
) -> None:
    """Clocks order only topics that no sessions order, directly or through other topics."""
    sessions = [_session(each, skew) for each, skew in zip(seen, skews, strict=False)]
    for at in range(len(seen)):
        numbers = list(_numbers(sessions, at).values())
        assert numbers == sorted(set(numbers))


@given(_sessions())
def test_numbers_stay_where_all_count_alike(seen: list[_Seen]) -> None:
    """Also if some incarnation is in no log."""
    assert not renumbered([_session(each._replace(numbers=each.true)) for each in seen])


def test_each_cut_of_a_topic_is_an_incarnation() -> None:
    """It comes before the topic that follows, whichever session has met it."""

    def met(*each: tuple[int, str, int, int]) -> Session:
        found = tuple(
            Incarnation(number=number, topic_id=of, cuts=cuts, since_ns=at, partitions=(3,))
            for number, of, cuts, at in each
        )
        base = _session(_Seen([], []))
        return base.model_copy(update={"topics": {"t": Topic(incarnations=found)}})

    sessions = [met((0, "x", 0, 1)), met((1, "x", 1, 3), (2, "y", 0, 5)), met((0, "y", 0, 4))]
    assert [_numbers(sessions, at) for at in range(3)] == [{0: 0}, {1: 1, 2: 2}, {0: 2}]


def test_rows_carry_the_numbers_that_their_own_stand_for() -> None:
    """Rows of other partitions and topics keep theirs, and null stays null."""
    rows = pa.record_batch(
        {
            "topic": ["t", "t", "t", "u", "t"],
            "partition": pa.array([3, 3, 4, 3, 3], pa.int32()),
            "topic_identity": ["0", "1", "0", "0", None],
        }
    )
    found = applied(rows, {_PLACE: {0: 1, 1: 3}})
    assert found["topic_identity"].to_pylist() == ["1", "3", "0", "0", None]
    assert applied(rows, {}) is rows


def _of(group: str, *met: tuple[int, str, int]) -> Session:
    """A session of a group that met incarnations: (number, topic id, cuts)."""
    incarnations = tuple(
        Incarnation(number=number, topic_id=topic_id, cuts=cuts, since_ns=1, partitions=(3,))
        for number, topic_id, cuts in met
    )
    return Session(
        run="r", role=Role.CONSUMER, name="c", session="s", started_ns=1,
        topics={"t": Topic(incarnations=incarnations)},
        settings={"consumer group": group} if group else {},
    )  # fmt: skip


def test_clocks_order_what_no_session_has_met_both_of() -> None:
    """Also in one group, whose state may be lost; but a truncated log comes after the original."""
    a, b = (0, "a", 0), (1, "b", 0)
    assert unordered([_of("g", a, b), _of("h", (0, "b", 0))]) == set()
    assert unordered([_of("g", a), _of("g", b)]) == {_PLACE}
    assert unordered([_of("g", a, (1, "a", 1)), _of("h", (0, "a", 1))]) == set()
    assert unordered([_of("g", a), _of("h", (0, "b", 0))]) == {_PLACE}
    assert unordered([_of("g", a), _of("g", (0, "b", 0))]) == {_PLACE}


def test_of_groups_that_each_know_of_another_cut_one_stays() -> None:
    """Otherwise none is left, and a run is inconclusive that one group's logs decide."""

    def met(group: str, topic: str, partition: int) -> Session:
        found = {
            name: tuple(
                Incarnation(number=cuts, topic_id=name, cuts=cuts, since_ns=1, partitions=(at,))
                for at in (3, 4)
                for cuts in range(1 + ((name, at) == (topic, partition)))
            )
            for name in ("t", "u")
        }
        topics = {name: Topic(incarnations=each) for name, each in found.items()}
        return _of(group).model_copy(update={"topics": topics})

    newest = {(at, topic): 1 for at in (0, 1) for topic in ("t", "u")}
    assert unmatched([met("g", "t", 3), met("h", "t", 4)], newest, {}) == {0}
    assert unmatched([met("g", "t", 3), met("h", "u", 4)], newest, {}) == {1}


def test_groups_that_cannot_be_matched_leave_the_one_that_knows_of_most() -> None:
    """If truncations differ, or if a log does not name its topic ids and there were several."""

    def apart(*of: tuple[Session, int]) -> set[int]:
        sessions = [session for session, _ in of]
        newest = {(at, "t"): number for at, (_, number) in enumerate(of)}
        return unmatched(sessions, newest, {at: {(3, number)} for at, number in newest.items()})

    cut, behind = _of("g", (0, "a", 0), (1, "a", 1)), _of("h", (0, "a", 0))
    assert apart((behind, 0), (cut, 1)) == {0}
    assert apart((_of("g", (0, "a", 0)), 0), (cut, 1)) == set()
    assert apart((_of("h", (0, "a", 0), (1, "a", 1)), 1), (cut, 1)) == set()
    unnamed = _of("")
    assert apart((unnamed, 1), (behind, 0)) == {1}
    assert apart((unnamed, 0), (behind, 0)) == set()
    assert apart((unnamed, 1), (_of("", (0, "a", 0), (1, "b", 0)), 1)) == set()
    assert apart((unnamed, 0), (_of("h", (0, "a", 0), (1, "b", 0)), 1)) == {0}
    assert apart((_of("h", (0, "a", 0), (1, "b", 0)), 1), (_of("g", (0, "b", 0)), 1)) == set()


def test_a_partition_whose_topic_a_killed_consumer_did_not_name_yet_is_not_mixed() -> None:
    """Its session.json names the topic of another partition, and of another number."""
    first = _of("g", (0, "a", 0), (1, "b", 0))
    second = _of("h", (0, "b", 0))
    newest = {(0, "t"): 1, (1, "t"): 1}
    read = {(0, "t"): {(3, 0), (3, 1)}}
    for there, left_out in (({(3, 1)}, set()), ({(3, 1), (4, 0)}, {1}), ({(3, 1), (3, 2)}, {1})):
        assert unmatched([first, second], newest, {**read, (1, "t"): there}) == left_out


def test_a_group_whose_numbers_go_back_without_topic_ids_is_not_mixed() -> None:
    """Its state was lost: what follows counts from another topic on. Ids match such numbers.

    A consumer that another one was running beside may have read a partition before it was replaced.
    """
    none, named = _of("g"), _of("g", (0, "b", 0))

    def apart(*of: tuple[Session, int, int, int | None]) -> set[int]:
        sessions = [
            each.model_copy(update={"started_ns": started, "ended_ns": ended})
            for each, _, started, ended in of
        ]
        newest = {(at, "t"): number for at, (_, number, *_) in enumerate(of)}
        return unmatched(sessions, newest, {at: {(3, number)} for at, number in newest.items()})

    assert apart((none, 1, 1, None), (none, 0, 2, None)) == {1}
    assert apart((none, 1, 1, 2), (none, 0, 2, 3), (none, 0, 3, 4)) == {1, 2}
    assert apart((none, 1, 1, None), (named, 0, 2, None)) == {1}
    assert apart((none, 0, 1, None), (none, 1, 2, None)) == set()
    assert apart((none, 1, 1, 9), (none, 0, 2, 3)) == set()
    assert apart((named, 1, 1, 2), (_of("g", (0, "a", 0)), 0, 2, None)) == set()
