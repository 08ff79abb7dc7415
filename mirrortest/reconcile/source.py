"""How Spark's tasks read the logs: they open files by path, with pyarrow, and yield intervals.

The driver has only the paths. Each task has files that follow each other in a session's log, so
that rows that continue across files become one interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from mirrortest.host.error_text import reason_of
from mirrortest.reconcile.bundle import Parts, scanned
from mirrortest.reconcile.compact import Compactor, Zone, columns_of
from mirrortest.reconcile.holes import NO_PACKING, Packing
from mirrortest.reconcile.interval_rows import damage_row
from mirrortest.reconcile.session_topics import compacted_topics
from mirrortest.reconcile.stretch import ENDED, alike
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.files import LogFile, read_file
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.parquet import Marked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirrortest.reconcile.incarnations import Numbers
    from mirrortest.reconcile.plan import Plan

_TASKS_PER_CORE = 4
_SMALL = 4 << 20
"""Bytes of logs below which there is one part: it has judged them before a second one starts."""
_BYTES_PER_PART = 64 << 20


class File(NamedTuple):
    """What a task needs of a file: its session's number and role; its URI, rows and digest."""

    session: int
    role: Role
    uri: str
    rows: int | None
    digest: str | None


class Reading(NamedTuple):
    """All that tasks need besides the file systems.

    `horizons` are times (ns) for which it may matter whether an acknowledgement came before them.
    `numbers` are by session.
    """

    run: str
    tasks: tuple[tuple[File, ...], ...]
    horizons: tuple[int, ...]
    placed: bool
    parts: Parts
    numbers: Mapping[int, Numbers]
    zones: tuple[Zone, ...] = ()
    packing: Packing = NO_PACKING

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        """A task's intervals, and what could not be read of its files, in bundles."""
        return scanned(self.intervals(task), self.parts)

    def intervals(self, task: int) -> Iterator[pa.RecordBatch]:
        """The same as `INTERVALS` rows."""
        compactor: Compactor | None = None
        for file in self.tasks[task]:
            if compactor is None or compactor.session != file.session:
                if compactor is not None:
                    yield from compactor.close()
                horizons = np.array(self.horizons, dtype=np.int64)
                compactor = Compactor(
                    self.run,
                    file.session,
                    task,
                    horizons,
                    self.zones,
                    self.packing,
                    self.numbers.get(file.session, {}),
                )
            damage: list[Damage] = []
            columns = columns_of(file.role, placed=self.placed)
            # A producer's latencies end at the acknowledgement: they are not the mirror's. With
            # zones some rows may not count, so sums are of no use.
            sums = file.role is Role.CONSUMER and not self.zones
            how = Marked(ENDED, alike(self.horizons), totals=sums)
            place = LogFile(Location.parse(file.uri), file.rows, digest=file.digest)
            try:
                for batch in read_file(place, damage, columns=columns, marked=how):
                    yield from compactor.add(batch)
            except (ArithmeticError, LookupError, ValueError, pa.ArrowException) as error:
                # mirrortest does not write such rows, and no digest has shown the change.
                what = f"its rows are invalid: {reason_of(error)}"
                damage.append(Damage(DamageKind.UNREADABLE, place.location.shown, what))
            for each in damage:
                origin = {"session": file.session, "task": task}
                yield damage_row(str(each), harmless=each.harmless, **origin)
        if compactor is not None:
            yield from compactor.close()


def reading(plan: Plan, cores: int, *, placed: bool, parts: Parts | None = None) -> Reading:
    """Spread a plan's files over tasks; `placed`: acknowledged offsets in the source matter.

    By default the number of parts follows from the size of the logs.
    """
    files = [
        (
            file.estimated_rows,
            File(number, found.session.role, file.location.uri, file.rows, file.digest),
        )
        for number, found in enumerate(plan.sessions)
        for file in found.files
    ]
    return Reading(
        plan.run,
        tuple(map(tuple, _tasks(files, cores * _TASKS_PER_CORE))),
        tuple(sorted({0, *plan.horizons.values()})),
        placed,
        parts or Parts(_parts(plan, cores), frozenset(compacted_topics(plan))),
        plan.renumbered,
    )


def _parts(plan: Plan, cores: int) -> int:
    size = sum(file.size for found in plan.sessions for file in found.files)
    return 1 if size < _SMALL else max(cores * _TASKS_PER_CORE, size // _BYTES_PER_PART)


def _tasks(files: Sequence[tuple[int, File]], most: int) -> list[list[File]]:
    """Cut the files, in their order, into runs of about equally many rows."""
    if not files:
        return []
    share = max(sum(rows for rows, _ in files) / most, 1.0)
    tasks: list[list[File]] = [[] for _ in range(most)]
    before = 0
    for rows, file in files:
        # A file belongs to the task that contains its middle.
        tasks[min(int((before + rows / 2) / share), most - 1)].append(file)
        before += rows
    return [task for task in tasks if task]
