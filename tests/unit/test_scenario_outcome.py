"""How a point ended, compared with what is expected of it."""

from __future__ import annotations

from typing import Any

import pytest

from mirrortest.model.verdict import Verdict
from mirrortest.scenario.outcome import Ended, failed_metrics, figures, judged, worst
from mirrortest.scenario.specification import Expectation
from mirrortest.seqlog.options import Role

COUNTS = {"duplicated": 3, "lost": 0}
DUPLICATED = ("duplicated",)


@pytest.mark.parametrize(
    ("expect", "verdict", "failed", "code", "reasons"),
    [
        ({}, Verdict.PASSED, (), 0, []),
        ({}, Verdict.FAILED, DUPLICATED, 99, ["failed, not passed (c1: failed)"]),
        ({}, Verdict.INCONCLUSIVE, (), 3, ["inconclusive, not passed (c1: inconclusive)"]),
        ({}, None, (), 1, ["c1 left no verdict"]),
        ({"verdict": "failed"}, Verdict.FAILED, DUPLICATED, 0, []),
        ({"verdict": "failed"}, Verdict.PASSED, (), 99, ["passed, not failed (c1: passed)"]),
        ({"verdict": "failed"}, None, (), 1, ["c1 left no verdict"]),
        ({"verdict": "failed", "findings": ["duplicated"]}, Verdict.FAILED, DUPLICATED, 0, []),
        (
            {"verdict": "failed", "findings": ["lost"]},
            Verdict.FAILED,
            DUPLICATED,
            99,
            ["no message was lost", "c1 failed: duplicated"],
        ),
        ({"findings": ["late"]}, Verdict.PASSED, (), 99, ["no message was late"]),
    ],
)
def test_a_point_is_judged_by_what_its_file_expects(
    expect: dict[str, Any],
    verdict: Verdict | None,
    failed: tuple[str, ...],
    code: int,
    reasons: list[str],
) -> None:
    """An unexpected outcome never has exit code 0, and always has a reason."""
    found = judged(Expectation.model_validate(expect), [Ended("c1", verdict, failed)], COUNTS)
    assert found == (verdict, code, reasons)


@pytest.mark.parametrize(
    ("failed", "reasons"),
    [
        (DUPLICATED, []),
        (("p(99)", "duplicated"), ["c1 failed: p(99)"]),
        ((), ["c1 failed: not by a threshold"]),
    ],
)
@pytest.mark.parametrize("offline", list(Verdict))
def test_only_the_expected_findings_may_fail_a_client(
    offline: Verdict, failed: tuple[str, ...], reasons: list[str]
) -> None:
    """A client that failed for another reason, or alone, passed as what was expected."""
    expect = Expectation.model_validate({"verdict": "failed", "findings": ["duplicated"]})
    those = [
        Ended("c1", Verdict.FAILED, failed),
        Ended("reconcile", offline, DUPLICATED if offline is Verdict.FAILED else ()),
    ]
    code = 99 if reasons else 0
    assert judged(expect, those, COUNTS) == (Verdict.FAILED, code, reasons)


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PASSED, 3), (Verdict.FAILED, 99)])
def test_a_point_without_a_fault_of_its_file_is_never_as_expected(
    verdict: Verdict, code: int
) -> None:
    """A failure that is proven remains one."""
    ended = [Ended("c1", verdict, DUPLICATED if verdict is Verdict.FAILED else ())]
    found = judged(Expectation(), ended, COUNTS, ["kill of A1 was not done: it did not run"])
    assert found[1] == code
    assert found[2][-1] == "kill of A1 was not done: it did not run"


def test_thresholds_of_another_version_are_named_as_they_are() -> None:
    """Their metrics may be unknown here."""
    texts = {"lost==0": False, "duplicated==0": True, "p(99)<2s": False, "new==0": False}
    found = failed_metrics({"expression": each, "passed": texts[each]} for each in texts)
    assert found == ["lost", "p(99)", "new==0"]


def test_an_observer_of_the_source_is_no_reader_of_the_destination() -> None:
    """The rate at which messages were read counted it, too."""
    roles = (Role.CONSUMER, Role.SOURCE)
    reading = {"records_per_second": 1000.0, "mib_per_second": 1.0}
    reports = [{"kind": "consume", "role": each, "reading": reading} for each in roles]
    found = figures(reports, None)
    assert found == {"read_per_second": 1000.0, "read_mib_per_second": 1.0}


def test_a_point_whose_clients_were_all_killed_has_not_passed() -> None:
    """A killed client need not have a verdict, as others go on: here none did."""
    found = judged(Expectation(), [], {})
    assert found == (None, 1, ["every client was killed: nothing left a verdict"])


def test_the_worst_point_decides_the_exit_code() -> None:
    """A proven failure comes before an error, and an error before an inconclusive point."""
    assert worst([0, 3, 1, 99]) == 99
    assert worst([0, 3, 1]) == 1
    assert worst([3, 0]) == 3
    assert worst([0]) == 0
    assert worst([]) == 0
