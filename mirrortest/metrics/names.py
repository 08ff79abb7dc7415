"""The table of all metrics: name, kind, labels and meaning.

docs/reference/metrics.md is generated from it.

Units are base units (seconds, bytes). Counters end in ``_total``. Histograms carry no partition
label: their buckets would multiply by it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.failure import Failure
from mirrortest.model.findings import DEFINITIONS, Outcome
from mirrortest.model.load import meaning
from mirrortest.model.observed import GC, LOG, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.model.observed import Observed

PREFIX = "mirrortest_"
_FINDINGS = ", ".join(each.finding.label for each in DEFINITIONS)
_FAILURES = ", ".join(Failure)
_OUTCOMES = ", ".join(each.label for each in Outcome)


class Kind(StrEnum):
    """A metric's type in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Side(StrEnum):
    """Which application has a metric. A source observer is a consumer in the source."""

    BOTH = "both"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    LAB = "lab"
    OBSERVER = "observer"


class Metric(NamedTuple):
    """A row of the table; `name` is without the prefix."""

    side: Side
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        """The name as it is scraped; a histogram's samples add ``_bucket``, ``_sum`` and so on."""
        return PREFIX + self.name


TABLE: list[Metric] = []


def _both(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Metric:
    return _row(Metric(Side.BOTH, name, kind, labels, text))


def _producer(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Metric:
    return _row(Metric(Side.PRODUCER, f"producer_{name}", kind, labels, text))


def _consumer(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Metric:
    # The label `role` keeps a source observer's figures apart from those of the mirror's copy.
    return _row(Metric(Side.CONSUMER, f"consumer_{name}", kind, (*labels, "role"), text))


def _row(metric: Metric) -> Metric:
    TABLE.append(metric)
    return metric


BUILD_INFO = _both("build_info", Kind.GAUGE, ("version",), "Always 1; the version that runs.")
RUN_INFO = _both(
    "run_info", Kind.GAUGE, ("run", "role", "name"),
    "Always 1; the run, the role in it (producer, consumer, source or observer) and the instance's "
    "name.",
)  # fmt: skip
CLOCK_STEPS = _both(
    "clock_steps_total", Kind.COUNTER, (),
    "Times the wall clock jumped against the monotonic one; latencies around them are off.",
)  # fmt: skip
CLOCK_STEPPED = _both(
    "clock_stepped_seconds_total", Kind.COUNTER, (), "Sum of the sizes of these jumps."
)
CLOCK_ERROR = _both(
    "clock_error_bound_seconds", Kind.GAUGE, (),
    "The most that this machine's clock is off, as its kernel estimates: 16 where nothing corrects "
    "it; absent where the kernel has no estimate.",
)  # fmt: skip
LEDGER_AGE = _both(
    "ledger_age_seconds", Kind.GAUGE, (),
    "Time since the ledger was written (producer), or since its last record was read (consumer).",
)  # fmt: skip
LOG_ROWS = _both("log_rows_total", Kind.COUNTER, (), "Rows made durable in the sequence log.")

PRODUCER_MESSAGES = _producer(
    "messages_total", Kind.COUNTER, ("topic", "outcome"),
    f"Messages whose send ended, by its outcome: {_OUTCOMES}.",
)  # fmt: skip
PRODUCER_NOT_ACKED = _producer(
    "not_acked_messages_total", Kind.COUNTER, ("topic", "reason"),
    f"Messages that failed or are unknown, by why: {_FAILURES}.",
)  # fmt: skip
PRODUCER_BYTES = _producer(
    "bytes_total", Kind.COUNTER, ("topic",),
    meaning("batch_bytes"),
)  # fmt: skip
PRODUCER_IN_FLIGHT = _producer("in_flight_messages", Kind.GAUGE, ("topic",), meaning("in_flight"))
PRODUCER_SCHEDULE_LAG = _producer(
    "schedule_lag_seconds", Kind.HISTOGRAM, ("topic",),
    "From a message's intended time to its actual send.",
)  # fmt: skip
PRODUCER_DEBT_SECONDS = _producer(
    "schedule_debt_seconds", Kind.GAUGE, ("topic",),
    meaning("debt_ns"),
)  # fmt: skip
PRODUCER_DEBT_MESSAGES = _producer(
    "schedule_debt_messages", Kind.GAUGE, ("topic",), meaning("debt_messages")
)
PRODUCER_BEHIND = _producer(
    "behind_schedule", Kind.GAUGE, ("topic",),
    "1 while the producer does not keep up with its schedule: its numbers are then its own limit.",
)  # fmt: skip
PRODUCER_TARGET = _producer(
    "target_messages_per_second", Kind.GAUGE, ("topic",),
    "The rate that the schedule asks for; absent where it is unlimited.",
)  # fmt: skip
PRODUCER_ACK_LATENCY = _producer(
    "ack_latency_seconds", Kind.HISTOGRAM, ("topic",),
    "From the actual send to the source broker's acknowledgement.",
)  # fmt: skip
PRODUCER_INCARNATION = _producer(
    "incarnation", Kind.GAUGE, (), "This producer's incarnation within the run."
)

CONSUMER_MESSAGES = _consumer("messages_total", Kind.COUNTER, ("topic",), meaning("arrived"))
CONSUMER_BYTES = _consumer(
    "bytes_total", Kind.COUNTER, ("topic",),
    "Bytes of their values, decompressed; without keys and headers.",
)  # fmt: skip
CONSUMER_LATENCY = _consumer(
    "latency_seconds", Kind.HISTOGRAM, ("topic", "since"),
    "Mirror latency up to the arrival here, since the intended time or since the actual send; "
    "negative ones and further copies are not in it.",
)  # fmt: skip
CONSUMER_NEGATIVE = _consumer(
    "negative_latency_total", Kind.COUNTER, ("topic", "since"),
    "Messages that arrived before they were sent: the two machines' clocks disagree.",
)  # fmt: skip
CONSUMER_LEAST_LATENCY = _consumer(
    "least_latency_seconds", Kind.GAUGE, ("topic", "since"),
    "The smallest latency seen. The clock here is ahead of the producers' by at most this; below "
    "zero, it is behind by at least as much.",
)  # fmt: skip
CONSUMER_BACKLOG = _consumer(
    "backlog_messages_total", Kind.COUNTER, ("topic",),
    meaning("backlog"),
)  # fmt: skip
CONSUMER_FINDINGS = _consumer(
    "findings", Kind.GAUGE, ("topic", "finding"),
    "Messages with a finding now, over the entire run as this consumer sees it: take the max over "
    f"consumers, never the sum. Findings: {_FINDINGS}.",
)  # fmt: skip
CONSUMER_LANE_FINDINGS = _consumer(
    "lane_findings", Kind.GAUGE, ("topic", "lane", "partition", "finding"),
    "Findings by lane, only of lanes that have any: the worst of a topic, at most 100. "
    "The partition is the destination's to which the lane belongs; empty where it is not known.",
)  # fmt: skip
CONSUMER_DELIVERED = _consumer(
    "delivered_messages", Kind.GAUGE, ("topic",),
    "Acknowledged messages seen at least once; of the entire run, as findings are.",
)  # fmt: skip
CONSUMER_ACKED = _consumer(
    "vouched_messages", Kind.GAUGE, ("topic", "outcome"),
    "Messages with a record in the ledger, by the outcome of their send; of the entire run.",
)  # fmt: skip
CONSUMER_LOST_CLAIMED = _consumer(
    "lost_claimed_total", Kind.COUNTER, ("topic",), "Messages that were claimed lost."
)
CONSUMER_LOST_REPAID = _consumer(
    "lost_repaid_total",
    Kind.COUNTER,
    ("topic",),
    "Messages that arrived after they had been claimed lost.",
)
CONSUMER_LAG = _consumer(
    "lag_messages", Kind.GAUGE, ("topic", "partition"),
    meaning("lag"),
)  # fmt: skip
CONSUMER_UNREAD = _consumer(
    "unread_offsets", Kind.GAUGE, ("topic",),
    "Offsets that were deleted before they were read: their messages cannot be judged.",
)  # fmt: skip
CONSUMER_PARTITIONS = _consumer(
    "assigned_partitions", Kind.GAUGE, ("topic",), "Partitions that this consumer reads."
)
CONSUMER_STATE_AGE = _consumer(
    "state_age_seconds", Kind.GAUGE, (), "Time since the checker's state was last written."
)
CONSUMER_FULLNESS = _consumer(
    "checker_fullness_ratio", Kind.GAUGE, ("topic",),
    "The fill level of the fullest partition's checker: at 1 it drops ids.",
)  # fmt: skip
CONSUMER_UNREACHABLE = _consumer(
    "unreachable", Kind.GAUGE, (), "1 while the cluster that is read does not answer."
)
CONSUMER_LEDGER_MALFORMED = _consumer(
    "ledger_malformed_total", Kind.COUNTER, (),
    "Records in the ledger topic that are damaged or not ledger records.",
)  # fmt: skip
CONSUMER_LEDGER_ENDED = _consumer(
    "ledger_ended", Kind.GAUGE, (),
    "1 once the ledger has every expected producer and the end of every lane.",
)  # fmt: skip
CONSUMER_COMPLETE = _consumer(
    "ledger_complete", Kind.GAUGE, (),
    "1 once the ledger has every expected producer and the end of every lane, every acknowledged "
    "message has a verdict, and the partitions are read to their ends.",
)  # fmt: skip

LAB_PART_UP = _row(
    Metric(
        Side.LAB, "lab_part_up", Kind.GAUGE, ("part",),
        "Of `mirrortest lab`: 1 while a broker or the mirror runs, 0 while it is down or frozen.",
    )
)  # fmt: skip


def _observed(table: Observed) -> dict[str, Metric]:
    labels = tuple(each.name for each in table.keys)
    return {
        each.name: Metric(
            Side.OBSERVER, f"observer_{table.name}_{each.name}", Kind.GAUGE, labels, each.meaning
        )
        for each in table.figures
    }


OBSERVED = {table: _observed(table) for table in TABLES if table not in (GC, LOG)}
"""By table and column, the gauges of `mirrortest observe`: figures of the last interval."""
OBSERVED_PAUSES = Metric(
    Side.OBSERVER, "observer_gc_pause_seconds_total", Kind.COUNTER, ("log", "collector", "kind"),
    "Pauses of a JVM by its log of garbage collections.",
)  # fmt: skip
OBSERVED_COLLECTIONS = Metric(
    Side.OBSERVER, "observer_gc_events_total", Kind.COUNTER, ("log", "collector", "kind"),
    "Events of this log, by their kind.",
)  # fmt: skip
OBSERVED_LINES = Metric(
    Side.OBSERVER, "observer_log_entries_total", Kind.COUNTER, ("log", "kind", "type"),
    "Exceptions, errors and warnings of a log of Kafka.",
)  # fmt: skip
OBSERVER_TABLE = (
    *(metric for of_table in OBSERVED.values() for metric in of_table.values()),
    OBSERVED_PAUSES, OBSERVED_COLLECTIONS, OBSERVED_LINES,
)  # fmt: skip
"""The metrics of `mirrortest observe`, whose names follow from its tables."""


def markdown(table: Iterable[Metric] = TABLE) -> str:
    """The table as Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
