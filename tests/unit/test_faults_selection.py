"""Which messages acts select: only seed, act and identity decide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrortest.faults.selection import Selection
from mirrortest.faults.spec import Spec
from mirrortest.wire.form import Form
from mirrortest.wire.message import Record, encode
from tests.unit.faults_source import ANN, BOB, TOPIC, batch_of, lane, message


def chosen(
    text: str,
    records: list[Record],
    *,
    first: int = 0,
    topic: str = TOPIC,
    partition: int = 1,
    faithful: bool = False,
) -> dict[int, list[int]]:
    """The selected offsets -> the indices of the acts that select them."""
    selection = Selection(Spec.parse(text), topic, partition, faithful=faithful)
    batch = batch_of(records, first=first, topic=topic, partition=partition)
    return {batch.offset(row): acts for row, acts in selection.chosen(batch.messages).items()}


def drop(lines: str, *, kind: str = "drop", top: str = "seed = 3") -> str:
    return f'{top}\n[[acts]]\nkind = "{kind}"\n{lines}'


RECORDS = lane(600, Form.BODY, size=100)


def test_a_rate_is_kept_to() -> None:
    """About that share; others for another seed, act or lane; and all at a rate of one."""
    hit = chosen(drop("rate = 0.1"), RECORDS)
    assert 30 < len(hit) < 95
    assert hit == chosen(drop("rate = 0.1"), RECORDS)
    assert hit != chosen(drop("rate = 0.1", top="seed = 4"), RECORDS)
    assert hit != chosen(drop("rate = 0.1"), lane(600, Form.BODY, size=100, lane=4))
    two = chosen(drop("rate = 0.1") + drop("rate = 0.1", top=""), RECORDS)
    assert set(hit) == {at for at, acts in two.items() if 0 in acts}
    assert set(hit) != {at for at, acts in two.items() if 1 in acts}
    assert len(chosen(drop("rate = 1"), RECORDS)) == 600


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(1, 599), max_size=4),
    lines=st.sampled_from(
        [
            "rate = 0.05",
            "count = 7\nwindow = { seq = [20, 420] }",
            'kind2 = "drop-run"\nrate = 0.01\nlength = 9',
            'kind2 = "drop-run"\ncount = 3\nlength = 30\nwindow = { share = [0.1, 0.9] }',
            "window = { share = [0.5] }",
        ]
    ),
)
def test_batching_changes_nothing(cuts: list[int], lines: str) -> None:
    """However the records are split, the same messages are selected."""
    kind = "drop"
    if lines.startswith("kind2"):
        kind, lines = "drop-run", lines.partition("\n")[2]
    text = drop(lines, kind=kind, top="seed = 3\nlane_messages = 600")
    at_once = chosen(text, RECORDS)
    pieces: dict[int, list[int]] = {}
    for lo, hi in zip([0, *sorted(cuts)], [*sorted(cuts), 600], strict=True):
        if lo < hi:
            pieces |= chosen(text, RECORDS[lo:hi], first=lo)
    assert pieces == at_once
    assert at_once


@pytest.mark.parametrize(
    ("lo", "hi", "count"), [(0, 600, 1), (0, 600, 7), (13, 41, 28), (5, 600, 99)]
)
def test_a_count_is_exact_in_each_lane(lo: int, hi: int, count: int) -> None:
    """Exactly `count` messages of each stream, spread over the window."""
    text = drop(f"count = {count}\nwindow = {{ seq = [{lo}, {hi}] }}")
    for producer in (ANN, BOB):
        hit = sorted(chosen(text, lane(600, Form.BODY, size=100, producer=producer)))
        assert len(hit) == count
        assert lo <= hit[0]
        assert hit[-1] < hi
        size = -(-(hi - lo) // count)
        assert all(b - a < 2 * size for a, b in zip([lo, *hit], [*hit, hi], strict=True))


def test_a_run_begins_at_its_start_and_ends_in_time() -> None:
    """Each start drops `length` messages, or fewer at the end of the lane."""
    starts = set(chosen(drop("rate = 0.01"), RECORDS))
    text = drop("rate = 0.01\nlength = 9", kind="drop-run")
    assert set(chosen(text, RECORDS)) == {
        seq for start in starts for seq in range(start, min(start + 9, 600))
    }


def test_filters() -> None:
    """Topic, partition, producer, run, incarnation, lane: all of them must fit."""
    records = [encode(message(0, producer=producer, lane=number), Form.BODY)
               for producer in (ANN, BOB) for number in (3, 5)]  # fmt: skip

    def hit(lines: str, **where: Any) -> set[int]:
        return set(chosen(drop(f"rate = 1\n{lines}"), records, **where))

    assert hit("") == {0, 1, 2, 3}
    assert hit('producer = "ann"') == {0, 1}
    assert hit("incarnation = 2") == {2, 3}
    assert hit("lane = 5") == {1, 3}
    assert hit('run = "r8"') == set()
    assert hit("partition = 1") == {0, 1, 2, 3}
    assert hit("partition = 0") == set()
    assert hit('topic = "ord.*"') == {0, 1, 2, 3}
    assert hit('topic = "ord"') == set()


def test_another_run_is_hurt_at_the_same_places() -> None:
    """The run's id does not change the selection, so a test can be repeated."""
    other = lane(600, Form.BODY, size=100, producer=ANN._replace(run="r9"))
    assert chosen(drop("rate = 0.1"), other) == chosen(drop("rate = 0.1"), RECORDS)


def test_a_faithful_topic_is_left_alone_unless_it_is_named() -> None:
    """An act without a topic, or with a pattern, does not select messages of the ledger."""
    for lines, count in (("", 0), ('topic = ".*"', 0), (f'topic = "{TOPIC}"', 5)):
        assert len(chosen(drop(f"rate = 1\n{lines}"), RECORDS[:5], faithful=True)) == count


def test_what_cannot_be_read_is_chosen_by_its_offset() -> None:
    """By rate alone, the same wherever a batch begins; acts that need an id do not select it."""
    odd = [Record(None, b"\0", (), 1)] * 300
    hit = chosen(drop("rate = 0.1"), odd)
    assert 10 < len(hit) < 60
    assert chosen(drop("rate = 0.1"), odd[100:], first=100) == {
        at: acts for at, acts in hit.items() if at >= 100
    }
    for lines in ("rate = 1\nlane = 0", "window = { seq = [0] }", 'rate = 1\nproducer = "ann"'):
        assert chosen(drop(lines), odd) == {}
