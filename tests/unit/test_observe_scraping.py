"""Scrapes of endpoints: when they are tried, how they fail, and what stays of them."""

from __future__ import annotations

import asyncio
import csv
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.observe import scraping
from mirrortest.observe.observer import Observer, run
from mirrortest.observe.observer_metrics import ObserverMetrics
from mirrortest.observe.options import Endpoint, ObserveOptions
from mirrortest.observe.readable_files import ReadableFiles
from mirrortest.observe.scraping import Scraper
from tests.unit.test_observe_brokers import OWN, later

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
