"""Faults of the lab are recorded for a run's report if the user asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.cli import lab_fault
from mirrortest.errors import LabError, UsageError
from mirrortest.lab.control import NotReadyError
from mirrortest.lab.part import FAULTS
from mirrortest.seqlog.events import UP_AFTER, EventLog, Events

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests to a lab; each one succeeds."""
    wishes = []

    def ask(_path: Path, verb: str, *, part: str, values: dict[str, float]) -> dict[str, Any]:
        wishes.append((verb, part, *values.values()))
        return {"ok": True, "state": "running"}

    monkeypatch.setattr("mirrortest.lab.control.ask", ask)
    return wishes


def noted(logdir: Path) -> list[str]:
    """The events in events.jsonl, as text."""
    return [str(event) for event in Events.read(EventLog(logdir, "r1").place).events]


def test_a_fault_is_noted_with_its_part(asked: list[Any], tmp_path: Path) -> None:
    """A start is noted twice: when it is requested, and when the part is ready."""
    where = {"log_dir": str(tmp_path), "run": "r1"}
    lab_fault._command("kill")("mirror", **where)
    lab_fault._command("start")("mirror", **where)
    lab_fault._command("stop")("A1", **where)
    lab_fault._command("continue")("A1", **where)
    lab_fault._command("restart")("B1", **where)
    lab_fault._command("terminate")("B1", **where)
    assert noted(tmp_path) == [
        "mirror: kill", "mirror: start", "mirror: ready", "A1: stop", "A1: continue",
        "B1: restart", "B1: ready", "B1: terminate",
    ]  # fmt: skip
    ups = frozenset[str]().union(*UP_AFTER.values())
    assert [verb for verb, *_ in asked if verb not in ups | UP_AFTER.keys()] == ["start"]


def test_a_links_fault_is_noted_with_its_measure(asked: list[Any], tmp_path: Path) -> None:
    """The event has the parsed value; an invalid value is refused."""
    where = {"log_dir": str(tmp_path), "run": "r1"}
    lab_fault.delay("link-source", "200ms", jitter="50ms", **where)
    lab_fault.rate("link-source", "1MB/s", **where)
    lab_fault._command("cut")("link-source", **where)
    lab_fault._command("heal")("link-source", **where)
    assert noted(tmp_path) == [
        "link-source: delay 200 ms ± 50.0 ms", "link-source: rate 1,000,000 B/s",
        "link-source: cut", "link-source: heal",
    ]  # fmt: skip
    assert asked[:2] == [("delay", "link-source", 0.2, 0.05), ("rate", "link-source", 1_000_000)]
    with pytest.raises(UsageError, match="TIME must be longer than 0"):
        lab_fault.delay("link-source", "0", **where)
    with pytest.raises(UsageError, match="RATE 'fast': must be bytes per second"):
        lab_fault.rate("link-source", "fast", **where)
    assert len(asked) == 4


def test_what_each_fault_does_and_undoes_is_known() -> None:
    """Each verb of the lab is `start`, a fault in UP_AFTER, or an event that ends such a fault."""
    healing = frozenset[str]().union(*UP_AFTER.values())
    assert set(FAULTS) == {"start", *UP_AFTER} | (healing - {"ready", "resume"})


def test_nothing_is_noted_unasked_or_of_a_fault_that_was_none(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --log-dir there is no file; a fault that the lab refuses is not noted."""
    lab_fault._command("kill")("mirror")

    def refuse(*_args: Path | str, **_more: str) -> None:
        raise LabError("no such part")

    monkeypatch.setattr("mirrortest.lab.control.ask", refuse)
    with pytest.raises(LabError):
        lab_fault._command("kill")("mirror", log_dir=str(tmp_path), run="r1")
    assert list(tmp_path.iterdir()) == []


def test_a_fault_whose_part_does_not_become_ready_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in force; the part is not marked as ready."""

    def late(*_args: Path | str, **_more: str) -> None:
        raise NotReadyError("B1 did not answer within 120 s")

    monkeypatch.setattr("mirrortest.lab.control.ask", late)
    with pytest.raises(LabError, match="did not answer"):
        lab_fault._command("restart")("B1", log_dir=str(tmp_path), run="r1")
    assert noted(tmp_path) == ["B1: restart"]


def test_where_and_whose_go_together(asked: list[Any], tmp_path: Path) -> None:
    """One without the other, or an invalid run id, is refused before a fault is injected."""
    for where in ({"log_dir": str(tmp_path)}, {"run": "r1"}):
        with pytest.raises(UsageError, match="go together"):
            lab_fault._command("kill")("mirror", **where)
    with pytest.raises(UsageError, match="a run's id is"):
        lab_fault._command("kill")("mirror", log_dir=str(tmp_path), run="Not One")
    assert asked == []
