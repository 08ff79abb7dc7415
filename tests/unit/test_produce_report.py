"""A producer's report: its notes and its exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.model.findings import Outcome
from mirrortest.produce.options import ProduceOptions
from mirrortest.produce.produce_report import ProduceReport
from mirrortest.produce.recording import TopicNumbers
from mirrortest.verify.ledger_record import LaneRecord
from mirrortest.wire.stream import StreamId
from mirrortest.workers import producers


def report(*, warmup: int, steady: int) -> ProduceReport:
    numbers = TopicNumbers(100)
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
    """As JSON and as text: otherwise figures that are all 0 would look like a result."""
    found = report(warmup=warmup, steady=steady)
    notes = found.to_json()["notes"]
    assert notes[0] == "a note"
    assert [("within the warm-up of 9 messages of orders" in each) for each in notes[1:]] == (
        [True] if noted else []
    )
    assert found.result().remarks[-len(notes) :] == notes


@pytest.mark.parametrize(
    ("changes", "incarnation", "code"),
    [
        ({}, 1, 3),
        ({"due": False}, 1, 0),
        ({}, 2, 0),
        ({"error": MirrortestError("away")}, 1, 1),
        ({"error": UsageError("wrong")}, 2, 2),
    ],
)
def test_a_run_in_which_nothing_was_sent_proves_nothing(
    changes: dict[str, Any], incarnation: int, code: int
) -> None:
    """Unless a signal ended it, or it is a restart: the process before may have sent everything."""
    lane = LaneRecord(StreamId("orders", "r", "p", incarnation, 1), 9)
    found = replace(_nothing(), lanes=[(lane, 0)], **changes)
    assert found.exit_code == found.to_json()["exit_code"] == code
    assert (found.result().why == "No message was acknowledged, so nothing is proven.") is (
        code == 3
    )


def test_workers_that_sent_nothing_together_prove_nothing() -> None:
    """A single worker may have had no message to send, so only all of them together count."""
    each = [replace(_nothing(), due=False)] * 2
    assert [report.exit_code for report in each] == [0, 0]
    options = ProduceOptions(
        run="r", name="p", client=ClientConfig(bootstrap_servers=("a:1",)), topics=("orders",)
    )
    assert producers.merged(options, each).exit_code == 3
    assert producers.merged(options, each, interrupted=True).exit_code == 0


def _nothing() -> ProduceReport:
    return replace(report(warmup=0, steady=0), numbers={"orders": TopicNumbers(100)})
