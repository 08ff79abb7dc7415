"""The metrics that an observer publishes."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from mirrortest.lab.free_ports import ADDRESS, free_ports
from mirrortest.metrics import names
from mirrortest.metrics.endpoint import MetricsEndpoint
from mirrortest.metrics.names import OBSERVER_TABLE, TABLE, Kind
from mirrortest.model.observed import BROKER, DEVICE, GC, HOST, LOG
from mirrortest.observe import observer
from mirrortest.observe.observer_metrics import ObserverMetrics
from mirrortest.observe.options import ObserveOptions

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.observe.machine import Tables


def published(metrics: ObserverMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples of the observer's own metrics: (name, values of labels) -> value."""
    return {
        (
            sample.name.removeprefix("mirrortest_observer_"),
            tuple(sample.labels.values()),
        ): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name.startswith("mirrortest_observer_")
    }


def test_names_follow_the_rules_of_all_metrics() -> None:
    """They are unique and in base units; counters end in _total."""
    assert len({each.full_name for each in (*TABLE, *OBSERVER_TABLE)}) == len(TABLE) + len(
        OBSERVER_TABLE
    )
    for metric in OBSERVER_TABLE:
        assert re.fullmatch(r"mirrortest_observer_[a-z0-9_]+", metric.full_name)
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
        assert not re.search(r"_(ms|millis|ns|kb)\b", metric.name)


def test_figures_are_those_of_the_last_interval() -> None:
    """An unknown figure, or a device that was removed, is no longer published."""
    metrics = ObserverMetrics(name="here", run="nightly")
    metrics.publish({
        HOST: [{"cpu_ratio": 0.5, "running": 3}],
        DEVICE: [{"device": "a", "queue": 1.0}, {"device": "b", "queue": 2.0}],
    })  # fmt: skip
    assert published(metrics) == {
        ("host_cpu_ratio", ()): 0.5,
        ("host_running", ()): 3,
        ("device_queue", ("a",)): 1.0,
        ("device_queue", ("b",)): 2.0,
    }
    metrics.publish({
        HOST: [{"cpu_ratio": 0.25, "running": None}],
        DEVICE: [{"device": "b", "queue": 3.0}],
    })  # fmt: skip
    assert published(metrics) == {("host_cpu_ratio", ()): 0.25, ("device_queue", ("b",)): 3.0}


def test_brokers_stay_until_their_next_scrape_or_until_they_fail() -> None:
    """They are scraped less often than once per interval."""
    metrics = ObserverMetrics(name="here", run=None)
    both: Tables = {
        BROKER: [{"endpoint": "a", "leaders": 1}, {"endpoint": "b", "leaders": 2, "replica_lag": 3}]
    }
    metrics.publish(both)
    metrics.publish({HOST: []})
    metrics.publish({BROKER: [{"endpoint": "b", "leaders": 4}]}, outdated=["b"])
    assert published(metrics) == {("broker_leaders", ("a",)): 1, ("broker_leaders", ("b",)): 4}
    metrics.publish({BROKER: []}, outdated=["a"])
    assert published(metrics) == {("broker_leaders", ("b",)): 4}


def test_events_of_logs_are_counted() -> None:
    """Pauses add their seconds, entries their counts."""
    metrics = ObserverMetrics(name="here", run=None)
    event: dict[str, Any] = {"log": "gc", "collector": "G1", "seconds": 0.25}
    tables: Tables = {
        GC: [event | {"kind": "full pause"}, event | {"kind": "concurrent"}],
        LOG: [{"log": "l", "kind": "warning", "type": "t", "count": 2}],
    }
    metrics.publish(tables)
    metrics.publish(tables)
    assert published(metrics) == {
        ("gc_pause_seconds_total", ("gc", "G1", "full pause")): 0.5,
        ("gc_events_total", ("gc", "G1", "full pause")): 2,
        ("gc_events_total", ("gc", "G1", "concurrent")): 2,
        ("log_entries_total", ("l", "warning", "t")): 4,
    }


def test_pauses_of_every_kind_begin_at_zero() -> None:
    """Prometheus's rate() ignores the value with which a counter begins: that of a full GC."""
    metrics = ObserverMetrics(name="here", run=None)
    metrics.begin_gc([("gc", "G1")])
    kinds = {"young pause", "full pause", "pause"}
    assert published(metrics) == {
        ("gc_pause_seconds_total", ("gc", "G1", kind)): 0 for kind in kinds
    } | {
        ("gc_events_total", ("gc", "G1", kind)): 0
        for kind in {*kinds, "concurrent", "phase", "collection"}
    }
    metrics.publish({GC: [{"log": "gc", "collector": "G1", "kind": "pause", "seconds": 0.5}]})
    metrics.begin_gc([("gc", "G1")])
    assert published(metrics)["gc_pause_seconds_total", ("gc", "G1", "pause")] == 0.5


def test_an_observer_begins_with_the_logs_that_it_has(tmp_path: Path) -> None:
    """The collector is the one that the log names before the observation."""
    log = tmp_path / "gc.log"
    log.write_text("[0.004s][info][gc] Using G1\n")
    (port,) = free_ports(1)
    options = ObserveOptions(
        name="here", output=tmp_path, gc_logs=(log,), interval=0.2, metrics_port=port
    )
    pages: list[str] = []

    def scrape(_: object) -> None:
        with urlopen(f"http://{ADDRESS}:{port}/metrics", timeout=5) as answer:
            pages.append(answer.read().decode())
        stop.set()

    stop = asyncio.Event()
    asyncio.run(observer.run(options, stop=stop, on_progress=scrape))
    labels = f'{{collector="G1",kind="full pause",log="{log}"}}'
    assert f"mirrortest_observer_gc_pause_seconds_total{labels} 0.0" in pages[0]


def test_an_observed_run_is_named() -> None:
    """As for producers and consumers, run_info names it; an endpoint takes the collector."""
    metrics = ObserverMetrics(name="here", run="nightly")
    assert metrics.gauge(names.RUN_INFO, run="nightly", role="observer", name="here").value == 1
    with MetricsEndpoint(metrics) as endpoint:
        assert endpoint.port
