"""A point from start to end, with programs in the clients' place that behave as told."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.option_file import parse_table
from mirrortest.errors import LabError, MirrortestError, UsageError
from mirrortest.lab.part import Part
from mirrortest.lab.temporary_directories import is_running
from mirrortest.model.verdict import Verdict
from mirrortest.scenario import clients as client_processes
from mirrortest.scenario import deadline, point_run
from mirrortest.scenario.board import Board
from mirrortest.scenario.clusters import Sides
from mirrortest.scenario.matrix import Document
from mirrortest.scenario.outcome import PointOutcome
from mirrortest.scenario.overview import PAGE
from mirrortest.scenario.series import POINT_FILE, SERIES_FILE, Series
from mirrortest.seqlog.session_directory import BusyError
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CLIENT = """
import json, pathlib, signal, sys, time
words = sys.argv[1:]
if words[0] == "reconcile" or "--do=hang" in words:
    pathlib.Path(HUNG).touch()
    time.sleep(600)
if words[0] == "observe":
    def observed(*_):
        pathlib.Path(OBSERVED).write_text("ended in order")
        sys.exit(0)
    signal.signal(signal.SIGTERM, observed)
    output = pathlib.Path(OUTPUT)
    output.joinpath(str(time.monotonic_ns())).mkdir(parents=True)
    if "--do=die" in words and len(list(output.iterdir())) < 3:
        while not list(output.parent.glob("clients/*.status.json")):
            time.sleep(0.05)
        sys.exit("error: killed")
    while True:
        time.sleep(0.05)
value = {word: words[at + 1] for at, word in enumerate(words) if word.startswith("--")
         and at + 1 < len(words)}
told = next((word.removeprefix("--do=") for word in words if word.startswith("--do=")), "pass")
report = pathlib.Path(value["--report"])
def end(*_):
    report.write_text(json.dumps({"kind": "none", "verdict": told, "error": None,
                                  "directory": str(pathlib.Path.cwd())}))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(value["--status-file"]).write_text(json.dumps(
    {"kind": "produce_status", "planned": None, "acked": 1, "acked_per_second": 1.0}))
if told == "await":
    while len(list(pathlib.Path(OUTPUT).iterdir())) < 3:
        time.sleep(0.05)
    told = "pass"
if told == "error":
    sys.exit("error: no broker answers")
if "forever" in words:
    report.with_suffix(".pid").write_text(str(__import__("os").getpid()))
    while True:
        time.sleep(0.05)
told = {"pass": "passed", "fail": "failed"}[told]
end()
"""
PRODUCER = (
    '[clusters]\nsource-bootstrap-server = "a:1"\n[[produce]]\ntopics = "t"\nduration = "1s"\n'
)


@pytest.fixture(autouse=True)
def _scripted_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "client.py"
    point = tmp_path / "out" / "point-001"
    script.write_text(
        CLIENT.replace("OBSERVED", repr(str(point / "observed")))
        .replace("OUTPUT", repr(str(point / "observations")))
        .replace("HUNG", repr(str(tmp_path / "hung")))
    )
    for module in (client_processes, point_run):
        monkeypatch.setattr(module, "PROGRAM", (sys.executable, str(script)))


def arguments(_verb: str, table: Mapping[str, Any], _own: Mapping[str, Any]) -> list[str]:
    """What a scripted client is told."""
    return [f"--do={table.get('do', 'pass')}", *(["forever"] if "until" in table else [])]


def series(text: str, output: Path) -> Series:
    document = Document("small", "small.toml", output.parent, parse_table(text, "small.toml"))
    return Series(document, output, arguments)


def play(text: str, output: Path) -> PointOutcome:
    ended: list[PointOutcome] = []
    series(text, output).run(Board(lambda _: None), ended.append)
    return ended[-1]


def test_a_point_has_the_verdict_of_its_clients(tmp_path: Path) -> None:
    """And its directory says what was run and how it ended."""
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
    """And not only with where the log is."""

    def broken(*_: object) -> None:
        raise LabError("mirror died with exit code 1; the end of m.log:\nstarting\nBoom: no\n\n")

    monkeypatch.setattr(point_run, "running_clusters", broken)
    outcome = play(PRODUCER, tmp_path / "out")
    assert outcome.reasons == ["mirror died with exit code 1; the end of m.log: Boom: no"]


def test_a_client_that_fails_ends_the_point_with_its_own_words(tmp_path: Path) -> None:
    """Others that would wait for it are ended, and none outlives the point."""
    other = '[[consume]]\nuntil = "forever"\n'
    outcome = play(f"{PRODUCER}do = 'error'\n{other}", tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code) == (None, 1)
    assert outcome.reasons == ["p1 failed: error: no broker answers"]
    for pid in (tmp_path / "out/point-001/clients").glob("*.pid"):
        until(lambda pid=pid: not is_running(int(pid.read_text())))


def test_a_client_without_an_end_is_asked_to_end_after_all_others(tmp_path: Path) -> None:
    """An observer, for example: its verdict counts."""
    outcome = play(f'{PRODUCER}do = "fail"\n[[produce]]\nduration = "1s"\n', tmp_path / "a")
    assert outcome.verdict is Verdict.FAILED
    observer = "[[consume]]\ntopics = 't'\nuntil = 'forever'\ndo = 'inconclusive'\n"
    text = PRODUCER.partition("[[produce]]")[0] + observer
    outcome = play(text, tmp_path / "b")
    assert (outcome.verdict, outcome.exit_code) == (Verdict.INCONCLUSIVE, 3)


def test_a_client_that_a_fault_ended_for_good_has_no_verdict_to_give(tmp_path: Path) -> None:
    """The others decide."""
    text = (
        PRODUCER.partition("[[produce]]")[0]
        + "[[consume]]\ntopics = 't'\nuntil = 'forever'\nduration = '1s'\n"
        + "[[consume]]\ntopics = 't'\ndo = 'pass'\n[[fault]]\ndo = 'kill'\npart = 'c1'\nat = '0s'\n"
    )
    outcome = play(text, tmp_path / "out")
    assert (outcome.verdict, outcome.exit_code) == (Verdict.PASSED, 0)
    assert {each.name: each.verdict for each in outcome.clients}["c1"] is None


def test_a_client_that_does_not_end_in_order_fails_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, for example, its files may be lost: that is not to pass for a client's end."""

    def end(client: client_processes.Client, _timeout: float) -> None:
        client.kill()
        raise LabError(f"{client.name}: its files are lost")

    monkeypatch.setattr(client_processes.Client, "terminate", end)
    outcome = play(f"{PRODUCER}[[consume]]\nuntil = 'forever'\n", tmp_path / "out")
    assert (outcome.exit_code, outcome.reasons) == (1, ["c1: its files are lost"])


def test_what_failed_first_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where ending the clients fails, then."""
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
    """The user read why the clean-up failed, and not why the test did."""
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
    """One whose first action is `start` does not run before."""
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


HANG = "sleep 600 & echo $! > pid; touch hung; wait"
CONSUMER = "[[consume]]\n"
COMMAND = """
[[fault]]
do = "command"
command = "%s"
at = "produced"
"""


def leap_once_hung(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a client hangs 1000 s pass at each look at the clock, whenever a deadline is set."""
    leaps = 0

    def monotonic() -> float:
        nonlocal leaps
        leaps += (folder / "hung").exists()
        return time.monotonic() + 1000 * leaps

    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=monotonic))


def test_clients_that_never_say_how_far_they_are_are_ended_without_a_timeout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may last for days, its start may not."""
    leap_once_hung(tmp_path, monkeypatch)
    outcome = play(f"{PRODUCER}do = 'hang'\n", tmp_path / "out")
    assert outcome.reasons == [
        "after 300 s (timeout) still waiting for the first figures of p1",
    ]


@pytest.mark.parametrize(
    ("text", "awaited"),
    [
        (f"{PRODUCER}do = 'hang'\n", "the first figures of p1"),
        (f"[observe]\ndo = 'hang'\n{PRODUCER}", "what mirrortest observe writes first"),
        (PRODUCER + CONSUMER, "reconcile"),
        (f"set-up = ['{HANG}']\n{PRODUCER}", HANG),
        (f"tear-down = ['{HANG}']\n{PRODUCER}", HANG),
        (PRODUCER + COMMAND % HANG, HANG),
    ],
)
def test_whatever_a_point_waits_for_counts_into_its_timeout(
    text: str, awaited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what hangs is ended with all that it started."""
    leap_once_hung(tmp_path, monkeypatch)
    outcome = play(f'timeout = "500s"\n{text}', tmp_path / "out")
    assert outcome.exit_code == 1
    assert outcome.reasons == [f"after 500 s (timeout) still waiting for {awaited}"]
    if awaited == HANG:
        child = int((tmp_path / "pid").read_text())
        until(lambda: not is_running(child))


def test_a_command_that_fails_after_the_clients_have_ended_is_an_error(tmp_path: Path) -> None:
    """It was to be a part of the test."""
    outcome = play(PRODUCER + COMMAND % "echo no; exit 3", tmp_path / "out")
    assert outcome.reasons == ["echo no; exit 3: exit code 3: no"]


def test_names_of_files_count_from_the_scenario_s_directory(tmp_path: Path) -> None:
    """Those of clients and those in commands."""
    text = f"set-up = ['pwd > \"$SCENARIO_DIRECTORY/told\"']\n{PRODUCER}"
    play(text, tmp_path / "out")
    point = tmp_path / "out" / "point-001"
    assert (point / "told").read_text().strip() == str(tmp_path)
    assert json.loads((point / "clients/p1.json").read_text())["directory"] == str(tmp_path)


def test_set_up_and_tear_down_are_run_around_a_point(tmp_path: Path) -> None:
    """They find where everything is in their environment; the second is run after a failure too."""
    up, down = 'echo up >> "$SCENARIO_DIRECTORY/told"', 'echo down >> "$SCENARIO_DIRECTORY/told"'
    text = f"set-up = ['{up}']\ntear-down = ['{down}']\n{PRODUCER}do = 'error'"
    play(text, tmp_path / "out")
    assert (tmp_path / "out/point-001/told").read_text() == "up\ndown\n"


def test_tear_down_removes_what_a_set_up_that_failed_had_created(tmp_path: Path) -> None:
    """It was left out: topics that the first command creates in existing clusters remained.

    Each of its commands is run, also after one that finds nothing to remove.
    """
    down = "tear-down = ['rm missing', 'rm created']\n"
    outcome = play(f"set-up = ['touch created', 'exit 3']\n{down}{PRODUCER}", tmp_path / "out")
    assert outcome.reasons == ["exit 3: exit code 3: no output"]
    assert not (tmp_path / "created").exists()


def test_an_observer_lasts_as_long_as_the_clients(tmp_path: Path) -> None:
    """It is asked to end, so that what it saw is complete."""
    outcome = play(f"[observe]\ninterval = '1s'\n{PRODUCER}", tmp_path / "out")
    assert outcome.verdict is Verdict.PASSED
    assert (tmp_path / "out/point-001/observed").read_text() == "ended in order"


@pytest.mark.parametrize(("restarts", "reasons"), [(3, []), (1, ["observe died with exit code 1"])])
def test_an_observer_that_dies_is_started_again(
    restarts: int, reasons: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few times: then the point fails, for it lacks what was to be observed."""
    monkeypatch.setattr(point_run, "_RESTARTS", restarts)
    ended, shown = list[PointOutcome](), list[str]()
    text = f"[observe]\ndo = 'die'\n{PRODUCER}do = 'await'\n"
    board = Board(lambda board: shown.append(board.lines.get("observe", "")))
    series(text, tmp_path / "out").run(board, ended.append)
    assert [reason.partition(";")[0] for reason in ended[-1].reasons] == reasons
    assert "restarted after exit code 1" in shown


@pytest.mark.parametrize("tear_down", ["", BAD_TEAR_DOWN])
def test_an_interrupt_ends_all_clients(tear_down: str, tmp_path: Path) -> None:
    """At once: the point is begun anew the next time.

    After a tear-down that failed, Ctrl-C only went on with the next point, and a resumed run left
    the interrupted one out.
    """
    pids = tmp_path / "out/point-001/clients"

    def interrupt(board: Board) -> None:
        if "p1" in board.lines:
            raise KeyboardInterrupt

    text = f"{tear_down}{PRODUCER}until = 'x'\n[[produce]]\nduration = '1s'\nuntil = 'x'\n"
    with pytest.raises(KeyboardInterrupt):
        series(text, tmp_path / "out").run(Board(interrupt), lambda _: None)
    for pid in pids.glob("*.pid"):
        assert not is_running(int(pid.read_text()))
    assert not (tmp_path / "out/point-001" / POINT_FILE).exists()


def test_an_interrupted_run_goes_on_at_the_point_that_had_not_ended(tmp_path: Path) -> None:
    """What has ended is not run again; a point without a result is begun anew."""
    text = PRODUCER + "[vary]\nrepeats = 3\n"

    def interrupt(outcome: PointOutcome) -> None:
        if outcome.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        series(text, tmp_path / "out").run(Board(lambda _: None), interrupt)
    half = tmp_path / "out" / "point-003"
    half.mkdir()
    (half / "left").touch()
    runs = [outcome.run for outcome in series(text, tmp_path / "out").ended]
    assert len(runs) == 2
    again: list[int] = []
    series(text, tmp_path / "out").run(
        Board(lambda _: None), lambda each: again.append(each.number)
    )
    assert again == [3]
    assert not (half / "left").exists()
    written = json.loads((tmp_path / "out" / SERIES_FILE).read_text())
    assert [point["run"] for point in written["points"]][:2] == runs
    assert (written["planned"], len(written["points"])) == (3, 3)


@pytest.mark.parametrize("place", ["point-001", "scenario"])
@pytest.mark.parametrize(("left", "why"), [("link", "a link"), ("file", "Not a directory")])
def test_what_an_earlier_run_left_and_cannot_be_removed_is_named(
    tmp_path: Path, place: str, left: str, why: str
) -> None:
    """As files of another user's, which a container leaves; nothing is run."""
    there = tmp_path / "out" / place
    there.parent.mkdir()
    if left == "link":
        there.symlink_to(tmp_path)
    else:
        there.touch()
    with pytest.raises(
        MirrortestError, match=f"{place}: cannot be replaced: .*{why}: remove .*{place}"
    ):
        play(PRODUCER, tmp_path / "out")


def test_the_copy_of_a_scenario_is_kept_where_it_is_what_was_given(tmp_path: Path) -> None:
    """As to go on with results that came without the file."""
    output = tmp_path / "out"
    copy = output / "scenario" / "small.toml"
    copy.parent.mkdir(parents=True)
    copy.write_text(PRODUCER)
    document = Document("small", str(copy), copy.parent, parse_table(PRODUCER, "small.toml"))
    Series(document, output, arguments)._keep_source()
    assert copy.read_text() == PRODUCER


def test_the_page_of_all_points_has_what_varies_and_how_each_ended(tmp_path: Path) -> None:
    """What comes from files and messages is escaped."""
    text = PRODUCER + "[vary]\nproduce.do = ['pass', 'fail']\nproduce.acks = ['<b>']\n"
    series(text, tmp_path / "out").run(Board(lambda _: None), lambda _: None)
    page = (tmp_path / "out" / PAGE).read_text()
    assert "1 of 2 as expected" in page
    assert "produce.do" in page
    assert '<span class="tag bad">failed</span>' in page
    assert "failed, not passed (p1: failed)" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_results_of_another_scenario_are_not_gone_on_with(tmp_path: Path) -> None:
    """Nor is a directory with something else in it."""
    play(PRODUCER, tmp_path / "out")
    with pytest.raises(UsageError, match="it has results of another scenario"):
        series(PRODUCER + "acks = 1\n", tmp_path / "out")
    (tmp_path / "out" / SERIES_FILE).unlink()
    with pytest.raises(UsageError, match=r"it contains results, but no scenario[.]json"):
        series(PRODUCER + "acks = 1\n", tmp_path / "out")
    with pytest.raises(UsageError, match="it is not empty"):
        series(PRODUCER, tmp_path)


def test_results_of_other_files_are_not_gone_on_with(tmp_path: Path) -> None:
    """As of a workload that was edited after an interrupt: one series had points of both."""
    file = tmp_path / "load.toml"
    file.write_text("throughput = 1\n")
    text = f"{PRODUCER}workload = 'load.toml'\n"
    play(text, tmp_path / "out")
    assert series(text, tmp_path / "out").ended
    file.write_text("throughput = 2\n")
    with pytest.raises(UsageError, match="it has results of another scenario"):
        series(text, tmp_path / "out")


def test_two_runs_do_not_write_to_one_directory(tmp_path: Path) -> None:
    """The second would begin the point anew that the first is at."""
    text, output = PRODUCER + "[vary]\nrepeats = 2\n", tmp_path / "out"

    def second(_: PointOutcome) -> None:
        with pytest.raises(BusyError, match="another process is writing here"):
            series(text, output).run(Board(lambda _: None), lambda _: None)

    first = series(text, output)
    first.run(Board(lambda _: None), second)
    assert len(first.ended) == 2
