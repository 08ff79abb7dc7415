"""The score: what was found, compared with what had to be found, by kind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirrortest.model.findings import Finding
from mirrortest.selftest.calibration import Figures
from mirrortest.selftest.detected import Detected, by_place, online
from mirrortest.selftest.expected import Expected, Injected, expect
from mirrortest.selftest.score import Score, score
from mirrortest.selftest.sent import NO_KEY, SHIFT, Numbers, Sent
from mirrortest.verify.anomaly import Anomaly, effect_of
from mirrortest.wire.form import Form
from mirrortest.wire.stream import StreamId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

STREAM = StreamId("orders", "r7", "ann", 1, 0)
PLACE = ("orders", 0)
SENT = 30
BODY = Form.BODY


class Scene:
    """One lane in one partition, acts on its messages, and a perfect tester."""

    def __init__(self, *acts: tuple[Anomaly, int]) -> None:
        """Each act is (kind, seq); a dropped one leaves no record."""
        self.numbers = Numbers()
        self.sent = Sent({PLACE: np.arange(SENT) | self.numbers.message(STREAM)})
        dropped = sorted({seq for kind, seq in acts if kind is Anomaly.DROP})
        self.done = [
            Injected(
                effect_of(kind, BODY),
                self.numbers.message(STREAM, seq),
                NO_KEY if kind is Anomaly.DROP else self.record(seq, dropped),
            )
            for kind, seq in acts
        ]
        self.written = {PLACE: SENT - len(dropped)}

    def record(self, seq: int, dropped: Sequence[int] = ()) -> int:
        return self.numbers.record(PLACE, seq - sum(each < seq for each in dropped))

    def expected(self, done: list[Injected] | None = None) -> Expected:
        return expect(self.sent, self.done if done is None else done, self.written, self.numbers)

    def perfect(self) -> Detected:
        """The findings of a tester that finds exactly what is expected."""
        must = self.expected()
        counts = {
            place: Counter({f: n for f, keys in must.records.items() for n in [len(keys)]})
            for keys in must.records.values()
            for place in by_place(keys, self.numbers)
        }
        return Detected(
            dict(must.messages),
            dict(must.messages),
            dict(must.records),
            [("someone", counts)],
        )

    def score(self, detected: Detected, done: list[Injected] | None = None) -> Score:
        done = self.done if done is None else done
        must = self.expected(done)
        return score(done, must, detected, self.numbers, lambda _: BODY)


def without(keys: NDArray[np.int64], seq: int) -> NDArray[np.int64]:
    kept: NDArray[np.int64] = keys[(keys & ((1 << SHIFT) - 1)) != seq]
    return kept


def tallied(result: Score) -> dict[Anomaly | None, tuple[int, int]]:
    """The lines that are not perfect, by kind: (missed, false)."""
    return {
        kind: (tally.missed, tally.false)
        for (kind, _), tally in result.lines.items()
        if not tally.perfect
    }


EVERY = (
    *((Anomaly.REKEY, 4), (Anomaly.CHANGE_SEQ, 9), (Anomaly.CHANGE_PAYLOAD, 12)),
    *((Anomaly.DROP, 15), (Anomaly.DROP, 16), (Anomaly.RESTAMP, 4)),
)


def test_a_perfect_tester_scores_full() -> None:
    """All seeded, all found, nothing missed and nothing false."""
    scene = Scene(*EVERY)
    result = scene.score(scene.perfect())
    assert result.perfect
    assert {kind and kind.value: (t.seeded, t.found) for (kind, _), t in result.lines.items()} == {
        "rekey": (1, 1),
        "change-seq": (1, 1),
        "change-payload": (1, 1),
        "drop": (2, 2),
        "restamp": (1, 1),
    }
    figures = [Figures.of(tally) for tally in result.lines.values()]
    assert {(each.recall, each.precision) for each in figures} == {(1.0, 1.0)}


@pytest.mark.parametrize(
    ("finding", "seq", "missed"),
    [
        (Finding.ALTERED_KEY, 4, Anomaly.REKEY),
        (Finding.ALTERED_TIMESTAMP, 4, Anomaly.RESTAMP),
        (Finding.LOST, 9, Anomaly.CHANGE_SEQ),
        (Finding.LOST, 16, Anomaly.DROP),
        (Finding.CORRUPTED, 12, Anomaly.CHANGE_PAYLOAD),
    ],
)
def test_what_is_not_found_is_missed(finding: Finding, seq: int, missed: Anomaly) -> None:
    """A finding that is not reported counts under the kind that causes it, and no other."""
    scene = Scene(*EVERY)
    detected = scene.perfect()
    detected.by_all[finding] = without(detected.by_all[finding], seq)
    result = scene.score(detected)
    assert tallied(result) == {missed: (1, 0)}
    assert not result.perfect
    assert f"seq {seq} is not reported {finding.label}" in result.examples[0]


def test_a_record_that_is_not_found_is_missed() -> None:
    """Unreadable records count by offset, and by number."""
    scene = Scene(*EVERY)
    detected = scene.perfect()
    detected.records[Finding.CORRUPTED] = np.zeros(0, np.int64)
    detected.counts = [("someone", {PLACE: Counter()})]
    result = scene.score(detected)
    assert tallied(result) == {Anomaly.CHANGE_SEQ: (1, 0)}
    assert result.differences == ["someone counts 0 corrupted in orders-0, not 1"]


@pytest.mark.parametrize(
    ("findings", "kind"),
    [
        ((Finding.ALTERED_KEY,), Anomaly.REKEY),
        ((Finding.DUPLICATED,), Anomaly.DUPLICATE),
        ((Finding.LOST,), Anomaly.DROP),
        ((Finding.MISROUTED,), Anomaly.REROUTE),
        ((Finding.MISROUTED, Finding.DUPLICATED), Anomaly.DUPLICATE),
        ((Finding.PHANTOM,), None),
    ],
)
def test_what_is_not_there_is_false(findings: tuple[Finding, ...], kind: Anomaly | None) -> None:
    """A finding of an untouched message counts under the kind that it looks like."""
    scene = Scene(*EVERY)
    detected = scene.perfect()
    for finding in findings:
        key = scene.numbers.message(STREAM, 20)
        detected.by_any[finding] = np.union1d(detected.by_any.get(finding, []), [key]).astype(
            np.int64
        )
    assert tallied(scene.score(detected)) == {kind: (0, 1)}


def test_a_finding_too_many_is_its_own_kinds() -> None:
    """A false finding of a message that was hit counts under the kind that hit it."""
    scene = Scene(*EVERY)
    detected = scene.perfect()
    key = scene.numbers.message(STREAM, 12)
    detected.by_any[Finding.DUPLICATED] = np.array([key])
    assert tallied(scene.score(detected)) == {Anomaly.CHANGE_PAYLOAD: (0, 1)}


@pytest.mark.parametrize(
    ("removed", "kind"),
    [(0, Anomaly.REKEY), (1, Anomaly.CHANGE_ID), (2, Anomaly.CHANGE_PAYLOAD), (3, Anomaly.DROP)],
)
def test_a_row_taken_from_the_truth_is_noticed(removed: int, kind: Anomaly) -> None:
    """An anomaly that the truth lacks is a false finding of the kind that it looks like.

    A changed seq looks like the first kind that leaves no id; one loss looks like a drop.
    """
    scene = Scene(*EVERY[:-1])
    detected = scene.perfect()
    falsified = [each for at, each in enumerate(scene.done) if at != removed]
    result = scene.score(detected, falsified)
    assert tallied(result) == {kind: (0, 1)}


def test_a_row_put_into_the_truth_is_noticed() -> None:
    """An anomaly that is only in the truth is missed."""
    scene = Scene(*EVERY)
    detected = scene.perfect()
    extra = Injected(
        effect_of(Anomaly.REKEY, BODY), scene.numbers.message(STREAM, 2), scene.record(2)
    )
    assert tallied(scene.score(detected, [*scene.done, extra])) == {Anomaly.REKEY: (1, 0)}


def test_consumers_must_agree() -> None:
    """What one consumer does not report is missed; what only one reports is false."""
    numbers = Numbers()
    base = numbers.message(STREAM)
    stream = {**STREAM._asdict(), "lost": [[3, 5]]}
    counts = {"corrupted": 0, "foreign": 2}
    reports = {
        "carl": {"streams": [stream], "counts": counts},
        "dora": {"streams": [{**stream, "lost": [[3, 4]], "late": [[9, 10]]}], "counts": counts},
    }
    detected = online(reports, {}, numbers)
    assert detected.by_all[Finding.LOST].tolist() == [base + 3]
    assert detected.by_any[Finding.LOST].tolist() == [base + 3, base + 4]
    assert detected.by_all[Finding.LATE].tolist() == []
    assert detected.by_any[Finding.LATE].tolist() == [base + 9]
    assert [name for name, _ in detected.counts] == ["carl", "dora"]
    assert detected.counts[0][1][None][Finding.FOREIGN] == 2
