"""Faults are injected at their times, logged, and ended; what is not yet due is skipped."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.errors import LabError
from mirrortest.lab.part import Part
from mirrortest.seqlog.events import EventLog, Events
from tests.lab.harness import until
from tests.unit.fake_parts import FakePart, fault, injection, noted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.scenario.injection import Injection


@pytest.fixture
def events(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path, "r1")


def test_each_action_is_noted_before_it_is_done_and_ready_after_it(events: EventLog) -> None:
    """The report's marks must never be later than what they mark."""
    mirror = FakePart("mirror", events)
    kill = fault(do="kill", part="mirror", at="0s", **{"for": "1ms"})
    with injection(events, [kill], mirror):
        until(lambda: len(mirror.done) == 3)
    assert mirror.done == [
        ("kill", ["mirror: kill"]),
        ("start", ["mirror: kill", "mirror: start"]),
        ("wait_ready", ["mirror: kill", "mirror: start"]),
    ]
    assert noted(events)[-1] == "mirror: ready"


def test_what_is_not_due_when_the_point_ends_is_not_done(events: EventLog) -> None:
    """Neither a fault, nor the start that ends one."""
    early, late = FakePart("A1", events), FakePart("B1", events)
    faults = [
        fault(do="kill", part="A1", at="0s", **{"for": "1h"}),
        fault(do="kill", part="B1", at="1h"),
        fault(do="kill", part="B1", at="produced"),
        fault(do="kill", part="B1", after="0s"),
    ]
    with injection(events, faults, early, late) as running:
        until(lambda: early.done)
    assert [what for what, _ in early.done] == ["kill"]
    assert late.done == []
    assert running.undone == ["kill of B1 was not done: the clients had ended before it was due"]


def test_a_planned_fault_or_a_repetition_may_be_left_out(events: EventLog) -> None:
    """Their times are drawn, or many: that one of them was not due is a note."""
    part, late = FakePart("A1", events), FakePart("B1", events)
    repeated = fault(do="kill", part="A1", at="0s", every="10ms", until="35ms")
    planned = [
        fault(do="start", part="B1", at="0s"),
        fault(do="kill", part="B1", at="1h"),
    ]
    with injection(events, [repeated], part, late, planned=planned) as running:
        until(lambda: all(ended.is_set() for ended in running._ended[:2]))
    assert running.undone == []
    assert sorted(running.notes) == [
        "kill of A1 was not done: it did not run",
        "kill of B1 was not done: the clients had ended before it was due",
    ]


def test_faults_follow_the_producers_and_each_other(events: EventLog) -> None:
    """`produced` waits for the producers' end, `after` for the end of the fault before."""
    first, second = FakePart("A1", events), FakePart("B1", events)
    faults = [fault(do="kill", part="A1", at="produced"), fault(do="kill", part="B1", after="0s")]
    with injection(events, faults, first, second) as running:
        assert first.done == []
        running.produced.set()
        until(lambda: second.done)
    assert second.done == [("kill", ["A1: kill", "B1: kill"])]


class _Clock(threading.Event):
    """The end of a point on a clock of its own, which each wait sets forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now = round(self.now + (timeout or 0.0), 3)
        return self.is_set()


class _SlowPart(FakePart):
    """Takes some seconds until it is ready, and records when each action begins."""

    def __init__(self, name: str, events: EventLog, clock: _Clock, seconds: float) -> None:
        super().__init__(name, events)
        self.times: list[tuple[float, str]] = []
        self._clock = clock
        self._seconds = seconds

    def _do(self, what: str) -> None:
        self.times.append((self._clock.now, what))
        if what == "wait_ready":
            self._clock.now += self._seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr("mirrortest.scenario.injection.time", clock)
    return clock


def _injected(clock: _Clock, running: Injection) -> Injection:
    """Inject faults up to their end."""
    running._ending = clock
    with running:
        until(lambda: not any(thread.is_alive() for thread in running._threads))
    return running


def _begun(part: _SlowPart) -> list[float]:
    return [moment for moment, what in part.times if what in {"kill", "stop"}]


@pytest.mark.parametrize(
    ("ready", "end", "begun", "notes"),
    [
        (0.0, "8s", [1, 3, 5, 7], []),
        (0.5, "7s", [1, 3, 5], []),
        (2.0, "8s", [1, 5], ["kill of A1 was not done: the turn before took longer than every"]),
        (4.0, "3s", [1], []),
    ],
)
def test_a_fault_is_repeated_until_its_end(
    ready: float, end: str, begun: list[float], notes: list[str], events: EventLog, clock: _Clock
) -> None:
    """At `at`, then at intervals of `every`, before `until`; a turn that was missed is left out.

    Missed turns were made up for after `until`, one after the other.
    """
    part = _SlowPart("A1", events, clock, ready)
    kill = fault(do="kill", part="A1", at="1s", every="2s", until=end, **{"for": "1s"})
    running = _injected(clock, injection(events, [kill], part))
    assert (_begun(part), running.notes) == (begun, notes)


def test_a_planned_fault_waits_until_the_one_before_is_over(
    events: EventLog, clock: _Clock
) -> None:
    """Else two brokers of a cluster were down at once; none begins after the plan's end."""
    first, second = (_SlowPart(name, events, clock, 5.0) for name in ("A1", "A2"))
    keys = {"for": "1s"}
    planned = [
        fault(do="kill", part="A1", at="2s", **keys),
        fault(do="kill", part="A2", at="4s", **keys),
        fault(do="kill", part="A1", at="13s", **keys).model_copy(update={"until": 13.5}),
    ]
    running = _injected(clock, injection(events, [], first, second, planned=planned))
    assert (_begun(first), _begun(second)) == ([2], [8])
    assert running.notes == ["kill of A1 was not done: its until had passed"]
    assert running.undone == []


def test_a_plan_of_which_nothing_was_done_is_not_as_expected(events: EventLog) -> None:
    """The point passed with notes alone, as if it had been tested under faults."""
    part = FakePart("A1", events)
    planned = [fault(do="kill", part="A1", at=at) for at in ("1h", "2h")]
    with injection(events, [], part, planned=planned) as running:
        pass
    assert running.undone == ["no fault of the plan was done"]
    assert running.notes == ["kill of A1 was not done: the clients had ended before it was due"]


def test_a_repeated_fault_that_is_later_than_all_producers_is_not_done(
    events: EventLog, clock: _Clock
) -> None:
    """Without `until` their end is its end; the reason named the clients, which still ran."""
    part = _SlowPart("A1", events, clock, 0.0)
    running = injection(events, [fault(do="kill", part="A1", at="2s", every="2s")], part)
    running.produced.set()
    _injected(clock, running)
    assert _begun(part) == []
    assert running.undone == ["kill of A1 was not done: the producers had ended before it was due"]


class _Mirror(Part):
    """A program that never becomes ready."""

    def wait_ready(self) -> None:
        self.wait_until(lambda: False, 60, lambda: "did not begin to mirror")


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[_Mirror]:
    part = _Mirror("mirror", ("sleep", "600"), tmp_path / "mirror.log")
    part.spawn()
    yield part
    part.kill()


def test_a_part_that_another_fault_ends_is_not_waited_for(
    events: EventLog, mirror: _Mirror
) -> None:
    """It was waited for until the timeout, which then failed the point."""
    faults = [
        fault(do="restart", part="mirror", at="0s"),
        fault(do="kill", part="mirror", at="2s"),
    ]
    with injection(events, faults, cast("FakePart", mirror)) as running:
        until(lambda: all(ended.is_set() for ended in running._ended), seconds=30)
    assert (running.errors, running.undone) == ([], [])
    assert noted(events) == [
        "mirror: restart",
        "mirror: kill",
    ]


def test_nothing_is_waited_for_once_a_point_has_failed(events: EventLog, mirror: _Mirror) -> None:
    """After Ctrl-C or `timeout` the point's end took up to 180 s."""
    restart = fault(do="restart", part="mirror", at="0s")
    running = injection(events, [restart], cast("FakePart", mirror))
    began = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt), running:
        until(lambda: noted(events))
        raise KeyboardInterrupt
    assert time.monotonic() - began < 30
    assert running.errors == []


def test_it_is_known_which_part_is_going_to_be_started(events: EventLog) -> None:
    """A point waits for a client that does not run only if a fault will start it."""
    part = FakePart("c1", events)
    part.alive = False
    with injection(events, [fault(do="start", part="c1", at="produced")], part) as running:
        assert running.will_start("c1")
        assert not running.will_start("c2")
        running.produced.set()
        until(lambda: not running.will_start("c1"))
    assert part.alive


def test_a_part_that_has_ended_is_not_killed(events: EventLog) -> None:
    """A client ended before its fault: no event is logged."""
    part = FakePart("c1", events)
    part.alive = False
    with injection(events, [fault(do="kill", part="c1", at="0s")], part) as running:
        until(running._ended[0].is_set)
    assert part.done == []
    assert noted(events) == []
    assert running.undone == ["kill of c1 was not done: it did not run"]


def test_a_link_is_healed_of_one_fault_alone(events: EventLog) -> None:
    """The link and the event get the fault's parameters; the link's other faults go on."""
    link = _Link("link-source", events)
    faults = [
        fault(do="delay", part="link-source", delay="200ms", at="0s", **{"for": "1ms"}),
        fault(do="cut", part="link-source", after="0s"),
    ]
    with injection(events, faults, link):
        until(lambda: len(link.done) == 3)
    assert [what for what, _ in link.done] == ["delay {'delay': 0.2}", "heal delay", "cut"]
    assert noted(events) == [
        "link-source: delay 200 ms",
        "link-source: heal delay",
        "link-source: cut",
    ]


class _Link(FakePart):
    """Records the link's actions."""

    def delay(self, **values: float) -> None:
        self._do(f"delay {values}")

    def cut(self) -> None:
        self._do("cut")

    def heal(self, fault: str) -> None:
        self._do(f"heal {fault}")


def test_what_fails_is_kept_for_the_point(events: EventLog) -> None:
    """A part that cannot be started or killed, a command whose exit code is not 0."""
    part = FakePart("A1", events)

    def fail(error: Exception) -> None:
        raise error

    part.start = partial(fail, LabError("A1 did not start"))  # type: ignore[method-assign]
    part.kill = partial(fail, OSError("no descriptor"))  # type: ignore[method-assign]
    faults = [
        fault(do="start", part="A1", at="0s"),
        fault(do="kill", part="A1", at="0s"),
        fault(do="command", command="echo no such luck; exit 3", at="0s"),
    ]
    with injection(events, faults, part) as running:
        until(lambda: len(running.errors) == 3)
    assert sorted(map(str, running.errors)) == [
        "A1 did not start",
        "echo no such luck; exit 3: exit code 3: no such luck",
        "kill of A1 failed: no descriptor",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "true --password=geheim; exit 3",
        "curl 'https://ann:geheim@host/' || exit 3",
        "exit 3 # don't password=geheim",
    ],
)
def test_a_commands_secrets_are_in_no_result(command: str, events: EventLog) -> None:
    """They were in the events, in the point's reasons, and so in the report."""
    event, error = _of_command(command, events)
    assert "geheim" not in event + error
    assert error.startswith(f"{event}: exit code 3")


def test_a_command_without_secrets_is_shown_as_it_is(events: EventLog) -> None:
    """With its own spaces and quotes."""
    command = "echo 'a  b' >&2; exit 3"
    event, error = _of_command(command, events)
    assert event == command
    assert error == f"{command}: exit code 3: a  b"


def _of_command(command: str, events: EventLog) -> tuple[str, str]:
    """A failing command as the event log and the point's error show it."""
    with injection(events, [fault(do="command", command=command, at="0s")]) as running:
        until(running._ended[0].is_set)
    (event,) = Events.read(events.place).events
    (error,) = running.errors
    return event.part, str(error)
