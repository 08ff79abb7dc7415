"""Writes the ground truth: what was done, and the positions to continue from.

Rows become durable together with their positions: first a Parquet file is written, then
`truth.json`, which names it, is replaced in one step. After a kill the two agree, and what was done
since the last save is recorded again.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrortest.errors import MirrortestError, UsageError
from mirrortest.faults.ground_truth import (
    TRUTH,
    TRUTH_FILE,
    Partition,
    Truth,
    read_summary,
    rows_of,
)
from mirrortest.seqlog.journal import sync_directory
from mirrortest.seqlog.session_directory import BusyError, lock_directory, replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.faults.alteration import TruthRow
    from mirrortest.faults.spec import Spec

_MOST_FILES = 32


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a truth's directory, and refuse it to other mirrors until the context ends.

    Raises:
        UsageError: another mirror uses the directory, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_directory(folder)
    except BusyError:
        raise UsageError(
            f"--truth {folder}: another mirror is using it: use another directory"
        ) from None
    except OSError as error:
        raise UsageError(f"--truth {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(lock)


class TruthWriter:
    """The truth of a running faulty mirror, in a directory that is `locked`; all methods block.

    Attributes:
        summary: positions and totals, as they will be saved.
        was_killed: whether the mirror before this one was killed.
        counts: rows by kind, since this object was created.
    """

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._folder = folder
        self._rows: list[tuple[Any, ...]] = []
        self._number = 0
        self.counts: dict[str, int] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_new = not (folder / TRUTH_FILE).exists()
        except OSError as error:
            raise UsageError(f"--truth {folder}: {error.strerror}") from None
        self.summary = Truth(spec=spec) if is_new else read_summary(folder)
        if not self.summary.files and not any(
            each.read for found in self.summary.read.values() for each in found.values()
        ):
            # No mirror has used it yet.
            self.summary.spec, self.summary.clusters = spec, None
        if self.summary.spec != spec:
            raise UsageError(
                f"--truth {folder} belongs to another specification: use another directory"
            )
        self.was_killed = not is_new and not self.summary.clean
        self.summary.clean = False
        self._remove_stale_files()
        self.save()

    def check_clusters(self, source: str, destination: str) -> None:
        """Record the clusters' ids.

        Raises:
            UsageError: the truth is of other clusters: its positions mean nothing in these.
        """
        clusters = (source, destination)
        if self.summary.clusters not in {None, clusters}:
            raise UsageError(
                f"--truth {self._folder} belongs to other clusters: use another directory"
            )
        self.summary.clusters = clusters

    def record(
        self, fault: TruthRow, topic: str | None, partition: int | None, offset: int | None
    ) -> None:
        """Add a row: an act, and where its record is in the destination."""
        subject = fault.subject
        producer = subject.id
        message: tuple[Any, ...] = (None,) * 5
        if producer is not None:
            named = (producer.run, producer.name, producer.incarnation)
            message = (*named, subject.lane, subject.seq)
        form = None if subject.form is None else subject.form.value
        self._rows.append(
            (
                *(fault.act, fault.kind.value),
                *(subject.topic, subject.partition, subject.offset),
                *(*message, form, fault.part or None, fault.overtaken),
                *(topic, partition, offset, fault.detail),
            )
        )
        self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1

    def read(self, topic: str, partition: int) -> Partition:
        """The position and count of a source partition."""
        return self.summary.read.setdefault(topic, {}).setdefault(partition, Partition())

    def wrote(self, topic: str, partition: int, count: int, end: int) -> None:
        """Count acknowledged records of a destination partition, all below `end`."""
        written = self.summary.written.setdefault(topic, {})
        written[partition] = written.get(partition, 0) + count
        ends = self.summary.ends.setdefault(topic, {})
        ends[partition] = max(ends.get(partition, 0), end)

    def save(self, *, clean: bool = False) -> None:
        """Make rows and positions durable; `clean` at the end.

        Raises:
            MirrortestError: the directory cannot be written.
        """
        try:
            if self._rows:
                self.summary.files.append(self._write(self._table()))
                self._rows.clear()
            merged = len(self.summary.files) > (1 if clean else _MOST_FILES)
            if merged:
                self.summary.files = [self._write(rows_of(self._folder, self.summary))]
            self.summary.clean = clean
            replace(self._folder / TRUTH_FILE, self.summary.model_dump_json(indent=1).encode())
            if merged:
                self._remove_stale_files()
        except OSError as error:
            raise MirrortestError(f"--truth {self._folder}: {error.strerror}") from error

    def _table(self) -> pa.Table:
        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, TRUTH, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=TRUTH)

    def _write(self, table: pa.Table) -> str:
        names = {*self.summary.files, *(path.name for path in self._folder.glob("*.parquet"))}
        while (name := f"acts-{self._number:06d}.parquet") in names:
            self._number += 1
        with (self._folder / name).open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._folder)
        return name

    def _remove_stale_files(self) -> None:
        """Remove files that the summary does not name: merged, or of an interrupted save."""
        for path in self._folder.glob("acts-*.parquet"):
            if path.name not in self.summary.files:
                with contextlib.suppress(OSError):
                    path.unlink()
