"""Scrapes of a consumer with very many streams, and their effect on its latencies.

All producers but one have ended: judging rounds and scrapes go through what they left. The last one
goes on slowly, so that only the consumer itself makes messages late.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from mirrortest.lab.free_ports import free_ports
from tests.bench.contenders import OURS, Place, consumer, producer
from tests.bench.measure import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirrortest.lab import Lab

PRODUCERS = 64
PARTITIONS = 150
_TOPIC = "bench.scrapes"
_SIZE = 100
_EACH = 3_000
"""Messages of each ended producer: some in each partition."""
_RATE = 2_000
_PHASE_SECONDS = 20
_PAUSE_SECONDS = 0.3
_SIDE_BY_SIDE = 4
_PEER_PAGE = "metrics.txt"


@dataclass(frozen=True)
class Scrapes:
    """Seconds of each scrape; latencies of messages during the scrapes, and before them (`alone`).

    Latencies are upper bounds of the quantiles' buckets, from the actual send to the arrival at a
    consumer of the same broker.
    """

    producers: int
    partitions: int
    size: int
    """Bytes of one scrape."""
    took: list[float]
    idle: list[float]
    """Seconds in which an otherwise idle server returned the same page, in turn with `took`."""
    alone_p99: float
    scraped_p99: float
    alone_most: float
    scraped_most: float
    server_resident: int
    """Bytes of the process that serves the consumer's metrics."""
    acked_p99: float
    """From the actual send to the broker's acknowledgement, of the last producer's messages."""

    def to_json(self) -> dict[str, Any]:
        """As a dictionary, flat but for the lists."""
        return asdict(self)


def scrapes(
    lab: Lab, folder: Path, producers: int = PRODUCERS, partitions: int = PARTITIONS
) -> Scrapes:
    """Let all producers but one write and end; scrape while the last one writes."""
    place = Place.of(lab, folder)
    lab.source.create_topic(_TOPIC, partitions)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/metrics"
    names = [f"p{number}" for number in range(producers)]
    serving = ("--metrics-port", str(port), "--expect-producers", ",".join(names))
    reading = Running(consumer(OURS, place, _TOPIC, 0, *serving), folder, "consumer")
    first = names[1:]
    while first:
        now, first = first[:_SIDE_BY_SIDE], first[_SIDE_BY_SIDE:]
        for writing in [_writing(place, folder, name, _EACH) for name in now]:
            writing.wait()
    slowly = ("--throughput", str(_RATE), "--warmup-records", str(2 * _RATE), "--json")
    last = _writing(place, folder, names[0], _RATE * 3 * _PHASE_SECONDS, *slowly)
    # From then on only the last producer's messages arrive.
    _until_steady(url)
    began = _page(url)
    time.sleep(_PHASE_SECONDS)
    alone = _page(url)
    took: list[float] = []
    idle: list[float] = []
    (folder / _PEER_PAGE).write_text(page := alone)
    with _idle_server(folder) as peer:
        for _ in _until(time.monotonic() + _PHASE_SECONDS):
            page = _timed(url, took)
            _timed(f"{peer}/{_PEER_PAGE}", idle)
            time.sleep(_PAUSE_SECONDS)
    server_resident = reading.resident_descendants
    last.wait()
    reading.wait()
    before, between, after = map(_buckets, (began, alone, page))
    quiet, busy = _difference(before, between), _difference(between, after)
    return Scrapes(
        producers=producers,
        partitions=partitions,
        size=len(page),
        took=took,
        idle=idle,
        alone_p99=quantile(quiet, 0.99),
        scraped_p99=quantile(busy, 0.99),
        alone_most=quantile(quiet, 1.0),
        scraped_most=quantile(busy, 1.0),
        server_resident=server_resident,
        acked_p99=json.loads(last.answer)["steady_state"]["latency_seconds"]["from_sent"]["p99"],
    )


def quantile(buckets: dict[float, float], share: float) -> float:
    """The upper bound of the quantile's bucket; `buckets`: upper bound -> count up to it."""
    if not buckets or not (total := max(buckets.values())):
        raise SystemExit("no message came while the scrapes were measured")
    return min(bound for bound, count in buckets.items() if count >= share * total)


def _writing(place: Place, folder: Path, name: str, count: int, *options: str) -> Running:
    command = producer(OURS, place, _TOPIC, count, _SIZE, *options)
    command[command.index("--id") + 1] = name
    return Running(command, folder, name)


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield


def _until_steady(url: str) -> None:
    """Wait until messages arrive at the last producer's rate, and no faster."""
    before = _messages(url)
    for _ in _until(time.monotonic() + 2 * _PHASE_SECONDS):
        time.sleep(2)
        now = _messages(url)
        if 0 < now - before < 3 * _RATE:
            return
        before = now
    raise SystemExit("the last producer's messages did not come steadily")


def _messages(url: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(_page(url))
        for sample in family.samples
        if sample.name == "mirrortest_consumer_messages_total"
    )


def _timed(url: str, took: list[float]) -> str:
    since = time.perf_counter()
    page = _page(url)
    took.append(time.perf_counter() - since)
    return page


@contextlib.contextmanager
def _idle_server(folder: Path) -> Iterator[str]:
    """Python's file server in its own process: the time that this machine needs for a page."""
    (port,) = free_ports(1)
    address = ("--bind", "127.0.0.1", "--directory", str(folder))
    server = Running([sys.executable, "-m", "http.server", str(port), *address], folder, "server")
    with contextlib.closing(server):
        url = f"http://127.0.0.1:{port}"
        for _ in _until(time.monotonic() + _PHASE_SECONDS):
            with contextlib.suppress(URLError):
                _page(url)
                break
            time.sleep(_PAUSE_SECONDS)
        yield url


def _page(url: str) -> str:
    with urlopen(url) as answer:
        body: bytes = answer.read()
    return body.decode()


def _buckets(page: str) -> dict[float, float]:
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "mirrortest_consumer_latency_seconds_bucket"
        and sample.labels["since"] == "sent"
    }


def _difference(before: dict[float, float], after: dict[float, float]) -> dict[float, float]:
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
