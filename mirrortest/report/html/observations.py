"""The observations of a run, by step; `observed_panels` draws them.

An interval's figures are assumed to be constant over it. What is outside the run's time is left
out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrortest.config.units import SECOND_NS, number
from mirrortest.model.observed import HOST, LOG, TABLES
from mirrortest.report.html.timeline import Slots, times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from mirrortest.model.observed import Observed
    from mirrortest.report.html.timeline import Cuts, Steps
    from mirrortest.report.result import Result
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.observation import Observation

MOST_ROWS = 2_000_000
MACHINE = "observation"
"""An additional column of all tables: the observation's name, that is, the machine's.

Of several at the same time that have one name, the names of their folders.
"""
_EVERY: Mapping[str, str] = MappingProxyType({})


class _Series(NamedTuple):
    """A table's rows grouped by key: the observation's name, then the table's own keys."""

    keys: list[tuple[str, ...]]
    of_row: NDArray[np.int64]
    cuts: Cuts


@dataclass(frozen=True, eq=False)
class Observations:
    """All observations of a run; their tables have the additional column `MACHINE`."""

    slots: Slots
    tables: Mapping[Observed, pa.Table]
    _cache: dict[Observed, _Series] = field(default_factory=dict, repr=False)

    @cached_property
    def machines(self) -> list[str]:
        """The names of the observations that measured a machine."""
        rows = self.tables.get(HOST)
        return [] if rows is None else sorted(rows[MACHINE].unique().to_pylist())

    @property
    def seconds(self) -> float:
        """How long was observed: from the first row to the end of the last, at least a second."""
        times = [times_of(rows) for rows in self.tables.values()]
        last = max(int(end.max()) for _, end in times)
        first = min(int(begin.min()) for begin, _ in times)
        return max(last - first, SECOND_NS) / SECOND_NS

    def of(
        self,
        table: Observed,
        figure: str,
        by: str = MACHINE,
        only: Mapping[str, str] = _EVERY,
        *,
        together: Callable[..., Steps] = np.nansum,
        weight: str = "",
    ) -> dict[str, Steps]:
        """A figure's means by step (NaN without a value) for each value of the key `by`.

        Series of the same value are combined: by `together`, or by the mean weighted with the
        figure `weight`. `only` has the values that other keys must have.
        """
        if table not in self.tables:
            return {}
        series, values = self._series(table), self._means(table, figure)
        weights = self._means(table, weight) if weight else None
        names = [MACHINE, *(key.name for key in table.keys)]
        groups: dict[str, list[int]] = defaultdict(list)
        for at, key in enumerate(series.keys):
            its = dict(zip(names, key, strict=True))
            if only.items() <= its.items():
                groups[its[by]].append(at)
        found = {}
        for name, members in sorted(groups.items()):
            own = values[members]
            if weights is not None:
                of_both = np.where(np.isnan(own), np.nan, weights[members])
                with np.errstate(invalid="ignore", divide="ignore"):
                    found[name] = np.nansum(own * of_both, axis=0) / np.nansum(of_both, axis=0)
                continue
            found[name] = np.full(self.slots.count, np.nan)
            here = ~np.isnan(own).all(axis=0)
            found[name][here] = together(own[:, here], axis=0)
        return found

    def _means(self, table: Observed, figure: str) -> Steps:
        """A figure's mean by series and step."""
        series, count = self._series(table), self.slots.count
        values = self.tables[table][figure].cast(pa.float64()).to_numpy()[series.cuts.row]
        seconds = np.where(np.isnan(values), 0, series.cuts.seconds)
        at, size = (
            series.of_row[series.cuts.row] * count + series.cuts.slot,
            len(series.keys) * count,
        )
        sums = np.bincount(at, np.nan_to_num(values) * seconds, size)
        lasted = np.bincount(at, seconds, size)
        means = np.full(size, np.nan)
        np.divide(sums, lasted, out=means, where=lasted > 0)
        return means.reshape(-1, count)

    def _series(self, table: Observed) -> _Series:
        if table not in self._cache:
            self._cache[table] = self._find_series(table)
        return self._cache[table]

    def _find_series(self, table: Observed) -> _Series:
        rows = self.tables[table]
        columns = [rows[MACHINE], *(rows[key.name].cast(pa.string()) for key in table.keys)]
        # Join the keys' numbers, not their texts: a text can contain any separator.
        codes = [pc.dictionary_encode(each.combine_chunks()).indices for each in columns]
        joined = pc.binary_join_element_wise(*(each.cast(pa.string()) for each in codes), ",")
        of_row = (
            pc.index_in(joined, joined.unique()).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        _, first = np.unique(of_row, return_index=True)
        return _Series(
            list(zip(*(each.take(pa.array(first)).to_pylist() for each in columns), strict=True)),
            of_row,
            self.slots.cuts(*times_of(rows)),
        )

    def events(
        self, table: Observed, figure: str, by: str, kinds: Iterable[str] | None = None
    ) -> dict[str, tuple[NDArray[np.int64], Steps]]:
        """By the key `by`: the steps in which rows end, in order of time, and the rows' values."""
        rows = self.tables.get(table)
        if rows is None:
            return {}
        if kinds is not None:
            rows = rows.filter(pc.is_in(rows["kind"], pa.array(kinds, pa.string())))
        rows = rows.filter(pc.is_valid(rows[figure])).sort_by("ended_ns")
        found = {}
        for name in sorted(rows[by].unique().to_pylist()):
            own = rows.filter(pc.equal(rows[by], name))
            values = own[figure].cast(pa.float64()).to_numpy()
            found[name] = self.slots.last(*times_of(own)), values
        return found


def read_observations(result: Result) -> tuple[Observations | None, list[str]]:
    """The observations during the run, None if there are none; and what is not shown."""
    noted = sum(
        note.rows for each in result.observations for note in each.observation.tables.values()
    )
    if noted > MOST_ROWS:
        rows = number(noted, "row")
        most = number(MOST_ROWS, "row")
        return None, [f"the observations have {rows}: they are shown for at most {most}"]
    began, ended = _run_time(result)
    damage: list[Damage] = []
    left_out: dict[str, str] = {}
    tables: dict[Observed, pa.Table] = {}
    for table in TABLES:
        parts = []
        for each in result.observations:
            rows = _within(_with_own_times(table, each.read(table, damage)), began, ended)
            its = each.observation
            machine = _machine(its, [other.observation for other in result.observations])
            if rows.num_rows:
                left_out |= {f"{machine}: {what}": why for what, why in its.left_out.items()}
            name = pa.array([machine] * rows.num_rows, pa.string())
            parts.append(rows.append_column(MACHINE, name))
        if parts and (joined := pa.concat_tables(parts)).num_rows:
            tables[table] = _with_distinct_names(table, joined)
    absent = [f"what was observed is incomplete: {each}" for each in damage]
    absent += [f"{what}: not observed: {why}" for what, why in left_out.items()]
    if not tables:
        return None, absent
    times = {table: times_of(rows) for table, rows in tables.items()}
    begin, end = times.get(HOST, (np.zeros(1), np.full(1, SECOND_NS)))
    slots = Slots.over_intervals(times.values(), float(np.median(end - begin)))
    return Observations(slots, tables), absent


def short_names(texts: Iterable[str]) -> dict[str, str]:
    """Names of files and directories without path and suffix, if the short name is unique."""
    found = {
        text: (PurePath(text).name.partition(".")[0] if "/" in text else "") or text
        for text in texts
    }
    short = list(found.values())
    return {text: name if short.count(name) == 1 else text for text, name in found.items()}


def _run_time(result: Result) -> tuple[int, int]:
    """The start and end of the run by its sessions; open-ended if a session has no end."""
    sessions = [each.session for each in result.sessions]
    began = min((each.started_ns for each in sessions), default=0)
    ends = [each.ended_ns for each in sessions]
    known = [each for each in ends if each is not None]
    return began, max(known) if known and len(known) == len(ends) else np.iinfo(np.int64).max


def _machine(its: Observation, every: Iterable[Observation]) -> str:
    """The observation's name; its folder's if another one of that name ran at the same time."""

    def began_within(one: Observation, other: Observation) -> bool:
        # Of one that was killed, the end is missing: the next one is of the same machine.
        return other.started_ns <= one.started_ns < (other.ended_ns or 0)

    mixed = any(
        other.name == its.name and other is not its
        and (began_within(its, other) or began_within(other, its))
        for other in every
    )  # fmt: skip
    return its.folder if mixed else its.name


def _with_own_times(table: Observed, rows: pa.Table) -> pa.Table:
    """Give log entries the times when they were written: they may have been read much later."""
    if table is LOG:
        for name, own in (("started_ns", "first_ns"), ("ended_ns", "last_ns")):
            rows = rows.set_column(rows.schema.get_field_index(name), name, rows[own])
    return rows


def _with_distinct_names(table: Observed, rows: pa.Table) -> pa.Table:
    """Name the machine in each log and endpoint that several machines call the same."""
    for at, key in enumerate(table.columns):
        if key.name in {"log", "endpoint"}:
            pairs = rows.group_by([key.name, MACHINE]).aggregate([])
            times = pc.value_counts(pairs[key.name])
            shared = times.field("values").filter(pc.greater(times.field("counts"), 1))
            names = rows[key.name]
            distinct = pc.binary_join_element_wise(rows[MACHINE], names, ": ")
            names = pc.if_else(pc.is_in(names, shared), distinct, names)
            rows = rows.set_column(at, key.name, names)
    return rows


def _within(rows: pa.Table, began: int, ended: int) -> pa.Table:
    """The rows that overlap a time range, clipped to it."""
    begin, end = times_of(rows)
    rows = rows.filter(pa.array((end >= began) & (begin <= ended)))
    for name in ("started_ns", "ended_ns"):
        times = pa.array(np.clip(rows[name].to_numpy(), began, ended))
        rows = rows.set_column(rows.schema.get_field_index(name), name, times)
    return rows
