"""Why messages were not acknowledged: a few stable names, for metrics and summaries."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Failure(StrEnum):
    """The category of a failure; error texts have more detail, and may change."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NOT_ENOUGH_REPLICAS = "not_enough_replicas"
    TOO_LARGE = "too_large"
    NOT_AUTHORIZED = "not_authorized"
    TOPIC_MISSING = "topic_missing"
    PRODUCER_STATE = "producer_state"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    NO_ACKS = "no_acks"
    OTHER = "other"


MEANINGS: Final = {
    Failure.TIMEOUT: "No acknowledgement came within `delivery.timeout.ms`, or a broker reported "
    "that its replicas did not answer in time.",
    Failure.UNREACHABLE: "No connection, or no leader of the partition.",
    Failure.NOT_ENOUGH_REPLICAS: "Fewer replicas in sync than `min.insync.replicas`.",
    Failure.TOO_LARGE: "A batch was larger than the topic or the broker allows.",
    Failure.NOT_AUTHORIZED: "The principal is not authorized to write there, or "
    "authentication failed.",
    Failure.TOPIC_MISSING: "The topic or the partition does not exist.",
    Failure.PRODUCER_STATE: "The broker has no state for the producer id, or expected "
    "another sequence.",
    Failure.REFUSED: "The broker refused the batch for another reason.",
    Failure.WITHDRAWN: "Not sent, or its response not awaited, because another failure ended "
    "the sender or the run was stopped.",
    Failure.NO_ACKS: "`--acks 0`: brokers send no acknowledgements.",
    Failure.OTHER: "Anything else.",
}


def markdown() -> str:
    """The table of docs/reference/sequence-log.md."""
    rows = (f"| `{failure.value}` | {meaning} |\n" for failure, meaning in MEANINGS.items())
    return "| category | meaning |\n|---|---|\n" + "".join(rows)
