"""The published metrics, as a real scrape over the loopback interface reads them."""

from __future__ import annotations

import re
import socket
import threading
from http.client import HTTPConnection

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import mirrortest
from mirrortest.errors import UsageError
from mirrortest.lab.free_ports import free_ports
from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from mirrortest.metrics.endpoint import MetricsEndpoint, serve_metrics
from mirrortest.metrics.names import TABLE, Kind, Side
from mirrortest.model.findings import Finding, Outcome
from mirrortest.timing.histogram import PROMETHEUS_SECONDS, Histogram


def ask(endpoint: MetricsEndpoint, path: str = "/metrics") -> tuple[int, str]:
    """The status and body of a real HTTP response."""
    connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample that Prometheus would store."""
    with MetricsEndpoint(metrics) as endpoint:
        status, text = ask(endpoint)
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_names_are_sound() -> None:
    """Base units, `_total` on counters only, histograms without partitions, unique names."""
    full = [metric.full_name for metric in TABLE]
    assert len(set(full)) == len(full)
    for metric in TABLE:
        assert re.fullmatch(r"mirrortest_[a-z_]+", metric.full_name)
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
        assert metric.help.endswith(".")
        assert not re.search(r"_(ms|millis|nanoseconds|ns|kb)\b", metric.name)
        if metric.kind is Kind.HISTOGRAM:
            assert metric.name.endswith("_seconds")
            assert "partition" not in metric.labels
        if metric.side is not Side.BOTH:
            assert metric.name.startswith(f"{metric.side}_")


def test_a_scrape_tells_every_metric_of_the_table() -> None:
    """Prometheus's parser reads each row back, with a value for each of its labels."""
    metrics = Metrics()
    for number, metric in enumerate(TABLE):
        labels = {label: f'{label} "1"\n\\' for label in metric.labels}
        if metric.kind is Kind.COUNTER:
            metrics.counter(metric, **labels).add(number)
        elif metric.kind is Kind.GAUGE:
            metrics.gauge(metric, **labels).set(number)
        else:
            metrics.histogram(metric, None, **labels).add([number])
    samples = scrape(metrics)
    for number, metric in enumerate(TABLE):
        labels = {label: f'{label} "1"\n\\' for label in metric.labels}
        histogram = metric.kind is Kind.HISTOGRAM
        key = metric.full_name + ("_count" if histogram else ""), tuple(sorted(labels.items()))
        assert samples[key] == (1 if histogram else number)


def test_a_fresh_process_tells_its_version_and_its_costs() -> None:
    """They are published before anything is counted."""
    samples = scrape(Metrics())
    version = (("version", mirrortest.__version__),)
    assert samples["mirrortest_build_info", version] == 1
    assert ("process_cpu_seconds_total", ()) in samples


def test_histograms_are_cumulative_and_agree_with_their_count() -> None:
    """Bounds are in seconds; negative latencies are not in the histogram."""
    metrics = Metrics(role="consumer")
    latency = metrics.histogram(names.CONSUMER_LATENCY, topic="t", since="intended")
    latency.add(np.array([-5, 500_000, 3_000_000_000, 10**14], dtype=np.int64))
    samples = scrape(metrics)
    labels = (("role", "consumer"), ("since", "intended"), ("topic", "t"))
    name = "mirrortest_consumer_latency_seconds"
    counts = [
        samples[f"{name}_bucket", tuple(sorted((*labels, ("le", le))))]
        for le in (*map(str, map(float, PROMETHEUS_SECONDS)), "+Inf")
    ]
    assert counts == sorted(counts)
    assert (counts[0], counts[-2], counts[-1]) == (1, 2, 3)
    assert samples[f"{name}_count", labels] == 3
    assert samples[f"{name}_sum", labels] == pytest.approx(100_003.0005)


def test_a_histogram_kept_elsewhere_is_read_as_it_grows() -> None:
    """The application's own histogram is published, not a copy."""
    metrics, own = Metrics(), Histogram()
    assert metrics.histogram(names.PRODUCER_ACK_LATENCY, own, topic="t") is own
    own.add([1, 2])
    key = ("mirrortest_producer_ack_latency_seconds_count", (("topic", "t"),))
    assert scrape(metrics)[key] == 2
    other = Histogram()
    assert metrics.histogram(names.PRODUCER_ACK_LATENCY, other, topic="t") is other
    assert scrape(metrics)[key] == 0


def test_children_are_kept_and_removed() -> None:
    """A second call returns the same child; a removed one is no longer scraped."""
    metrics = Metrics(role="consumer")
    lag = metrics.gauge(names.CONSUMER_LAG, topic="t", partition="0")
    assert metrics.gauge(names.CONSUMER_LAG, partition="0", topic="t") is lag
    metrics.remove(names.CONSUMER_LAG, topic="t", partition="0")
    metrics.remove(names.CONSUMER_LAG, topic="t", partition="1")
    assert not any(name.endswith("lag_messages") for name, _ in scrape(metrics))


def test_a_gauge_may_be_a_function() -> None:
    """The function is called at each scrape, until a value is set."""
    metrics = Metrics()
    ages = iter((1.0, 2.0))
    gauge = metrics.gauge(names.LEDGER_AGE)
    gauge.read_by(lambda: next(ages))
    key = ("mirrortest_ledger_age_seconds", ())
    assert [scrape(metrics)[key], scrape(metrics)[key]] == [1, 2]
    gauge.set(7)
    assert scrape(metrics)[key] == 7


def test_a_counter_only_rises() -> None:
    """By an increment, or to a total; a lower total is ignored."""
    counter = Metrics().counter(names.CLOCK_STEPS)
    counter.add()
    counter.raise_to(5)
    counter.raise_to(3)
    assert counter.value == 5
    with pytest.raises(ValueError, match="only rises"):
        counter.add(-1)


def test_misuse_is_told() -> None:
    """A wrong kind, and missing or unknown labels, raise ValueError."""
    metrics = Metrics()
    with pytest.raises(ValueError, match="is a counter"):
        metrics.gauge(names.CLOCK_STEPS)
    with pytest.raises(ValueError, match="labels"):
        metrics.counter(names.CONSUMER_MESSAGES)
    with pytest.raises(ValueError, match="labels"):
        metrics.counter(names.CLOCK_STEPS, topic="t")


def test_paths() -> None:
    """Unknown paths are not found; without a health check, each probe succeeds."""
    with MetricsEndpoint(Metrics()) as endpoint:
        for probe in ("/startup", "/ready", "/live"):
            assert ask(endpoint, probe)[0] == 200
        assert ask(endpoint, "/")[0] == 404


def test_stopping_frees_the_port_and_the_thread() -> None:
    """It takes effect at once, and can be repeated; the port can be used again."""
    threads = set(threading.enumerate())  # some may be of other tests, and end soon
    (port,) = free_ports(1)  # reserved for this process
    endpoint = MetricsEndpoint(Metrics(), port=port)
    endpoint.stop()
    endpoint.stop()
    assert set(threading.enumerate()) <= threads
    with serve_metrics(Metrics(), address="127.0.0.1", port=endpoint.port) or endpoint as again:
        assert again.port == endpoint.port
        assert ask(again)[0] == 200


def test_port_zero_is_off() -> None:
    """`serve_metrics` starts nothing."""
    assert serve_metrics(Metrics(), address="127.0.0.1", port=0) is None


def test_a_taken_port_is_a_usage_error() -> None:
    """The error names option, port and address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--metrics-port {port}.*127\.0\.0\.1"):
            MetricsEndpoint(Metrics(), port=port)


@pytest.mark.parametrize("address", ["192.0.2.1", "not an address"])
def test_an_address_that_is_not_here_is_a_usage_error(address: str) -> None:
    """Neither another machine's address nor an invalid one is accepted."""
    with pytest.raises(UsageError, match="cannot listen"):
        MetricsEndpoint(Metrics(), address=address, port=0)


def test_help_lists_every_finding_and_outcome() -> None:
    """A new finding appears in the help of the metric that counts it without an edit there."""
    assert all(finding.label in names.CONSUMER_FINDINGS.help for finding in Finding)
    assert all(outcome.label in names.PRODUCER_MESSAGES.help for outcome in Outcome)
