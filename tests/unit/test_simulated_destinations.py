"""Logs of consumers that read several copies of a topic, whose offsets are unrelated.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import UsageError
from mirrortest.seqlog.options import Role
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.seqlog.session import Session
    from tests.simulation.history import Stage

_PLAN = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0)


def _copied(name: str, lost: Collection[int] = (), **changes: object) -> Stage:
    """A run whose mirror loses `lost`; its consumer's session has this name and these changes."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        stage.supervise("consume", "c0")
        await asyncio.sleep(2)
        script.write([number for number in range(15) if number not in lost])

    stage = played(_PLAN, script)
    for log in stage.world.logs:
        if log.session.role is Role.CONSUMER:
            log.session = log.session.model_copy(update={"name": name, **changes})
    return stage


def _named(session: Session, destination: str) -> dict[str, object]:
    topic = session.topics["t0"].model_copy(update={"destination": destination})
    return {"topics": {"t0": topic}}


def test_copies_of_a_run_in_two_clusters_are_not_judged_as_one() -> None:
    """The second mirror loses a message: the logs of each copy are judged by themselves."""
    stage = _copied("c-b", clusters={"destination": "B"})
    other = _copied("c-c", {14}, clusters={"destination": "C"})
    stage.world.logs += [log for log in other.world.logs if log.session.role is Role.CONSUMER]
    with pytest.raises(UsageError, match=r"t0 in cluster B \(.*/c-b.*\); t0 in cluster C \(.*/c-c"):
        reconciled(stage)
    assert reconciled(stage, without=["c-c"]).exit_code == 0
    judged = reconciled(stage, without=["c-b"])
    assert (judged.exit_code, judged.counts["lost"]) == (99, 1)


def test_two_copies_in_one_cluster_are_not_judged_as_one() -> None:
    """Two mirrors write the copies under different names: reconciling both is refused."""
    stage = _copied("c-a")
    session = stage.world.logs[-1].session
    stage.world.logs[-1].session = session.model_copy(update=_named(session, "A.t0"))
    other = _copied("c-b", {14}).world.logs[-1]
    other.session = other.session.model_copy(update=_named(other.session, "B.t0"))
    stage.world.logs.append(other)
    with pytest.raises(UsageError, match=r"several copies of t0: A\.t0 in .*; B\.t0 in cluster"):
        reconciled(stage)


def test_two_consumers_of_one_copy_are_judged_together() -> None:
    """One log may name no cluster, as in older versions; a lost message stays lost."""
    stage = _copied("c-a", {14})
    other = _copied("c-b", {14}, clusters={}).world.logs[-1]
    stage.world.logs.append(other)
    judged = reconciled(stage)
    assert (judged.exit_code, judged.counts["lost"], judged.counts["duplicated"]) == (99, 1, 0)
