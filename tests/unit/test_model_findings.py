"""The registry of findings: each has one row, and no number or name in logs ever changes."""

from __future__ import annotations

import pytest

from mirrortest.model.findings import (
    BY_LEDGER,
    DEFINITIONS,
    IN_PARTITION,
    NO_STREAM,
    OF_STREAM,
    PER_MESSAGE,
    Finding,
    Outcome,
    failing,
)


def test_each_finding_has_one_row() -> None:
    """The rows are in an order for readers, not by bit; each has a meaning."""
    assert sorted(each.finding for each in DEFINITIONS) == sorted(Finding)
    assert all(each.meaning for each in DEFINITIONS)


def test_what_logs_and_states_hold_stays() -> None:
    """Bits, values and labels are written into logs: new ones are added, none is changed."""
    assert [(finding.label, finding.bit_length() - 1) for finding in Finding] == [
        ("foreign", 0), ("other_run", 1), ("unproven", 2), ("corrupted", 3), ("altered_key", 4),
        ("altered_headers", 5), ("altered_timestamp", 6), ("misrouted", 7), ("duplicated", 8),
        ("reordered", 9), ("lost", 10), ("in_flight", 11), ("late", 12), ("phantom", 13),
        ("compacted", 14), ("inconclusive", 15),
    ]  # fmt: skip
    assert [(outcome.label, int(outcome)) for outcome in Outcome] == [
        ("acked", 1), ("failed", 2), ("unknown", 3),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="not one finding"):
        _ = Finding(0).label


def test_scopes_part_the_findings() -> None:
    """Each finding is in exactly one of NO_STREAM, IN_PARTITION and BY_LEDGER."""
    assert {*NO_STREAM, *IN_PARTITION, *BY_LEDGER} == set(Finding)
    assert len(NO_STREAM) + len(OF_STREAM) == len(Finding)
    assert set(PER_MESSAGE) == {*NO_STREAM} | {f for f in IN_PARTITION if f <= Finding.MISROUTED}


def test_what_fails_a_run_by_default() -> None:
    """Loss and every change to a message; duplicates and reordering under exactly-once only."""
    always = [
        "lost", "corrupted", "misrouted", "phantom",
        "altered_key", "altered_headers", "altered_timestamp",
    ]  # fmt: skip
    assert [finding.label for finding in failing(exactly_once=False)] == always
    repeated = ["duplicated", "reordered"]
    assert [finding.label for finding in failing(exactly_once=True)] == always + repeated
