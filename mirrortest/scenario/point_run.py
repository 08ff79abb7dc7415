"""Plays one point: clusters, clients, faults, and the verdict of it all."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mirrortest.config.run import run_id
from mirrortest.config.units import number
from mirrortest.errors import MirrortestError, UsageError, WorkerError
from mirrortest.lab.mirrors import FaultyMirrorSettings, MirrorSettings
from mirrortest.lab.part import Part
from mirrortest.lab.runtime import PartState
from mirrortest.lab.testbed import Lab
from mirrortest.model.verdict import ExitCode, Verdict
from mirrortest.report.result import RESULT_FOLDER, SUMMARY_FILE, read_result
from mirrortest.scenario.clients import PROGRAM, Client, Sides, clients
from mirrortest.scenario.injection import Injection, run_command
from mirrortest.scenario.outcome import (
    ClientOutcome,
    PointOutcome,
    figures,
    findings,
    judged,
    reconciled,
)
from mirrortest.scenario.specification import MirrorKind
from mirrortest.scenario.timetable import planned
from mirrortest.seqlog.events import EventLog
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirrortest.results.summary import Summary
    from mirrortest.scenario.clients import Arguments
    from mirrortest.scenario.matrix import Point
    from mirrortest.scenario.specification import Clusters, Fault, LabSetup, Scenario

_POLL = 0.25
_DRAIN = 120.0
"""Seconds for a client to end once it is asked to."""
REPORT = "report.html"


@dataclass
class Board:
    """One line of progress for each participant; `on_change` is called when one changes."""

    on_change: Callable[[Board], None]
    lines: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, line: object) -> None:
        """Replace a line."""
        if self.lines.get(name) != str(line):
            self.lines[name] = str(line)
            self.on_change(self)

    def of(self, name: str) -> Callable[[object], None]:
        """A function that replaces one participant's line."""
        return lambda line: self.put(name, line)


def play(
    point: Point, directory: Path, home: Path, board: Board, arguments: Arguments
) -> PointOutcome:
    """Run a point to its end, with everything about it in `directory`.

    `home` is where names of files in the scenario count from. What fails is the point's outcome;
    nothing that was started outlives the call.

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
        if reconciled(point):
            board.put("reconcile", "judging the sequence logs of both sides")
            summary = playing.reconcile()
    except UsageError:
        raise
    except MirrortestError as error:
        reasons.append(str(error).partition("\n")[0])  # logs follow, which are kept
    ended = [
        (client.name, _verdict(client))
        for client in playing.clients
        if client.name not in playing.killed
    ]
    if summary is not None:
        ended.append(("reconcile", summary.verdict))
    expect = point.scenario.expect
    if reasons:
        verdict, exit_code = None, ExitCode.ERROR.value
    else:
        verdict, exit_code, reasons = judged(expect, ended, summary)
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
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 1),
        clients=[
            ClientOutcome(name=client.name, verb=client.verb, verdict=_verdict(client))
            for client in playing.clients
        ],
        figures={**figures([c.report for c in playing.clients], summary), **playing.discovery},
        findings={} if summary is None else findings(summary.counts),
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
        self.discovery: dict[str, float] = {}
        self._scenario = scenario
        self._directory = directory
        self._home = home
        self._run = run
        self._board = board
        self._arguments = arguments
        self._logs = directory / "logs"

    def play(self) -> None:
        """Start it all, wait for its end, end it all; raises MirrortestError where that fails."""
        scenario = self._scenario
        plan = [] if scenario.plan is None else planned(scenario.plan)
        faults = [*scenario.fault, *plan]
        later = _later(faults)
        with ExitStack() as stack:
            lab, sides = None, self._existing(scenario.clusters)
            if scenario.lab is not None:
                lab, sides = self._start_lab(stack, scenario.lab, later)
            directory = self._directory / "clients"
            directory.mkdir()
            self.clients = clients(scenario, sides, self._run, directory, self._arguments)
            parts: dict[str, Part] = {} if lab is None else dict(lab.parts)
            parts |= {client.name: client for client in self.clients}
            environment = self._environment(sides)
            for command in scenario.set_up:
                run_command(command, environment)
            stack.callback(self._tear_down, environment)
            for client in self.clients:
                stack.callback(client.kill)
            first = [client for client in self.clients if client.name not in later]
            for client in first:
                client.start()
            while not all(client.status or not client.alive for client in first):
                self._check(lab)
                time.sleep(_POLL)
            injection = stack.enter_context(
                Injection(
                    faults,
                    parts,
                    lab,
                    EventLog(self._logs, self._run),
                    environment,
                    lambda what, subject: self._board.put(subject, what),
                )
            )
            self._wait(injection, lab)
            self.discovery = {
                f"discovery_seconds.{topic}": seconds
                for topic, seconds in injection.discovery_seconds.items()
            }

    def reconcile(self) -> Summary:
        """Reconcile both sides' logs, and write the report; raises MirrortestError."""
        scenario = self._scenario
        options = [text for each in scenario.thresholds for text in ("--threshold", each)]
        if scenario.exactly_once:
            options.append("--exactly-once")
        command = (
            *(*PROGRAM, "reconcile", str(self._logs), "--run", self._run, *options),
            *("--html", str(self._directory / REPORT)),
        )
        part = Part("reconcile", command, self._directory / "reconcile.log")
        part.spawn()
        try:
            while part.alive:
                time.sleep(_POLL)
        finally:
            part.kill()
        place = self._logs / f"run={self._run}" / RESULT_FOLDER
        if not (place / SUMMARY_FILE).exists():
            raise WorkerError(f"reconcile wrote no result: {_last_line(part)}")
        return read_result(Location.parse(place)).summary

    def _start_lab(self, stack: ExitStack, setup: LabSetup, later: set[str]) -> tuple[Lab, Sides]:
        lab = Lab(
            image=setup.image,
            brokers=setup.brokers,
            mirror=self._mirror(setup),
            start_mirror=setup.mirror is not MirrorKind.NONE and "mirror" not in later,
            broker_properties={key: _property(value) for key, value in setup.broker.items()},
            heap=setup.heap,
            on_step=self._board.of("lab"),
        )
        stack.enter_context(lab)
        stack.callback(self._keep, lab)
        source = {"bootstrap-server": lab.source.bootstrap_servers}
        if setup.mirror is MirrorKind.NONE:
            return lab, Sides(source, source, "")
        destination = {"bootstrap-server": lab.destination.bootstrap_servers}
        return lab, Sides(source, destination, lab.source.alias)

    def _mirror(self, setup: LabSetup) -> MirrorSettings | FaultyMirrorSettings:
        if setup.mirror is MirrorKind.SABOTEUR:
            spec = None if setup.faults is None else self._home / setup.faults
            return FaultyMirrorSettings(spec=spec, truth=self._directory / "truth")
        return MirrorSettings(
            offset_flush_ms=setup.offset_flush_ms,
            tasks=setup.tasks,
            exactly_once=setup.exactly_once,
            properties={key: _property(value) for key, value in setup.mirror_properties.items()},
        )

    def _keep(self, lab: Lab) -> None:
        """Copy the logs and the configuration of the lab's parts, which end with it."""
        for name in ("logs", "config"):
            with contextlib.suppress(OSError):
                shutil.copytree(lab.directory / name, self._directory / "lab" / name)

    def _existing(self, clusters: Clusters | None) -> Sides:
        if clusters is None:
            return Sides({}, {}, "")
        source = self._side(clusters.source_bootstrap_server, clusters.source_command_config)
        if clusters.destination_bootstrap_server is None:
            return Sides(source, source, "")
        destination = self._side(
            clusters.destination_bootstrap_server, clusters.destination_command_config
        )
        return Sides(source, destination, clusters.source_alias)

    def _side(self, servers: str, config: str | None) -> dict[str, str]:
        found = {"bootstrap-server": servers}
        return found if config is None else {**found, "command-config": str(self._home / config)}

    def _environment(self, sides: Sides) -> dict[str, str]:
        """What commands of the scenario find in their environment."""
        return {
            "SCENARIO_RUN": self._run,
            "SCENARIO_DIRECTORY": str(self._directory),
            "SCENARIO_SOURCE": sides.source["bootstrap-server"],
            "SCENARIO_DESTINATION": sides.destination["bootstrap-server"],
        }

    def _tear_down(self, environment: Mapping[str, str]) -> None:
        for command in self._scenario.tear_down:
            run_command(command, environment)

    def _wait(self, injection: Injection, lab: Lab | None) -> None:
        """Wait until every client has ended, or one failed; end those that have no end."""
        timeout = self._scenario.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
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
            if deadline is not None and time.monotonic() > deadline:
                names = ", ".join(client.name for client in running)
                raise WorkerError(f"after {timeout:g} s there are still clients: {names}")
            time.sleep(_POLL)
        self.killed = {c.name for c in self.clients if c.state is PartState.DOWN and not c.report}
        _end([client for client in running if client.alive])
        self._show()

    def _check(self, lab: Lab | None) -> None:
        """Raise the error of what failed."""
        for part in () if lab is None else lab.parts.values():
            part.check()
        for client in self.clients:
            if client.state is PartState.DEAD and _verdict(client) is None:
                raise WorkerError(f"{client.name} failed: {_last_line(client)}")

    def _show(self) -> None:
        for client in self.clients:
            status = client.status
            if status and client.alive:
                self._board.put(client.name, _progress(status))
            elif verdict := _verdict(client):
                self._board.put(client.name, verdict.value)


def _later(faults: Sequence[Fault]) -> set[str]:
    """The parts whose first action is to start them."""
    first: dict[str, str] = {}
    for fault in faults:
        first.setdefault(fault.subject, fault.do)
    return {part for part, do in first.items() if do == "start"}


def _end(running: Sequence[Client]) -> None:
    """Ask clients to end, all at once, and wait for them."""
    threads = [
        threading.Thread(target=client.terminate, args=(_DRAIN,), name=f"end {client.name}")
        for client in running
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _progress(status: Mapping[str, Any]) -> str:
    """A client's present figures, of the file that it keeps."""
    if status.get("kind") == "produce_status":
        planned_ = status.get("planned")
        of = "" if planned_ is None else f" of {planned_:,}"
        return f"{status['acked']:,} acknowledged{of}, {status['acked_per_second']:,.0f}/s"
    counted = {k: v for k, v in status["counts"].items() if v and k not in {"acked", "delivered"}}
    found = "".join(f", {count:,} {name}" for name, count in counted.items())
    return f"{number(status['read'])} read, {status['read_per_second']:,.0f}/s{found}"


def _last_line(part: Part) -> str:
    lines = [line.strip() for line in part.tail().splitlines() if line.strip()]
    return lines[-1] if lines else f"no output in {part.log}"


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
