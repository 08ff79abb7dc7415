"""The registry of load figures: their names, types, units and meanings.

They are the columns of `intervals.parquet` and of its CSV copy. Metrics of the same figures take
their meanings from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

INT, FLOAT, TEXT = "int64", "double", "string"
INTS, COUNTS = "list<int32>", "list<int64>"


class Writer(StrEnum):
    """Which application writes a figure. An observer of the source is a consumer."""

    BOTH = "both"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Figure(NamedTuple):
    """A row of the table; a figure that an application does not write is null."""

    name: str
    type: str
    writer: Writer
    unit: str
    meaning: str


FIGURES: tuple[Figure, ...] = (
    Figure("started_ns", INT, Writer.BOTH, "ns since the epoch", "When the interval began."),
    Figure("ended_ns", INT, Writer.BOTH, "ns since the epoch", "When it ended."),
    Figure("topic", TEXT, Writer.BOTH, "", "The source topic's name."),
    Figure(
        "asked", INT, Writer.PRODUCER, "messages",
        "Messages that came due by the schedule; without one, those that were sent.",
    ),
    Figure("sent", INT, Writer.PRODUCER, "messages", "Messages that were handed over to be sent."),
    Figure("acked", INT, Writer.PRODUCER, "messages", "Messages whose send was acknowledged."),
    Figure("failed", INT, Writer.PRODUCER, "messages", "Messages that were certainly not written."),
    Figure("unknown", INT, Writer.PRODUCER, "messages", "Messages without an answer."),
    Figure(
        "arrived", INT, Writer.CONSUMER, "messages", "Messages read and judged, of whatever kind."
    ),
    Figure(
        "backlog", INT, Writer.CONSUMER, "messages",
        "Messages that were already in their partition when this consumer took it, or that may "
        "have arrived while it was stalled. They are judged, but have no latencies without "
        "--include-backlog.",
    ),
    Figure(
        "value_bytes", INT, Writer.BOTH, "bytes",
        "Bytes of the values of messages that were acknowledged, or that arrived.",
    ),
    Figure("batches", INT, Writer.PRODUCER, "batches", "Record batches whose send ended."),
    Figure(
        "batch_messages", INT, Writer.PRODUCER, "messages", "Messages in these batches."
    ),
    Figure(
        "batch_bytes", INT, Writer.PRODUCER, "bytes",
        "Bytes of the record batches of these messages, as sent; with --portable, "
        "before they were compressed.",
    ),
    Figure(
        "in_flight", INT, Writer.PRODUCER, "messages",
        "Messages sent that have no outcome yet.",
    ),
    Figure(
        "debt_messages", INT, Writer.PRODUCER, "messages", "Messages that are due and not sent."
    ),
    Figure(
        "debt_ns", INT, Writer.PRODUCER, "ns",
        "How long the oldest message that is due has waited to be sent.",
    ),
    Figure(
        "lag", INT, Writer.CONSUMER, "messages",
        "Offsets between the next one to be judged and the partition's end (with read_committed, "
        "its last stable offset).",
    ),
    Figure(
        "negative", INT, Writer.BOTH, "messages",
        "Latencies below zero; they are in no bucket.",
    ),
    Figure(
        "latency_bucket", INTS, Writer.BOTH, "bucket",
        "Filled buckets, as in the log's rows: a producer's from the actual send to the "
        "acknowledgement, a consumer's from the intended time to the arrival.",
    ),
    Figure("latency_count", COUNTS, Writer.BOTH, "messages", "Messages in each of these buckets."),
    Figure(
        "cpu_seconds", FLOAT, Writer.BOTH, "s",
        "CPU of the whole process in the interval, the same for each topic.",
    ),
    Figure(
        "memory_bytes", INT, Writer.BOTH, "bytes",
        "Resident memory of the process, the same for each topic.",
    ),
)  # fmt: skip
"""Counts are for the interval; `in_flight`, debts, lag and memory are as of its end."""

_MEANINGS = {figure.name: figure.meaning for figure in FIGURES}


def meaning(name: str) -> str:
    """The meaning of a figure, by its name."""
    return _MEANINGS[name]
