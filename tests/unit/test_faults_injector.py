"""A partition's injector: its output depends neither on the batches nor on restarts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.wire.form import Form
from mirrortest.wire.message import encode
from tests.unit.faults_source import (
    ANN,
    BOB,
    OTHER,
    TOPIC,
    batch_of,
    injector,
    lane,
    message,
    through,
    written,
)

if TYPE_CHECKING:
    from mirrortest.faults.alteration import TruthRow
    from mirrortest.faults.ground_truth import Deferral
    from mirrortest.faults.injector import Write

KINDS = (
    *("drop", "drop-run", "duplicate", "duplicate-later", "swap", "hold", "change-id"),
    *("change-payload", "truncate", "extend", "rekey", "reroute", "add-header", "restamp"),
    "other-run",
)
MIXED = "seed = 12\n" + "".join(f'[[acts]]\nkind = "{kind}"\nrate = 0.08\n' for kind in KINDS)
REPLAYED = MIXED + '[[acts]]\nkind = "replay"\nrate = 0.02\nlength = 12\n'
RECORDS = [
    encode(message(seq, producer=producer, lane=number, size=100), Form.BODY)
    for seq in range(25)
    for producer in (ANN, BOB)
    for number in (3, 5)
]


EXPECTED = through(REPLAYED, RECORDS)


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(1, len(RECORDS) - 1), max_size=6, unique=True))
def test_batches_make_no_difference(cuts: list[int]) -> None:
    """The same records come out in the same order, with the same faults."""
    assert through(REPLAYED, RECORDS, cuts=sorted(cuts)) == EXPECTED


@settings(max_examples=20)
@given(
    stops=st.lists(st.integers(1, len(RECORDS) - 1), min_size=1, max_size=4, unique=True),
    back=st.integers(0, 30),
)
def test_a_restart_makes_no_difference(stops: list[int], back: int) -> None:
    """A new injector that recalls enough goes on as the former one would have.

    It processes again what is deferred and what a replay can repeat, without any output.
    """
    writes: list[Write] = []
    faults: list[TruthRow] = []
    way = injector(REPLAYED)
    deferrals: list[Deferral] = []
    for lo, hi in pairwise([0, *sorted(stops), len(RECORDS)]):
        if lo:
            way = injector(REPLAYED)
            floor = min([lo - way.replay_length, *(each.offset for each in deferrals)])
            floor = max(floor - back, 0)
            for a, b in pairwise(sorted({floor, (floor + lo) // 2, lo})):
                before = len(writes)
                # As in a fetch, a batch goes on beyond what is to be recalled.
                fetched = batch_of(RECORDS[a : b + 5], first=a)
                way.recall(fetched, b - a, deferrals, 0)
                assert len(writes) == before
        step = way.feed(batch_of(RECORDS[lo:hi], first=lo), 0)
        writes += step.writes
        faults += step.faults
        deferrals = way.deferrals(0)
    step = way.finish(7_000_000_000)
    assert (written(writes + step.writes), faults + step.faults) == EXPECTED


def test_the_examples_are_worth_it() -> None:
    """The tests above compare output with acts of every kind."""
    found, faults = EXPECTED
    kinds = {note.kind for note in faults} | {n.kind for each in found for n in each.faults}
    assert kinds == {*KINDS, "replay"}


def test_only_what_is_touched_is_taken_apart() -> None:
    """All other records are copied in bulk, in as few pieces as possible."""
    way = injector('[[acts]]\nkind = "rekey"\nids = ["ann@r7.1 3 10", "ann@r7.1 3 30"]')
    step = way.feed(batch_of(lane(50, Form.BODY)), 0)
    assert [len(content) if hasattr(content, "lo") else 0 for _, content, _ in step.writes] == [
        10,
        0,
        19,
        0,
        19,
    ]


def test_silence_lets_go() -> None:
    """A second after the partition's last record, all deferred messages but delays are written.

    A delayed message is written after its time.
    """
    second = 1_000_000_000
    text = (
        '[[acts]]\nkind = "hold"\nids = ["ann@r7.1 3 4"]\ndistance = 50\n'
        '[[acts]]\nkind = "duplicate-later"\nids = ["ann@r7.1 3 5"]\n'
        '[[acts]]\nkind = "delay"\nids = ["ann@r7.1 3 6"]\nseconds = 3\n'
    )
    way = injector(text)
    out = written(way.feed(batch_of(lane(9, Form.BODY)), second).writes)
    assert [each.seq for each in out] == [0, 1, 2, 3, 5, 7, 8]
    assert way.deferred == 3
    assert not way.is_silent(2 * second - 1)
    assert way.is_silent(2 * second)
    assert way.tick(2 * second, ended=False).writes == []
    out = written(way.tick(2 * second, ended=True).writes)
    assert [each.seq for each in out] == [4, 5]
    assert [note.overtaken for note in out[0].faults] == [3]
    assert not way.is_silent(3 * second)
    assert way.tick(4 * second - 1, ended=True).writes == []
    out = written(way.tick(4 * second, ended=False).writes)
    assert [(each.seq, each.faults[0].detail) for each in out] == [(6, "written 3.000 s later")]
    assert way.deferred == 0


def test_a_delay_over_a_restart_is_noted_as_long_as_it_was() -> None:
    """The truth had only the time since the restart."""
    second = 1_000_000_000
    text = '[[acts]]\nkind = "delay"\nids = ["ann@r7.1 3 2"]\nseconds = 5\n'
    way = injector(text)
    way.feed(batch_of(lane(4, Form.BODY)), 0)
    deferrals = way.deferrals(3 * second)
    way = injector(text)
    way.recall(batch_of(lane(4, Form.BODY)), 4, deferrals, 100 * second)
    ((_, _, (note,)),) = written(way.tick(102 * second, ended=False).writes)
    assert note.detail == "written 5.000 s later"


def test_a_topic_that_is_not_there_takes_nothing() -> None:
    """Messages to be merged into an unknown topic's copy stay in their own."""
    act = f'[[acts]]\nkind = "merge-topics"\ntopic = "{TOPIC}"\nto_topic = '
    records = lane(3, Form.BODY)
    found, _ = through(f'{act}"nowhere"', records)
    assert {each.target for each in found} == {(TOPIC, 1)}
    found, _ = through(f'{act}"{OTHER}"', records)
    assert {each.target for each in found} == {(OTHER, 1)}
