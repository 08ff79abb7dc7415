"""The demo's fault is noted, so that its report marks it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirrortest.demo import scenario
from mirrortest.seqlog.events import EventLog, Events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from mirrortest.lab.testbed import Lab


async def test_the_kill_and_the_recovery_are_noted_around_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event stands in the file before its deed is done, but for `ready`, which follows it."""
    monkeypatch.setattr(scenario, "DOWN_SECONDS", 0.0)
    events = EventLog(tmp_path, "r1")
    seen = []

    def doing(what: str) -> Callable[..., Any]:
        def do() -> None:
            seen.append((what, [event.what for event in Events.read(events.place).events]))

        return do

    mirror = SimpleNamespace(
        kill=doing("kill"), start=doing("start"), wait_ready=doing("wait_ready")
    )
    board = scenario.Board(lambda _board: None)
    await scenario._fault(
        cast("Lab", SimpleNamespace(mirror=mirror)), board, events, asyncio.Event(), 0.0
    )
    assert seen == [
        ("kill", ["kill"]),
        ("start", ["kill", "start"]),
        ("wait_ready", ["kill", "start"]),
    ]
    told = Events.read(events.place).events
    assert [str(event) for event in told] == ["mirror: kill", "mirror: start", "mirror: ready"]


async def test_a_demo_that_ends_before_its_fault_has_none(tmp_path: Path) -> None:
    """A run that is stopped early notes nothing."""
    stop = asyncio.Event()
    stop.set()
    events = EventLog(tmp_path, "r1")
    await scenario._fault(
        cast("Lab", SimpleNamespace()), scenario.Board(lambda _board: None), events, stop, 60.0
    )
    assert Events.read(events.place).events == []
