"""`mirrortest run` on the command line: where results go, and how nights are compared."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
import typer

from mirrortest.cli import main
from mirrortest.cli.interrupt import interrupt
from mirrortest.cli.run import run
from mirrortest.compare import history as history_module
from mirrortest.compare.history import TIME, nights
from mirrortest.errors import UsageError
from mirrortest.model.verdict import Verdict
from mirrortest.scenario.catalogue import find
from mirrortest.scenario.outcome import PointOutcome
from mirrortest.scenario.series import Series
from tests import documented
from tests.compared import produced, write

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.scenario.matrix import Point
    from tests.documented import Shown

PRODUCER = """
[clusters]
source-bootstrap-server = "a:1"
[[produce]]
topics = "load"
num-records = 1
[vary]
repeats = 4
"""


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrortest.cli.run.signal.signal", lambda *_: None)


@pytest.fixture
def scenarios(tmp_path: Path) -> list[str]:
    """The files of two scenarios, `one` and `two`."""
    files = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for file in files:
        file.write_text(PRODUCER)
    return [str(file) for file in files]


def _code(*scenarios: str, **options: object) -> int:
    with pytest.raises(typer.Exit) as ended:
        run(scenario=list(scenarios), **options)  # type: ignore[arg-type]
    return ended.value.exit_code


def _outcome(point: Point, document: dict[str, Any], directory: Path) -> PointOutcome:
    """A point that ended as expected, with a producer's summary in its directory."""
    write(directory / "p1.json", document)
    return PointOutcome(
        number=point.number,
        label="",
        settings={},
        repeat=point.repeat,
        run=document["run"],
        verdict=Verdict.PASSED,
        expected=Verdict.PASSED,
        as_expected=True,
        exit_code=0,
        began="",
        seconds=1.0,
    )


def _passed(point: Point, directory: Path, *_: object) -> PointOutcome:
    return _outcome(point, produced(f"r{point.number}"), directory)


@pytest.mark.parametrize(
    ("place", "number", "options", "words"),
    [
        ("output", signal.SIGINT, {"as_json": True}, ["--json"]),
        ("history", signal.SIGTERM, {"keep": 3, "details": True}, ["--keep", "3", "--details"]),
    ],
)
def test_an_interrupted_run_names_the_command_that_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    number: int,
    options: dict[str, object],
    words: list[str],
) -> None:
    """It has all options: other values are another scenario, other output breaks a script.

    The exit code is the signal's, as for every command that a signal ends.
    """

    def interrupted(*_: object) -> None:
        interrupt(number)

    monkeypatch.setattr(Series, "run", interrupted)
    directory, changes = tmp_path / "two words", ["produce.duration=5s", "fault.at='2s'"]
    code = _code("demo", change=changes, **{place: directory}, **options)
    assert code == 128 + number
    command = capsys.readouterr().err.partition("to go on at the same point: ")[2]
    name, *given = shlex.split(command)[2:]
    expected = [f"--{place}", str(directory), "--set", changes[0], "--set", changes[1], *words]
    assert (name, sorted(given)) == (find("demo").name, sorted(expected))


def test_nights_are_kept_and_what_got_worse_is_said(
    scenarios: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each scenario prints a line; the worst exit code counts; old nights are removed."""
    history, slow, hour = tmp_path / "nights", {"one": 1.0, "two": 1.0}, 0

    class Clock:
        @staticmethod
        def now(_: object) -> Clock:
            return Clock()

        def __format__(self, form: str) -> str:
            assert form == TIME
            return f"20260101T{hour:02}0000Z"

    def play(point: Point, directory: Path, *_: object) -> PointOutcome:
        name = directory.parent.parent.name
        document = produced(f"{name}{hour}x{point.number}", p99=slow[name] + point.number / 100)
        document["session"] = f"20260101T{hour:02}000{point.number}Z-1"
        return _outcome(point, document, directory)

    monkeypatch.setattr("mirrortest.cli.run.datetime", Clock)
    monkeypatch.setattr("mirrortest.scenario.series.play", play)
    printed, codes = [], []
    for hour in range(4):
        slow["two"] = 2.0 if hour == 3 else 1.0
        codes.append(_code(*scenarios, history=history, keep=2))
        printed.append(capsys.readouterr().out.splitlines())
    assert codes == [0, 0, 0, 99]
    assert "one: 4 of 4 as expected; the first of its history" in printed[0]
    assert "one: 4 of 4 as expected; not worse than 20260101T020000Z" in printed[3]
    assert "two: 4 of 4 as expected; worse than 20260101T020000Z" in printed[3]
    assert any("worse: ack_latency.p(99) by +9" in line for line in printed[3])
    for name in slow:
        kept = [night.name for night in nights(history / name)]
        assert kept == ["20260101T020000Z", "20260101T030000Z"]


def test_a_night_that_cannot_be_read_is_an_error(
    scenarios: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is one even if its points passed: whether it got worse is unknown."""

    def play(point: Point, directory: Path, *_: object) -> PointOutcome:
        return _outcome(point, produced(f"r{point.number}") | {"whole": None}, directory)

    monkeypatch.setattr("mirrortest.scenario.series.play", play)
    assert _code(scenarios[0], history=tmp_path / "nights", keep=2) == 1
    assert "one: 4 of 4 as expected; not compared: " in capsys.readouterr().out


@pytest.mark.parametrize("shown", documented.commands("run", only="--history"), ids=str)
def test_nights_as_documented(
    shown: Shown,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The documented command runs a built-in scenario and a file; their points are faked."""
    monkeypatch.setattr("mirrortest.scenario.series.play", _passed)
    monkeypatch.chdir(tmp_path)
    (file,) = (word for word in shown.words if word.endswith(".toml"))
    (tmp_path / file).write_text(PRODUCER)
    monkeypatch.setattr("sys.argv", ["mirrortest", *shown.words])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (shown.words[1], file.removesuffix(".toml")):
        assert any(line.startswith(f"{name}: ") and "as expected" in line for line in lines)
        assert len(nights(tmp_path / "nights" / name)) == 1


def test_a_night_that_was_interrupted_is_gone_on_with(
    scenarios: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command goes on at the point that was interrupted, in the same night."""
    begun: list[Path] = []

    def play(point: Point, directory: Path, *_: object) -> PointOutcome:
        begun.append(directory)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return _outcome(point, produced(f"r{len(begun)}"), directory)

    monkeypatch.setattr("mirrortest.scenario.series.play", play)
    history = tmp_path / "nights"
    assert [_code(scenarios[0], history=history) for _ in range(2)] == [130, 0]
    (night,) = nights(history / "one")
    numbers = [each.name for each in begun]
    assert numbers == ["point-001", "point-002", "point-002", "point-003", "point-004"]
    assert {each.parent for each in begun} == {night}


class _Nights:
    """The clock of `run`: each night begins an hour after the one before."""

    def __init__(self) -> None:
        self.begun = 0

    def now(self, _: object) -> _Nights:
        return self

    def __format__(self, _: str) -> str:
        self.begun += 1
        return f"20260101T{self.begun:02}0000Z"


@pytest.mark.parametrize("within", ["another scenario", "the comparison", "the removal"])
def test_what_failed_before_an_interrupt_still_decides_the_exit_code(
    within: str, scenarios: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command ran the failed scenario anew, and passed.

    It continues each night until the last one has been compared; only then new ones begin.
    """
    played: list[tuple[str, int]] = []
    interrupted = threading.Event()

    def interrupt_once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def play(point: Point, directory: Path, *_: object) -> PointOutcome:
        name = directory.parent.parent.name
        if within == "another scenario" and (name, point.number) == ("two", 2):
            interrupt_once()
        played.append((name, point.number))
        found = _outcome(point, produced(f"{name}{len(played)}"), directory)
        if played != [("one", 1)]:
            return found
        change = {"verdict": Verdict.FAILED, "as_expected": False, "exit_code": 99}
        return found.model_copy(update=change)

    monkeypatch.setattr("mirrortest.scenario.series.play", play)
    monkeypatch.setattr("mirrortest.cli.run.datetime", _Nights())
    if within != "another scenario":
        name = {"the comparison": "judge", "the removal": "prune"}[within]
        real = getattr(history_module, name)

        def interrupted_once(*given: object) -> object:
            interrupt_once()
            return real(*given)

        monkeypatch.setattr(history_module, name, interrupted_once)
    history = tmp_path / "nights"
    codes = [_code(*scenarios, history=history, keep=9) for _ in range(2)]
    assert codes == [130, 99]
    assert played == [(name, number) for name in ("one", "two") for number in range(1, 5)]
    assert [len(nights(history / name)) for name in ("one", "two")] == [1, 1]
    assert _code(*scenarios, history=history, keep=9) == 0
    assert [len(nights(history / name)) for name in ("one", "two")] == [2, 2]
    assert sorted(each.name for each in history.iterdir()) == ["one", "two"]


def test_the_results_of_several_scenarios_are_json_by_the_line(
    scenarios: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No parser reads two documents of many lines."""
    monkeypatch.setattr("mirrortest.scenario.series.play", _passed)
    assert _code(*scenarios, output=tmp_path / "out", as_json=True) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["name"] for each in lines] == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"keep": 3}, "--keep is for --history"),
        ({"output": "a", "history": "b"}, "use either --output or --history"),
        ({"scenario": ["demo", "demo"]}, "two scenarios are called demo"),
    ],
)
def test_mistakes_are_said_before_anything_is_run(
    options: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contradicting options and repeated scenario names are refused."""
    monkeypatch.setattr(Series, "run", lambda *_: pytest.fail("it was run"))
    with pytest.raises(UsageError, match=why):
        run(**{"scenario": ["demo"], **options})  # type: ignore[arg-type]
