"""Run all points of a scenario in order; an interrupted run continues in the same directory.

``OUTPUT/scenario.json`` has the points that have ended so far. ``OUTPUT/point-001/`` has everything
about the first point, and its ``point.json`` once it has ended. A point without it is started anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from mirrortest.config.units import span
from mirrortest.config.visible import visible_json
from mirrortest.errors import MirrortestError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.report import REPORT_FILE
from mirrortest.report.result import write_text
from mirrortest.scenario.client_pods import check_pods
from mirrortest.scenario.clients import clients, here, observer
from mirrortest.scenario.clusters import Sides
from mirrortest.scenario.matrix import points
from mirrortest.scenario.outcome import PointOutcome, SeriesOutcome
from mirrortest.scenario.overview import PAGE, render
from mirrortest.scenario.point_run import play
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.session_directory import lock_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.scenario.board import Board
    from mirrortest.scenario.clients import Arguments
    from mirrortest.scenario.matrix import Document, Point

SERIES_FILE, POINT_FILE = "scenario.json", "point.json"
Model = TypeVar("Model", bound=BaseModel)
_ANY_ADDRESS = {"bootstrap-server": "127.0.0.1:9092"}


class Series:
    """A scenario and the directory of its results.

    Raises:
        UsageError: the scenario is wrong, or `output` contains anything but its results.
    """

    def __init__(self, document: Document, output: Path, arguments: Arguments) -> None:
        self.output = output
        self.points = points(document)
        self._document = document
        self._arguments = arguments
        self._check_clients()
        self.ended = self._found()

    @property
    def outcome(self) -> SeriesOutcome:
        """The outcome with the points that have ended so far."""
        return SeriesOutcome.of(
            self._document.name,
            str(self._document.content.get("description", "")),
            self._document.digest,
            len(self.points),
            self.ended,
        )

    def directory(self, number: int) -> Path:
        """The directory of a point."""
        return self.output / f"point-{number:03}"

    def run(self, board: Board, on_end: Callable[[PointOutcome], None]) -> SeriesOutcome:
        """Run the points that have not ended; `on_end` is called with each as it ends.

        Raises:
            BusyError: another process runs this scenario in the same directory.
            UsageError: `output` contains anything but the scenario's results by now.
            MirrortestError: a result cannot be written, or an old one cannot be removed.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        lock = None
        with contextlib.suppress(OSError):  # a file system without locks
            lock = lock_directory(self.output)
        try:
            return self._run(board, on_end)
        finally:
            if lock is not None:
                os.close(lock)

    def _run(self, board: Board, on_end: Callable[[PointOutcome], None]) -> SeriesOutcome:
        self.ended = self._found()  # another process may have run points since
        self._write_all()  # first: it marks the directory as ours
        self._keep_source()
        done = {outcome.number for outcome in self.ended}
        for point in self.points:
            if point.number in done:
                continue
            board.lines.clear()
            board.put("scenario", self._progress(point))
            directory = self.directory(point.number)
            _empty(directory)
            text = json.dumps(self._document.changed(point.settings).content, indent=1, default=str)
            write_text(Location.parse(directory / "configuration.json"), text)
            home = self._document.directory
            outcome = play(point, directory, home, board, self._arguments)
            self.ended.append(outcome)
            write_text(Location.parse(directory / POINT_FILE), _encoded(outcome))
            self._write_all()
            on_end(outcome)
        return self.outcome

    def _write_all(self) -> None:
        write_text(Location.parse(self.output / SERIES_FILE), _encoded(self.outcome))
        reports = {
            outcome.number: f"{self.directory(outcome.number).name}/{REPORT_FILE}"
            for outcome in self.ended
            if (self.directory(outcome.number) / REPORT_FILE).exists()
        }
        write_text(Location.parse(self.output / PAGE), render(self.outcome, reports))

    def _keep_source(self) -> None:
        """Copy the scenario's file, or the files of its directory, into the results."""
        place = Path(self._document.where)
        kept = self.output / "scenario"
        if kept.resolve() in (place.resolve(), *place.resolve().parents):
            return  # the user gave the copy itself
        _empty(kept)
        for file in place.iterdir() if place.is_dir() else [place]:
            if file.is_file():  # not for one that comes with mirrortest: `where` is its name
                shutil.copy(file, kept)

    def _progress(self, point: Point) -> str:
        """Which point it is, and the time left as estimated from the points that have ended."""
        text = f"point {point.number} of {len(self.points)}"
        if point.label:
            text += f": {point.label}"
        if self.ended:
            left = len(self.points) - len(self.ended)
            mean = sum(outcome.seconds for outcome in self.ended) / len(self.ended)
            text += f"; about {span(round(left * mean * 1e9))} left"
        return text

    def _check_clients(self) -> None:
        """Refuse a wrong option of any client before anything is started."""
        sides, home = Sides(_ANY_ADDRESS, _ANY_ADDRESS, "A"), self._document.directory
        place = here(self.output, home)
        try:
            for point in self.points:
                clients(point.scenario, sides, "check", self.output, place, self._arguments)
                if point.scenario.observe is not None:
                    observer(point.scenario.observe, "check", self.output, home, self._arguments)
            check_pods((point.scenario for point in self.points), home)
        except UsageError as error:
            raise UsageError(f"{self._document.where}: {error}") from None

    def _found(self) -> list[PointOutcome]:
        """The points that have ended; raises UsageError if `output` is another's."""
        self._check_output()
        ended = []
        for point in self.points:
            found = _read(self.directory(point.number) / POINT_FILE, PointOutcome)
            if found is not None and (found.label, found.repeat) == (point.label, point.repeat):
                ended.append(found)
        return ended

    def _check_output(self) -> None:
        file = self.output / SERIES_FILE
        if file.exists():
            found = _read(file, SeriesOutcome)
            if found is None or found.digest != self._document.digest:
                raise UsageError(
                    f"--output {self.output}: it has results of another scenario: name another "
                    "directory"
                )
        elif self.output.exists() and any(self.output.iterdir()):
            raise UsageError(
                f"--output {self.output}: it is not empty, and has no {SERIES_FILE}: name another "
                "directory"
            )


def _empty(directory: Path) -> None:
    """Replace what an earlier run left by an empty directory; raises MirrortestError."""
    try:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
        directory.mkdir()
    except OSError as error:
        why = "it is a link" if directory.is_symlink() else reason_of(error)
        raise MirrortestError(
            f"{error.filename or directory}: cannot be replaced: {why}: remove {directory}, then "
            "run the same command again"
        ) from error


def _encoded(outcome: BaseModel) -> str:
    return visible_json(outcome.model_dump_json(indent=2)) + "\n"


def _read(path: Path, model: type[Model]) -> Model | None:
    with contextlib.suppress(OSError, ValidationError):
        return model.model_validate_json(path.read_bytes())
    return None
