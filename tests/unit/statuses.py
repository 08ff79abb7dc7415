"""Statuses of produce and consume: with nothing wrong, and with everything wrong at once."""

from __future__ import annotations

from dataclasses import replace

from mirrortest.config.threshold import thresholds
from mirrortest.consume.consume_status import ConsumeStatus, PartitionLag
from mirrortest.consume.consume_status import slowest as slowest_read
from mirrortest.model.findings import Finding, Outcome
from mirrortest.produce.produce_status import PartitionBacklog, ProduceStatus
from mirrortest.timing.histogram import Histogram, Sparse
from mirrortest.timing.recent import Latencies

MS = 1_000_000
TOPIC = "dc1.payments.settled-by-the-night-batch.v2"


def sparse(*values_ns: int) -> Sparse:
    """These values, as a status contains them."""
    histogram = Histogram()
    histogram.add(values_ns)
    return histogram.sparse()


LATENCIES = Latencies(sparse(10 * MS, 12 * MS, 900 * MS), sparse(12 * MS, 12 * MS))


def consuming(partitions: int = 2, topic: str = "A.orders") -> ConsumeStatus:
    """A consumer that finds nothing wrong."""
    lags = [PartitionLag(f"{topic}-{number}", number, 0.012) for number in range(partitions)]
    return ConsumeStatus(
        run="nightly",
        name="c1",
        elapsed_seconds=80.0,
        duration_seconds=120.0,
        read=17_790,
        read_per_second=2_001.4,
        acked_per_second=1_998.2,
        counts={**{f.label: 0 for f in Finding}, "acked": 17_790, "delivered": 17_778,
                "unknown": 0, "in_flight": 12},
        partitions=partitions,
        unread=sum(lag.unread for lag in lags),
        age_seconds=0.012,
        slowest=slowest_read(lags),
        latency=LATENCIES,
        sent_latency=LATENCIES,
        thresholds=thresholds(("p(99)<2s",)),
    )  # fmt: skip


def consuming_badly(partitions: int = 200, topic: str = TOPIC) -> ConsumeStatus:
    """A consumer that finds everything wrong at once, with huge numbers, while nothing arrives."""
    status = consuming(partitions, topic)
    return replace(
        status,
        read=1_234_567_890,
        counts={**status.counts, **{f.label: 1_234_567 for f in Finding}, "acked": 9_876_543_210},
        slowest=slowest_read(
            PartitionLag(f"{topic}-{number}", 10**8 + number, 86_400.0)
            for number in range(partitions)
        ),
        unread=10**9,
        age_seconds=86_400.0,
        thresholds=thresholds(("p(99)<2ms", "lost<0.1%"), exactly_once=True),
        ledger_since="16:42:08Z",
        quiet_seconds=9.2,
        outage="destination unreachable since 2026-11-25T16:42:10Z",
        read_per_second=0.0,
        acked_per_second=0.0,
    )


def producing(partitions: int = 2, topic: str = "orders") -> ProduceStatus:
    """A producer that keeps its schedule."""
    return ProduceStatus(
        run="nightly",
        name="p1",
        elapsed_seconds=80.0,
        total=240_000,
        asked_per_second=2_000.0,
        acked_per_second=1_999.7,
        bytes_per_second=2_000_000.0,
        outcomes={Outcome.ACKED: 160_000, Outcome.FAILED: 0, Outcome.UNKNOWN: 0},
        in_flight=24,
        due=3,
        latency=LATENCIES,
        backlogs=[
            PartitionBacklog(f"{topic}-{number}", number, 0, 0) for number in range(partitions)
        ],
    )


def producing_badly(partitions: int = 200, topic: str = TOPIC) -> ProduceStatus:
    """A producer whose cluster does not answer."""
    return replace(
        producing(partitions, topic),
        outcomes={Outcome.ACKED: 10**9, Outcome.FAILED: 1_234, Outcome.UNKNOWN: 5_678},
        reasons={
            "the brokers did not answer within delivery.timeout.ms=120000": 5_678,
            "NotEnoughReplicasError": 1_000,
            "MessageSizeTooLargeError": 200,
            "TopicAuthorizationFailedError": 34,
        },
        quiet_seconds=31.0,
        fault="the source does not answer: no broker of kafka-1.dc1.example.org:9092 answers",
        behind_ns=31_400 * MS,
        due=62_800,
        acked_per_second=0.0,
        backlogs=[
            PartitionBacklog(f"{topic}-{number}", 10**6 + number, 10**5, 31_400 * MS)
            for number in range(partitions)
        ],
    )
