"""What calibrate expects is compared with the real decoder and checkers, for any anomalies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.model.findings import Finding
from mirrortest.selftest.expected import Expected, Injected, expect
from mirrortest.selftest.sent import NO_KEY, Numbers, Sent, keys_of
from mirrortest.verify.anomaly import OVERTAKEN, Anomaly, combined, effect_of
from mirrortest.wire.form import Form
from tests.unit.anomalies import ANN, BOB, COUNT, PARTITIONS, TO_ONE_RECORD, TOPICS, Copy, Id, World

PLACES = list(product(TOPICS, range(PARTITIONS)))
MOVES = {
    *(Anomaly.REROUTE, Anomaly.MERGE_TOPICS, Anomaly.MERGE_PARTITIONS),
    *(Anomaly.HOLD, Anomaly.SWAP, Anomaly.DELAY),
}
OF_LANES = {Anomaly.MERGE_PARTITIONS, Anomaly.DROP_TAIL, Anomaly.DROP_PARTITION}
HEADER_KINDS = {Anomaly.STRIP_HEADER: ("id", "seq", "ts"), Anomaly.RENAME_HEADER: ("d",)}
PARTS = {**HEADER_KINDS, Anomaly.TRUNCATE: ("fill",), Anomaly.DELAY: ("", "overtaken")}


def truth_of(world: World) -> tuple[Sent, list[Injected], dict[tuple[str, int], int], Numbers]:
    """What was sent, and the truth of what was injected, in calibrate's terms."""
    numbers = Numbers()
    sent = Sent(
        {
            place: np.array(
                [
                    numbers.message(Id(*place, producer, seq).stream, seq)
                    for seq in range(COUNT)
                    for producer in (ANN, BOB)
                ]
            )
            for place in PLACES
        }
    )
    done = [
        Injected(
            effect_of(*as_recorded(world, kind, part, place, offset)),
            NO_KEY if kind is Anomaly.OTHER_RUN else key_of(copy.known, numbers),
            numbers.record(place, offset),
        )
        for place, here in world.made.items()
        for offset, copy in enumerate(here)
        for kind, part in copy.acts
    ] + [
        Injected(effect_of(kind, world.form), key_of(each, numbers), NO_KEY)
        for each, kind in world.dropped
    ]
    written = {place: len(here) for place, here in world.made.items()}
    return sent, done, written, numbers


LATE = {Anomaly.HOLD, Anomaly.SWAP, Anomaly.DELAY}


def as_recorded(
    world: World, kind: Anomaly, part: str, place: tuple[str, int], offset: int
) -> tuple[Anomaly, Form, str]:
    """A truth calls a message overtaken only if a later one's record precedes its first with an id.

    A hold or swap that nothing overtook is recorded as a delay is: only the record is named.
    """
    if kind not in LATE:
        return kind, world.form, part
    before = [copy.known for copy in world.made[place][:offset] if names_its_id(world, copy)]
    this = world.made[place][offset].known
    late = this not in before and any(
        each[:3] == this[:3] and each.seq > this.seq for each in before
    )
    if kind is Anomaly.DELAY or not late:
        return Anomaly.DELAY, world.form, OVERTAKEN if late else ""
    return kind, world.form, part


def names_its_id(world: World, copy: Copy) -> bool:
    effect = combined(effect_of(kind, world.form, part) for kind, part in copy.acts)
    return copy.id is not None and not effect[1]


def key_of(each: Id, numbers: Numbers) -> int:
    return numbers.message(each.stream, each.seq)


def as_found(
    expected: Expected, numbers: Numbers
) -> tuple[set[tuple[Id, Finding]], set[tuple[str, int, int, Finding]]]:
    """Expected keys in the terms of `World.found`."""
    ids = {
        key_of(Id(*place, producer, seq), numbers): Id(*place, producer, seq)
        for place in PLACES
        for producer in (ANN, BOB)
        for seq in range(COUNT)
    }
    return (
        {(ids[key], f) for f, keys in expected.messages.items() for key in keys.tolist()},
        {
            (*numbers.place_of(key), key & ((1 << 40) - 1), f)
            for f, keys in expected.records.items()
            for key in keys.tolist()
        },
    )


def may(world: World, kind: Anomaly, place: tuple[str, int], at: int) -> bool:
    """Whether this is possible there, and remains visible next to what was done before."""
    here = world.made[place]
    if at >= len(here) - 10:
        return False
    if kind is Anomaly.OTHER_RUN:
        return True
    reach = here if kind in OF_LANES else here[max(0, at - 8) : at + 8]
    if any(copy.id is None for copy in reach):
        return False
    if kind in MOVES and any(place != copy.known[:2] for copy in reach):
        return False
    if kind in HEADER_KINDS and world.form is Form.BODY:
        return False
    changed = {each for each, _ in here[at].acts}
    if kind in HEADER_KINDS or kind in TO_ONE_RECORD:
        return kind not in changed and not changed & HEADER_KINDS.keys()
    return kind is not Anomaly.REPLAY or at >= 8


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(Form),
    st.lists(
        st.tuples(
            st.sampled_from(Anomaly), st.sampled_from(PLACES), st.integers(0, 2 * COUNT), st.data()
        ),
        max_size=6,
    ),
)
def test_expected_is_what_the_checkers_find(
    form: Form, steps: list[tuple[Anomaly, tuple[str, int], int, st.DataObject]]
) -> None:
    """Any anomalies, on each other, on neighbours, copies and moved ones: the same findings."""
    world = World(form)
    for kind, place, at, data in steps:
        if may(world, kind, place, at):
            parts = PARTS.get(kind, ("",))
            world.commit(kind, data.draw(st.sampled_from(parts)), place, at)
    sent, done, written, numbers = truth_of(world)
    expected = expect(sent, done, written, numbers)
    assert expected.reasons == []
    assert as_found(expected, numbers) == world.found()
    for place, here in world.made.items():
        owners = [expected.owner(numbers.record(place, offset)) for offset in range(len(here))]
        assert owners == [NO_KEY if c.id is None else key_of(c.id, numbers) for c in here]


def test_a_copy_that_comes_before_its_held_back_message_is_reordered() -> None:
    """The first record with the id is the replayed one, and that was overtaken."""
    world = World(Form.BODY)
    world.commit(Anomaly.REPLAY, at=8)
    world.commit(Anomaly.HOLD, at=0)
    sent, done, written, numbers = truth_of(world)
    found = as_found(expect(sent, done, written, numbers), numbers)
    assert found == world.found()
    assert (Id(*PLACES[0], ANN, 0), Finding.REORDERED) in found[0]


def test_a_truth_that_does_not_add_up_is_told() -> None:
    """One record more than in the truth: the reason names the partition, the rest is judged."""
    world = World(Form.BODY)
    world.commit(Anomaly.HOLD)
    (lost,) = world.commit(Anomaly.DROP, at=4)
    sent, done, written, numbers = truth_of(world)
    expected = expect(sent, done, {**written, PLACES[0]: written[PLACES[0]] + 1}, numbers)
    assert len(expected.reasons) == 1
    assert "orders-0 is inconsistent" in expected.reasons[0]
    assert as_found(expected, numbers) == world.found()
    assert lost in {each for each, _ in world.found()[0]}


@pytest.mark.parametrize(
    ("intervals", "numbers"),
    [([], []), ([(5, 7), (1, 3)], [1, 2, 5, 6]), ([(1, 4), (2, 6)], [1, 2, 3, 4, 5])],
)
def test_spans(intervals: list[tuple[int, int]], numbers: list[int]) -> None:
    """Half-open intervals, in any order, overlapping or not, become numbers, each once."""
    assert keys_of(intervals).tolist() == numbers
