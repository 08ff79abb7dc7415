"""Figures of brokers and of MirrorMaker 2, from scrapes of the lab's and of other exporters.

`scrapes` has one of a broker and one of the mirror, from `lab up --metrics-port`, without comments.
"""

from __future__ import annotations

import asyncio
import csv
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mirrortest.errors import UsageError
from mirrortest.lab import jars
from mirrortest.model.observed import BROKER, MIRROR, PARTITION, REQUEST
from mirrortest.observe import broker_figures, scraping
from mirrortest.observe.broker_figures import keys
from mirrortest.observe.observer import Observer, run
from mirrortest.observe.observer_metrics import ObserverMetrics
from mirrortest.observe.options import Endpoint, ObserveOptions
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.observe.scraped_metrics import Parser, Series
from mirrortest.observe.scraping import Scraper
from tests.work import calls

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.mark.parametrize(
    "text",
    [
        *("http://h/metrics", "a=h:9404", "=http://h", "a=file:///etc/x", "a=http:///metrics"),
        *("a=http://h:port/m", "a=http://h:94040/m", "a=http://h:0/m", "a=http://[::1/m"),
        *("a=http://.kafka.svc:9404/m", f"a=http://{'h' * 64}/m", "a=http://h/a b", "a=http://h/ä"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused(text: str) -> None:
    """The error has an example; once, wrong hosts and ports had answers without Kafka metrics."""
    with pytest.raises(UsageError, match="must be NAME=URL, for example"):
        Endpoint.parse(text)


@pytest.mark.parametrize("url", ["http://[::1]:9404/metrics", "https://h", "http://10.0.0.1/m?a=b"])
def test_an_endpoint_is_an_address(url: str) -> None:
    """Of any host and any path."""
    assert Endpoint.parse(f"a={url}") == Endpoint("a", url)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    """It was taken for a part of the host's name."""
    with pytest.raises(UsageError, match="--scrape a=: the URL has a user's name") as refused:
        Endpoint.parse("a=http://user:geheim@h:9404/metrics")
    assert "geheim" not in str(refused.value)


# -- over HTTP ------------------------------------------------------------------------------------


NO_HTTP = "no HTTP"
BROKEN_OFF = OWN[:-2] + "\0"
"""A response that ends within its last value, before its announced length."""


class Exporter(BaseHTTPRequestHandler):
    """Answers with the next of `answers`: a text, or a status."""

    answers: Iterator[str | int]

    def do_GET(self) -> None:
        answer = next(self.answers)
        if answer == NO_HTTP:
            self.wfile.write(b"SSH-2.0-x\r\n")
            return
        self.send_response(answer if isinstance(answer, int) else 200)
        if answer == BROKEN_OFF:
            self.send_header("Content-Length", str(len(OWN)))
        self.end_headers()
        if isinstance(answer, str):
            self.wfile.write(answer.removesuffix("\0").encode())

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def exporter(*answers: str | int) -> Iterator[Endpoint]:
    """An endpoint `b` that returns these answers."""
    Exporter.answers = iter(answers)
    server = HTTPServer(("127.0.0.1", 0), Exporter)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Endpoint("b", f"http://127.0.0.1:{server.server_port}/metrics")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_observation_shorter_than_a_scrape_interval_has_its_brokers(
    tmp_path: Path,
) -> None:
    """They are scraped when it begins and when it ends."""
    with exporter(OWN, later(OWN)) as endpoint:
        options = ObserveOptions(
            name="here", output=tmp_path, interval=0.2, duration=0.2, scrape_interval=3600.0,
            endpoints=(endpoint,), csv=True,
        )  # fmt: skip
        report = await run(options, stop=asyncio.Event())
    with (report.path / "broker.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["endpoint"], float(row["under_replicated_partitions"])) == ("b", 2)
    assert float(row["isr_shrinks_per_second"]) > 0


async def test_a_last_interval_that_is_too_short_is_left_out() -> None:
    """The rates of a few milliseconds would be the highest of all."""
    with exporter(OWN, later(OWN)) as endpoint:
        scraper = Scraper(endpoint, 10.0, by_partition=False)
        await scraper.scrape()
        await scraper.scrape()
        await scraper.finish(10.0)
    assert scraper.left_out == {}
    assert len(scraper.take()) == 2


async def test_a_slow_answer_does_not_shorten_the_interval_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its counters are as old as its request; once rates after it were many times too high."""
    now, delays, answer = [0.0], iter((9.0, 0.0)), Exporter.do_GET

    def answer_late(self: Exporter) -> None:
        now[0] += next(delays)
        answer(self)

    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=lambda: int(now[0] * 1e9))
    monkeypatch.setattr("mirrortest.observe.scraping.time", clock)
    monkeypatch.setattr(Exporter, "do_GET", answer_late)
    with exporter(OWN, later(OWN)) as endpoint:
        scraper = Scraper(endpoint, 10.0, by_partition=False)
        await scraper.scrape()
        now[0] += 1.0
        await scraper.scrape()
    row = next(row for table, row in scraper.take() if table.name == "broker")
    assert (row["started_ns"], row["ended_ns"]) == (0, 10 * 10**9)
    assert row["isr_shrinks_per_second"] == pytest.approx(0.4)


async def test_an_observer_that_cannot_scrape_any_more_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error does not lead to an observation without its brokers."""

    async def broken(_: Scraper) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Scraper, "run", broken)
    endpoints = (Endpoint("b", "http://127.0.0.1:1/metrics"),)
    options = ObserveOptions(
        name="here", output=tmp_path, interval=0.1, duration=60.0, endpoints=endpoints
    )
    with pytest.raises(ZeroDivisionError):
        await run(options, stop=asyncio.Event())


def test_an_endpoint_that_does_not_answer_does_not_delay_the_end() -> None:
    """Once the program waited for the thread of the scrape, for ten seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint("b", f"http://127.0.0.1:{silent.getsockname()[1]}/metrics")

        async def stopped() -> socket.socket:
            task = asyncio.create_task(Scraper(endpoint, 10.0, by_partition=False).run())
            connection, _ = await asyncio.to_thread(silent.accept)
            task.cancel()
            await asyncio.wait({task})
            return connection

        with asyncio.run(stopped()):
            (thread,) = (each for each in threading.enumerate() if each.name == "scrape")
    thread.join()


def test_two_endpoints_of_one_name_are_refused() -> None:
    """Their figures would be those of one, now of the first and now of the second."""
    both = tuple(Endpoint("b", f"http://b{number}:9404/metrics") for number in (1, 2))
    with pytest.raises(UsageError, match="--scrape b=: two endpoints of this name"):
        ObserveOptions(name="here", endpoints=both)


async def test_what_fails_is_named_and_scraped_again() -> None:
    """Rows need two consecutive scrapes; after a failure, the next scrape is a first one."""
    with exporter(OWN, 503, 520, NO_HTTP, "{", OWN, later(OWN)) as endpoint:
        scraper = Scraper(endpoint, 10.0, by_partition=False)
        await scraper.scrape()
        assert scraper.left_out == {}
        await scraper.scrape()
        assert scraper.left_out == {"b": "HTTP 503 Service Unavailable"}
        assert scraper.failing
        for _ in range(3):
            await scraper.scrape()
        await scraper.scrape()
        assert not scraper.failing
        assert scraper.take() == []
        await scraper.scrape()
    taken = scraper.take()
    assert {table.name for table, _ in taken} == {"broker", "request"}
    for _, row in taken:
        assert int(str(row["ended_ns"])) > int(str(row["started_ns"]))
    await scraper.scrape()
    assert scraper.left_out == {"b": "for a time: cannot connect: Connection refused"}


async def test_an_endpoint_that_failed_for_a_time_is_named_at_the_end() -> None:
    """Its figures have a gap; one that fails only at the end has figures all the same."""
    found = []
    for answers in ((503, OWN, later(OWN)), (OWN, later(OWN), 503)):
        with exporter(*answers) as endpoint:
            scraper = Scraper(endpoint, 10.0, by_partition=False)
            for _ in range(3):
                await scraper.scrape()
        found.append((scraper.left_out["b"], scraper.failing))
    why = "for a time: HTTP 503 Service Unavailable"
    assert found == [(why, False), (why, True)]


async def test_a_mirror_without_tasks_has_no_figures(tmp_path: Path) -> None:
    """Its metrics of topics are missing then: the last rates of before would stay for ever."""
    copied = 'kafka_connect_mirror_source_records_total{{topic="t",partition="0"}} {}\n'
    idle = "kafka_connect_task_status 1\n"
    metrics, shown = ObserverMetrics(name="here", run=None), []
    with exporter(copied.format(1), copied.format(9), idle, idle) as endpoint:
        options = ObserveOptions(name="here", output=tmp_path, endpoints=(endpoint,))
        observing = Observer(options, ReadableFiles())
        for _ in range(4):
            await observing._scrapers[0].scrape()
            metrics.publish(observing.endpoint_rows(), observing.outdated)
            metrics.publish(observing.endpoint_rows(), observing.outdated)
            names = {family.name for family in metrics.collect()}
            shown.append("mirrortest_observer_mirror_records_per_second" in names)
    assert shown == [False, True, False, False]


@pytest.mark.parametrize(("answer", "most"), [(BROKEN_OFF, 1 << 20), (OWN, len(OWN) - 1)])
async def test_an_answer_that_is_cut_off_is_no_scrape(
    answer: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, a broker was killed during its response, and its last value lost digits unnoticed."""
    monkeypatch.setattr(scraping, "_MOST_BYTES", most)
    with exporter(answer) as endpoint:
        scraper = Scraper(endpoint, 10.0, by_partition=False)
        await scraper.scrape()
    assert scraper.left_out["b"].startswith("the response is not HTTP, is incomplete, or exceeds ")
