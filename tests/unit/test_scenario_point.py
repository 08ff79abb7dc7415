"""A point from start to end, with scripted programs in place of the clients."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mirrortest.config.redaction import HIDDEN
from mirrortest.errors import LabError
from mirrortest.host.user_files import read_properties
from mirrortest.lab.part import Part
from mirrortest.lab.properties_file import write_properties
from mirrortest.lab.temporary_directories import is_running
from mirrortest.model.verdict import Verdict
from mirrortest.scenario import clients as client_processes
from mirrortest.scenario import clusters, point_run
from mirrortest.scenario.board import Board
from mirrortest.scenario.clusters import Sides
from mirrortest.scenario.outcome import PointOutcome
from mirrortest.scenario.overview import PAGE
from mirrortest.scenario.series import POINT_FILE
from tests.lab.harness import until
from tests.unit.scenario_documents import document
from tests.unit.scripted_clients import (
    CLUSTERS,
    PRODUCER,
    play,
    scripted_clients,  # noqa: F401  # a fixture
    series,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_point_has_the_verdict_of_its_clients(tmp_path: Path) -> None:
    """Its directory records what was run and how it ended."""
    outcome = play(PRODUCER, tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code, outcome.reasons) == (Verdict.PASSED, 0, [])
    directory = tmp_path / "out" / "point-001"
    assert json.loads((directory / "configuration.json").read_text())["produce"]
    assert json.loads((directory / POINT_FILE).read_text())["clients"] == [
        {"name": "p1", "verb": "produce", "verdict": "passed"}
    ]


def test_a_part_that_died_is_named_with_the_last_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason has more than the log's path."""

    def broken(*_: object) -> None:
        raise LabError("mirror died with exit code 1; the end of m.log:\nstarting\nBoom: no\n\n")

    monkeypatch.setattr(point_run, "running_clusters", broken)
    outcome = play(PRODUCER, tmp_path / "out")
    assert outcome.reasons == ["mirror died with exit code 1; the end of m.log: Boom: no"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """The process id of each client, from its start on; None if it has ended by then."""
    found: dict[str, int | None] = {}
    start = client_processes.Client.start

    def noted(client: client_processes.Client) -> None:
        start(client)
        found[client.name] = client.pid

    monkeypatch.setattr(client_processes.Client, "start", noted)
    return found


def test_a_client_that_fails_ends_the_point_with_its_own_words(
    tmp_path: Path, started: dict[str, int | None]
) -> None:
    """Clients that would wait for it are ended, and none outlives the point."""
    other = '[[consume]]\nuntil = "forever"\n'
    outcome = play(f"{PRODUCER}do = 'error'\n{other}", tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code) == (None, 1)
    assert outcome.reasons == ["p1 failed: error: no broker answers"]
    waiting = started["c1"]
    assert waiting is not None
    assert not is_running(waiting)


def test_a_client_without_an_end_is_asked_to_end_after_all_others(tmp_path: Path) -> None:
    """For example, an observer: its verdict counts."""
    outcome = play(f'{PRODUCER}do = "fail"\n[[produce]]\nduration = "1s"\n', tmp_path / "a")
    assert outcome.verdict is Verdict.FAILED
    observer = "[[consume]]\ntopics = 't'\nuntil = 'forever'\ndo = 'inconclusive'\n"
    outcome = play(CLUSTERS + observer, tmp_path / "b")
    assert (outcome.verdict, outcome.exit_code) == (Verdict.INCONCLUSIVE, 3)


def test_a_client_of_another_version_fails_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod with another image, for example: it ended in a traceback, without a result."""
    report = {"kind": "produce", "verdict": "passed"}
    monkeypatch.setattr(client_processes.Client, "report", report)
    monkeypatch.setattr(client_processes.Client, "status", {"kind": "produce_status"})
    outcome = play(PRODUCER, tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code) == (None, 1)
    (reason,) = outcome.reasons
    assert reason.startswith("a client's summary cannot be read ('whole'): is the client of")


def test_a_point_without_its_fault_has_not_passed(tmp_path: Path) -> None:
    """Its exit code was 0, though nothing had been tested under the fault."""
    kill = "[[fault]]\ndo = 'kill'\npart = 'p1'\nat = '1h'\n"
    outcome = play(PRODUCER + kill, tmp_path / "out")
    reason = "kill of p1 was not done: the clients had ended before it was due"
    assert (outcome.verdict, outcome.exit_code) == (Verdict.PASSED, 3)
    assert outcome.reasons == [reason]
    assert reason in (tmp_path / "out" / PAGE).read_text()


def test_a_client_that_a_fault_ended_for_good_has_no_verdict_to_give(tmp_path: Path) -> None:
    """The other clients decide the verdict."""
    text = (
        CLUSTERS
        + "[[consume]]\ntopics = 't'\nuntil = 'forever'\nduration = '1s'\n"
        + "[[consume]]\ntopics = 't'\ndo = 'pass'\n[[fault]]\ndo = 'kill'\npart = 'c1'\nat = '0s'\n"
    )
    outcome = play(text, tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code) == (Verdict.PASSED, 0)
    assert {each.name: each.verdict for each in outcome.clients}["c1"] is None
    assert outcome.notes == ["no figures of `consume`: a fault ended c1, with what it had counted"]


def test_figures_are_never_those_of_a_clients_last_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had counted before was missing, and nothing said so."""
    reading = {"records_per_second": 1000.0, "mib_per_second": 1.0}
    report = {"kind": "consume", "verdict": "passed", "reading": reading}
    monkeypatch.setattr(client_processes.Client, "report", report)
    text = (
        CLUSTERS
        + "[[consume]]\ntopics = 't'\nuntil = 'forever'\nduration = '1s'\n"
        + "[[consume]]\ntopics = 't'\n"
    )
    restart = "[[fault]]\ndo = 'restart'\npart = 'c1'\nat = '0s'\n"
    kill = "[[fault]]\ndo = 'kill'\npart = 'c1'\n"
    outcome = play(f"{text}{kill}at = '0s'\n", tmp_path / "a")
    assert outcome.figures == {"read_per_second": 2000.0, "read_mib_per_second": 2.0}
    outcome = play(f"{text}{restart}{kill}after = '0s'\n", tmp_path / "b")
    assert outcome.figures == {}
    assert outcome.notes == ["no figures of `consume`: a fault ended c1, with what it had counted"]


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[client_processes.Client]:
    """A client that ignores SIGTERM."""
    (tmp_path / client_processes.CLIENTS).mkdir()
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    place = client_processes.here(tmp_path, tmp_path)._replace(command=("sh", "-c", script))
    client = client_processes.Client("c1", "consume", [], tmp_path, place, endless=False)
    client.start()
    until(lambda: "up" in client.tail())
    yield client
    client.kill()


def test_a_client_that_had_to_be_killed_is_no_client_that_a_fault_killed(
    deaf: client_processes.Client,
) -> None:
    """Its verdict was left out, and nothing said so: the error is the point's reason."""
    with pytest.raises(LabError, match=r"c1 did not end within 0.1 s, and was killed; the end of"):
        deaf.terminate(0.1)


def test_the_end_of_a_failed_point_waits_for_no_client(deaf: client_processes.Client) -> None:
    """After Ctrl-C, for example."""
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(deaf.terminate, 60)
        until(lambda: deaf._draining)
        deaf.abandon()
        ending.result(30)
    assert not deaf.alive


def test_a_client_that_does_not_end_in_order_fails_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, for example, its files may be lost: that must not count as a normal end."""

    def end(client: client_processes.Client) -> None:
        client.kill()
        raise LabError(f"{client.name}: its files are lost")

    monkeypatch.setattr(client_processes.Client, "terminate", end)
    outcome = play(f"{PRODUCER}[[consume]]\nuntil = 'forever'\n", tmp_path / "out")
    assert (outcome.exit_code, outcome.reasons) == (1, ["c1: its files are lost"])


def test_what_failed_first_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if ending the clients then fails."""
    kill = client_processes.Client.kill

    def fail(client: client_processes.Client) -> None:
        kill(client)
        raise LabError(f"{client.name}: its files are lost")

    monkeypatch.setattr(client_processes.Client, "kill", fail)
    outcome = play(f"{PRODUCER}do = 'error'\n", tmp_path / "out")
    assert outcome.reasons == ["p1 failed: error: no broker answers"]
    outcome = play(PRODUCER, tmp_path / "other")
    assert outcome.reasons == ["p1: its files are lost"]


BAD_TEAR_DOWN = "tear-down = ['echo denied; exit 1']\n"


@contextmanager
def _clusters_that_do_not_end(*_: object) -> Iterator[tuple[None, Sides]]:
    try:
        yield None, Sides({"bootstrap-server": "a:1"}, {"bootstrap-server": "a:1"}, "")
    finally:
        raise LabError("A1 did not end")


class _LabWithSecrets(AbstractContextManager["_LabWithSecrets"]):
    """A lab that runs nothing, with a broker's files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.source = SimpleNamespace(bootstrap_servers="a:1")
        write_properties(
            directory / "config" / "A1.properties",
            {"num.io.threads": "3", "ssl.key.password": "geheim", "text": "x = \u00e9"},
        )
        (directory / "config" / "other.yaml").write_text("a: 1\n")
        (directory / "logs").mkdir()
        (directory / "logs" / "A1.log").write_text("started\n")

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory)


def test_the_labs_files_are_kept_without_their_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are passed on; passwords of `[lab] broker` and `mirror-properties` must not be."""
    lab = _LabWithSecrets(tmp_path / "lab")
    monkeypatch.setattr(clusters, "Lab", lambda **_: lab)
    scenario = document('[lab]\nmirror = "none"\n[[consume]]\ntopics = "t"\n').scenario()
    board = Board(lambda _: None)
    with clusters.running_clusters(scenario, tmp_path / "point", tmp_path, (), board):
        pass
    kept = tmp_path / "point" / "lab"
    assert (kept / "logs" / "A1.log").read_text() == "started\n"
    assert (kept / "config" / "other.yaml").read_text() == "a: 1\n"
    assert read_properties(kept / "config" / "A1.properties") == {
        "num.io.threads": "3",
        "ssl.key.password": HIDDEN,
        "text": "x = \u00e9",
    }


def _fail_to_end(part: Part, _timeout: float = 0) -> None:
    part.kill()
    raise LabError(f"{part.name} did not end")


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("tear-down", "echo denied; exit 1: exit code 1: denied"),
        ("observer", "observe did not end"),
        ("clusters", "A1 did not end"),
    ],
)
def test_whatever_fails_to_end_hides_no_error_before_it(
    ending: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user saw why the clean-up failed, and not why the test did."""
    text = PRODUCER
    if ending == "tear-down":
        text = BAD_TEAR_DOWN + text
    elif ending == "observer":
        text = f"[observe]\n{text}"
        monkeypatch.setattr(Part, "terminate", _fail_to_end)
    else:
        monkeypatch.setattr(point_run, "running_clusters", _clusters_that_do_not_end)
    outcome = play(f"{text}do = 'error'\n", tmp_path / "out")
    assert outcome.reasons == ["p1 failed: error: no broker answers"]
    shutil.rmtree(tmp_path / "out")
    assert play(text, tmp_path / "out").reasons == [reason]


def test_a_client_may_be_started_later(tmp_path: Path) -> None:
    """A `start` fault starts it, and its verdict counts."""
    start = "[[fault]]\ndo = 'start'\npart = 'late'\nat = '0s'\n"
    text = f"{PRODUCER}[[produce]]\nid = 'late'\nduration = '1s'\n{start}"
    outcome = play(text, tmp_path / "out")
    events = (tmp_path / "out/point-001/logs").glob("run=*/events.jsonl")
    assert "late" in next(events).read_text()
    assert {each.name: each.verdict for each in outcome.clients}["late"] is Verdict.PASSED


def test_a_point_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """The error names the clients that still ran."""
    text = (
        'timeout = "1ms"\n'
        + PRODUCER.replace('duration = "1s"', "num-records = 1")
        + "until = 'x'\n"
    )
    outcome = play(text, tmp_path / "out")
    assert outcome.exit_code == 1
    assert "still waiting for" in outcome.reasons[0]


def test_the_shells_options_are_not_those_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MIRRORTEST_WORKERS split up the producers, whose consumers then waited for another name."""
    for name in ("WORKERS", "NUM_RECORDS", "CACHE"):
        monkeypatch.setenv(f"MIRRORTEST_{name}", "7")
    place = client_processes.here(tmp_path, tmp_path)
    client = Part("c1", ("env",), tmp_path / "log", program=place.program("c1"))
    client.start()
    until(lambda: not client.alive)
    client.kill()
    options = [line for line in client.tail(1000).splitlines() if line.startswith("MIRRORTEST_")]
    assert options == ["MIRRORTEST_CACHE=7"]


def test_an_observer_lasts_as_long_as_the_clients(tmp_path: Path) -> None:
    """It is terminated in order, so that its observation is complete."""
    outcome = play(f"[observe]\ninterval = '1s'\n{PRODUCER}", tmp_path / "out")
    assert outcome.verdict is Verdict.PASSED
    assert (tmp_path / "out/point-001/observed").read_text() == "ended in order"


def test_what_a_scenario_observes_is_observed_besides_the_point(tmp_path: Path) -> None:
    """Its own `match` replaces neither the clients nor what has the run's id."""
    outcome = play(f"[observe]\nmatch = 'java'\n{PRODUCER}", tmp_path / "out")
    words = (tmp_path / "out/point-001/observe.log").read_text().split()
    matches = [word.removeprefix("--match=") for word in words if word.startswith("--match=")]
    assert matches == [str(tmp_path / "out/point-001/clients/p1."), outcome.run, "java"]


@pytest.mark.parametrize(("restarts", "reasons"), [(3, []), (1, ["observe died with exit code 1"])])
def test_an_observer_that_dies_is_started_again(
    restarts: int, reasons: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few times; then the point fails, because observations are missing."""
    monkeypatch.setattr(point_run, "_RESTARTS", restarts)
    ended, shown = list[PointOutcome](), list[str]()
    text = f"[observe]\ndo = 'die'\n{PRODUCER}do = 'await'\n"
    board = Board(lambda board: shown.append(board.lines.get("observe", "")))
    series(text, tmp_path / "out").run(board, ended.append)
    assert [reason.partition(";")[0] for reason in ended[-1].reasons] == reasons
    assert "restarted after exit code 1" in shown


@pytest.mark.parametrize("tear_down", ["", BAD_TEAR_DOWN])
def test_an_interrupt_ends_all_clients(
    tear_down: str, tmp_path: Path, started: dict[str, int | None]
) -> None:
    """At once: the next run starts the point again.

    After a tear-down that failed, Ctrl-C only moved on to the next point, and a resumed run skipped
    the interrupted one.
    """

    def interrupt(board: Board) -> None:
        if "p1" in board.lines:
            raise KeyboardInterrupt

    text = f"{tear_down}{PRODUCER}until = 'x'\n[[produce]]\nduration = '1s'\nuntil = 'x'\n"
    with pytest.raises(KeyboardInterrupt):
        series(text, tmp_path / "out").run(Board(interrupt), lambda _: None)
    assert set(started) == {"p1", "p2"}
    for pid in started.values():
        assert pid is not None
        assert not is_running(pid)
    assert not (tmp_path / "out/point-001" / POINT_FILE).exists()
