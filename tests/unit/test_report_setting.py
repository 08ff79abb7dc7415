"""How a run was set up, according to its sessions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.report.html.setting import (
    MOST_SESSIONS,
    MappedTopic,
    Setting,
    changes,
    run_events,
    setting,
)
from mirrortest.report.result import read_result
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.session import Session
from tests.made_result import RUN, START, Made

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.report.result import Result


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A run's logs with its result: a producer and a consumer."""
    Made(minutes=3).write(tmp_path)
    return tmp_path


def result_of(logs: Path, *places: Path) -> Result:
    """The result, with the logs in these places, or else those next to it."""
    return read_result(
        Location.parse(logs / f"run={RUN}" / "result"), [Location.parse(each) for each in places]
    )


def setting_of(logs: Path) -> Setting:
    return setting(result_of(logs))


def add(logs: Path, **changes: Any | None) -> Path:
    """Add a session; return its directory."""
    given = {"run": RUN, "role": "consumer", "name": "dora", "session": "s-x", "started_ns": 1}
    session = Session.model_validate(given | changes)
    folder = logs.joinpath(*session.folders)
    folder.mkdir(parents=True)
    (folder / "session.json").write_bytes(session.encode())
    return folder


def test_both_sides_make_one_picture(logs: Path) -> None:
    """Topics with their copies, cluster ids, and the time from the first start to the last end."""
    found = setting_of(logs)
    assert found.topics == [
        MappedTopic("clicks.eu", "A.clicks.eu", None, 4),
        MappedTopic("orders", "A.orders", None, 4),
    ]
    assert found.clusters == {"source": "c-producer", "destination": "c-consumer"}
    assert (found.began_ns, found.ended_ns) == (START * 10**9, (START + 180) * 10**9)
    assert [(ran.role, ran.name, ran.ended) for ran in found.sessions] == [
        ("producer", "ann, incarnation 1", "in order"),
        ("consumer", "carl", "in order"),
    ]
    assert found.sessions[1].facts["deadline"] == "1 min"


def test_a_crash_and_the_users_settings_are_told(logs: Path) -> None:
    """A session without an end is shown as such, with the user's settings."""
    add(logs, settings={"throughput": "5000/s"}, role="source", name="eve")
    crashed = setting_of(logs).sessions[-1]
    assert (crashed.role, crashed.ended, crashed.lasted) == (
        "source observer", "still running, or crashed", "unknown",
    )  # fmt: skip
    assert crashed.facts["throughput"] == "5000/s"


def test_a_producers_own_summary_tells_its_load(logs: Path) -> None:
    """Its numbers are shown; a file that is not a summary is ignored."""
    folder = add(logs, role="producer", name="bob", incarnation=2)
    figures = {"records": 12345, "records_per_second": 99.6, "mib_per_second": None}
    (folder / "summary.json").write_text(json.dumps({"version": 1, "whole": figures}))
    (bob,) = [ran for ran in setting_of(logs).sessions if ran.name == "bob, incarnation 2"]
    assert bob.facts == {
        "messages": "12,345", "messages/s": "99.6", "log": "intervals, 0 rows",
    }  # fmt: skip
    for strange in ("[", "[]", '{"version": 2}', '{"version": 1, "whole": 3}'):
        (folder / "summary.json").write_text(strange)
        (bob,) = [ran for ran in setting_of(logs).sessions if ran.name == "bob, incarnation 2"]
        assert bob.facts == {"log": "intervals, 0 rows"}


@pytest.mark.parametrize(
    ("rate", "shown"), [(0.2, "0.2"), (0.000953, "0.000953"), (99.64, "99.6"), (12345.6, "12,346")]
)
def test_a_slow_producers_rate_is_not_0(logs: Path, rate: float, shown: str) -> None:
    folder = add(logs, role="producer", name="bob")
    figures = {"records_per_second": rate, "mib_per_second": rate}
    (folder / "summary.json").write_text(json.dumps({"version": 1, "whole": figures}))
    (bob,) = [ran for ran in setting_of(logs).sessions if ran.name == "bob"]
    assert (bob.facts["messages/s"], bob.facts["MiB/s"]) == (shown, shown)


def test_a_crowd_is_cut_off_and_counted(logs: Path) -> None:
    """A run of hundreds of pods does not fill a page with hundreds of rows."""
    for number in range(MOST_SESSIONS):
        add(logs, name=f"d{number}", session=f"s{number}")
    found = setting_of(logs)
    assert (len(found.sessions), found.sessions_left_out) == (MOST_SESSIONS, 2)


def test_a_broken_session_is_told_and_stops_nothing(logs: Path) -> None:
    """The report lists what it could not read, and goes on."""
    folder = add(logs)
    (folder / "session.json").write_text("{")
    result = result_of(logs)
    assert any("not a session of this version" in each for each in result.absent)


def test_a_session_copied_to_two_places_is_told_once(
    logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Logs of both sides that were brought together may have the same session twice."""
    other = tmp_path_factory.mktemp("other")
    add(other, name="carl", session="s-consumer")
    assert len(result_of(logs, logs, other).sessions) == 2


def test_a_restart_in_mid_run_is_an_event(logs: Path) -> None:
    """Processes that start later or end earlier than their role's others are shown as changes."""
    result = result_of(logs)
    expected = ["producers: began", "consumers: began", "producers: ended", "consumers: ended"]
    assert [str(event) for event in run_events(result)] == expected
    assert changes(result) == []
    begin = START * 10**9
    second = 10**9
    add(logs, session="a", name="dora", started_ns=begin + second, ended_ns=begin + 60 * second)
    add(logs, session="b", name="dora", started_ns=begin + 70 * second, ended_ns=None)
    result = result_of(logs)
    assert [(str(event), (event.time_ns - begin) // second) for event in changes(result)] == [
        ("consumer dora: ended", 60),
        ("consumer dora: began", 70),
    ]


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_role_has_ended_once_all_of_it_have(logs: Path, role: str) -> None:
    """The page said that the producers ended, though one of two had been killed for good."""
    add(logs, role=role, session="killed", name="eve", started_ns=START * 10**9, ended_ns=None)
    result = result_of(logs)
    shown = [str(event) for event in run_events(result)]
    assert f"{role}s: began" in shown
    assert f"{role}s: ended" not in shown
    assert len(shown) == 3
    again = {"started_ns": START * 10**9 + 1, "ended_ns": START * 10**9 + 2}
    add(logs, role=role, session="again", name="eve", **again)
    result = result_of(logs)
    assert f"{role}s: ended" in [str(event) for event in run_events(result)]
