"""Doubles of parts that note what is done to them, and the injection of faults into them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mirrortest.scenario.deadline import Deadline
from mirrortest.scenario.fault import Fault
from mirrortest.scenario.injection import Injection
from mirrortest.seqlog.events import Events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.lab.part import Part
    from mirrortest.lab.testbed import Lab
    from mirrortest.seqlog.events import EventLog


def noted(events: EventLog) -> list[str]:
    """The events that were logged so far, as text."""
    return [str(event) for event in Events.read(events.place).events]


class FakePart:
    """Only records each action and the events that were logged before it."""

    def __init__(self, name: str, events: EventLog) -> None:
        self.name = name
        self.alive = True
        self.done: list[tuple[str, list[str]]] = []
        self._events = events

    def _do(self, what: str) -> None:
        self.done.append((what, noted(self._events)))

    def kill(self) -> None:
        self._do("kill")
        self.alive = False

    def start(self) -> None:
        self._do("start")
        self.alive = True

    def wait_ready(self) -> None:
        self._do("wait_ready")


def fault(**keys: Any) -> Fault:
    return Fault.model_validate({**keys})


def injection(
    events: EventLog,
    faults: list[Fault],
    *parts: FakePart,
    lab: Any = None,
    planned: Sequence[Fault] = (),
) -> Injection:
    return Injection(
        faults,
        planned,
        {part.name: cast("Part", part) for part in parts},
        cast("Lab | None", lab),
        ("orders",),
        events,
        {},
        Path(),
        Deadline(None),
        lambda *_: None,
    )
