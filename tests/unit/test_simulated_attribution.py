"""How far a missing message came, depending on which source log observers read, and where.

The real applications run on simulated clusters, and their logs are reconciled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrortest.reconcile.attribution import Attribution
from mirrortest.reconcile.job import reconcile_by
from mirrortest.reconcile.lookup import LookedUp
from mirrortest.reconcile.plan import plan
from mirrortest.seqlog import rows
from mirrortest.seqlog.options import Role
from tests.oracle.in_process import InProcess
from tests.simulation.offline import reconciled
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Script, played
from tests.spark.spark_history import History, seen, stream

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.reconcile.coverage import ReadOffsets
    from mirrortest.reconcile.lookup import LookUp
    from mirrortest.seqlog.rows import Row
    from tests.simulation.history import Stage
    from tests.simulation.sequence_log import SimulatedLog

_PLAN = Plan(messages=15, rate=100.0, direct_ledger=True, deadline=5.0)


def _observe(stage: Stage, **changes: Any) -> None:
    """Start a source observer."""
    client = stage.produce_options("s0").client
    observing = {"client": client, "ledger_client": None, "role": Role.SOURCE, "shard": None}
    stage.supervise("consume", "s0", **{**observing, **changes})


def _attributions(stage: Stage) -> Counter[str]:
    """The number of missing messages by attribution."""
    found: Counter[str] = Counter()
    for each in reconciled(stage).attribution:
        found[each.attribution] += each.messages
    return found


def _recreate_source(stage: Stage) -> None:
    source, now = stage.world.source, stage.world.now_ns
    source.delete("t0", now)
    source.create("t0", 1, now_ns=now)


@pytest.mark.parametrize("recreated", [False, True])
def test_the_mirrors_loss_is_not_the_sources_where_an_observer_read_a_later_topic(
    recreated: bool,
) -> None:
    """An observer of a recreated source topic does not prove that the source lost a message.

    Other messages have its offset there. What the observer saw is "not mirrored" in any case.
    """

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        script.write(number for number in range(15) if number != 4)
        if recreated:
            _recreate_source(stage)
        await script.produced("p1")
        _observe(stage, expect_producers=("p0", "p1"))
        stage.supervise("consume", "c0", expect_producers=("p0", "p1"))

    known, unknown = (15, 1) if recreated else (16, 0)
    expected = {Attribution.NOT_MIRRORED: known, Attribution.ACKNOWLEDGED: unknown}
    assert _attributions(played(_PLAN, script)) == Counter(expected)


@pytest.mark.parametrize("recreated", [False, True])
def test_the_mirrors_loss_is_not_the_sources_where_an_observer_read_an_earlier_topic(
    recreated: bool,
) -> None:
    """The observer ended before; after a recreation, it had read their offsets in the old log."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        script.write(range(15))
        _observe(stage, until_complete=False, duration=3.0)
        await asyncio.sleep(5)
        if recreated:
            _recreate_source(stage)
        await script.produced("p1")
        stage.supervise("consume", "c0", expect_producers=("p0", "p1"))

    # No observer read p1's messages: they are past the observed end, or in another log.
    assert _attributions(played(_PLAN, script)) == {Attribution.ACKNOWLEDGED: 15}


def test_what_the_source_itself_lost_is_told() -> None:
    """Acknowledged messages that an unclean election removed were never in the source log."""
    ends: list[int] = []

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        source = stage.world.source.topics["t0"].partitions[0]
        source.elect_unclean(10, stage.world.now_ns)
        ends.append(source.end)
        script.write(range(ends[0] - 1))
        _observe(stage)
        stage.supervise("consume", "c0")

    found = _attributions(played(_PLAN, script))
    assert 0 < ends[0] < 15
    assert found == {Attribution.NEVER_IN_SOURCE: 15 - ends[0], Attribution.NOT_MIRRORED: 1}


def _without(row: Row, seq: int) -> list[Row]:
    """The two parts of a row that begins at seq 0 and offset 0, without this seq."""
    return [
        row._replace(seq_hi=seq, offset_hi=seq),
        row._replace(seq_lo=seq + 1, offset_lo=seq + 1),
    ]


def _observed_without(seq: int) -> tuple[Stage, SimulatedLog]:
    """A history in which the copy and the observer's rows lack one message."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        await script.consuming()
        _observe(stage)
        script.write(number for number in range(15) if number != seq)

    stage = played(_PLAN, script)
    [observer] = [log for log in stage.world.logs if log.session.role is Role.SOURCE]
    observer.rows = [
        part
        for row in observer.rows
        for part in (_without(row, seq) if row.kind == "seen" and row.seq_lo == 0 else [row])
    ]
    observer.durable_rows = len(observer.rows)
    return stage, observer


def test_what_a_compacted_source_may_lack_is_not_lost_by_its_brokers() -> None:
    """If observers cannot see the cleanup policy, compaction may have removed the message."""
    stage, observer = _observed_without(4)
    hidden = {
        name: topic.model_copy(update={"policy_hidden": True})
        for name, topic in observer.session.topics.items()
    }
    observer.session = observer.session.model_copy(update={"topics": hidden})
    assert _attributions(stage) == {Attribution.ACKNOWLEDGED: 1}
    assert any("no source observer could see whether" in n for n in reconciled(stage).notes)


def test_what_was_never_in_the_source_is_not_read_off_another_clusters_offsets() -> None:
    """An observer that read the same offsets in another cluster is left out, with a note."""
    stage, observer = _observed_without(4)
    assert _attributions(stage) == {Attribution.NEVER_IN_SOURCE: 1}
    observer.session = observer.session.model_copy(update={"clusters": {"source": "other"}})
    assert _attributions(stage) == {Attribution.ACKNOWLEDGED: 1}
    notes = reconciled(stage).notes
    assert any("read cluster other; the producers wrote to source: it is left" in n for n in notes)


def test_an_observer_that_was_given_the_destinations_address_is_left_out() -> None:
    """What it does not find there, the mirror lost; topics have the same name on both sides."""

    async def script(stage: Stage) -> None:
        await Script(stage).produced()
        client = stage.consume_options("c0").client
        _observe(stage, client=client, state_topic="states.source")
        stage.supervise("consume", "c0")

    plan = replace(_PLAN, direct_ledger=False, drop_every=7)
    assert _attributions(played(plan, script)) == {Attribution.ACKNOWLEDGED: 2}


class _NothingLeft:
    """A look-up of a copy of which consumers read all offsets."""

    def read(self, observed: ReadOffsets) -> LookedUp:
        """There is nothing to find."""
        del observed
        return LookedUp()


_LOOK_UP = cast("LookUp", _NothingLeft())


def test_what_compaction_may_have_removed_from_the_copy_is_not_called_unmirrored() -> None:
    """All was mirrored; the copy was compacted before a consumer saw its policy."""

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        _observe(stage)
        script.write(range(6))
        script.copy.compact(5, stage.world.now_ns)
        script.write(range(6, 15))
        stage.supervise("consume", "c0")

    logs = reconciled(played(_PLAN, script), look_up=_LOOK_UP)
    assert (logs.exit_code, logs.counts["inconclusive"], logs.attribution) == (3, 5, [])


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_damaged_log_may_have_shown_is_not_called_unmirrored(
    tmp_path: Path, *, damaged: bool
) -> None:
    """The damaged log may have shown the missing message; the look-up skips what was read."""
    of = stream()
    history = History()
    history.sends(of, 6)
    first = [seen(of, 0, 4, 0), seen(of, 5, 6, 5)]
    end = [rows.read("t", 0, 0, 6, topic_identity="0"), rows.tail("t", 0, 6, topic_identity="0")]
    history.consumers = [[*first, *end], [seen(of, 0, 1, 0)]]
    history.observers = [[seen(of, 0, 6, 0), rows.read("t", 0, 0, 6, topic_identity="0")]]
    [file] = history.write(tmp_path).glob("run=*/role=consumer/c1-*/*.parquet")
    if damaged:
        file.write_bytes(file.read_bytes()[::-1])
    logs = reconcile_by(InProcess(), plan([str(tmp_path)], None), (), look_up=_LOOK_UP)
    found = [(each.verdict, each.attribution) for each in logs.attribution]
    assert found == ([] if damaged else [("lost", Attribution.NOT_MIRRORED)])
    assert logs.counts["inconclusive"] == damaged
