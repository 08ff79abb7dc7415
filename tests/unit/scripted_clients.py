"""A script in place of a scenario's clients; its arguments decide what it does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.scenario import clients as client_processes
from mirrortest.scenario import point_run
from mirrortest.scenario.board import Board
from mirrortest.scenario.series import Series
from tests.unit.scenario_documents import document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirrortest.scenario.outcome import PointOutcome

CLIENT = """
import json, pathlib, signal, sys, time
words = sys.argv[1:]
if words[0] == "reconcile" or "--do=hang" in words:
    pathlib.Path(HUNG).touch()
    time.sleep(600)
if words[0] == "observe":
    print(*words, flush=True)
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
ordered = next((word.removeprefix("--do=") for word in words if word.startswith("--do=")), "pass")
report = pathlib.Path(value["--report"])
def end(*_):
    report.write_text(json.dumps({"kind": "none", "verdict": ordered, "error": None,
                                  "directory": str(pathlib.Path.cwd())}))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(value["--status-file"]).write_text(json.dumps(
    {"kind": "produce_status", "planned": None, "acked": 1, "acked_per_second": 1.0}))
if ordered == "await":
    while len(list(pathlib.Path(OUTPUT).iterdir())) < 3:
        time.sleep(0.05)
    ordered = "pass"
if ordered == "error":
    sys.exit("error: no broker answers")
if "forever" in words:
    while True:
        time.sleep(0.05)
ordered = {"pass": "passed", "fail": "failed"}[ordered]
end()
"""
CLUSTERS = '[clusters]\nsource-bootstrap-server = "a:1"\n'
PRODUCER = CLUSTERS + '[[produce]]\ntopics = "t"\nduration = "1s"\n'


@pytest.fixture(autouse=True)
def scripted_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every client by the script, in each test module that imports this."""
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
    """The arguments of a scripted client."""
    matches = [f"--match={text}" for text in table.get("match", ())]
    return [
        f"--do={table.get('do', 'pass')}",
        *(["forever"] if "until" in table else []),
        *matches,
    ]


def series(text: str, output: Path) -> Series:
    """All points of a scenario, with their results in this directory."""
    return Series(document(text, output.parent), output, arguments)


def play(text: str, output: Path) -> PointOutcome:
    """Play all points; return the last one's outcome."""
    ended: list[PointOutcome] = []
    series(text, output).run(Board(lambda _: None), ended.append)
    return ended[-1]
