"""Keeps the truth on disk: what was done, and from where to go on.

Rows are gathered, and become durable together with the positions that they belong to: first a
Parquet file, then `truth.json`, which names it, in one step. So after a kill the two agree, and
what was done since is done, found and told again.
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
from mirrortest.seqlog.session_directory import replace

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.faults.alteration import Note
    from mirrortest.faults.spec import Spec

_MOST_FILES = 32


class TruthWriter:
    """A faulty mirror's truth while it is being made; all methods block.

    Attributes:
        truth: the summary as it will be saved: positions and counts are written into it.
        fresh: whether nothing was there before.
        resumed_unclean: whether the one before was killed.
    """

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._folder = folder
        self._rows: list[tuple[Any, ...]] = []
        self._number = 0
        self.done: dict[str, int] = {}
        """Rows by kind, since this object was made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.fresh = not (folder / TRUTH_FILE).exists()
        except OSError as error:
            raise UsageError(f"--truth {folder}: {error.strerror}") from None
        self.truth = Truth(spec=spec.to_json()) if self.fresh else read_summary(folder)
        if not self.truth.files and not any(
            each.read for found in self.truth.read.values() for each in found.values()
        ):
            self.truth.spec = spec.to_json()  # nothing was done by the one before
        if self.truth.specification() != spec:
            raise UsageError(
                f"--truth {folder} tells of another specification: name another directory"
            )
        self.resumed_unclean = not self.fresh and not self.truth.clean
        self.truth.clean = False
        self._clear_away()
        self.save()

    def note(
        self, note: Note, topic: str | None, partition: int | None, offset: int | None
    ) -> None:
        """Tell of an act, and where its record stands in the destination."""
        subject = note.subject
        producer = subject.id
        known = producer is not None
        self._rows.append(
            (
                note.act,
                note.kind.value,
                subject.topic,
                subject.partition,
                subject.offset,
                producer.run if producer else None,
                producer.name if producer else None,
                producer.incarnation if producer else None,
                subject.lane if known else None,
                subject.seq if known else None,
                subject.form.value if subject.form is not None else None,
                note.part or None,
                note.overtaken,
                topic,
                partition,
                offset,
                note.detail,
            )
        )
        self.done[note.kind] = self.done.get(note.kind, 0) + 1

    def read(self, topic: str, partition: int) -> Partition:
        """The position and count of a source partition."""
        return self.truth.read.setdefault(topic, {}).setdefault(partition, Partition())

    def wrote(self, topic: str, partition: int, count: int, end: int) -> None:
        """So many records stand in a destination partition, all below `end`."""
        written = self.truth.written.setdefault(topic, {})
        written[partition] = written.get(partition, 0) + count
        ends = self.truth.ends.setdefault(topic, {})
        ends[partition] = max(ends.get(partition, 0), end)

    def save(self, *, clean: bool = False) -> None:
        """Make durable what was noted and where to go on; `clean` at the end.

        Raises:
            MirrortestError: the directory cannot be written.
        """
        try:
            if self._rows:
                self.truth.files.append(self._write(self._table()))
                self._rows.clear()
            merged = len(self.truth.files) > (1 if clean else _MOST_FILES)
            if merged:
                self.truth.files = [self._write(rows_of(self._folder, self.truth))]
            self.truth.clean = clean
            replace(self._folder / TRUTH_FILE, self.truth.model_dump_json(indent=1).encode())
            if merged:
                self._clear_away()
        except OSError as error:
            raise MirrortestError(f"--truth {self._folder}: {error.strerror}") from error

    def _table(self) -> pa.Table:
        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, TRUTH, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=TRUTH)

    def _write(self, table: pa.Table) -> str:
        names = {*self.truth.files, *(path.name for path in self._folder.glob("*.parquet"))}
        while (name := f"acts-{self._number:06d}.parquet") in names:
            self._number += 1
        with (self._folder / name).open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._folder)
        return name

    def _clear_away(self) -> None:
        """Remove files that the summary does not name: merged, or of a save that was cut off."""
        for path in self._folder.glob("acts-*.parquet"):
            if path.name not in self.truth.files:
                with contextlib.suppress(OSError):
                    path.unlink()
