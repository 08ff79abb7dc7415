"""Plays a history online and by the reference at once, and reports the first difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrortest.verify.fragment import Fragment
from mirrortest.verify.partition import PartitionChecker

from .judge import HORIZON
from .online import Online, ids
from .reference import Reference
from .script import Round, Save

if TYPE_CHECKING:
    from .judge import Fragment as Expected
    from .script import History


class DiffersError(AssertionError):
    """Online and reference give different answers."""


def play(history: History) -> tuple[Reference, Online]:
    """Play a history to its end.

    Raises:
        DiffersError: the answers differ; its text has the history and the event.
    """
    reference, online = Reference(history), Online(history)
    compared: set[tuple[int, int]] = set()
    kept: list[PartitionChecker] = []  # so that no id is reused
    for number, event in enumerate(history.events):
        if isinstance(event, Round):
            _round(history, number, event, reference, online)
            continue
        reference.apply(event)
        online.apply(event)
        if isinstance(event, Save):
            checker = online.checker(event.consumer, event.partition)
            place = online.place(event.consumer, event.partition)
            if (id(checker), place) not in compared:
                compared.add((id(checker), place))
                kept.append(checker)
                _saved(history, number, event, reference, online)
    return reference, online


def _saved(
    history: History, number: int, event: Save, reference: Reference, online: Online
) -> None:
    """At a state's next offset the checker equals the model of the offsets below it."""
    expected = reference.content(event.consumer, event.partition)
    checker = online.checker(event.consumer, event.partition)
    place = online.place(event.consumer, event.partition)
    same(history, number, "next offset", place, expected.next_offset)
    counted = {finding: count for finding, count in checker.streamless.items() if count}
    same(history, number, "streamless", counted, expected.streamless)
    assert checker.fragments.keys() <= expected.streams.keys()
    for stream, model in expected.streams.items():
        same(history, number, str(stream), _actual(checker.fragment(stream)), _model(model))
    copied = PartitionChecker.from_state(checker.to_state())
    same(history, number, "state", copied.to_state(), checker.to_state())
    same(history, number, "size", copied._size, checker._size)


def _actual(content: Fragment | None) -> dict[str, Any]:
    if content is None:
        content = Fragment()
    return {
        "seen": ids(content.seen),
        "duplicated": ids(content.duplicated),
        "reordered": ids(content.reordered),
        "copies": content.copies,
        "findings": {finding: ids(numbers) for finding, numbers in content.by_finding.items()},
        "doubtful": set(range(min(content.doubtful_below, HORIZON))) - ids(content.seen),
    }


def _model(content: Expected) -> dict[str, Any]:
    return {
        "seen": content.seen,
        "duplicated": content.duplicated,
        "reordered": content.reordered,
        "copies": content.copies,
        "findings": dict(content.by_finding),
        "doubtful": content.doubtful - content.seen,
    }


def _round(
    history: History, number: int, event: Round, reference: Reference, online: Online
) -> None:
    news, complete = reference.judge(event)
    expected_claims: dict[object, set[int]] = {}
    for stream, seq in news:
        expected_claims.setdefault(stream, set()).add(seq)
    claimed, judged = online.judge(event)
    same(history, number, "claimed", claimed, expected_claims)
    same(history, number, "complete", judged, complete)
    if event.final:
        expected = reference.verdict(event, closed=complete)
        same(history, number, "verdict", online.verdict(), expected)


def same(history: History, number: int, what: str, found: object, expected: object) -> None:
    """Raise `DiffersError` unless they are the same."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [k for k in {**found, **expected} if found.get(k) != expected.get(k)]
        what += f" {keys[0]}"
        found, expected = found.get(keys[0]), expected.get(keys[0])
    raise DiffersError(
        f"{history}\nevent {number}, {history.events[number] if number >= 0 else 'end'}\n"
        f"{what}: {found}\nexpected: {expected}"
    )
