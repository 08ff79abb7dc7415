"""Text for names and numbers: every name is explained, and no share is rounded to all or none."""

from __future__ import annotations

import pytest

from mirrortest.config.threshold import COUNTS
from mirrortest.config.units import span
from mirrortest.model.findings import Finding
from mirrortest.results.conditions import condition_result
from mirrortest.results.summary import Threshold, as_percentage
from mirrortest.results.words import (
    FINDINGS,
    meaning_of,
    moment,
    partitions,
    readable_name,
    share,
    weight_of,
)


def test_every_count_has_a_meaning() -> None:
    """Every count that a threshold can name, and each finding, is explained."""
    assert [name for name in COUNTS if not meaning_of(name)] == []
    assert {finding.label for finding in Finding} <= set(FINDINGS)


def test_a_name_of_a_newer_version_is_told_as_it_is() -> None:
    """A count that this version does not have gets a readable name, a weight, and no meaning."""
    assert readable_name("brand_new") == "brand new"
    assert (weight_of("brand_new").value, meaning_of("brand_new")) == ("note", "")


@pytest.mark.parametrize(
    ("part", "total", "expected"),
    [
        (0, 0, ""),
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 8, "12.5 %"),
        (999_999, 1_000_000, "> 99.9 %"),
        (1, 10**9, "< 0.001 %"),
        (1, 50_000, "0.002 %"),
        (5000, 100, "5,000 %"),
    ],
)
def test_a_share_never_looks_like_all_or_nothing(part: int, total: int, expected: str) -> None:
    """Less than all is not 100 %, and more than nothing is not 0 %."""
    assert share(part, total).replace("\N{NO-BREAK SPACE}", " ") == expected


@pytest.mark.parametrize(
    ("part", "total", "expected"),
    [(0, 10, "0 %"), (10, 10, "100 %"), (9_999_999, 10**7, "<100 %"), (1, 10**7, "<0.0001 %")],
)
def test_a_percentage_never_looks_like_all_or_nothing(part: int, total: int, expected: str) -> None:
    """One lost message of ten million was 0 %."""
    assert as_percentage(part, total) == expected


@pytest.mark.parametrize(
    ("expression", "value", "passed", "measured"),
    [
        ("delivered>=100%", 99.99999, False, "99.99999 %"),
        ("delivered>=99%", 99.99999, True, "100 %"),
        ("delivered>=100%", 100.0, True, "100 %"),
        ("lost<0.1%", 0.1, False, "0.1 %"),
        ("lost<=0.1%", 0.10000001, False, "0.10000001 %"),
        ("lost<=0%", 0.0000001, False, "0.0000001 %"),
        ("duplicated<9%", 5000.0, False, "5,000 %"),
        ("p(99)<100s", 100.4, False, "100.4 s"),
        ("p(99)<100s", 101.0, False, "101 s"),
        ("p(99)<100s", 100.1, True, "100 s"),
    ],
)
def test_a_failed_condition_is_not_shown_with_a_value_that_meets_it(
    expression: str, value: float, passed: bool, measured: str
) -> None:
    """`delivered>=100%` failed with "100 %" if one message of ten million was missing."""
    threshold = Threshold(expression=expression, value=value, passed=passed)
    assert condition_result(threshold).measured == measured


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0123, "12.3 ms"),
        (1, "1 s"),
        (5.5, "5.50 s"),
        (40.2, "40 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (86400 * 2 + 3600 * 3, "2 d 3 h"),
    ],
)
def test_lengths_of_time(seconds: float, expected: str) -> None:
    """A length of time is in the two units that fit."""
    assert span(round(seconds * 1e9)) == expected


def test_moments_are_as_fine_as_asked() -> None:
    """Minutes for slots of minutes, else seconds; UTC."""
    at = 1_795_242_632_417_333_643
    assert moment(at) == "2026-11-21 06:30:32"
    assert moment(at, 60 * 10**9) == "2026-11-21 06:30"


def test_partitions_that_are_neighbours_are_shown_as_a_range() -> None:
    """A topic may have hundreds of them."""
    assert partitions([4]) == "partition 4"
    assert partitions([7, 0, 1, 2, 3]) == "partitions 0-3, 7"
    assert partitions(range(0, 60, 2)).endswith("38 and 10 more ranges")
