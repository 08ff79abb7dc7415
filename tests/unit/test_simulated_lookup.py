"""What the look-up finds in a destination that changed after its consumer had ended.

The real consumer and the real look-up run on simulated clusters.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirrortest.reconcile.coverage import ReadOffsets, Span
from mirrortest.reconcile.lookup import LookedUp, LookUp
from mirrortest.reconcile.plan import Plan as Logs
from tests.simulation.batch import Record, encoded
from tests.simulation.plan import RUN, Plan
from tests.simulation.scenarios import Script, played

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.history import Stage

_READ = ReadOffsets([Span("t0", 0, 0, 0, 10, 0)], (), (), {"t0": 1}, {})
"""What the consumer read before it ended."""


def _looked_up(
    then: Callable[[Script], None], *, read_committed: bool = False, at: str = "destination"
) -> LookedUp:
    """What the look-up finds if a consumer ends after 10 of 15 messages, and `then` is called."""
    found: list[LookedUp] = []

    async def script(stage: Stage) -> None:
        script = Script(stage)
        await script.only_produced()
        stage.supervise("consume", "c0", until_complete=False, duration=6.0, deadline=60.0)
        await asyncio.sleep(1)
        script.write(range(10))
        await asyncio.sleep(9)
        assert stage.current["c0"].ended_ns is not None
        then(script)
        sessions = [SimpleNamespace(session=log.session, files=()) for log in stage.world.logs]
        logs = Logs(RUN, (), cast("Any", tuple(sessions)))
        # With default properties, whatever the consumer's are.
        client = stage.produce_options("p0").client
        client = client.from_properties(
            {"bootstrap.servers": getattr(stage.world, at).address, "request.timeout.ms": "3000"},
            defaults={},
        )

        async def look() -> None:
            found.append(await LookUp(client, logs)._read(_READ))  # in this loop

        await asyncio.wait({stage.world.process("reconcile").start(look())})

    played(
        Plan(
            messages=15, rate=100.0, direct_ledger=True, deadline=5.0, read_committed=read_committed
        ),
        script,
    )
    return found[0]


def _numbers(looked: LookedUp) -> list[tuple[int, int]]:
    return [each for of_stream in looked.found.values() for each in of_stream.intervals()]


def _mirror_the_rest(script: Script) -> None:
    script.write(range(10, 15))


def _nothing(script: Script) -> None:
    del script


@pytest.mark.parametrize(("then", "found"), [(_nothing, []), (_mirror_the_rest, [(10, 15)])])
def test_what_the_mirror_wrote_later_is_found_and_nothing_else(
    then: Callable[[Script], None], found: list[tuple[int, int]]
) -> None:
    """What is not in the topic that the consumer read was not mirrored."""
    looked = _looked_up(then)
    assert (_numbers(looked), looked.incomplete, looked.notes) == (found, set(), [])


def test_a_copy_is_not_looked_for_in_a_cluster_that_its_consumers_did_not_read() -> None:
    """If two clusters mirror to each other and keep names, the topic there is the source."""
    looked = _looked_up(_nothing, at="source")
    assert (_numbers(looked), looked.incomplete, len(looked.notes)) == ([], {"t0"}, 1)


@pytest.mark.parametrize("numbers", [range(5, 15), range(10, 14), range(15)])
def test_a_copy_that_was_recreated_is_looked_at_from_its_beginning(numbers: range) -> None:
    """It is as long as what was read, shorter or longer; the old topic's content is unknown."""

    def recreate(script: Script) -> None:
        script.recreate()
        script.write(numbers)

    looked = _looked_up(recreate)
    assert _numbers(looked) == [(numbers.start, numbers.stop)]
    assert (looked.incomplete, len(looked.notes)) == ({"t0"}, 1)


@pytest.mark.parametrize("commit", [False, True])
def test_what_was_aborted_is_found_by_nobody_where_consumers_read_committed(commit: bool) -> None:
    """The look-up uses the consumers' isolation level, whatever its own default is."""

    def write(script: Script) -> None:
        sent = script._sent()  # to write it in a transaction
        raw = encoded(
            [sent[seq][1][1:] for seq in range(10, 15)], producer=7, sequence=0, transactional=True
        )
        records = [Record(0, sent[seq][1][2], sent[seq][0]) for seq in range(10, 15)]
        script.copy.append(raw, records, script.world.now_ns)
        script.copy.finish(7, commit=commit, now_ns=script.world.now_ns)

    looked = _looked_up(write, read_committed=True)
    assert (_numbers(looked), looked.notes) == ([(10, 15)] if commit else [], [])
