"""Finds the repeats of a run by path or URI: summaries, and the logs next to them.

A directory can be a result, a run's directory, a directory of logs, or one with a directory for
each repeat. All files of one run are one repeat, also in several directories, such as one for each
data centre. If these have different files of the same processes, each directory is a repeat.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyarrow import fs

from mirrortest.compare.observed import RunObservation, read_observations
from mirrortest.compare.repeat import ProcessLog, Repeat, Side, repeat
from mirrortest.errors import UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.seqlog.files import SessionFiles, read_session
from mirrortest.seqlog.interval_log import read_intervals
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.observation import OBSERVATION_FILE
from mirrortest.seqlog.session import SESSION_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.seqlog.damage import Damage

KINDS = ("produce", "consume", "reconcile")
_SCENARIO, _SCENARIO_FILE = "scenario", "scenario.json"
VERSION = 1
_WITHIN_REPEAT = re.compile("(?:run|role)=.*|result|clients|logs|observations")
"""Subdirectories of a directory of logs: they do not separate repeats."""
_OWN_NAME = re.compile(r".*/(?:result/[^/]*|summary|scenario)\.json")
"""JSON files with these names are mirrortest's."""
_WRITE = "produce, consume and reconcile write one with --report FILE or --json"


@dataclass
class _Found:
    """The files found of one repeat."""

    documents: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Summaries by the process that wrote them, each with its place."""
    log_documents: list[dict[str, Any]] = field(default_factory=list)
    """Producers' summaries in their logs; of workers, their command writes one of all."""
    logs: list[ProcessLog] = field(default_factory=list)
    observed: list[RunObservation] = field(default_factory=list)
    written_ns: int = 0

    def add(self, place: str, document: dict[str, Any]) -> None:
        """Add a summary; raises UsageError if its process already has a different one."""
        kind = document["kind"]
        process = " ".join(
            str(document[each])
            for each in ("kind", "role", "producer", "consumer")
            if each in document
        )
        other, previous = self.documents.setdefault(process, (place, document))
        if previous != document:
            raise UsageError(
                f"{other} and {place} are both a {kind} summary of run {document['run']}: put "
                "each repeat into a directory of its own, or leave one of them out"
            )

    @property
    def processes(self) -> dict[str, Any]:
        """By process: its summary, or the sessions of its logs."""
        sessions: dict[str, Any] = defaultdict(set)
        for session, _ in self.logs:
            sessions[f"log of {session.role.value} {session.name}"].add(session.session)
        return {name: document for name, (_, document) in self.documents.items()} | sessions

    def join(self, other: _Found) -> None:
        """Add other files of the repeat; copies count once."""
        self.documents |= other.documents
        self.log_documents += [
            each for each in other.log_documents if each not in self.log_documents
        ]
        sessions = [log.session for log in self.logs]
        self.logs += [log for log in other.logs if log.session not in sessions]
        self.written_ns = max(self.written_ns, other.written_ns)


class _Point(NamedTuple):
    """A point of a scenario; `settings` are JSON. It ended in an error if it has no verdict."""

    scenario: str
    label: str
    settings: str
    has_verdict: bool


def read_side(where: str, *, with_logs: bool = False) -> Side:
    """The repeats that an argument names; `with_logs` keeps the rows of their intervals.

    Raises:
        UsageError: there are none; or a summary is damaged, of another version, or contradicts
            another one.
        SequenceLogError: a file or directory cannot be read.
    """
    root = Location.parse(where)
    found: dict[tuple[str, str], _Found] = defaultdict(_Found)
    damage: list[Damage] = []
    points: dict[str, _Point] = {}
    written: dict[str, int] = {}
    observations: list[RunObservation] = []
    wrong: list[str] = []
    infos = _files(root)
    folders = {info.path.rpartition("/")[0] for info in infos if info.base_name == SESSION_FILE}
    # `run` copies the scenario, with all files of its directory, next to its results.
    copies = {
        f"{info.path.removesuffix(_SCENARIO_FILE)}{_SCENARIO}"
        for info in infos
        if info.base_name == _SCENARIO_FILE
    }
    for info in infos:
        folder, _, name = info.path.rpartition("/")
        if folder in copies:
            continue
        place = root.below(info.path)
        first = folder[len(root.path.rstrip("/")) :].strip("/").partition("/")[0]
        home = "" if _WITHIN_REPEAT.fullmatch(first) else first
        if name == SESSION_FILE:
            session = read_session(place.parent)
            rows = read_intervals(SessionFiles(session, place.parent, (), ()), damage)
            found[home, session.run].join(_Found(logs=[ProcessLog(session, rows)]))
        elif name == OBSERVATION_FILE:
            observations += read_observations(home, place.parent, damage, wrong)
        elif name.endswith(".json") or info.path == root.path:
            document = _document(place, wrong, required=info.path == root.path)
            if document is None:
                continue
            if document["kind"] == _SCENARIO:
                points |= _points(place, document)
                written |= dict.fromkeys(points.keys() - written.keys(), info.mtime_ns or 0)
                continue
            of = found[home, document["run"]]
            of.written_ns = max(of.written_ns, info.mtime_ns or 0)
            if folder in folders:
                of.join(_Found(log_documents=[document]))
            else:
                of.add(place.shown, document)
    found = _joined(found, wrong)
    for observed in observations:
        logs = {key: each.logs for key, each in found.items()}
        for key in observed.of(logs):
            found[key].observed.append(observed)
    errors = {run for run, point in points.items() if not point.has_verdict}
    for key in [key for key in found if key[1] in errors]:
        del found[key]  # a repeat without results, whatever was written of it
    for run in sorted(written.keys() - {run for _, run in found}):
        found["", run].written_ns = written[run]
    names = _point_names(points)
    repeats = [
        replace(
            _repeat(root, run, each), point=names.get(run, ""), logs=each.logs if with_logs else ()
        )
        for (_, run), each in sorted(found.items())
    ]
    if not any(each.figures or each.counts for each in repeats):
        why = "each point ended in an error" if errors else f"no summary of a run; {_WRITE}"
        raise UsageError(f"{root.shown}: {why}")
    return Side(where if root.local else root.shown, tuple(repeats), (*map(str, damage), *wrong))


def _joined(
    found: Mapping[tuple[str, str], _Found], wrong: list[str]
) -> defaultdict[tuple[str, str], _Found]:
    """The repeats by directory and run; directories that complete each other are one repeat.

    If only some of the processes have equal files in both, it is appended to `wrong`.
    """
    joined: defaultdict[tuple[str, str], _Found] = defaultdict(_Found)
    homes: dict[str, list[str]] = defaultdict(list)
    for (home, run), each in sorted(found.items()):
        for other in homes[run]:
            ours, theirs = each.processes, joined[other, run].processes
            differing = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
            if not differing:
                joined[other, run].join(each)
                break
            if len(differing) < len(ours.keys() & theirs.keys()):
                wrong.append(
                    f"run {run}: {other or '.'} and {home} have different files of "
                    f"{', '.join(sorted(differing))}: leave one directory out"
                )
        else:
            homes[run].append(home)
            joined[home, run] = each
    return joined


def _files(root: Location) -> list[Any]:
    with root.checked("listed"):
        info = root.filesystem.get_file_info(root.path)
        if info.type is fs.FileType.NotFound:
            raise UsageError(f"{root.shown}: there is no such file or directory")
        if info.type is fs.FileType.File:
            return [info]
        selected = fs.FileSelector(root.path, recursive=True)
        listed = root.filesystem.get_file_info(selected)
    return sorted((each for each in listed if each.is_file), key=lambda each: str(each.path))


def _document(place: Location, wrong: list[str], *, required: bool) -> dict[str, Any] | None:
    """A summary or a scenario's result; None for any other JSON file in a directory.

    A result that cannot be parsed is appended to `wrong`.
    """
    with place.checked("read"):
        raw = place.read()
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
        if _OWN_NAME.fullmatch(place.path):
            wrong.append(f"{place.shown} is damaged: write it again, or leave its run out")
    kinds = KINDS if required else (*KINDS, _SCENARIO)
    if not isinstance(document, dict) or document.get("kind") not in kinds:
        if required:
            raise UsageError(f"{place.shown}: not a summary of a run; {_WRITE}")
        return None
    named = document["kind"] == _SCENARIO or isinstance(document.get("run"), str)
    if document.get("version") != VERSION or not named:
        raise UsageError(
            f"{place.shown}: a summary of version {document.get('version')}; this program reads "
            f"version {VERSION}: use the mirrortest that wrote it"
        )
    return document


def _points(place: Location, document: Mapping[str, Any]) -> dict[str, _Point]:
    """The points by their runs."""
    try:
        return {
            str(each["run"]): _Point(
                str(document["name"]),
                str(each["label"]),
                json.dumps(each["settings"], sort_keys=True),
                has_verdict=each["verdict"] is not None,
            )
            for each in document["points"]
        }
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{place.shown}: not the results of a scenario ({reason_of(error)}): leave it out"
        ) from error


def _point_names(points: Mapping[str, _Point]) -> dict[str, str]:
    """The name of each run's point: its label, or its settings if another point's label is equal.

    If there are several scenarios, the scenario's name comes first.
    """
    several = len({each.scenario for each in points.values()}) > 1
    distinct = {each[:3] for each in points.values()}
    labels = Counter((scenario, label) for scenario, label, _ in distinct)
    return {
        run: ": ".join(
            filter(
                None,
                (
                    each.scenario if several else "",
                    each.label if labels[each.scenario, each.label] == 1 else each.settings,
                ),
            )
        )
        for run, each in points.items()
    }


def _repeat(root: Location, run: str, found: _Found) -> Repeat:
    documents: list[Mapping[str, Any]] = [document for _, document in found.documents.values()]
    try:
        summed_up = {
            each["producer"]
            for command in documents
            if command["kind"] == "produce"
            for each in (command, *command.get("workers", ()))
        }
        documents += [each for each in found.log_documents if each.get("producer") not in summed_up]
        return repeat(run, documents, found.logs, found.observed, started_ns=found.written_ns)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{root.shown}: a summary of run {run} is damaged or incomplete ({reason_of(error)}): "
            "leave it out, or write it again"
        ) from error
