"""The plan: what is sent and what the faulty mirror does, from one seed."""

from __future__ import annotations

from typing import Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.faults.spec import Spec
from mirrortest.selftest.calibration_plan import MAIN, MESSAGE_SIZE, RAREST, CalibrationPlan
from mirrortest.verify.anomaly import EFFECTS, Anomaly
from mirrortest.wire.form import HEADER_NAMES, Form

BOTH = tuple(Form)


def plan(**changes: Any) -> CalibrationPlan:
    asked = {
        "run": "r7",
        "messages": 5_000_000,
        "rate": 1e-4,
        "seed": 3,
        "forms": BOTH,
        "consumers": 3,
        "throughput": 10_000,
        "deadline": 20,
    }
    return CalibrationPlan(**{**asked, **changes})


@pytest.mark.parametrize("forms", [BOTH, (Form.BODY,), (Form.HEADERS,)])
def test_every_kind_is_in_it(forms: tuple[Form, ...]) -> None:
    """All anomalies of the forms, every header, at rates down to one in a million."""
    acts = plan(forms=forms).spec.acts
    wanted = {effect.kind for effect in EFFECTS if effect.form in forms}
    assert {act.kind for act in acts} == wanted
    stripped = {act.header for act in acts if act.kind is Anomaly.STRIP_HEADER}
    assert stripped == (set(HEADER_NAMES) if Form.HEADERS in forms else set())
    for kind in (Anomaly.DROP, Anomaly.REKEY, Anomaly.SWAP):
        rates = sorted(act.rate or 0 for act in acts if act.kind is kind)
        assert rates == pytest.approx([RAREST, 1e-5, 1e-4])


def test_each_part_of_a_body_is_cut() -> None:
    """Values are cut within the descriptor, the numbers and the id, and after the header."""
    made = plan()
    header = len("ann@r7.1") + 34
    left = {
        MESSAGE_SIZE - (act.bytes or 0)
        for act in made.spec.acts
        if act.kind is Anomaly.TRUNCATE and act.producer in {"ann", "cid"}
    }
    assert left == {header + 16, header - 5, 4, header}


def test_as_many_as_asked_for_are_sent() -> None:
    """The two main topics share them, half in each form; small senders send more on top."""
    made = plan(messages=1_000_000)
    sent = [s for s in made.senders if s.topics == MAIN and s.messages > made.few]
    assert sum(s.messages * len(s.topics) for s in sent) == 1_000_000
    assert {s.form for s in sent} == set(BOTH)
    assert len({s.name for s in made.senders}) == len(made.senders) == 6
    assert {s.form for s in plan(forms=(Form.HEADERS,)).senders} == {Form.HEADERS}


def test_small_matrices_have_no_act_that_would_not_occur() -> None:
    """Rates with less than one expected message are left out, but never the highest."""
    acts = plan(messages=20_000, rate=1e-3).spec.acts
    assert min(act.rate for act in acts if act.rate) >= 1 / 20_000
    kinds = {act.kind for act in acts if act.rate}
    assert {Anomaly.REPLAY, Anomaly.DELAY, Anomaly.DROP_RUN} <= kinds


@pytest.mark.parametrize("forms", [BOTH, (Form.BODY,)])
def test_the_file_says_the_same(forms: tuple[Form, ...]) -> None:
    """The specification as TOML reads back unchanged."""
    made = plan(forms=forms)
    assert Spec.parse(made.specification()) == made.spec


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"messages": 9_999}, "--messages"),
        ({"rate": 0}, "--rate"),
        ({"rate": 0.5}, "--rate"),
        ({"consumers": 0}, "--consumers"),
        ({"throughput": 0}, "--throughput"),
        ({"deadline": 1}, "--deadline"),
    ],
)
def test_what_cannot_be_measured_is_refused(change: dict[str, float], word: str) -> None:
    """The error names the option."""
    with pytest.raises(UsageError, match=word):
        plan(**change)
