"""Copies that were compacted, or look so: what is compacted, lost or inconclusive.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.batch import MessageId, Record, encoded, thinned
from tests.simulation.offline import reconciled
from tests.simulation.plan import RUN, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from mirrortest.results.summary import Summary
    from tests.simulation.history import Stage

    Scripted = Callable[[Stage], Coroutine[Any, Any, None]]

_PLAN = Plan(messages=40, rate=100.0, direct_ledger=True, deadline=5.0)
_MISSING = ("lost", "compacted", "inconclusive")


def _results(plan: Plan, script: Scripted) -> tuple[tuple[int, ...], Summary]:
    """The exit code and the `_MISSING` counts, equal online and offline; and the summary."""
    stage = played(plan, script)
    reports = stage.outcome.reports
    online = next(report for report in reversed(reports) if report is not None)
    offline = reconciled(stage)
    answers = [
        (each.exit_code, *(each.counts.get(name, 0) for name in _MISSING))
        for each in (online, offline)
    ]
    assert answers[0] == answers[1]
    assert not offline.online or not offline.online.disagreements
    return answers[0], offline


def _copied(script: Script, numbers: Iterable[int], *, upto: int) -> None:
    """Mirror these seqs, and compact the copy below offset `upto`."""
    script.write(numbers)
    script.copy.compact(upto, script.world.now_ns)


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_mirror_loses_in_a_compacted_copy_is_lost_though_it_writes_transactions(
    transactional: bool,
) -> None:
    """The cleaner never ran: a transaction marker is not a compaction hole."""

    async def script(stage: Stage) -> None:
        Script(stage)
        stage.world.destination.topics["t0"].compacted = True
        stage.supervise("produce", "p0")
        stage.supervise("consume", "c0")

    plan = replace(_PLAN, rate=20.0, transactional=transactional, read_committed=True, drop_every=7)
    assert _results(plan, script)[0] == (99, 5, 0, 0)


@pytest.mark.parametrize(
    ("dropped", "expected"),
    [
        ((), (0, 0, 2, 0)),
        ((10, 20, 30), (99, 3, 2, 0)),  # where offsets have no hole
        ((38, 39), (99, 2, 2, 0)),
    ],
)
def test_a_hole_explains_no_loss_elsewhere(
    dropped: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    """Compaction removed seqs 0 and 1; each hole explains one seq, in its own gap."""

    async def script(stage: Stage) -> None:
        s = Script(stage)
        stage.world.destination.topics["t0"].compacted = True
        await s.only_produced()
        _copied(s, range(3), upto=2)
        s.write(n for n in range(3, 40) if n not in dropped)
        stage.supervise("consume", "c0")

    assert _results(_PLAN, script)[0] == expected


@pytest.mark.parametrize(("dropped", "expected"), [((), (0, 0, 10, 0)), ((20,), (99, 1, 10, 0))])
def test_who_takes_over_knows_that_the_copy_was_compacted(
    dropped: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    """The cleanup policy has changed before the takeover, but the killed consumer had seen it."""

    async def script(stage: Stage) -> None:
        s = Script(stage)
        topic = stage.world.destination.topics["t0"]
        topic.compacted = True
        await s.only_produced()
        _copied(s, range(12), upto=10)
        session = asyncio.ensure_future(stage.session("consume", "c0", until_complete=False))
        await asyncio.sleep(4)
        stage.current["c0"].process.kill()
        await session
        topic.compacted = False
        s.write(n for n in range(12, 40) if n not in dropped)
        stage.supervise("consume", "c0")

    assert _results(_PLAN, script)[0] == expected


@pytest.mark.parametrize(("dropped", "expected"), [((), (3, 0, 0, 10)), ((20,), (99, 1, 0, 10))])
def test_holes_that_nobody_can_explain_are_a_doubt(
    dropped: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    """The copy was compacted, and its policy reset, before any consumer began."""

    async def script(stage: Stage) -> None:
        s = Script(stage)
        await s.only_produced()
        _copied(s, range(12), upto=10)
        s.write(n for n in range(12, 40) if n not in dropped)
        stage.supervise("consume", "c0")

    found, summary = _results(_PLAN, script)
    assert found == expected
    assert any("or that compaction emptied" in reason for reason in summary.inconclusive)


def test_what_was_removed_out_of_order_is_a_doubt() -> None:
    """The mirror wrote 39 before 38, so compaction kept 38: whether 39 was lost is unknown."""

    async def script(stage: Stage) -> None:
        s = Script(stage)
        stage.world.destination.topics["t0"].compacted = True
        await s.only_produced()
        s.write([*range(38), 39, 38])
        s.write_others(2)
        _copied(s, (), upto=s.copy.end)
        stage.supervise("consume", "c0")

    assert _results(_PLAN, script)[0] == (3, 0, 38, 1)


def test_what_a_tombstone_removed_is_a_doubt_once_that_is_removed_too() -> None:
    """Only holes are left of the key: the messages may as well have been lost."""

    async def script(stage: Stage) -> None:
        s = Script(stage)
        stage.world.destination.topics["t0"].compacted = True
        await s.only_produced()
        s.write(range(40))
        key = s.copy.log[0].records[0].key
        now = s.world.now_ns
        s.copy.append(encoded([(0, key, None, ())]), [Record(0, key, None)], now)
        s.write_others(2)
        _copied(s, (), upto=s.copy.end)
        for batch in s.copy.log:
            for record in batch.records:
                if record.key == key:
                    record.removed_ns, record.removed_by = now, "compaction"
        left = (thinned(batch, lambda record: record.removed_ns is None) for batch in s.copy.log)
        s.copy.log = [batch for batch in left if batch is not None]
        stage.supervise("consume", "c0")

    assert _results(_PLAN, script)[0] == (3, 0, 0, 40)


@pytest.mark.parametrize(
    ("others_seen", "expected"), [(True, (99, 1, 0, 0)), (False, (3, 0, 0, 1))]
)
def test_a_hole_where_a_message_was_seen_before_explains_no_loss(
    others_seen: bool, expected: tuple[int, ...]
) -> None:
    """One group reads the copy before compaction, and ends before the deadline; one reads holes.

    If the first group did not read the foreign records, one hole may have been the missing message.
    """

    async def script(stage: Stage) -> None:
        s = Script(stage)
        stage.world.destination.topics["t0"].compacted = True
        await s.only_produced()
        stage.supervise("consume", "c0", group="a", duration=4.0, until_complete=False)
        await s.until(lambda: "c0" in stage.current)
        await asyncio.sleep(1.5)
        s.write(n for n in range(40) if n != 4)
        if others_seen:
            s.write_others(2)
        await s.until(lambda: stage.current["c0"].ended_ns is not None)
        if not others_seen:
            s.write_others(2)
        _copied(s, (), upto=s.copy.end)
        await asyncio.sleep(1)
        stage.supervise("consume", "c1", group="b", shard=None)

    offline = reconciled(played(replace(_PLAN, deadline=20.0), script))
    assert (offline.exit_code, *(offline.counts[name] for name in _MISSING)) == expected
    assert not offline.online or not offline.online.disagreements


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_source_that_is_compacted_only_once_its_producer_runs(dropped: int) -> None:
    """The mirror copies after compaction, which keeps the key's last message: it can be lost."""

    async def script(stage: Stage) -> None:
        stage.mirror.running = False
        stage.supervise("produce", "p0")
        await asyncio.sleep(3)
        topic = stage.world.source.topics["t0"]
        topic.compacted = True
        source = topic.partitions[0]
        assert len(source.compact(source.end - 3, stage.world.now_ns)) > 10
        last = MessageId("t0", f"p0@{RUN}.1", 0, 39)
        stage.mirror.habits.drops = frozenset({last} if dropped else ())
        stage.mirror.running = True
        stage.supervise("consume", "c0")

    (code, lost, compacted, doubtful), _ = _results(replace(_PLAN, rate=10.0), script)
    assert (code, lost, doubtful) == (99 if dropped else 0, dropped, 0)
    assert compacted > 10
