"""Run one point: clusters, clients, faults, and the verdict."""

from __future__ import annotations

import contextlib
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from mirrortest import __version__
from mirrortest.config.run_naming import run_id
from mirrortest.errors import MirrortestError, UsageError, WorkerError
from mirrortest.host.endings import Endings
from mirrortest.host.error_text import reason_of
from mirrortest.lab.observing import observing_table
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState
from mirrortest.model.observed import OBSERVATIONS
from mirrortest.model.verdict import ExitCode, Verdict
from mirrortest.report import REPORT_FILE
from mirrortest.report.result import RESULT_FOLDER, SUMMARY_FILE, read_result
from mirrortest.scenario.board import progress
from mirrortest.scenario.client_pods import running_place
from mirrortest.scenario.clients import CLIENTS, LOGS, PROGRAM, Client, clients, observer, program
from mirrortest.scenario.clusters import running_clusters
from mirrortest.scenario.deadline import Deadline, run_command
from mirrortest.scenario.injection import Injection
from mirrortest.scenario.outcome import (
    ClientOutcome,
    Ended,
    PointOutcome,
    failed_metrics,
    figures,
    findings,
    judged,
)
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.testbed import Lab
    from mirrortest.results.summary import Summary
    from mirrortest.scenario.board import Board
    from mirrortest.scenario.clients import Arguments
    from mirrortest.scenario.clusters import Sides
    from mirrortest.scenario.matrix import Point
    from mirrortest.scenario.specification import Scenario

_POLL = 0.25
_FIRST_FIGURES = 300.0
"""Seconds until the first clients must report figures, in a scenario without a timeout."""
_RESTARTS = 3
"""The most restarts of an observer that dies."""


def play(
    point: Point, directory: Path, home: Path, board: Board, arguments: Arguments
) -> PointOutcome:
    """Run a point to its end, with everything about it in `directory`.

    File names in the scenario are relative to `home`. A failure becomes the point's outcome.
    Everything that was started has ended when this returns.

    Raises:
        UsageError: the scenario is wrong.
    """
    run = run_id(secrets.token_bytes(8))
    began, started = datetime.now(UTC), time.monotonic()
    playing = _Playing(point.scenario, directory, home, run, board, arguments)
    summary: Summary | None = None
    reasons: list[str] = []
    try:
        playing.play()
        if point.scenario.is_reconciled:
            board.put("reconcile", "judging the sequence logs of both sides")
            summary = playing.reconcile()
    except UsageError:
        raise
    except MirrortestError as error:
        # The error of a part that died ends with its log's last lines.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons.append(" ".join(dict.fromkeys((lines[0], lines[-1]))))
    ended: list[Ended] = []
    measured: dict[str, float] = {}
    try:
        ended = [
            Ended(each.name, _verdict(each), failed_metrics(each.report.get("thresholds", ())))
            for each in playing.clients
            if each.name not in playing.killed
        ]
        cut_short = playing.with_partial_figures
        verbs = {each.verb for each in cut_short}
        reports = [each.report for each in playing.clients if each.verb not in verbs]
        measured = figures(reports, summary)
        playing.notes += [
            f"no figures of `{each.verb}`: a fault ended {each.name}, with what it had counted"
            for each in cut_short
        ]
    except (KeyError, TypeError, AttributeError) as error:
        reasons.append(
            f"a client's summary cannot be read ({reason_of(error)}): is the client of another "
            f"version than {__version__}?"
        )
    if summary is not None:
        failed = failed_metrics(each.model_dump() for each in summary.thresholds)
        ended.append(Ended("reconcile", summary.verdict, failed))
    counts = {} if summary is None else summary.counts
    expect = point.scenario.expect
    if reasons:
        verdict, exit_code = None, ExitCode.ERROR.value
    else:
        verdict, exit_code, reasons = judged(expect, ended, counts, playing.undone)
    return PointOutcome(
        number=point.number,
        label=point.label,
        settings=point.settings,
        repeat=point.repeat,
        run=run,
        verdict=verdict,
        expected=expect.verdict,
        as_expected=not exit_code,
        exit_code=exit_code,
        reasons=reasons,
        notes=playing.notes,
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 1),
        clients=[
            ClientOutcome(name=client.name, verb=client.verb, verdict=_verdict(client))
            for client in playing.clients
        ],
        figures={**measured, **playing.figures},
        findings=findings(counts),
    )


def _verdict(client: Client) -> Verdict | None:
    found = client.report.get("verdict")
    return Verdict(found) if found in set(Verdict) and not client.report.get("error") else None


class _Playing:
    """One point while it runs."""

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        home: Path,
        run: str,
        board: Board,
        arguments: Arguments,
    ) -> None:
        self.clients: list[Client] = []
        self.killed: set[str] = set()
        """The clients that a fault ended for good."""
        self.figures: dict[str, float] = {}
        self.undone: list[str] = []
        self.notes: list[str] = []
        self._scenario = scenario
        self._directory = directory
        self._home = home
        self._run = run
        self._board = board
        self._arguments = arguments
        self._logs = directory / LOGS
        self._deadline = Deadline(None)
        self._observing: Part | None = None
        self._restarts = 0
        """Restarts of the observer."""

    @property
    def with_partial_figures(self) -> list[Client]:
        """The clients whose figures are not of all that they did: a fault ended them."""
        return [c for c in self.clients if c.starts > 1 or (c.starts and c.name in self.killed)]

    def play(self) -> None:
        """Start everything, wait for its end, end everything; raises MirrortestError on failure."""
        scenario = self._scenario
        later = scenario.started_later
        with Endings() as endings:
            lab, sides = endings.enter(
                running_clusters(scenario, self._directory, self._home, later, self._board)
            )
            (self._directory / CLIENTS).mkdir()
            place = endings.enter(running_place(scenario, self._run, self._directory, self._home))
            self.clients = clients(
                scenario, sides, self._run, self._directory, place, self._arguments
            )
            parts: dict[str, Part] = {} if lab is None else dict(lab.parts)
            parts |= {client.name: client for client in self.clients}
            environment = self._environment(sides)
            self._deadline = Deadline(scenario.timeout)
            endings.add(partial(self._tear_down, environment))
            for command in scenario.set_up:
                run_command(command, environment, self._home, self._deadline)
            self._observe(endings, lab)
            endings.add(partial(_in_parallel, Client.kill, self.clients))
            first = [client for client in self.clients if client.name not in later]
            for client in first:
                client.start()
            starting = Deadline(_FIRST_FIGURES) if scenario.timeout is None else self._deadline
            while silent := [each for each in first if each.alive and not each.status]:
                self._check(lab)
                starting.check(f"the first figures of {', '.join(map(self._awaited, silent))}")
                time.sleep(_POLL)
            with Injection(
                scenario.fault,
                scenario.planned,
                parts,
                lab,
                scenario.topics,
                EventLog(self._logs, self._run),
                environment,
                self._home,
                self._deadline,
                lambda what, subject: self._board.put(subject, what),
            ) as injection:
                self._wait(injection, lab)
            if injection.errors:  # of a command that ended after the clients
                raise injection.errors[0]
            self.figures = injection.figures
            self.undone, self.notes = injection.undone, injection.notes

    def _awaited(self, client: Client) -> str:
        """Name a client without figures, with the reason if it cannot run yet; show that, too."""
        if not (reason := client.program.awaited):
            return client.name
        self._board.put(client.name, f"waits: {reason}")
        return f"{client.name} ({reason})"

    def _observe(self, endings: Endings, lab: Lab | None) -> None:
        """Observe the point's processes: their arguments contain the run or the lab's directory."""
        table = self._scenario.observe
        if table is None:
            return
        found: dict[str, Any] = {} if lab is None else dict(observing_table(lab))
        # First match the clients by name, then other processes by the run's id.
        own = [str(self._directory / CLIENTS / f"{each.name}.") for each in self.clients]
        found["match"] = [*own, *found.get("match", ()), self._run]
        for key, value in table.items():
            more = value if isinstance(value, list) else [value]
            found[key] = [*found[key], *more] if key in found else value
        output = self._directory / OBSERVATIONS
        observing = observer(found, self._run, output, self._home, self._arguments)
        endings.add(observing.terminate)
        observing.start()
        self._deadline.wait(
            lambda: not observing.alive or (output.is_dir() and any(output.iterdir())),
            "what mirrortest observe writes first",
        )
        observing.check()
        self._observing = observing

    def reconcile(self) -> Summary:
        """Reconcile both sides' logs, and write the report; raises MirrortestError."""
        scenario = self._scenario
        options = [text for each in scenario.thresholds for text in ("--threshold", each)]
        if scenario.exactly_once:
            options.append("--exactly-once")
        command = (
            *(*PROGRAM, "reconcile", str(self._logs), "--run", self._run, *options),
            *("--html", str(self._directory / REPORT_FILE)),
        )
        log = self._directory / "reconcile.log"
        part = Part("reconcile", command, log, program=program("reconcile"))
        with Endings() as endings:
            endings.add(part.kill)
            part.spawn()
            self._deadline.wait(lambda: not part.alive, "reconcile")
        place = self._logs / f"run={self._run}" / RESULT_FOLDER
        if not (place / SUMMARY_FILE).exists():
            raise WorkerError(f"reconcile wrote no result: {_last_line(part)}")
        return read_result(Location.parse(place)).summary

    def _environment(self, sides: Sides) -> dict[str, str]:
        """The environment variables for commands of the scenario."""
        return {
            "SCENARIO_RUN": self._run,
            "SCENARIO_DIRECTORY": str(self._directory),
            "SCENARIO_SOURCE": sides.source["bootstrap-server"],
            "SCENARIO_DESTINATION": sides.destination["bootstrap-server"],
        }

    def _tear_down(self, environment: Mapping[str, str]) -> None:
        deadline = Deadline(self._scenario.timeout)
        with Endings() as endings:  # runs all commands, also after one that fails
            for command in reversed(self._scenario.tear_down):
                endings.add(partial(run_command, command, environment, self._home, deadline))

    def _wait(self, injection: Injection, lab: Lab | None) -> None:
        """Wait until every client has ended, or one failed; then end the endless ones."""
        while True:
            running = [c for c in self.clients if c.alive or injection.will_start(c.name)]
            if injection.errors:
                raise injection.errors[0]
            self._check(lab)
            self._show()
            if not any(client.verb == "produce" for client in running):
                injection.produced.set()
            if all(client.endless for client in running):
                break
            self._deadline.check(f"the end of {', '.join(client.name for client in running)}")
            time.sleep(_POLL)
        self.killed = {c.name for c in self.clients if c.state is PartState.DOWN and not c.report}
        _in_parallel(Client.terminate, [c for c in running if c.alive])
        self._show()

    def _check(self, lab: Lab | None) -> None:
        """Raise an error if a part, a client or the observer failed."""
        for part in () if lab is None else lab.parts.values():
            part.check()
        for client in self.clients:
            if client.state is PartState.DEAD and _verdict(client) is None:
                raise WorkerError(f"{client.name} failed: {_last_line(client)}")
        self._check_observer()

    def _check_observer(self) -> None:
        """Restart an observer that died, a few times; the report shows all its observations."""
        observing = self._observing
        if observing is None or observing.state is not PartState.DEAD:
            return
        if not (code := observing.program.exit_code):  # its duration is over
            return
        if self._restarts == _RESTARTS:
            observing.check()
        self._restarts += 1
        self._board.put(observing.name, f"restarted after exit code {code}")
        observing.spawn()

    def _show(self) -> None:
        for client in self.clients:
            status = client.status
            if status and client.alive:
                with contextlib.suppress(KeyError, TypeError):  # of another version
                    self._board.put(client.name, progress(status))
            elif verdict := _verdict(client):
                self._board.put(client.name, verdict.value)


def _in_parallel(do: Callable[[Client], None], those: Sequence[Client]) -> None:
    """Call a function for clients in parallel, and wait for all; then raise the first error."""
    with ThreadPoolExecutor(len(those) or 1) as pool:
        doing = [pool.submit(do, client) for client in those]
    for each in doing:
        each.result()


def _last_line(part: Part) -> str:
    lines = [line.strip() for line in part.tail().splitlines() if line.strip()]
    return lines[-1] if lines else f"no output in {part.log}"
