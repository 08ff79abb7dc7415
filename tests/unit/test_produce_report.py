"""What a producer's report tells besides its figures."""

from __future__ import annotations

import pytest

from mirrortest.model.findings import Outcome
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.recording import TopicNumbers


def report(*, warmup: int, steady: int) -> ProduceReport:
    numbers = TopicNumbers(1, 100)
    numbers.warm.outcomes[Outcome.ACKED] = 5
    numbers.steady.outcomes[Outcome.UNKNOWN] = steady
    return ProduceReport(
        run="r",
        name="p",
        session="s",
        log="/logs",
        numbers={"orders": numbers},
        lanes=[],
        reasons={},
        behind_ns={},
        warmup_records=warmup,
        notes=["a note"],
    )


@pytest.mark.parametrize(
    ("warmup", "steady", "noted"), [(9, 0, True), (5, 1, False), (0, 0, False), (0, 5, False)]
)
def test_a_run_that_ends_within_its_warm_up_says_so(warmup: int, steady: int, noted: bool) -> None:
    """As JSON and as text: else figures that are all 0 would look like a result."""
    found = report(warmup=warmup, steady=steady)
    notes = found.to_json()["notes"]
    assert notes[0] == "a note"
    assert [("within the warm-up of 9 messages of orders" in each) for each in notes[1:]] == (
        [True] if noted else []
    )
    assert found.result().remarks[-len(notes) :] == notes
