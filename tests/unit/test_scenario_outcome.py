"""How a point ended, compared with what is expected of it."""

from __future__ import annotations

from typing import Any

import pytest

from mirrortest.model.verdict import Verdict
from mirrortest.results.summary import Summary, Threshold
from mirrortest.scenario.outcome import judged, worst
from mirrortest.scenario.specification import Expectation

FAILED = Summary(
    run="r1",
    verdict=Verdict.FAILED,
    exit_code=99,
    counts={"duplicated": 3, "lost": 0},
    thresholds=[
        Threshold(expression="duplicated==0", value=3, passed=False),
        Threshold(expression="lost==0", value=0, passed=True),
    ],
)


@pytest.mark.parametrize(
    ("expect", "verdict", "summary", "code", "reasons"),
    [
        ({}, Verdict.PASSED, None, 0, []),
        ({}, Verdict.FAILED, FAILED, 99, ["failed, not passed (c1: failed)"]),
        ({}, Verdict.INCONCLUSIVE, None, 3, ["inconclusive, not passed (c1: inconclusive)"]),
        ({}, None, None, 1, ["c1 left no verdict"]),
        ({"verdict": "failed"}, Verdict.FAILED, FAILED, 0, []),
        ({"verdict": "failed"}, Verdict.PASSED, None, 99, ["passed, not failed (c1: passed)"]),
        ({"verdict": "failed"}, None, None, 1, ["c1 left no verdict"]),
        ({"verdict": "failed", "findings": ["duplicated"]}, Verdict.FAILED, FAILED, 0, []),
        (
            {"verdict": "failed", "findings": ["lost"]},
            Verdict.FAILED,
            FAILED,
            99,
            ["no message was lost", "duplicated failed"],
        ),
        ({"findings": ["late"]}, Verdict.PASSED, None, 99, ["no message was late"]),
    ],
)
def test_a_point_is_judged_by_what_its_file_expects(
    expect: dict[str, Any],
    verdict: Verdict | None,
    summary: Summary | None,
    code: int,
    reasons: list[str],
) -> None:
    """An unexpected outcome never has exit code 0, and always has a reason."""
    found = judged(Expectation.model_validate(expect), [("c1", verdict)], summary)
    assert found == (verdict, code, reasons)


def test_a_point_whose_clients_were_all_killed_has_not_passed() -> None:
    """A killed client need not have a verdict, as others go on: here none did."""
    found = judged(Expectation(), [], None)
    assert found == (None, 1, ["every client was killed: nothing left a verdict"])


def test_the_worst_point_decides_the_exit_code() -> None:
    """A proven failure comes before an error, and an error before an inconclusive point."""
    assert worst([0, 3, 1, 99]) == 99
    assert worst([0, 3, 1]) == 1
    assert worst([3, 0]) == 3
    assert worst([0]) == 0
    assert worst([]) == 0
