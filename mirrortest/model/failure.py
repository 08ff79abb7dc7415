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
    Failure.NOT_AUTHORIZED: "The principal may not write there, or was not let in.",
    Failure.TOPIC_MISSING: "The topic or the partition does not exist.",
    Failure.PRODUCER_STATE: "The broker no longer knows the producer's id or its sequence.",
    Failure.REFUSED: "The broker refused the batch for another reason.",
    Failure.WITHDRAWN: "Another failure ended the sender, or the run was stopped: it was not sent, "
    "or its answer was not awaited.",
    Failure.NO_ACKS: "Nobody acknowledges: `--acks 0`.",
    Failure.OTHER: "Anything else.",
}


def markdown() -> str:
    """The table of docs/reference/sequence-log.md."""
    rows = (f"| `{failure.value}` | {meaning} |\n" for failure, meaning in MEANINGS.items())
    return "| category | meaning |\n|---|---|\n" + "".join(rows)
