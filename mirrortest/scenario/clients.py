"""The producers and consumers of a point, as separate programs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mirrortest.config.units import parse_count
from mirrortest.errors import LabError
from mirrortest.host.cache import CACHE_VARIABLE
from mirrortest.host.interpreter import RUN_MODULE
from mirrortest.lab.part import Part
from mirrortest.lab.process.program import GuardedProcess
from mirrortest.scenario.fields import as_list, has_topics
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirrortest.lab.runtime import Program
    from mirrortest.scenario.clusters import Sides
    from mirrortest.scenario.fields import Table
    from mirrortest.scenario.specification import Scenario

PROGRAM = (*RUN_MODULE, "mirrortest")
Arguments: TypeAlias = "Callable[[str, Mapping[str, Any], Mapping[str, Any]], list[str]]"
"""Writes a command's arguments, from the verb, the table, and what no table may set."""

CLIENTS, LOGS = "clients", "logs"
"""Directories of a point: for the clients' files, and for the sequence logs."""
_DRAIN = 120.0
"""Seconds for a client to end after SIGTERM."""
_ENDS = ("duration", "num-records", "messages", "idle-timeout")


class Place(NamedTuple):
    """Where clients run.

    Attributes:
        command: how mirrortest is started there.
        point: the point's directory, as clients see it.
        program: creates the program that runs a client, by the client's id.
    """

    command: tuple[str, ...]
    point: Path
    program: Callable[[str], Program]


def here(point: Path, home: Path) -> Place:
    """Processes of this machine, in `home`: file names in the scenario are relative to it."""
    return Place(PROGRAM, point, lambda name: program(name, home))


def program(name: str, directory: Path | None = None) -> GuardedProcess:
    """Create a program of mirrortest on this machine, as `GuardedProcess` does.

    It does not get the shell's options, MIRRORTEST_WORKERS and the like: the scenario has them all.
    """
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key == CACHE_VARIABLE or not key.startswith("MIRRORTEST_")
    }
    return GuardedProcess(name, directory, inherited)


def status_file(name: str) -> str:
    """The name of a client's status file."""
    return f"{name}.status.json"


class Client(Part):
    """A `mirrortest produce` or `mirrortest consume` of a point, whose directory is `point`.

    Attributes:
        verb: produce or consume.
        endless: it ends only by a signal, after all others have ended.
        starts: how often it was started.
    """

    def __init__(
        self,
        name: str,
        verb: str,
        arguments: Sequence[str],
        point: Path,
        place: Place,
        *,
        endless: bool,
    ) -> None:
        self.verb = verb
        self.endless = endless
        self.starts = 0
        self._draining = False
        report, status = f"{name}.json", status_file(name)
        self._report = point / CLIENTS / report
        self._status = point / CLIENTS / status
        there = place.point / CLIENTS
        command = (
            *(*place.command, verb, *arguments, "--id", name),
            *("--report", str(there / report), "--status-file", str(there / status)),
            *("--csv", str(there / f"{name}.csv"), "--progress", "lines"),
        )
        log = point / CLIENTS / f"{name}.log"
        super().__init__(name, command, log, program=place.program(name))

    def spawn(self) -> None:
        """Start it and return at once; remove its report and status from an earlier start."""
        for stale in (self._report, self._status):
            stale.unlink(missing_ok=True)
        super().spawn()
        self.starts += 1

    def terminate(self, timeout: float = _DRAIN) -> None:
        """Ask it to end (SIGTERM), and kill it after `timeout` seconds.

        Raises:
            LabError: it was killed, and has no summary.
        """
        began = time.monotonic()
        self._draining = True
        super().terminate(timeout)
        self._draining = False
        if time.monotonic() - began >= timeout and not self.report:
            raise self.failure(f"did not end within {timeout:g} s, and was killed")

    def abandon(self) -> None:
        """Also kill it if `terminate` waits for its end."""
        super().abandon()
        if self._draining:
            with contextlib.suppress(LabError):  # of its files: nobody needs them any more
                self.kill()

    @property
    def status(self) -> dict[str, Any]:
        """Its current figures; empty until it reports some."""
        return _document(self._status)

    @property
    def report(self) -> dict[str, Any]:
        """Its summary; empty until it has ended in order."""
        return _document(self._report)


def clients(
    scenario: Scenario, sides: Sides, run: str, point: Path, place: Place, arguments: Arguments
) -> list[Client]:
    """The clients of a point, not started yet; all their files go into its directory.

    Raises:
        UsageError: a client's option is wrong.
    """
    logs = {"run": run, "log-dir": str(place.point / LOGS)}
    new_topics: dict[str, Any] = {"create-topics": True}
    if scenario.lab is not None:
        new_topics["partitions"] = scenario.lab.partitions
    found = [
        Client(
            name,
            "produce",
            arguments("produce", {**sides.source, **new_topics, **_without_id(table)}, logs),
            point,
            place,
            endless=False,
        )
        for name, table in scenario.producers
    ]
    found += [
        Client(
            name,
            "consume",
            arguments("consume", _consumer(scenario, table, sides), logs),
            point,
            place,
            endless=table.get("until") == "forever" and not set(_ENDS) & set(table),
        )
        for name, table in scenario.consumers
    ]
    return found


def _without_id(table: Table) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "id"}


def _consumer(scenario: Scenario, table: Table, sides: Sides) -> dict[str, Any]:
    """A consumer's table, completed from the rest of the scenario."""
    at_source = table.get("role") == Role.SOURCE
    found: dict[str, Any] = dict(sides.source if at_source else sides.destination)
    prefix = f"{sides.alias}." if sides.alias and not at_source else ""
    if not has_topics(table):
        found["topics"] = [f"{prefix}{topic}" for topic in scenario.topics]
    if not at_source:
        found["source-alias"] = sides.alias
        if scenario.produce:
            found["expect-producers"] = list(_producers(scenario))
        found["threshold"] = list(scenario.thresholds)
        found["exactly-once"] = scenario.exactly_once
    return {**found, **_without_id(table)}


def _producers(scenario: Scenario) -> Iterator[str]:
    """The producers' names as consumers see them: each worker has its own."""
    for name, table in scenario.producers:
        text = ",".join(as_list(table.get("workers", 1)))
        workers = parse_count(text, option="[[produce]] workers", minimum=1)
        yield from [name] if workers == 1 else [f"{name}.{n}" for n in range(1, workers + 1)]


def _document(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return found
    return {}


def observer(
    table: Mapping[str, Any], run: str, output: Path, home: Path, arguments: Arguments
) -> Part:
    """A `mirrortest observe`, not started yet; `table` has its options. It runs in `home`.

    Raises:
        UsageError: an option is wrong.
    """
    own = {"run": run, "output": str(output)}
    command = (*PROGRAM, "observe", *arguments("observe", table, own))
    log = output.with_name("observe.log")
    return Part("observe", command, log, program=program("observe", home))
