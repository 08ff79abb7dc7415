"""From a run's events to the times at which a part was down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.report.html.charts import MOST_MARKS
from mirrortest.report.html.page import page
from mirrortest.report.result import read_result
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.location import Location
from tests.made_result import RUN, START, Made, note_events

if TYPE_CHECKING:
    from pathlib import Path


def test_an_outage_lasts_until_the_part_is_ready(tmp_path: Path) -> None:
    """A kill is shaded until its part is ready again, or to the end if it never is."""
    place = Made(minutes=10).write(tmp_path, sessions=False)
    note_events(
        tmp_path, (1, "kill", "mirror"), (2, "stop", "broker"), (3, "start", "mirror"),
        (4, "ready", "mirror"), (5, "cable", ""), (99, "too late", ""),
    )  # fmt: skip
    result = read_result(Location.parse(place))
    content = page(result)
    minutes = [
        tuple(mark[at] and (mark[at] / 1000 - START) / 60 for at in ("at", "until"))
        for mark in content["charts"]["marks"]
    ]
    assert minutes == [(1, 4), (2, None), (3, 3), (4, 4), (5, 5), (99, 99)]
    labels = [mark["label"] for mark in content["marks"]]
    assert labels[0] == "mirror: kill, down for 3 min"
    assert labels[1] == "broker: stop, and did not come up again"
    assert labels[4] == "cable"


def test_an_outage_ends_though_its_end_is_not_shown(tmp_path: Path) -> None:
    """The part of the last shown event was said not to have come up again, whatever followed."""
    place = Made(minutes=90).write(tmp_path, sessions=False)
    before = [(1, f"cable {at}", "") for at in range(MOST_MARKS - 1)]
    note_events(tmp_path, *before, (2, "kill", "mirror"), (5, "ready", "mirror"))
    shown = page(read_result(Location.parse(place)))
    assert shown["marks_left_out"] == 1
    assert shown["marks"][-1]["label"] == "mirror: kill, down for 3 min"
    mark = shown["charts"]["marks"][-1]
    assert (mark["until"] / 1000 - START) / 60 == 5


def test_a_pause_and_a_cut_last_until_they_are_undone(tmp_path: Path) -> None:
    """Only the matching action ends a fault, but a new start ends all of them."""
    place = Made(minutes=20).write(tmp_path, sessions=False)
    note_events(
        tmp_path, (1, "pause", "A1"), (2, "disconnect", "B1"), (3, "continue", "A1"),
        (4, "unpause", "B1"), (5, "unpause", "A1"), (6, "connect", "B1"), (7, "pause", "A1"),
        (8, "resume", "A1"), (9, "disconnect", "B1"), (10, "ready", "B1"),
    )  # fmt: skip
    marks = page(read_result(Location.parse(place)))["charts"]["marks"]
    lasting = [
        ((mark["at"] / 1000 - START) / 60, (mark["until"] / 1000 - START) / 60)
        for mark in marks
        if mark["until"] > mark["at"]
    ]
    assert lasting == [(1, 5), (2, 6), (7, 8), (9, 10)]


def test_a_links_faults_last_until_each_is_healed(tmp_path: Path) -> None:
    """`heal` ends one fault or all of them; the link is not called down meanwhile."""
    place = Made(minutes=20).write(tmp_path, sessions=False)
    log = EventLog(tmp_path, RUN)
    for minute, what, detail in (
        (1, "delay", "200 ms"), (2, "rate", "1,000 B/s"), (4, "heal", "rate"), (5, "cut", ""),
        (6, "heal", ""), (7, "reset", ""),
    ):  # fmt: skip
        log.note(what, "link-source", detail=detail, time_ns=(START + minute * 60) * 10**9)
    content = page(read_result(Location.parse(place)))
    assert [mark["label"] for mark in content["marks"]] == [
        "link-source: delay 200 ms, for 5 min", "link-source: rate 1,000 B/s, for 2 min",
        "link-source: heal rate", "link-source: cut, for 1 min", "link-source: heal",
        "link-source: reset, and was not healed",
    ]  # fmt: skip
