"""A producer without idempotence sends a batch twice: who caused the copies is unknown.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.threshold import thresholds
from mirrortest.kafka.error_table import Code, RequestError
from tests.simulation.net import _fail
from tests.simulation.offline import reconciled
from tests.simulation.plan import LEDGER, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.history import Stage

_CONDITIONS = ("duplicated==0", "reordered==0")


def _nothing() -> None:
    """Do nothing: the request was served already."""


def _lose_an_answer(stage: Stage) -> None:
    """Lose the source's answer to one batch, so that the producer sends it again."""
    net, partition = stage.world.net, stage.world.source.topics["t0"].partitions[0]
    serve = net._serve  # the net has no other hook for this
    lost: list[int] = []

    def lossy(cluster: Any, process: Any, what: str, ask: Any, answer: Any, seconds: float) -> None:
        before = partition.end
        if (what, process.name, bool(lost)) == ("produce", "p0", False) and before >= 5:
            ask()
            if partition.end > before:
                lost.append(before)
                error = RequestError(Code.NOT_CONNECTED, "connection lost")
                stage.world.later(0.2, _fail, answer, error)
                return
            ask = _nothing
        serve(cluster, process, what, ask, answer, seconds)

    setattr(net, "_serve", lossy)  # noqa: B010  # its type names the net itself


def _played(
    befalls: Callable[[Stage], None] | None, *, idempotent: bool, twice: bool = False
) -> Stage:
    """Play a run; with `twice`, the mirror writes one message a second time."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        judged = thresholds(_CONDITIONS, exactly_once=True)
        stage.supervise("consume", "c0", thresholds=judged, deadline=8.0)
        if befalls is not None:
            befalls(stage)
        await script.produced()
        if twice:
            await asyncio.sleep(0.5)
            script.write([39])

    return played(Plan(messages=40, rate=20.0, direct_ledger=True, idempotent=idempotent), script)


def _verdicts(stage: Stage) -> list[tuple[int, Sequence[str]]]:
    """The exit code and the inconclusive reasons, online and offline."""
    [report] = stage.outcome.reports
    assert report is not None
    offline = reconciled(stage, _CONDITIONS)
    return [(each.exit_code, each.inconclusive) for each in (report, offline)]


def test_what_the_producer_may_have_sent_twice_is_not_laid_to_the_mirror() -> None:
    """The run is inconclusive, and the reason names the producer property to set."""
    for code, reasons in _verdicts(_played(_lose_an_answer, idempotent=False)):
        assert code == 3
        [reason] = reasons
        assert reason.startswith("threshold duplicated==0:")
        assert "enable.idempotence=true" in reason


def test_a_mirrors_copies_fail_a_run_of_an_idempotent_producer() -> None:
    """Brokers drop what such a producer sends again, so further copies are the mirror's."""
    assert [code for code, _ in _verdicts(_played(_lose_an_answer, idempotent=True))] == [0, 0]
    twice = _played(_lose_an_answer, idempotent=True, twice=True)
    assert [code for code, _ in _verdicts(twice)] == [99, 99]


@pytest.mark.parametrize(("twice", "code"), [(False, 0), (True, 3)])
def test_a_producer_without_idempotence_passes_where_nothing_came_twice(
    twice: bool, code: int
) -> None:
    """If the mirror did write a message twice, the run is inconclusive."""
    stage = _played(None, idempotent=False, twice=twice)
    assert [each for each, _ in _verdicts(stage)] == [code, code]


def test_whether_a_producer_repeats_whose_log_is_missing_is_unknown() -> None:
    """The mirror is not blamed for what it sent twice; online, the ledger shows how it sent."""
    stage = _played(_lose_an_answer, idempotent=False)
    logs = reconciled(stage, _CONDITIONS, without=["p0"])
    assert (logs.exit_code, logs.counts["duplicated"] > 0) == (3, True)


def test_whether_a_producer_repeats_whose_older_log_does_not_record_it_is_unknown() -> None:
    """Logs of older versions have no client properties; such a producer counted as idempotent."""
    stage = _played(_lose_an_answer, idempotent=False)
    for log in stage.world.logs:
        log.session = log.session.model_copy(update={"client": {}})
    logs = reconciled(stage, _CONDITIONS)
    assert (logs.exit_code, logs.counts["duplicated"] > 0) == (3, True)


def test_whether_a_producer_repeats_that_no_ledger_names_is_unknown() -> None:
    """If the mirror does not copy the ledger, it is not blamed for duplicates."""

    async def script(stage: Stage) -> None:
        copied = stage.mirror._topics
        stage.mirror._topics = {name: each for name, each in copied.items() if name != LEDGER}
        judged = thresholds(_CONDITIONS, exactly_once=True)
        stage.supervise("consume", "c0", thresholds=judged, deadline=8.0, idle_timeout=20.0)
        _lose_an_answer(stage)
        await Script(stage).produced()

    stage = played(Plan(messages=40, rate=20.0, idempotent=False), script)
    [report] = stage.outcome.reports
    assert report is not None
    assert (report.exit_code, report.counts["duplicated"] > 0) == (3, True)


@pytest.mark.parametrize("copied", [True, False])
def test_whether_the_source_stamps_is_unknown_where_nobody_says_so(copied: bool) -> None:
    """Brokers stamp the source's records; only the producer's ledger record and its log show it."""

    async def script(stage: Stage) -> None:
        if not copied:
            stage.mirror._topics = {n: t for n, t in stage.mirror._topics.items() if n != LEDGER}
        stage.supervise("consume", "c0", deadline=8.0, idle_timeout=20.0)
        await Script(stage).produced()

    stage = played(Plan(messages=40, rate=20.0, stamps="source"), script)
    [report] = stage.outcome.reports
    assert report is not None
    assert report.exit_code == (0 if copied else 3)
    assert reconciled(stage, ()).exit_code == 0
    assert reconciled(stage, (), without=["p0"]).exit_code == 3


def test_how_an_incarnation_sent_whose_log_is_missing_is_unknown() -> None:
    """The same producer later sent with idempotence; only that log is present."""

    async def script(stage: Stage) -> None:
        judged = thresholds(_CONDITIONS, exactly_once=True)
        stage.supervise("consume", "c0", thresholds=judged, deadline=8.0)
        _lose_an_answer(stage)
        await stage.session("produce", "p0")
        once = replace(stage.produce_options("p0").client, acks=-1, enable_idempotence=True)
        await stage.session("produce", "p0", client=once, num_records=20)

    stage = played(Plan(messages=40, rate=20.0, direct_ledger=True, idempotent=False), script)
    logs = stage.world.logs
    assert reconciled(stage, _CONDITIONS).exit_code == 3
    logs.remove(next(log for log in logs if log.session.name == "p0"))
    without = reconciled(stage, _CONDITIONS)
    assert (without.exit_code, without.counts["duplicated"] > 0) == (3, True)


def _transactional(*, committed: bool, twice: bool) -> Stage:
    """Play a mirror that repeats an aborted transaction; with `twice`, also a message."""

    async def script(stage: Stage) -> None:
        stage.mirror.abort_next = True
        judged = thresholds(_CONDITIONS)
        stage.supervise("consume", "c0", thresholds=judged, deadline=8.0)
        script = Script(stage)
        await script.produced()
        if twice:
            await asyncio.sleep(0.5)
            script.write([39])

    plan = Plan(messages=40, rate=20.0, direct_ledger=True, transactional=True)
    return played(replace(plan, read_committed=committed), script)


@pytest.mark.parametrize(
    ("committed", "twice", "code"),
    [(False, False, 3), (False, True, 3), (True, False, 0), (True, True, 99)],
)
def test_what_was_aborted_and_written_again_is_no_duplicate(
    committed: bool, twice: bool, code: int
) -> None:
    """A read_uncommitted consumer sees both copies, and cannot tell which one is committed."""
    stage = _transactional(committed=committed, twice=twice)
    assert [each for each, _ in _verdicts(stage)] == [code, code]


def test_a_number_that_was_given_to_two_sessions_is_a_doubt() -> None:
    """The cause may be a deleted ledger, and a first session's log on another machine."""
    stage = _played(None, idempotent=True)
    [first] = [log for log in stage.world.logs if log.session.name == "p0"]
    again = copy(first)
    again.session = first.session.model_copy(update={"session": f"{first.session.session}-b"})
    stage.world.logs.append(again)
    logs = reconciled(stage, _CONDITIONS)
    assert logs.exit_code == 3
    assert "several processes sent as producer p0" in logs.inconclusive[0]
