"""Figures of brokers and of MirrorMaker 2, from scrapes of the lab's and of other exporters.

`scrapes` has one of a broker and one of the mirror, from `lab up --metrics-port`, without comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from mirrortest.lab import jars
from mirrortest.model.observed import BROKER, MIRROR, PARTITION, REQUEST
from mirrortest.observe import broker_figures
from mirrortest.observe.broker_figures import keys
from mirrortest.observe.scraped_metrics import Parser, Series
from tests.work import calls

if TYPE_CHECKING:
    from mirrortest.model.observed import Observed

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


def parse(text: str) -> list[Series]:
    """The series of a first scrape."""
    return Parser(keys(by_partition=True)).parse(text)


def rows(
    endpoint: str, before: list[Series], now: list[Series], seconds: float, *, by_partition: bool
) -> dict[Observed, list[dict[str, object]]]:
    """The rows from two scrapes."""
    first, second = (broker_figures.read(each, by_partition=by_partition) for each in (before, now))
    return broker_figures.rows(endpoint, first, second, seconds)


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
    assert broker["bytes_in_per_second"] == 250  # the topic's are not added
    (request,) = found[REQUEST]
    assert request["request"] == "Produce"
    assert request["total_seconds"] == pytest.approx(0.010)
    assert request["total_p99_seconds"] == pytest.approx(0.050)


@pytest.mark.parametrize("count_before", [4, 7])
def test_a_mean_of_nothing_is_exactly_0(count_before: int) -> None:
    """Rounding in the broker's means, which are of all its requests, leaves no remainder."""
    prefix = "kafka_network_RequestMetrics"
    before, now = (
        parse(
            "".join(
                f'{prefix}_{which}{{name="ThrottleTimeMs",request="Produce"}} {value}\n'
                for which, value in (("Count", count), ("Mean", 123 / count))
            )
        )
        for count in (count_before, count_before + 3)
    )
    (row,) = rows("b", before, now, 1.0, by_partition=False)[REQUEST]
    assert row["throttle_seconds"] == 0


_COPIED = 'kafka_connect_mirror_source_records_total{{topic="t",partition="{}"}} {}\n'


@pytest.mark.parametrize(
    ("now", "rate"),
    [
        ({0: 1100, 1: 110}, 20.0),
        ({0: 5, 1: 2000}, None),
        ({1: 60}, 5.0),
        ({0: 1100, 1: 10, 2: 50}, 15.0),
    ],
    ids=["both", "one was reset", "one has left", "one is new"],
)
def test_a_reset_of_one_of_several_counters_is_no_rate(
    now: dict[int, int], rate: float | None
) -> None:
    """A task of the mirror was restarted: the sum rose, by much less than was copied."""
    before = {0: 1000, 1: 10}
    first, second = (
        parse("".join(_COPIED.format(*each) for each in found.items())) for found in (before, now)
    )
    found = rows("m", first, second, 10, by_partition=False)[MIRROR]
    assert [row["records_per_second"] for row in found] == ([] if rate is None else [rate])


def test_a_rate_of_the_exporter_is_no_counter() -> None:
    """Of an exporter with OneMinuteRate alone, the rate of that rate was shown as bytes/s."""
    name = 'kafka_server_{}_OneMinuteRate{{name="{}",}} {}\n'
    before, now = (
        name.format("BrokerTopicMetrics", "BytesInPerSec", rate)
        + name.format("KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", 0.5)
        for rate in (1000.0, 1500.0)
    )
    (row,) = rows("b", parse(before), parse(now), 10, by_partition=False)[BROKER]
    assert row == {"endpoint": "b", "handler_idle_ratio": 0.5}


def test_a_mean_since_the_brokers_start_is_no_figure_of_an_interval() -> None:
    """Strimzi's rules export the handlers' MeanRate: after a month it hides that none is idle."""
    name = "kafka_{}_percent 0.9\n"
    series = parse(
        name.format("server_kafkarequesthandlerpool_requesthandleravgidle")
        + name.format("network_socketserver_networkprocessoravgidle")
    )
    (row,) = rows("b", series, series, 10, by_partition=False)[BROKER]
    assert row == {"endpoint": "b", "network_idle_ratio": 0.9}


def test_a_restarted_broker_gives_no_rates() -> None:
    """Its counters begin again: their rise is unknown, not negative."""
    found = rows("b", parse(later(OWN)), parse(OWN), 2.0, by_partition=False)
    (broker,) = found[BROKER]
    assert broker["isr_shrinks_per_second"] is None
    assert broker["under_replicated_partitions"] == 2


def test_the_labs_broker_has_every_figure() -> None:
    """Except those that a single broker in its cluster, and a KRaft controller, do not have."""
    series = parse((SCRAPES / "broker.txt").read_text())
    found = rows("B1", series, series, 1.0, by_partition=True)
    (broker,) = found[BROKER]
    present = {name for name, value in broker.items() if value is not None}
    missing = {each.name for each in BROKER.figures} - present
    assert missing == {
        "elections_per_second",  # ZooKeeper only
        "election_seconds",
        "quorum_election_seconds",  # there was no election
        "replica_lag",  # no followers
        "flush_seconds",  # nothing was flushed between
    }
    assert {row["request"] for row in found[REQUEST]} >= {"Produce", "FetchConsumer", "Metadata"}
    assert {row["topic"] for row in found[PARTITION]} >= {"A.orders", "__consumer_offsets"}
    for table, of_table in found.items():
        known = {each.name for each in (*table.keys, *table.figures)}
        assert all(set(row) <= known for row in of_table)


def test_the_labs_exporter_leaves_out_only_what_nobody_reads() -> None:
    """It omits the percentiles of a request's stages, since each would sort samples."""
    config = yaml.safe_load(Path(jars.__file__).with_name("jmx_exporter.yaml").read_text())
    for name, attributes in config["excludeObjectNameAttributes"].items():
        assert not {"Count", "Mean"} & set(attributes), name
        assert ("99thPercentile" in attributes) is ("name=TotalTimeMs" not in name), name


def test_the_labs_mirror_by_topic_and_by_partition() -> None:
    """A topic has the sum of its partitions' rates, and the highest of their latencies."""
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
    """An exporter writes NaN for a mean without values."""
    nothing = "kafka_server_raft_metrics_election_latency_avg NaN\n"
    assert parse(nothing) == []
    key = "kafka_server_replicamanager_leadercount"
    assert parse(f"{nothing}{key} 1\n") == [Series(key, "value", {}, 1.0)]


def test_what_a_series_is_called_is_read_once() -> None:
    """Only values change; reading all in each scrape would cost some percent of a core."""
    text = (SCRAPES / "broker.txt").read_text()
    parser = Parser(keys(by_partition=True))
    first, second = (calls(lambda: parser.parse(text)) for _ in range(2))
    assert second < first / 8


@pytest.mark.parametrize(
    "line",
    [
        'kafka_server_ReplicaManager_Value{name="LeaderCount",} 3.0 1700000000000',
        'kafka_server_ReplicaManager_Value{name="LeaderCount",a="} 7 \u2028{"}\t3',
        "kafka_server_replicamanager_leadercount  3e0",
    ],
)
def test_values_are_read_again_in_each_scrape(line: str) -> None:
    """Labels may contain their own delimiters; a timestamp may follow the value."""
    parser = Parser(keys(by_partition=False))
    for text, value in ((line, 3), (line.replace("3", "4", 1), 4), (line, 3)):
        (series,) = parser.parse(f"# HELP {text}\n{text}\njvm_threads 7\n")
        assert (series.key, series.value) == ("kafka_server_replicamanager_leadercount", value)


@pytest.mark.parametrize(
    "text", ["", "jvm_threads 7\n", "kafka_x\n", "kafka_x y\n", "kafka_x{ 1\n"]
)
def test_what_is_no_scrape_of_kafka_is_refused(text: str) -> None:
    """It may be another server's page, or an exporter without Kafka's metrics."""
    parser = Parser({"kafka_x"})
    with pytest.raises(ValueError):  # noqa: PT011  # it has no text: the scraper names the endpoint
        parser.parse(text)
    assert parser.parse("kafka_x 1\n")
