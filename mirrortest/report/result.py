"""A reconciliation's result, with the logs of its run if they are next to it.

Tables may be missing: an older version did not write all of them. A summary of another version is
an error.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pydantic import ValidationError

from mirrortest.config.units import number
from mirrortest.errors import MirrortestError, SequenceLogError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.model.observed import OBSERVATIONS
from mirrortest.results.summary import Summary
from mirrortest.seqlog.events import EVENTS_FILE, Event, Events
from mirrortest.seqlog.files import SessionFiles, distinct, find_sessions
from mirrortest.seqlog.observation_files import ObservationFiles, find_observations
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirrortest.seqlog.location import Location

SUMMARY_FILE = "summary.json"
RESULT_FOLDER = "result"
LACKING = {
    "by_minute": "what happened when",
    "latency": "latency over time and its distribution",
    "undelivered": "the ids of what was not delivered",
    "findings": "the ids of what was found",
    "by_stream": "the sums by producer",
}
"""The tables that the report reads, and what it cannot show without them."""


@dataclass(frozen=True)
class Result:
    """All that a report of a run is made of."""

    summary: Summary
    place: Location
    sessions: tuple[SessionFiles, ...] = ()
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Producers' own summaries, by session."""
    events: tuple[Event, ...] = ()
    observations: tuple[ObservationFiles, ...] = ()
    tables_absent: frozenset[str] = frozenset()
    absent: tuple[str, ...] = ()
    """What else is missing, in words."""

    @property
    def sessions_missing(self) -> dict[Role, int]:
        """How many sessions' logs are missing of those that the result rests on, by role."""
        basis = self.summary.rests_on
        expected = {
            Role.PRODUCER: 1 if basis is None else basis.producers,
            Role.CONSUMER: 1 if basis is None else basis.consumers,
        }
        found = Counter(each.session.role for each in self.sessions)
        return {role: n - found[role] for role, n in expected.items() if n > found[role]}

    def table(self, name: str) -> pa.Table | None:
        """Read all of a small table; None if it does not exist. Raises SequenceLogError."""
        found = [self._read(place, pq.ParquetFile.read) for place in self._files(name)]
        return pa.concat_tables(found) if found else None

    def row_count(self, name: str) -> int:
        """How many rows a table has; 0 if it does not exist. Raises SequenceLogError."""
        return sum(self._read(place, _count) for place in self._files(name))

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield a table of any size in batches, or nothing if it does not exist."""
        for place in self._files(name):
            with _parquet(place) as parquet:
                yield from parquet.iter_batches(columns=columns)

    def _files(self, name: str) -> list[Location]:
        """A table's files: a large table is a directory of several."""
        place = self.place.child(f"{name}.parquet")
        with place.checked("read"):
            kind = place.filesystem.get_file_info(place.path).type
            if kind is not fs.FileType.Directory:
                return [place] if kind is fs.FileType.File else []
            inside = place.filesystem.get_file_info(fs.FileSelector(place.path))
        return [place.child(each.base_name) for each in sorted(inside, key=lambda e: str(e.path))]

    def _read(self, place: Location, what: Callable[[pq.ParquetFile], Any]) -> Any:
        with _parquet(place) as parquet:
            return what(parquet)


def _count(parquet: pq.ParquetFile) -> int:
    return int(parquet.metadata.num_rows)


@contextlib.contextmanager
def _parquet(place: Location) -> Iterator[pq.ParquetFile]:
    with (
        place.checked("read"),
        place.filesystem.open_input_file(place.path) as file,
        pq.ParquetFile(file) as parquet,
    ):
        yield parquet


def read_result(
    place: Location, logs: Sequence[Location] = (), observations: Sequence[Location] = ()
) -> Result:
    """Read what the reconciliation wrote to `place`.

    `logs` are the directories of the logs (LOGDIR). The default is the one that contains `place`,
    if that is LOGDIR/run=R/result. `observations` are directories of observations, in addition to
    those called `OBSERVATIONS` next to a LOGDIR.

    Raises:
        UsageError: there is no result, or another version wrote it.
        SequenceLogError: an existing file cannot be read.
    """
    summary = _summary(place)
    tables_absent = {name for name in LACKING if not _exists(place.child(f"{name}.parquet"))}
    absent: list[str] = []
    in_logs = place.path.rstrip("/").endswith(f"/run={summary.run}/{RESULT_FOLDER}")
    roots = list(logs) or ([place.parent.parent] if in_logs else [])
    sessions: list[SessionFiles] = []
    events: list[Event] = []
    for root in roots:
        try:
            sessions += find_sessions(root, summary.run)
        except SequenceLogError as error:
            absent.append(f"how the run was set up is incomplete: {error}")
        noted = Events.read(root.child(f"run={summary.run}", EVENTS_FILE))
        events += noted.events
        absent += noted.damage
    if not sessions:
        absent.append(
            "the run's logs were not found (use --log-dir): this report does not show its set-up"
        )
    found: dict[str, ObservationFiles] = {}
    for root in roots:
        found |= _observations(
            summary.run, root.parent.child(OBSERVATIONS), absent, unnamed=bool(sessions)
        )
    for base in observations:
        there = _observations(summary.run, base, absent, unnamed=bool(sessions))
        if not there:
            absent.append(f"{base.shown}: there is no observation of run {summary.run}")
        found |= there
    result = Result(
        summary=summary,
        place=place,
        sessions=tuple(
            sorted(
                distinct(sessions), key=lambda each: (each.session.started_ns, each.session.name)
            )
        ),
        reports=_reports(sessions),
        events=tuple(sorted(set(events), key=lambda event: (event.time_ns, event.part))),
        observations=tuple(found[folder] for folder in sorted(found)),
        tables_absent=frozenset(tables_absent),
        absent=tuple(absent),
    )
    missing = result.sessions_missing if sessions else {}
    lines = [
        f"the logs of {number(count, role.value)} were not found (use --log-dir for each directory "
        "of logs): this report does not show their set-up, and draws no step below a minute"
        for role, count in missing.items()
    ]
    return replace(result, absent=(*result.absent, *lines))


def _observations(
    run: str, place: Location, absent: list[str], *, unnamed: bool
) -> dict[str, ObservationFiles]:
    """The observations of a run in a directory, by folder; with `unnamed` also those of no run.

    The sessions' times show later which part of the latter is within the run.
    """
    return {
        each.observation.folder: each
        for each in find_observations(place, absent)
        if each.observation.run == run or (unnamed and each.observation.run is None)
    }


def find_result(logdirs: Sequence[Location], run: str | None) -> Location:
    """The result of a run below one of the directories of logs; without `run`, the only one.

    Raises:
        UsageError: there is none, or there are several, also of one run.
        SequenceLogError: a directory cannot be read.
    """
    there: dict[str, dict[str, Location]] = {}
    for logdir in logdirs:
        with logdir.checked("listed"):
            infos = logdir.filesystem.get_file_info(
                fs.FileSelector(logdir.path, recursive=False, allow_not_found=True)
            )
        for name in sorted(info.base_name for info in infos):
            place = logdir.child(name, RESULT_FOLDER)
            if name.startswith("run=") and _exists(place.child(SUMMARY_FILE)):
                there.setdefault(name.removeprefix("run="), {})[place.path] = place
    shown = ", ".join(each.shown for each in logdirs)
    found = sorted(there) if run is None else [each for each in (run,) if each in there]
    if len(found) == 1:
        results = [*there[found[0]].values()]
        if len(results) > 1:
            raise UsageError(
                f"run {found[0]} has several results; name one as RESULT, without --run: "
                f"{', '.join(each.shown for each in results)}"
            )
        return results[0]
    if found:
        raise UsageError(f"{shown}: several results; name one with --run: {', '.join(found)}")
    places = shlex.join(each.shown for each in logdirs)
    if run is None:
        raise UsageError(f"{shown}: no reconciliation result; run mirrortest reconcile {places}")
    seen = f" (there are results of {', '.join(sorted(there))})" if there else ""
    raise UsageError(
        f"{shown}: no result of run {run}{seen}; run mirrortest reconcile {places} --run {run}"
    )


def result_at(place: Location) -> Location:
    """The directory of the result: `place`, or the one below it if `place` is a run's directory.

    Raises:
        SequenceLogError: the place cannot be read.
    """
    below = place.child(RESULT_FOLDER)
    there = not _exists(place.child(SUMMARY_FILE)) and _exists(below.child(SUMMARY_FILE))
    return below if there else place


def _summary(place: Location) -> Summary:
    file = place.child(SUMMARY_FILE)
    with file.checked("read"):
        try:
            raw = file.read()
        except FileNotFoundError:
            raise UsageError(
                f"{place.shown}: no {SUMMARY_FILE}; reconcile the run first "
                "(mirrortest reconcile LOGDIR --run RUN)"
            ) from None
    try:
        document = json.loads(raw)
        version = document["version"], document["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{file.shown}: not a summary of a reconciliation") from None
    known = Summary.model_fields["version"].default, Summary.model_fields["kind"].default
    if version != known:
        raise UsageError(
            f"{file.shown}: a summary of kind {version[1]!r}, version {version[0]}; this program "
            f"reads kind {known[1]!r}, version {known[0]}: use the mirrortest that wrote it"
        )
    try:
        return Summary.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")  # pydantic's, before our own texts
        raise UsageError(f"{file.shown}: {at}: {why}") from None


def _exists(place: Location) -> bool:
    with place.checked("read"):
        return bool(place.filesystem.get_file_info(place.path).type is not fs.FileType.NotFound)


def _reports(sessions: Sequence[SessionFiles]) -> dict[str, dict[str, Any]]:
    reports = {}
    for found in sessions:
        if found.session.role is not Role.PRODUCER:
            continue
        place = found.location.child(SUMMARY_FILE)
        # A killed producer wrote none. An unreadable one is not worth an error.
        with contextlib.suppress(OSError, ValueError, RecursionError):
            report = json.loads(place.read())
            if isinstance(report, dict) and report.get("version") == 1:
                reports[found.session.session] = report
    return reports


def write_text(place: Location, text: str) -> None:
    """Write a document, replacing an existing one; raises MirrortestError if that fails."""
    try:
        place.write_text(text)
    except (pa.ArrowException, OSError) as error:
        raise MirrortestError(f"{place.shown}: cannot be written: {reason_of(error)}") from error
