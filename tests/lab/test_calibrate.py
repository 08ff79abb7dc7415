"""A small `mirrortest calibrate` on its own lab: every figure is exactly 100 %, and can fail."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrortest.cli.calibrate import calibrate
from mirrortest.verify.anomaly import EFFECTS
from tests import documented
from tests.lab.harness import Command, run_here, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

MESSAGES = 40_000


def faulty_mirrors(command: Command) -> list[psutil.Process]:
    """The faulty mirrors among a calibration's processes."""
    found = []
    for child in psutil.Process(command.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # others come and go
            if child.cmdline()[1:5] == ["-P", "-m", "mirrortest", "sabotage"]:
                found.append(child)
    return found


def progress(command: Command) -> Callable[[], bool]:
    """A check whether consumers have read something."""
    return lambda: any(
        " 0 read" not in line for line in command.stderr.splitlines() if " read by " in line
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Command, Command]]:
    """Two small calibrations in parallel, each on its own lab; the second one's mirror is killed.

    They mostly wait for deadlines.
    """
    folders = [tmp_path_factory.mktemp(name) for name in ("whole", "killed")]
    # The second one sends so long that its mirror dies in mid-run even on a busy machine.
    loads = (("--throughput", "5000", "--seed", "11"), ("--throughput", "300", "--consumers", "1"))
    # With the options of all documented calibrations; the last of a repeated option wins.
    shown = [
        word for each in documented.commands("calibrate", but="--again") for word in each.words[1:]
    ]
    small = ("--messages", str(MESSAGES), "--rate", "0.001")
    undisturbed, killed = (
        Command(["calibrate", *shown, *small, *load, "--json"], folder, "calibrate")
        for folder, load in zip(folders, loads, strict=True)
    )
    with undisturbed, killed:
        until(progress(killed), seconds=180, what="the consumers read")
        (faulty_mirror,) = faulty_mirrors(killed)
        faulty_mirror.kill()
        yield undisturbed, killed


@pytest.fixture(scope="module")
def calibrated(both: tuple[Command, Command]) -> Path:
    """The directory of the calibration that passed."""
    command, _ = both
    answer = command.answer(seconds=400)
    assert answer["verdict"] == "passed"
    directory: str = answer["directory"]
    return command.folder / directory


def scored(where: Path, code: int) -> dict[str, Any]:
    """Score a calibration's directory again, with the documented command."""
    (shown,) = documented.commands("calibrate", only="--again")
    words = documented.adapted(shown.words[1:], {"mirrortest-calibrate/r1a2b3c4": str(where)})
    return run_here(calibrate, *words, "--json").answer(code=code)


@pytest.fixture
def copied(calibrated: Path, tmp_path: Path) -> Path:
    """A copy of the calibration, to be tampered with."""
    return shutil.copytree(calibrated, tmp_path / calibrated.name)


def wrong(answer: dict[str, Any]) -> dict[str, Counter[str]]:
    """The figures that are not perfect, by kind."""
    found: dict[str, Counter[str]] = {}
    for each in answer["kinds"]:
        for way in ("online", "offline"):
            for name in ("missed", "false"):
                if each[way][name]:
                    found.setdefault(each["kind"], Counter())[f"{way} {name}"] += each[way][name]
    return found


def test_everything_is_found_and_nothing_else(calibrated: Path) -> None:
    """Each kind in each form: seeded, all found, none missed, none false, online and offline."""
    answer = json.loads((calibrated / "calibration.json").read_text())
    assert answer["exit_code"] == 0
    assert answer["messages"] > MESSAGES
    assert {(each["kind"], each["form"]) for each in answer["kinds"]} == {
        (effect.kind.value, effect.form.value) for effect in EFFECTS
    }
    for each in answer["kinds"]:
        assert each["seeded"] > 0
        for way in ("online", "offline"):
            assert each[way]["found"] == each["seeded"]
            assert each[way]["missed"] == each[way]["false"] == 0
            assert each[way]["recall"] == each[way]["precision"] == 1
    assert answer["inconclusive"] == answer["differences"] == answer["examples"] == []


def rows(where: Path) -> tuple[Path, pa.Table]:
    """The only file of the truth, and its rows."""
    (name,) = json.loads((where / "truth" / "truth.json").read_text())["files"]
    file = where / "truth" / name
    return file, pq.read_table(file)


def alone(table: pa.Table, kind: str) -> int:
    """The index of a row of this kind whose message has no other row."""
    counts = Counter(
        zip(table["topic"].to_pylist(), table["source_partition"].to_pylist(),
            table["source_offset"].to_pylist(), strict=True)
    )  # fmt: skip
    return next(
        at
        for at, row in enumerate(table.to_pylist())
        if row["kind"] == kind
        and counts[row["topic"], row["source_partition"], row["source_offset"]] == 1
    )


@pytest.mark.parametrize("kind", ["rekey", "restamp", "drop", "reroute", "duplicate"])
def test_a_row_taken_from_the_truth_is_noticed(copied: Path, kind: str) -> None:
    """A finding without its row counts as false, of that kind only: 99."""
    file, table = rows(copied)
    at = alone(table, kind)
    pq.write_table(pa.concat_tables([table[:at], table[at + 1 :]]), file)
    answer = scored(copied, 99)
    assert wrong(answer) == {kind: {"online false": 1, "offline false": 1}}


@pytest.mark.parametrize("kind", ["rekey", "restamp", "add-header", "change-payload"])
def test_a_row_put_into_the_truth_is_noticed(copied: Path, kind: str) -> None:
    """An act that nobody did counts as missed, of that kind only: 99."""
    file, table = rows(copied)
    at = alone(table, "extend" if kind != "change-payload" else "rekey")
    added = {**table[at : at + 1].to_pylist()[0], "kind": kind}
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([added], table.schema)]), file)
    answer = scored(copied, 99)
    assert wrong(answer) == {kind: {"online missed": 1, "offline missed": 1}}


def test_without_one_consumers_word_nothing_is_passed(copied: Path) -> None:
    """Without a consumer's report the result is inconclusive, and names the consumer."""
    (copied / "online" / "reader-2.json").unlink()
    answer = scored(copied, 3)
    assert answer["verdict"] == "inconclusive"
    assert answer["inconclusive"] == ["no report of consumer reader-2"]


def test_a_killed_mirror_is_inconclusive(both: tuple[Command, Command]) -> None:
    """SIGKILL of the faulty mirror in mid-run makes the result inconclusive, with the reason."""
    _, command = both
    answer = command.answer(code=3, seconds=240)
    assert answer["verdict"] == "inconclusive"
    assert answer["messages"] < MESSAGES
    assert any("the faulty mirror died" in reason for reason in answer["inconclusive"])
