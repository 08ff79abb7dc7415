"""The files of `mirrortest observe`: ``DIR/NAME-SESSION/{observation.json, host.parquet, ...}``.

Each table of `model.observed` is a file, and a journal while the observation runs. Rows are
appended every five seconds and not synced, to add little to the CPU's and the disk's load: a killed
process loses five seconds at most. The next observation into the same DIR finishes one that was
killed.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import structlog
from pydantic import Field, ValidationError

from mirrortest import __version__
from mirrortest.config.document import DocumentPart
from mirrortest.errors import SequenceLogError
from mirrortest.host.error_text import reason_of
from mirrortest.model.observed import INTERVAL, TABLES
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.session import JOURNAL, Note
from mirrortest.seqlog.session_directory import BusyError, lock_directory, replace, seal
from mirrortest.seqlog.table_files import csv_line, schema_of, utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirrortest.model.observed import Observed
    from mirrortest.seqlog.damage import Damage

_log = structlog.get_logger()

OBSERVATION_FILE = "observation.json"
PROFILE_FILE = "profile.json"
_CSV = ".csv"
_FLUSH_SECONDS = 5.0
SCHEMAS = {
    table.name: schema_of(
        table.columns, never_null={each.name for each in (*INTERVAL, *table.keys)}
    )
    for table in TABLES
}
_HEADS = {"started_ns": "start", "ended_ns": "end"}
"""The names of the time columns in CSV files, where times are text."""

Row = dict[str, Any]


class Drift(DocumentPart):
    """A change of the machine, and when it was noticed, in ns since the epoch."""

    time_ns: int
    what: str
    """Its place in the profile, for example ``settings.vm/swappiness``."""
    before: str
    after: str

    @classmethod
    def of(cls, time_ns: int, what: str, before: object, after: object) -> Self:
        """A change, with its values as JSON."""
        return cls(time_ns=time_ns, what=what, before=json.dumps(before), after=json.dumps(after))


class Observation(DocumentPart):
    """One observation: where and when it ran, and its tables; times in ns since the epoch."""

    version: str = __version__
    session: str
    name: str
    run: str | None = None
    started_ns: int
    ended_ns: int | None = None
    """None while it runs, and if it was killed."""
    interval_seconds: float
    left_out: dict[str, str] = Field(default_factory=dict)
    """What could not be observed, and why."""
    drift: tuple[Drift, ...] = ()
    tables: dict[str, Note] = Field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of its directory."""
        return f"{self.name}-{self.session}"


class Recording:
    """The files of a running observation. All methods block and raise SequenceLogError."""

    def __init__(
        self,
        base: Path,
        observation: Observation,
        *,
        csv: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = base / observation.folder
        self.observation = observation
        self._csv = csv
        self._journals: dict[str, JournalWriter] = {}
        self._pending: dict[Observed, list[Row]] = {}
        self._monotonic = monotonic
        self._flushed = monotonic()
        with _writing(self.path):
            self.path.mkdir(parents=True)
            self._lock = lock_directory(self.path)
            _write_note(self.path, observation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the directory; the next observation finishes the journals left in it."""
        for journal in self._journals.values():
            journal.close()
        os.close(self._lock)

    def write(self, table: Observed, rows: Sequence[Row]) -> None:
        """Add rows of one table, and flush if the last flush was five seconds ago."""
        if rows:
            self._pending.setdefault(table, []).extend(rows)
        if self._monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Append the pending rows to their files, where they survive a kill of the process."""
        self._flushed = self._monotonic()
        with _writing(self.path):
            for table, rows in self._pending.items():
                self._append(table, rows)
        self._pending.clear()

    def _append(self, table: Observed, rows: list[Row]) -> None:
        journal = self._journals.get(table.name)
        if journal is None:
            journal = JournalWriter(self.path / (table.name + JOURNAL))
            self._journals[table.name] = journal
            if self._csv:
                head = csv_line([_HEADS.get(each.name, each.name) for each in table.columns])
                (self.path / (table.name + _CSV)).write_text(head)
        journal.append([pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[table.name])])
        if self._csv:
            with (self.path / (table.name + _CSV)).open("a") as file:
                file.writelines(_csv_of(table, row) for row in rows)

    def write_profile(self, profile: Mapping[str, object]) -> None:
        """Write the machine's profile, with its configurations."""
        with _writing(self.path):
            replace(self.path / PROFILE_FILE, (json.dumps(profile, indent=1) + "\n").encode())

    def finish(
        self, ended_ns: int, *, left_out: Mapping[str, str], drift: Sequence[Drift] = ()
    ) -> None:
        """Turn the journals into Parquet files, and record how the observation ended.

        A warning is logged for each part of them that the disk lost.
        """
        self.flush()
        ended = self.observation.model_copy(
            update={"ended_ns": ended_ns, "left_out": dict(left_out), "drift": tuple(drift)}
        )
        lost: list[str] = []
        with _writing(self.path):
            self.observation = _sealed(self.path, ended, lost)
        for text in lost:
            _log.warning(text)


def finish_killed(base: Path) -> tuple[list[Path], list[str]]:
    """Finish the observations in a directory whose process was killed.

    Returns their directories, and the problems with them or with those that cannot be finished.
    Journals of tables that this version lacks stay for a version that has them.
    """
    finished: list[Path] = []
    wrong: list[str] = []
    journals = (each for each in base.glob(f"*/*{JOURNAL}") if each.stem in SCHEMAS)
    for path in sorted({each.parent for each in journals}):
        try:
            lock = lock_directory(path)
        except BusyError:
            continue
        except OSError as error:
            wrong.append(str(_failed(path, error)))
            continue
        try:
            observation = Observation.model_validate_json((path / OBSERVATION_FILE).read_bytes())
            _sealed(path, observation, wrong)
            finished.append(path)
        except ValidationError:
            wrong.append(f"{path}: {OBSERVATION_FILE} is damaged: its journals stay as they are")
        except (OSError, pa.ArrowException) as error:
            wrong.append(str(_failed(path, error)))
        finally:
            os.close(lock)
    return finished, wrong


def _sealed(path: Path, observation: Observation, lost: list[str]) -> Observation:
    """Turn its journals into Parquet files; list them in its file and the returned observation.

    What the journals lost is appended to `lost`.
    """
    tables = dict(observation.tables)
    damage: list[Damage] = []
    sealed = [path / (name + JOURNAL) for name in SCHEMAS]
    sealed = [journal for journal in sealed if journal.exists()]
    for journal in sealed:
        _, tables[journal.stem] = seal(journal, damage, SCHEMAS[journal.stem])
    noted = observation.model_copy(update={"tables": tables})
    # Before the journals are removed: every listed table exists, and every table is listed.
    _write_note(path, noted)
    for journal in sealed:
        journal.unlink()
    lost += [f"{path}/{each}" for each in damage if not each.harmless]
    return noted


def _write_note(path: Path, observation: Observation) -> None:
    content = observation.model_dump_json(indent=1) + "\n"
    replace(path / OBSERVATION_FILE, content.encode())


def _csv_of(table: Observed, row: Row) -> str:
    return csv_line(
        [
            utc(row[name]) if name in _HEADS else "" if row.get(name) is None else _cell(row[name])
            for name in (each.name for each in table.columns)
        ]
    )


def _cell(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: Exception) -> SequenceLogError:
    return SequenceLogError(f"{path}: cannot write the observation here: {reason_of(error)}")
