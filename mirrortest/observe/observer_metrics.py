"""The figures of the last interval as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.model.observed import GC, LOG, PAUSES, GcKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirrortest.metrics.collector import Gauge
    from mirrortest.model.observed import Observed
    from mirrortest.observe.machine import Tables

_Key = tuple[str, ...]


class ObserverMetrics(Metrics):
    """The metrics of each figure, labelled by its table's keys; an ended subject has no figures.

    The figures of an endpoint are as old as its last scrape.
    """

    def __init__(self, *, name: str, run: str | None) -> None:
        super().__init__()
        if run is not None:
            self.gauge(names.RUN_INFO, run=run, role="observer", name=name).set(1)
        self._published: dict[Observed, dict[tuple[str, _Key], Gauge]] = {}

    def begin_gc(self, logs: Iterable[tuple[str, str]]) -> None:
        """Begin the counters of (log, collector) at 0, so that rates include their first events."""
        for log, collector in logs:
            for kind in GcKind:
                labels = {"log": log, "collector": collector, "kind": kind.value}
                self.counter(names.OBSERVED_COLLECTIONS, **labels)
                if kind in PAUSES:
                    self.counter(names.OBSERVED_PAUSES, **labels)

    def publish(self, tables: Tables, outdated: Collection[str] = ()) -> None:
        """Publish the rows of an interval, and remove the figures that their tables lack.

        An endpoint's figures stay until it is `outdated`: it was scraped, or cannot be scraped.
        """
        for table, rows in tables.items():
            if table is GC:
                self._count_events(rows)
            elif table is LOG:
                for row in rows:
                    labels = {each.name: str(row[each.name]) for each in LOG.keys}
                    self.counter(names.OBSERVED_LINES, **labels).add(int(str(row["count"])))
            else:
                self._set(table, rows, outdated)

    def _set(
        self, table: Observed, rows: list[dict[str, object]], outdated: Collection[str]
    ) -> None:
        present = set()
        published = self._published.setdefault(table, {})
        for row in rows:
            key = tuple(str(row[each.name]) for each in table.keys)
            for name, metric in names.OBSERVED[table].items():
                value = row.get(name)
                if isinstance(value, int | float):
                    figure = name, key
                    if figure not in published:
                        labels = dict(zip(metric.labels, key, strict=True))
                        published[figure] = self.gauge(metric, **labels)
                    published[figure].set(value)
                    present.add(figure)
        ended = published.keys() - present
        if any(each.name == "endpoint" for each in table.keys):
            # Not every interval has a scrape of every endpoint.
            ended = {each for each in ended if each[1][0] in outdated}
        for name, key in ended:
            metric = names.OBSERVED[table][name]
            self.remove(metric, **dict(zip(metric.labels, key, strict=True)))
            del published[name, key]

    def _count_events(self, rows: list[dict[str, object]]) -> None:
        for row in rows:
            labels = {name: str(row[name]) for name in names.OBSERVED_PAUSES.labels}
            self.counter(names.OBSERVED_COLLECTIONS, **labels).add()
            if row["kind"] in PAUSES and isinstance(row["seconds"], float):
                self.counter(names.OBSERVED_PAUSES, **labels).add(row["seconds"])
