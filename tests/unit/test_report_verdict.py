"""What the report says of the verdict: its reasons, and what failed first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirrortest.model.verdict import Verdict
from mirrortest.report.html import render
from mirrortest.report.html.page import page
from mirrortest.report.html.timeline import from_minutes
from mirrortest.report.result import read_result
from mirrortest.report.story import failures
from mirrortest.results.conditions import details, headline
from mirrortest.results.summary import Summary, Threshold
from mirrortest.seqlog.location import Location
from tests.made_result import Made, failed_run, note_events
from tests.unit.report_page import Page, result_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failed_run_says_what_failed_first(tmp_path: Path) -> None:
    """The headline names every failed condition; failures are in the order of their times."""
    made = failed_run()
    place = made.write(tmp_path)
    note_events(tmp_path, (70.2, "kill", "mirror"), (75.1, "ready", "mirror"))
    result = read_result(Location.parse(place))
    sentence = headline(result.summary)
    assert sentence.startswith(
        "511 of 32,400,000 acknowledged messages were lost; 1 message was corr"
    )
    assert sentence.endswith("and the p(99) was 312 s, which p(99)<2s forbids.")
    timeline = from_minutes(result.table("by_minute"), result.table("latency"))
    assert timeline is not None
    shown = [str(each) for each in failures(result.summary, timeline, result.events)]
    assert [text.split(" in topic ")[0] for text in shown] == [
        "3 messages were misrouted",
        "p(99) was 420 s",
        "480 messages were lost",
        "1 message was corrupted",
    ]
    assert "mirror" not in shown[0]
    assert shown[1].endswith(
        "; the event “mirror: kill” is within the same 1 min, before or after the first of these "
        "messages"
    )
    assert shown[2].endswith("; the last event before: “mirror: kill” at 2023-03-28 11:50:12 UTC")
    assert shown[3].endswith("meant to be sent in the 1 min from 2023-03-28 12:40 UTC")
    words = Page(render(result)).words
    assert "What failed first" in words
    assert "1 reason" in words


def test_what_an_undecided_condition_is_about_is_not_called_allowed() -> None:
    """Of duplicates that a producer may have sent, the page said that the conditions allow them."""
    summary = Summary(
        run="r1",
        verdict=Verdict.INCONCLUSIVE,
        exit_code=3,
        counts={"acked": 100, "duplicated": 5, "late": 1},
        thresholds=[Threshold(expression="duplicated==0", value=None, passed=True)],
        inconclusive=["threshold duplicated==0: the mirror may not have caused 5 of 5"],
    )
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in details(summary)] == [
        "Other findings, which the conditions allow: 1 late (1 %).",
        "Could not be judged: 5 duplicated (5 %).",
    ]


@pytest.mark.parametrize(
    ("ends", "lasted"),
    [
        ({"producer": 60, "consumer": 90}, "lasted 1 min 30 s"),
        ({"producer": 60}, "lasted 1 min"),
        ({}, "sent for 2 min"),
    ],
)
def test_the_run_lasted_until_its_last_known_end(
    tmp_path: Path, ends: dict[str, int], lasted: str
) -> None:
    """A run whose processes were all killed lasted 0 s."""
    place = Made(minutes=2).write(tmp_path)
    for file in tmp_path.rglob("session.json"):
        session = json.loads(file.read_text())
        end = ends.get(session["role"])
        session["ended_ns"] = None if end is None else session["started_ns"] + end * 10**9
        file.write_text(json.dumps(session))
    assert page(read_result(Location.parse(place)))["lasted"] == lasted
    for name in ("by_minute", "latency"):
        (place / f"{name}.parquet").unlink()
    if not ends:
        shown = page(read_result(Location.parse(place)))
        assert (shown["began"], shown["lasted"]) == ("2023-03-28 10:40:00", "its end is unknown")


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("duplicated==0", True),
        ("duplicated<5", True),
        ("duplicated<=0.1%", True),
        ("duplicated>=100", False),
        ("duplicated==7", False),
        ("acked>=1000000", False),
        ("acked<10", False),
    ],
)
def test_what_failed_first_is_what_went_wrong(tmp_path: Path, condition: str, named: bool) -> None:
    """The page named the first acknowledged ones, where too few were acknowledged."""
    made = Made(
        minutes=2,
        wrong={"duplicated": [(1, 0, 5)]},
        thresholds=[(condition, 5.0, False)],
        verdict=Verdict.FAILED,
    )
    text = page(read_result(Location.parse(made.write(tmp_path))))["first"].text
    assert text.startswith("5 messages were duplicated" if named else "The time is unknown")


def test_what_no_condition_forbids_is_said_and_what_could_not_be_judged(tmp_path: Path) -> None:
    """Allowed duplicates are not a failure, and in-flight messages are not lost."""
    made = Made(wrong={"duplicated": [(1, 0, 600)], "in_flight": [(2, 0, 12)]})
    summary = made.summary(tmp_path)
    allowed, doubtful = details(summary)
    assert allowed.replace("\xa0", " ") == (
        "Other findings, which the conditions allow: 600 duplicated (0.5 %)."
    )
    assert doubtful.replace("\xa0", " ") == "Could not be judged: 12 in flight (0.01 %)."
    assert headline(summary) == "Every condition is met."


@pytest.mark.parametrize(
    ("metric", "count", "sentence"),
    [
        ("altered_key", 1, "1 message had an altered key."),
        ("altered_headers", 2, "2 messages had altered headers."),
        ("phantom", 2, "2 messages were seen but never sent."),
        ("phantom", 1, "1 message was seen but never sent."),
        ("lost", 1, "1 of 120,000 acknowledged messages was lost."),
        ("other_run", 3, "3 messages were of another run."),
        ("negative_latency", 3, "3 messages had a latency below zero."),
    ],
)
def test_failures_are_sentences(tmp_path: Path, metric: str, count: int, sentence: str) -> None:
    """Whatever the condition's metric, for one message or many."""
    made = Made(
        counts={metric: count},
        thresholds=[(f"{metric}==0", float(count), False)],
        verdict=Verdict.FAILED,
    )
    assert headline(made.summary(tmp_path)) == sentence


def test_a_clean_run_says_so(tmp_path: Path) -> None:
    """All arrived, nothing was found: sentences replace empty tables."""
    result = result_of(Made(), tmp_path)
    assert headline(result.summary) == (
        "All 120,000 acknowledged messages arrived, and every condition is met."
    )
    words = Page(render(result)).words
    for sentence in (
        "Nothing failed",
        "There are no findings.",
        "Nothing was found in any partition.",
        "There are no findings, and every acknowledged message in the logs was delivered.",
        "No fault was recorded in this run",
    ):
        assert sentence in words


def test_an_inconclusive_run_gives_its_reasons(tmp_path: Path) -> None:
    """The page says why the run neither passed nor failed."""
    made = Made(verdict=Verdict.INCONCLUSIVE, inconclusive=["the log of producer bob.2 is missing"])
    result = result_of(made, tmp_path)
    assert "could not be judged completely: 1 reason below" in headline(result.summary)
    assert "the log of producer bob.2 is missing" in Page(render(result)).words
    first = page(result)["first"]
    assert (first.tone, first.text) == ("doubt", "What could be judged has no findings.")
