"""What is measured while faults are injected: discovery of new topics, and catching up."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrortest.errors import LabError, UnreachableError
from mirrortest.lab.link.link import Link
from mirrortest.lab.mirrors import MirrorMaker2, MirrorSettings
from mirrortest.lab.part import NotAwaitedError
from mirrortest.lab.runtime import PartState
from mirrortest.seqlog.events import EventLog
from tests.lab.harness import until
from tests.unit.fake_parts import fault, injection, noted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.scenario.injection import Injection
    from tests.unit.fake_parts import FakePart


class LinkWithoutRelay(Link):
    """A link that applies nothing."""

    alive = True

    def _apply(self, _: object) -> None:
        """Ignore the condition."""


@pytest.fixture
def events(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path, "r1")


def creation(
    events: EventLog, mirror: SimpleNamespace, create: Callable[..., None] = lambda *_: None
) -> Injection:
    """Injects the creation of a topic, by `create`, that this mirror is to discover."""
    lab = SimpleNamespace(source=SimpleNamespace(create_topic=create), mirror=mirror)
    late = fault(do="create-topic", topic="late", partitions=2, at="0s")
    return injection(events, [late], lab=lab)


def short_cut(events: EventLog, folder: Path, **lab: Any) -> Injection:
    """Injects a fault of a link that ends at once, so that the mirror of this lab catches up."""
    link = LinkWithoutRelay("link-source", folder, {})
    cut = fault(do="cut", part="link-source", at="0s", **{"for": "1ms"})
    return injection(events, [cut], cast("FakePart", link), lab=SimpleNamespace(**lab))


def test_a_new_topics_discovery_is_measured(events: EventLog) -> None:
    """From before it is created until the mirror's copy is complete."""
    copied = threading.Event()
    mirror = SimpleNamespace(state=PartState.RUNNING, wait_topic=lambda _: copied.wait())
    with creation(events, mirror, lambda *_: copied.set()) as running:
        until(running._ended[0].is_set)
    assert running.figures["discovery_seconds.late"] >= 0
    assert noted(events) == ["late: create-topic", "late: mirrored"]


def test_a_frozen_mirror_is_not_waited_for(events: EventLog) -> None:
    """It creates no topic until it continues: the point failed after 180 s."""

    def wait(topic: str) -> None:
        raise LabError(f"mirror did not create A.{topic} within 180 s")

    mirror = SimpleNamespace(state=PartState.STOPPED, alive=True, wait_topic=wait)
    with creation(events, mirror) as running:
        until(running._ended[0].is_set)
    assert (running.errors, running.figures) == ([], {})


@pytest.mark.parametrize(
    "error",
    [
        NotAwaitedError("mirror did not create A.late before it was ended"),
        UnreachableError("no answer"),
    ],
)
def test_a_discovery_that_another_fault_ends_has_no_figure(
    error: Exception, events: EventLog
) -> None:
    """A note says so, and the point goes on."""

    def wait(_: str) -> None:
        raise error

    mirror = SimpleNamespace(state=PartState.RUNNING, wait_topic=wait)
    with creation(events, mirror) as running:
        until(running._ended[0].is_set)
    assert (running.errors, running.figures) == ([], {})
    assert running.notes == [f"no discovery_seconds.late: {error}"]


def test_a_mirror_that_writes_in_transactions_has_no_catch_up(
    events: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit markers counted as messages: the figure was too low while some were missing."""
    asked: list[object] = []
    monkeypatch.setattr("mirrortest.scenario.injection.catch_up_seconds", asked.append)
    mirror = object.__new__(MirrorMaker2)
    mirror.settings = MirrorSettings(exactly_once=True)
    with short_cut(events, tmp_path, mirror=mirror) as running:
        until(running._ended[0].is_set)
    assert (asked, running.errors, running.figures) == ([], [], {})


def test_a_measurement_that_fails_is_kept_for_the_point(
    events: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement has its own thread: any error there is an error of the point."""

    def fail(*_: object) -> None:
        raise KeyError("orders")

    monkeypatch.setattr("mirrortest.scenario.injection.catch_up_seconds", fail)
    with short_cut(events, tmp_path, mirror=None) as running:
        until(lambda: running.errors)
    (error,) = running.errors
    assert str(error) == "measuring how link-source catches up failed: 'orders'"


def test_a_source_that_is_down_when_a_measurement_begins_fails_no_point(
    events: EventLog, tmp_path: Path
) -> None:
    """Another fault may have ended it: there is no figure, and a note."""

    def ends(_: str) -> None:
        raise UnreachableError("no answer")

    source = SimpleNamespace(end_offsets=ends)
    with short_cut(events, tmp_path, mirror=None, source=source) as running:
        until(lambda: running.notes)
    assert (running.errors, running.figures) == ([], {})
    assert running.notes == ["no catch_up_seconds.link-source: no answer"]
