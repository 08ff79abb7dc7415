"""What a scrape costs, counted in calls: by series, never by messages; and it blocks nothing."""

from __future__ import annotations

import threading

import numpy as np
import prometheus_client

from mirrortest.metrics import names
from mirrortest.metrics.collector import Metrics
from tests.work import calls

TOPICS, PARTITIONS = 10, 150


def published(messages: int, *, topics: int = TOPICS, partitions: int = PARTITIONS) -> Metrics:
    """A consumer's metrics after `messages` messages of each topic."""
    metrics = Metrics(role="consumer")
    for topic in (f"t{number}" for number in range(topics)):
        for since in ("intended", "sent"):
            histogram = metrics.histogram(names.CONSUMER_LATENCY, topic=topic, since=since)
            histogram.add(np.arange(messages) * 1_000_003 % 10**10)
        metrics.counter(names.CONSUMER_MESSAGES, topic=topic).add(messages)
    for partition in range(partitions):
        metrics.gauge(names.CONSUMER_LAG, topic="t0", partition=str(partition)).set(messages)
    return metrics


def scraped(metrics: Metrics) -> bytes:
    """The text of a scrape."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics)
    return prometheus_client.generate_latest(registry)


def samples(text: bytes) -> int:
    """How many samples a scrape has."""
    return sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


def test_a_scrape_costs_the_same_whatever_was_counted() -> None:
    """A thousand times as many messages cause no further call."""
    few, many = published(100), published(100_000)
    scraped(few)
    assert samples(scraped(few)) == samples(scraped(many))
    assert calls(lambda: list(many.collect())) == calls(lambda: list(few.collect()))


def test_a_scrape_costs_by_its_series_alone() -> None:
    """Ten times the series cost ten times the calls: a child does not visit other children."""
    small = published(100, topics=2, partitions=15)
    large = published(100, topics=20, partitions=150)
    for metrics in (small, large):
        scraped(metrics)
    per_small = calls(lambda: scraped(small)) / samples(scraped(small))
    per_large = calls(lambda: scraped(large)) / samples(scraped(large))
    assert per_large <= per_small * 1.05


def test_a_sample_costs_no_more_than_its_text() -> None:
    """Most calls of a scrape are prometheus_client's, to write the text; ours are fewer."""
    metrics = published(100_000)
    text = scraped(metrics)
    ours = calls(lambda: list(metrics.collect()))
    all_calls = calls(lambda: scraped(metrics))
    assert ours <= 6 * samples(text)
    assert ours <= all_calls / 2


def test_counting_goes_on_while_a_scrape_is_made() -> None:
    """No batch waits for a scrape: counting takes no lock that a scrape keeps."""
    metrics = published(1000)
    histogram = metrics.histogram(names.CONSUMER_LATENCY, topic="t0", since="sent")
    counter = metrics.counter(names.CONSUMER_MESSAGES, topic="t0")
    amid = metrics.collect()
    next(amid)  # a scrape is under way, and is not finished

    def count() -> None:
        histogram.add([5])
        counter.add(1)
        metrics.counter(names.CONSUMER_MESSAGES, topic="t0").add(1)

    other = threading.Thread(target=count, daemon=True)
    other.start()
    other.join(30)
    assert not other.is_alive()
    assert counter.value == 1002
    list(amid)
