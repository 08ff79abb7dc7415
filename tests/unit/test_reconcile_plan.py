"""Which logs are found below the given places, and the error if there are none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.errors import SequenceLogError
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session, Topic, new_session_id
from mirrortest.seqlog.writer import SequenceLog

if TYPE_CHECKING:
    from pathlib import Path


async def _log(logdir: Path, run: str, name: str = "ann", **workload: Any) -> None:
    about = Session(
        run=run, role=Role.PRODUCER, name=name, session=new_session_id(1), incarnation=1,
        started_ns=1, workload=workload,
    )  # fmt: skip
    await (await SequenceLog.open(logdir, about)).close()


def test_logs_that_lie_deeper_are_told_with_their_place(tmp_path: Path) -> None:
    """The error names the subdirectories, and does not also say that the run is here."""
    for name in ("one", "two"):
        asyncio.run(_log(tmp_path / name, "big"))
    for run in ("big", None):
        with pytest.raises(SequenceLogError, match=r"no log of run 'big' here") as caught:
            plan([str(tmp_path)], run)
        hint = str(caught.value).partition(" here")[2]
        assert (
            hint == f": they are in a subdirectory, use {tmp_path / 'one'} and {tmp_path / 'two'}"
        )
    assert len(plan([str(tmp_path / "one"), str(tmp_path / "two")], "big").sessions) == 2


def test_logs_outside_of_their_runs_directory_are_told(tmp_path: Path) -> None:
    """For example, a copy under another name."""
    asyncio.run(_log(tmp_path, "big"))
    (tmp_path / "run=big").rename(tmp_path / "copied")
    with pytest.raises(SequenceLogError, match=r"in a directory run=big, not in .*/copied/"):
        plan([str(tmp_path)], "big")


def test_the_runs_that_are_there_are_told(tmp_path: Path) -> None:
    """If the requested run is not among them."""
    with pytest.raises(SequenceLogError, match=r"no log of run 'big' here$"):
        plan([str(tmp_path)], "big")
    for run in ("b", "a"):
        asyncio.run(_log(tmp_path, run))
    with pytest.raises(SequenceLogError, match=r"no log of run 'big' here; it has a, b$"):
        plan([str(tmp_path)], "big")


def test_each_workload_is_there_once_with_its_producers(tmp_path: Path) -> None:
    """As the producers' logs have it; older logs have no workload."""
    for name, workload in {"a": {"seed": 1}, "b": {"seed": 2}, "c": {"seed": 1}, "d": {}}.items():
        asyncio.run(_log(tmp_path, "big", name, **workload))
    found = {
        each.workload["seed"]: each.producers for each in plan([str(tmp_path)], "big").workloads
    }
    assert {seed: sorted(names) for seed, names in found.items()} == {1: ["a", "c"], 2: ["b"]}


def test_what_a_consumer_read_uncommitted_is_a_reason(tmp_path: Path) -> None:
    """Offline as online; the reason names the topic that it read."""
    about = Session(
        run="big", role=Role.CONSUMER, name="bob", session=new_session_id(1), started_ns=1,
        topics={"t": Topic(destination="A.t", uncommitted=True), "u": Topic(destination="A.u")},
    )  # fmt: skip

    async def log() -> None:
        await (await SequenceLog.open(tmp_path, about)).close()

    asyncio.run(_log(tmp_path, "big"))
    assert not plan([str(tmp_path)], "big").uncommitted
    asyncio.run(log())
    [reason] = plan([str(tmp_path)], "big").doubts()
    assert reason.startswith("A.t: messages of the run were written in transactions")
