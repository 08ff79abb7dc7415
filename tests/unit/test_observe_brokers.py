"""Figures of brokers and of MirrorMaker 2, from scrapes of the lab's and of others' exporters.

`scrapes` has one of a broker and one of the mirror, of `lab up --metrics-port`, without comments.
"""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.model.observed import BROKER, MIRROR, PARTITION, REQUEST
from mirrortest.observe.broker_figures import rows
from mirrortest.observe.options import Endpoint
from mirrortest.observe.scraped_metrics import Series, parse
from mirrortest.observe.scraping import Scraper

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRAPES = Path(__file__).with_name("scrapes")
OWN = """\
# HELP kafka_server_ReplicaManager_Count Attribute exposed for management
kafka_server_ReplicaManager_Count{name="IsrShrinksPerSec",} 3.0
kafka_server_ReplicaManager_Value{name="UnderReplicatedPartitions",} 2.0
kafka_network_RequestMetrics_Count{name="TotalTimeMs",request="Produce",} 10.0
kafka_network_RequestMetrics_Mean{name="TotalTimeMs",request="Produce",} 4.0
kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Produce",} 50.0
kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",} 1000.0
kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic="t",} 900.0
jvm_threads_current 7.0
"""
STRIMZI = """\
kafka_server_replicamanager_isrshrinks_total 3.0
kafka_server_replicamanager_underreplicatedpartitions 2.0
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 10.0
kafka_network_requestmetrics_totaltimems_mean{request="Produce"} 4.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 50.0
kafka_server_brokertopicmetrics_bytesin_total 1000.0
kafka_server_brokertopicmetrics_bytesin_total{topic="t"} 900.0
"""


def later(text: str) -> str:
    """The same exporter two seconds later."""
    for before, now in (
        (" 3.0", " 7.0"), (" 10.0", " 30.0"), (" 4.0", " 8.0"), (" 1000.0", " 1500.0"),
    ):  # fmt: skip
        text = text.replace(before, now)
    return text


@pytest.mark.parametrize("text", [OWN, STRIMZI], ids=["exporter", "strimzi"])
def test_both_usual_sets_of_names_are_read(text: str) -> None:
    """A mean is that of the requests between the scrapes: (30 x 8 - 10 x 4) / 20 ms."""
    found = rows("b", parse(text), parse(later(text)), 2.0, by_partition=False)
    (broker,) = found[BROKER]
    assert broker["endpoint"] == "b"
    assert broker["isr_shrinks_per_second"] == 2
    assert broker["under_replicated_partitions"] == 2
    assert broker["bytes_in_per_second"] == 250  # not those of the topic a second time
    (request,) = found[REQUEST]
    assert request["request"] == "Produce"
    assert request["total_seconds"] == pytest.approx(0.010)
    assert request["total_p99_seconds"] == pytest.approx(0.050)


def test_a_restarted_broker_gives_no_rates() -> None:
    """Its counters begin again: their rise is unknown, not negative."""
    found = rows("b", parse(later(OWN)), parse(OWN), 2.0, by_partition=False)
    (broker,) = found[BROKER]
    assert broker["isr_shrinks_per_second"] is None
    assert broker["under_replicated_partitions"] == 2


def test_the_labs_broker_has_every_figure() -> None:
    """But for those that a broker alone in its cluster, and a KRaft controller, do not have."""
    series = parse((SCRAPES / "broker.txt").read_text())
    found = rows("B1", series, series, 1.0, by_partition=True)
    (broker,) = found[BROKER]
    present = {name for name, value in broker.items() if value is not None}
    missing = {each.name for each in BROKER.figures} - present
    assert missing == {
        "elections_per_second",  # of ZooKeeper's time
        "election_seconds",
        "quorum_election_seconds",  # none was held
        "replica_lag",  # no followers
        "flush_seconds",  # nothing was flushed between
    }
    assert {row["request"] for row in found[REQUEST]} >= {"Produce", "FetchConsumer", "Metadata"}
    assert {row["topic"] for row in found[PARTITION]} >= {"A.orders", "__consumer_offsets"}
    for table, of_table in found.items():
        known = {each.name for each in (*table.keys, *table.figures)}
        assert all(set(row) <= known for row in of_table)


def test_the_labs_mirror_by_topic_and_by_partition() -> None:
    """Of a topic the sum of its partitions' rates, and the worst of their latencies."""
    series = parse((SCRAPES / "mirror.txt").read_text())
    more = [
        each._replace(value=each.value + 10 * (1 + int(each.labels["partition"])))
        if each.key == "kafka_connect_mirror_source_records"
        else each
        for each in series
    ]
    topics = rows("m", series, more, 10.0, by_partition=False)[MIRROR]
    (orders,) = [row for row in topics if row["topic"] == "A.orders"]
    assert (orders["partition"], orders["records_per_second"]) == ("", 3)
    partitions = rows("m", series, more, 10.0, by_partition=True)[MIRROR]
    of_orders = [row for row in partitions if row["topic"] == "A.orders"]
    assert [row["records_per_second"] for row in of_orders] == [1, 2]
    worst = max(float(str(row["replication_latency_seconds"])) for row in of_orders)
    assert orders["replication_latency_seconds"] == worst
    assert {each.name for each in MIRROR.columns[2:]} == set(orders)


def test_what_is_no_number_is_left_out() -> None:
    """An exporter has NaN for a mean of nothing."""
    assert parse("kafka_server_raft_metrics_election_latency_avg NaN\n") == []
    assert parse("kafka_x 1\n") == [Series("kafka_x", "value", {}, 1.0)]


@pytest.mark.parametrize("text", ["http://h/metrics", "a=h:9404", "=http://h", "a=file:///etc/x"])
def test_an_endpoint_that_cannot_be_meant_is_refused(text: str) -> None:
    """With an example of how it is written."""
    with pytest.raises(UsageError, match="must be NAME=URL, for example"):
        Endpoint.parse(text)


# -- over HTTP ------------------------------------------------------------------------------------


class Exporter(BaseHTTPRequestHandler):
    """Answers with the next of `answers`: a text, or a status."""

    answers: Iterator[str | int]

    def do_GET(self) -> None:
        answer = next(self.answers)
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        if isinstance(answer, str):
            self.wfile.write(answer.encode())

    def log_message(self, *args: Any) -> None:
        pass


async def test_what_fails_is_named_and_scraped_again() -> None:
    """Rows need two scrapes that follow each other; a failure between is a new beginning."""
    Exporter.answers = iter([OWN, 503, "{", OWN, later(OWN)])
    server = HTTPServer(("127.0.0.1", 0), Exporter)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        endpoint = Endpoint("b", f"http://127.0.0.1:{server.server_port}/metrics")
        scraper = Scraper(endpoint, 10.0, by_partition=False)
        await scraper.scrape()
        assert scraper.left_out == {}
        await scraper.scrape()
        assert scraper.left_out == {"b": "it answers 503 Service Unavailable"}
        await scraper.scrape()
        await scraper.scrape()
        assert scraper.take() == []
        await scraper.scrape()
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()
    taken = scraper.take()
    assert {table.name for table, _ in taken} == {"broker", "request"}
    for _, row in taken:
        assert int(str(row["ended_ns"])) > int(str(row["started_ns"]))
    await scraper.scrape()
    assert scraper.left_out == {"b": "cannot connect: Connection refused"}
